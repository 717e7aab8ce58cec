//! A naive evaluation of references, elements and sets, to compare with.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::naive::holds;

/// A value that still knows which texts are templates.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Plain(Value),
    Template(String),
    List(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

type Pairs = [(String, String)];

/// Evaluates a document; `None` if there is any error.
pub(crate) fn evaluate(rules: &Value, sets: &Value, attributes: &Pairs) -> Option<Value> {
    let mut root = Node::Object(BTreeMap::new());
    let mut is_fine = true;
    for rule in rules.as_array().unwrap() {
        if !holds(&rule["conditions"], sets, attributes) {
            continue;
        }
        let are_templates = rule["references"] == true;
        assign(&mut root, &rule["values"], are_templates);
        let Some(elements) = rule["elements"].as_object() else {
            continue;
        };
        let mut changes: Vec<_> = elements.iter().collect();
        changes.sort_by_key(|(path, value)| Order::of(path, value));
        let removals = changes.iter().filter(|(_, value)| value.is_null());
        // Removals are made from the last one on.
        let mut removals: Vec<_> = removals.copied().rev().collect();
        let mut changes = changes.into_iter().filter(|(_, value)| !value.is_null());
        let (others, new): (Vec<_>, Vec<_>) = changes
            .by_ref()
            .partition(|(path, _)| !path.ends_with("/-"));
        let in_order = others.into_iter().chain(removals.drain(..)).chain(new);
        for (path, value) in in_order {
            let steps: Vec<&str> = path.split('/').skip(1).collect();
            is_fine &= change(Some(&mut root), &steps, value, are_templates, true);
        }
    }
    let resolved = resolve(&root, &root, attributes, &[]);
    resolved.filter(|_| is_fine)
}

/// The order of changes: keys, selected elements, positions, new elements.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    keys: Vec<String>,
    steps: Vec<(u8, Option<String>, String, usize)>,
}

impl Order {
    fn of(path: &str, _value: &Value) -> Self {
        let steps = path.split('/').skip(1).map(|step| {
            let none = || (None, String::new(), 0);
            let (class, (key, text, position)) = match step {
                "-" => (3, none()),
                step if step.starts_with('[') => {
                    let inner = &step[1..step.len() - 1];
                    let (key, text) = inner.split_once('=').unwrap();
                    let key = (!key.is_empty()).then(|| key.to_owned());
                    (1, (key, text.to_owned(), 0))
                }
                step => match step.parse() {
                    Ok(position) => (2, (None, String::new(), position)),
                    Err(_) => (0, (None, step.to_owned(), 0)),
                },
            };
            (class, key, text, position)
        });
        let steps: Vec<_> = steps.collect();
        let n_keys = steps.iter().take_while(|step| step.0 == 0).count();
        let keys = steps[..n_keys].iter().map(|step| step.2.clone());
        Self {
            keys: keys.collect(),
            steps: steps[n_keys..].to_vec(),
        }
    }
}

fn node(value: &Value, are_templates: bool) -> Node {
    match value {
        Value::String(text) if are_templates && text.contains("${") => Node::Template(text.clone()),
        Value::Array(list) => {
            Node::List(list.iter().map(|item| exact(item, are_templates)).collect())
        }
        Value::Object(object) => {
            let kept = object.iter().filter(|(_, value)| !value.is_null());
            let nodes = kept.map(|(key, value)| (key.clone(), node(value, are_templates)));
            Node::Object(nodes.collect())
        }
        other => Node::Plain(other.clone()),
    }
}

/// Inside a list, a `null` is an ordinary value.
fn exact(value: &Value, are_templates: bool) -> Node {
    match value {
        Value::Object(object) => {
            let nodes = object
                .iter()
                .map(|(key, value)| (key.clone(), exact(value, are_templates)));
            Node::Object(nodes.collect())
        }
        other => node(other, are_templates),
    }
}

fn assign(target: &mut Node, value: &Value, are_templates: bool) {
    match (target, value) {
        (Node::Object(target), Value::Object(values)) => {
            for (key, value) in values {
                if value.is_null() {
                    target.remove(key);
                    continue;
                }
                match target.get_mut(key) {
                    Some(old) => assign(old, value, are_templates),
                    None => {
                        target.insert(key.clone(), node(value, are_templates));
                    }
                }
            }
        }
        (target, value) => *target = node(value, are_templates),
    }
}

