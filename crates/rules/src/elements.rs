//! Changes of single elements of lists: `/disks/[name=boot]/size`, `/disks/0`, `/tags/-`.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::assign::{assign, without_nulls};
use crate::limits::MAX_ELEMENTS;
use crate::problem::{Place, kind};
use crate::references::{marked, written};

/// The changes of a rule, in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub struct Elements {
    /// As written, sorted by path.
    source: Map<String, Value>,
    changes: Vec<ElementChange>,
}

/// The change of one element.
#[derive(Clone, Debug)]
pub(crate) struct ElementChange {
    path: String,
    /// The keys to the list.
    keys: Vec<String>,
    /// From the list on.
    steps: Vec<PathStep>,
    /// With marked texts.
    value: Value,
}

/// A step of a path inside a list. The order is that in which elements are changed: see
/// [`order`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathStep {
    Key(String),
    /// All elements with this text under this key, or which are this text.
    Match {
        key: Option<String>,
        text: String,
    },
    Position(usize),
    Append,
}

impl Elements {
    /// The changes as the rule has them: paths with their values.
    pub fn source(&self) -> &Map<String, Value> {
        &self.source
    }

    /// Whether the rule changes no element.
    pub fn is_empty(&self) -> bool {
        self.source.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn changes(&self) -> &[ElementChange] {
        &self.changes
    }

    pub(crate) fn parse(
        value: Option<&Value>,
        are_templates: bool,
        place: &mut Place<'_>,
    ) -> Option<Self> {
        let source = match value {
            None => return Some(Self::default()),
            Some(Value::Object(source)) => source,
            Some(other) => {
                place.problem(format!(
                    "elements are a mapping from paths to values, found {}",
                    kind(other)
                ));
                return None;
            }
        };
        if source.len() > MAX_ELEMENTS {
            place.problem(format!(
                "a rule changes at most {MAX_ELEMENTS} elements, this one changes {}",
                source.len()
            ));
            return None;
        }
        let parsed: Vec<Option<ElementChange>> = source
            .iter()
            .map(|(path, value)| {
                place.within(path, |place| {
                    match ElementChange::parse(path, value, are_templates) {
                        Ok(change) => Some(change),
                        Err(problem) => {
                            place.problem(problem);
                            None
                        }
                    }
                })
            })
            .collect();
        let mut changes: Vec<ElementChange> = parsed.into_iter().collect::<Option<_>>()?;
        order(&mut changes);
        let mut source = source.clone();
        source.sort_keys();
        source.values_mut().for_each(Value::sort_all_objects);
        Some(Self { source, changes })
    }

    /// Changes the elements. `failed` gets each change that is not possible, with the reason.
    pub(crate) fn apply(
        &self,
        target: &mut Map<String, Value>,
        mut failed: impl FnMut(&ElementChange, String),
    ) {
        for change in &self.changes {
            if let Err(problem) = change.apply(target) {
                failed(change, problem);
            }
        }
    }
}

/// Orders changes, so that none moves an element that another names by its position: first new
/// values, then removals from the last element on, then new elements.
fn order(changes: &mut [ElementChange]) {
    changes.sort_by(|left, right| {
        let group = |change: &ElementChange| match (&change.value, change.steps.last()) {
            (Value::Null, _) => 1,
            (_, Some(PathStep::Append)) => 2,
            _ => 0,
        };
        let by_path = (&left.keys, &left.steps).cmp(&(&right.keys, &right.steps));
        let by_path = match group(left) {
            1 => by_path.reverse(),
            _ => by_path,
        };
        group(left).cmp(&group(right)).then(by_path)
    });
}

impl ElementChange {
    /// The path, as written.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The keys to the list.
    pub(crate) fn keys(&self) -> &[String] {
        &self.keys
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Whether a list is made if there is none.
    pub(crate) fn makes_list(&self) -> bool {
        self.steps == [PathStep::Append]
    }

    fn parse(path: &str, value: &Value, are_templates: bool) -> Result<Self, String> {
        let Some(tokens) = path.strip_prefix('/') else {
            return Err("the path of an element begins with /".to_owned());
        };
        let tokens = tokens.split('/');
        let all: Vec<PathStep> = tokens.map(PathStep::parse).collect::<Result<_, _>>()?;
        let is_key = |step: &PathStep| matches!(step, PathStep::Key(_));
        let n_keys = all.iter().take_while(|step| is_key(step)).count();
        let (keys, steps) = all.split_at(n_keys);
        if steps.is_empty() {
            return Err(
                "the path names no element: write [key=text], a position, or - for a new element; other values belong under `values`"
                    .to_owned(),
            );
        }
        if keys.is_empty() {
            return Err("the result is an object: the path begins with its key".to_owned());
        }
        let appends = |step: &PathStep| *step == PathStep::Append;
        if steps.iter().rev().skip(1).any(appends) {
            return Err("- appends an element, so it is the last step of a path".to_owned());
        }
        if value.is_null() && steps.last().is_some_and(appends) {
            return Err("null removes an element, and - names none".to_owned());
        }
        let keys = keys.iter().filter_map(|step| match step {
            PathStep::Key(key) => Some(key.clone()),
            PathStep::Match { .. } | PathStep::Position(_) | PathStep::Append => None,
        });
        Ok(Self {
            path: path.to_owned(),
            keys: keys.collect(),
            steps: steps.to_vec(),
            value: marked(value, are_templates).unwrap_or_else(|| value.clone()),
        })
    }

    /// Returns whether anything was changed.
    fn apply(&self, target: &mut Map<String, Value>) -> Result<bool, String> {
        let (last, above) = self.keys.split_last().expect("a path begins with a key");
        let mut object = target;
        for key in above {
            match object.get_mut(key) {
                Some(Value::Object(next)) => object = next,
                Some(_) | None => return self.without_list(),
            }
        }
        match object.get_mut(last) {
            Some(list) => self.apply_to(list),
            None if self.makes_list() => {
                object.insert(last.clone(), self.new_list());
                Ok(true)
            }
            None => self.without_list(),
        }
    }

    /// Changes the list, and returns whether anything was changed.
    pub(crate) fn apply_to(&self, list: &mut Value) -> Result<bool, String> {
        change(list, &self.steps, &self.value)
    }

    /// The list that this change makes.
    pub(crate) fn new_list(&self) -> Value {
        Value::Array(vec![clean(&self.value)])
    }

    /// The result if there is no list.
    pub(crate) fn without_list(&self) -> Result<bool, String> {
        if self.value.is_null() {
            return Ok(false);
        }
        let pointer = self.keys.join("/");
        Err(format!("no rule before sets a list at /{pointer}"))
    }
}

impl PathStep {
    fn parse(token: &str) -> Result<Self, String> {
        let text = token.replace("~1", "/").replace("~0", "~");
        if text == "-" {
            return Ok(Self::Append);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner
                .strip_suffix(']')
                .and_then(|inner| inner.split_once('='));
            let Some((key, text)) = inner else {
                return Err(format!(
                    "{text:?} names no element: write [key=text], or [=text] for an element that is a text"
                ));
            };
            return Ok(Self::Match {
                key: (!key.is_empty()).then(|| key.to_owned()),
                text: text.to_owned(),
            });
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Ok(Self::Key(text));
        }
        let plain = text == "0" || !text.starts_with('0');
        match text.parse::<u32>() {
            Ok(position) if plain => Ok(Self::Position(position as usize)),
            Ok(_) | Err(_) => Err(format!(
                "{text:?} is not a position: 0 is the first element"
            )),
        }
    }
}

/// A value that is put where none was: a `null` deletes nothing.
fn clean(value: &Value) -> Value {
    if let Value::Object(object) = value {
        return Value::Object(without_nulls(object));
    }
    value.clone()
}

/// Assigns to an element or a value in it, as rules do.
fn put(target: &mut Value, value: &Value) {
    match (target, value) {
        (Value::Object(target), Value::Object(values)) => assign(target, values),
        (target, value) => *target = clean(value),
    }
}

fn change(target: &mut Value, steps: &[PathStep], value: &Value) -> Result<bool, String> {
    let Some((step, rest)) = steps.split_first() else {
        put(target, value);
        return Ok(true);
    };
    match (step, target) {
        (PathStep::Key(key), Value::Object(object)) => change_key(object, key, rest, value),
        (PathStep::Append, Value::Array(list)) => {
            let new = clean(value);
            let is_new = !list.contains(&new);
            if is_new {
                list.push(new);
            }
            Ok(is_new)
        }
        (PathStep::Position(position), Value::Array(list)) => {
            let chosen: Vec<usize> = (*position..list.len()).take(1).collect();
            change_elements(list, &chosen, rest, value)
                .map_err(|()| format!("the list has {} elements", list.len()))
                .and_then(|changed| changed)
        }
        (PathStep::Match { key, text }, Value::Array(list)) => {
            let matching = list.iter().enumerate();
            let matching = matching.filter(|(_, item)| is_match(item, key.as_deref(), text));
            let chosen: Vec<usize> = matching.map(|(index, _)| index).collect();
            let key = key.as_deref().unwrap_or_default();
            change_elements(list, &chosen, rest, value)
                .map_err(|()| format!("no element of the list is [{key}={text}]"))
                .and_then(|changed| changed)
        }
        (_, _) if value.is_null() => Ok(false),
        (PathStep::Key(key), other) => {
            Err(format!("{key:?} is a key, and there is {}", kind(other)))
        }
        (_, other) => Err(format!("expected a list, found {}", kind(other))),
    }
}

/// `Err(())`: no element was chosen.
fn change_elements(
    list: &mut Vec<Value>,
    chosen: &[usize],
    rest: &[PathStep],
    value: &Value,
) -> Result<Result<bool, String>, ()> {
    if chosen.is_empty() {
        return if value.is_null() {
            Ok(Ok(false))
        } else {
            Err(())
        };
    }
    if rest.is_empty() && value.is_null() {
        for index in chosen.iter().rev() {
            list.remove(*index);
        }
        return Ok(Ok(true));
    }
    let mut has_changed = false;
    for index in chosen {
        match change(&mut list[*index], rest, value) {
            Ok(changed) => has_changed |= changed,
            Err(problem) => return Ok(Err(problem)),
        }
    }
    Ok(Ok(has_changed))
}

fn change_key(
    object: &mut Map<String, Value>,
    key: &str,
    rest: &[PathStep],
    value: &Value,
) -> Result<bool, String> {
    if rest.is_empty() && value.is_null() {
        return Ok(object.remove(key).is_some());
    }
    if let Some(inner) = object.get_mut(key) {
        return change(inner, rest, value);
    }
    let is_key = |step: &PathStep| matches!(step, PathStep::Key(_));
    match rest {
        _ if value.is_null() => Ok(false),
        [] => {
            object.insert(key.to_owned(), clean(value));
            Ok(true)
        }
        [PathStep::Append] => {
            object.insert(key.to_owned(), Value::Array(vec![clean(value)]));
            Ok(true)
        }
        _ if rest.iter().all(is_key) => {
            let mut inner = Value::Object(Map::new());
            let changed = change(&mut inner, rest, value);
            object.insert(key.to_owned(), inner);
            changed
        }
        _ => Err(format!("the element has no list at {key:?}")),
    }
}

fn is_match(item: &Value, key: Option<&str>, text: &str) -> bool {
    let value = match key {
        Some(key) => item.get(key),
        None => Some(item),
    };
    match value {
        Some(Value::String(value)) => written(value).as_str() == text,
        Some(Value::Bool(value)) => value.to_string() == text,
        Some(Value::Number(value)) => value.to_string() == text,
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Serialize for Elements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}