/// Whether the change is possible. `is_outside`: no element was reached yet.
fn change(
    target: Option<&mut Node>,
    steps: &[&str],
    value: &Value,
    are_templates: bool,
    is_outside: bool,
) -> bool {
    let (step, rest) = steps.split_first().unwrap();
    let is_last = rest.is_empty();
    let Some(target) = target else {
        return value.is_null();
    };
    match (target, *step) {
        (Node::List(list), "-") => {
            let new = node(value, are_templates);
            if !list.contains(&new) {
                list.push(new);
            }
            true
        }
        (Node::List(list), step) => {
            let chosen: Vec<usize> = (0..list.len())
                .filter(|index| is_chosen(&list[*index], *index, step))
                .collect();
            for index in chosen.iter().rev() {
                match (is_last, value.is_null()) {
                    (true, true) => {
                        list.remove(*index);
                    }
                    (true, false) => assign(&mut list[*index], value, are_templates),
                    (false, _) => {
                        if !change(Some(&mut list[*index]), rest, value, are_templates, false) {
                            return false;
                        }
                    }
                }
            }
            value.is_null() || !chosen.is_empty()
        }
        (Node::Object(object), step) if !is_selector(step) => {
            if is_last && value.is_null() {
                object.remove(step);
                return true;
            }
            let is_there = object.contains_key(step);
            if !is_there && !value.is_null() {
                let makes_list = rest == ["-"];
                let makes_objects = !is_outside && !rest.iter().any(|step| is_selector(step));
                if makes_list {
                    object.insert(step.to_owned(), Node::List(Vec::new()));
                } else if makes_objects && !is_last {
                    object.insert(step.to_owned(), Node::Object(BTreeMap::new()));
                }
            }
            if is_last {
                match object.get_mut(step) {
                    Some(old) => assign(old, value, are_templates),
                    None => {
                        object.insert(step.to_owned(), node(value, are_templates));
                    }
                }
                return true;
            }
            change(object.get_mut(step), rest, value, are_templates, is_outside)
        }
        (_, _) => value.is_null(),
    }
}

fn is_selector(step: &str) -> bool {
    step == "-" || step.starts_with('[') || step.parse::<usize>().is_ok()
}

fn is_chosen(item: &Node, index: usize, step: &str) -> bool {
    let Some(inner) = step.strip_prefix('[') else {
        return step.parse() == Ok(index);
    };
    let (key, text) = inner.strip_suffix(']').unwrap().split_once('=').unwrap();
    let value = match (key, item) {
        ("", item) => Some(item),
        (key, Node::Object(object)) => object.get(key),
        (_, _) => None,
    };
    match value {
        Some(Node::Template(value) | Node::Plain(Value::String(value))) => value == text,
        Some(Node::Plain(value @ (Value::Bool(_) | Value::Number(_)))) => {
            // Not `*value == text`, which compares with a text.
            let written = value.to_string();
            written == text
        }
        _ => false,
    }
}

/// `trail` has the pointers that led here.
fn resolve(node: &Node, root: &Node, attributes: &Pairs, trail: &[String]) -> Option<Value> {
    match node {
        Node::Plain(value) => Some(value.clone()),
        Node::List(list) => list
            .iter()
            .map(|item| resolve(item, root, attributes, trail))
            .collect(),
        Node::Object(object) => {
            let pairs = object
                .iter()
                .map(|(key, item)| Some((key.clone(), resolve(item, root, attributes, trail)?)));
            pairs.collect::<Option<_>>().map(Value::Object)
        }
        Node::Template(text) => template(text, root, attributes, trail),
    }
}

fn template(text: &str, root: &Node, attributes: &Pairs, trail: &[String]) -> Option<Value> {
    let mut result = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("$${") {
            result.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let (inner, after) = after.split_once('}').unwrap();
            let value = reference(inner, root, attributes, trail)?;
            if rest.len() == text.len() && after.is_empty() {
                return Some(value);
            }
            match value {
                Value::String(value) => result.push_str(&value),
                value @ (Value::Bool(_) | Value::Number(_)) => {
                    result.push_str(&value.to_string());
                }
                _ => return None,
            }
            rest = after;
        } else {
            let first = rest.chars().next().unwrap();
            result.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Some(Value::String(result))
}

fn reference(inner: &str, root: &Node, attributes: &Pairs, trail: &[String]) -> Option<Value> {
    let Some(pointer) = inner.strip_prefix('/') else {
        let (_, value) = attributes.iter().find(|(name, _)| name == inner)?;
        return Some(Value::String(value.clone()));
    };
    if trail.contains(&inner.to_owned()) {
        return None;
    }
    let found = pointer
        .split('/')
        .try_fold(root, |node, token| match node {
            Node::Object(object) => object.get(&token.replace("~1", "/").replace("~0", "~")),
            Node::List(list) => list.get(token.parse::<usize>().ok()?),
            _ => None,
        })?;
    match found {
        Node::Object(_) | Node::Plain(Value::Null) => None,
        found => {
            let trail: Vec<String> = trail.iter().cloned().chain([inner.to_owned()]).collect();
            resolve(found, root, attributes, &trail)
        }
    }
}
