//! Reads the members of an object, and collects errors with their places.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::configuration::{Problem, Problems, below};

/// Bytes of a name, as POSIX limits names of files.
const MAX_NAME_BYTES: usize = 255;

/// Each member is read once, by its name; `finish` refuses the others.
pub(super) struct ObjectReader<'a> {
    members: &'a Map<String, Value>,
    pointer: String,
    known: Vec<&'static str>,
    problems: &'a mut Problems,
}

impl<'a> ObjectReader<'a> {
    pub(super) fn new(
        members: &'a Map<String, Value>,
        pointer: String,
        problems: &'a mut Problems,
    ) -> Self {
        let known = Vec::new();
        Self {
            members,
            pointer,
            known,
            problems,
        }
    }

    /// Notes an error of a member.
    pub(super) fn wrong(&mut self, key: &str, message: impl Into<String>) {
        self.problems
            .add(Problem::at(&below(&self.pointer, key), message));
    }

    /// Notes an error of an item of a list, or of a member of an object.
    fn wrong_in(&mut self, key: &str, inner: &str, message: impl Into<String>) {
        let place = below(&below(&self.pointer, key), inner);
        self.problems.add(Problem::at(&place, message));
    }

    /// The member, unless it is absent or null.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// Refuses members that were not read.
    pub(super) fn finish(self) {
        let known: Vec<String> = self.known.iter().map(|key| format!("`{key}`")).collect();
        for key in self.members.keys() {
            if !self.known.contains(&key.as_str()) {
                let text = format!("`{key}` is not known here; known are {}", known.join(", "));
                self.problems
                    .add(Problem::at(&below(&self.pointer, key), text));
            }
        }
    }

    /// A mandatory text that is parsed.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let found = self.get(key);
        if found.is_none() {
            self.wrong(key, "is missing");
        }
        self.parse_text(key, found?)
    }

    /// An optional text that is parsed.
    pub(super) fn maybe_parsed<T: FromStr<Err: Display>>(
        &mut self,
        key: &'static str,
    ) -> Option<T> {
        let found = self.get(key)?;
        self.parse_text(key, found)
    }

    fn parse_text<T: FromStr<Err: Display>>(&mut self, key: &str, value: &Value) -> Option<T> {
        let Some(text) = value.as_str() else {
            self.wrong(key, format!("must be a text, not {value}"));
            return None;
        };
        let parsed = text.parse().map_err(|error: T::Err| error.to_string());
        parsed.map_err(|error| self.wrong(key, error)).ok()
    }

    /// A text of limited length; empty if it is absent.
    pub(super) fn text(&mut self, key: &'static str, longest: usize) -> String {
        match self.get(key) {
            None => String::new(),
            Some(Value::String(text)) if is_text(text, longest) => text.clone(),
            Some(_) => {
                let text = format!("must be a text of at most {longest} characters, without NUL");
                self.wrong(key, text);
                String::new()
            }
        }
    }

    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        let Some(found) = self.get(key) else {
            return default;
        };
        let number = found.as_u64().and_then(|number| u32::try_from(number).ok());
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return number;
        }
        let (least, most) = range.into_inner();
        self.wrong(
            key,
            format!("must be a number from {least} to {most}, not {found}"),
        );
        default
    }

    /// A number from 0 to 1.
    pub(super) fn share(&mut self, key: &'static str, default: f64) -> f64 {
        let Some(found) = self.get(key) else {
            return default;
        };
        if let Some(share) = found.as_f64().filter(|share| (0.0..=1.0).contains(share)) {
            return share;
        }
        self.wrong(key, format!("must be a number from 0 to 1, not {found}"));
        default
    }

    pub(super) fn flag(&mut self, key: &'static str) -> bool {
        match self.get(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(key, format!("must be true or false, not {other}"));
                false
            }
        }
    }

    pub(super) fn object(&mut self, key: &'static str) -> Option<&'a Map<String, Value>> {
        let found = self.get(key)?;
        if found.as_object().is_none() {
            self.wrong(key, format!("must be an object, not {found}"));
        }
        found.as_object()
    }

    /// A list of limited length; empty if it is absent.
    pub(super) fn list(&mut self, key: &'static str, most: usize) -> &'a [Value] {
        match self.get(key) {
            None => &[],
            Some(Value::Array(items)) if items.len() <= most => items,
            Some(Value::Array(items)) => {
                let text = format!("lists {} items; at most {most} are possible", items.len());
                self.wrong(key, text);
                &[]
            }
            Some(other) => {
                self.wrong(key, format!("must be a list, not {other}"));
                &[]
            }
        }
    }

    /// A list of texts, with at least one item if it is present.
    pub(super) fn words(&mut self, key: &'static str, most: usize, longest: usize) -> Vec<String> {
        let mut words = Vec::new();
        for (index, item) in self.list(key, most).iter().enumerate() {
            match item.as_str().filter(|text| is_text(text, longest)) {
                Some(text) if !text.is_empty() => words.push(text.to_owned()),
                _ => {
                    let text = format!("must be a text of 1 to {longest} characters, without NUL");
                    self.wrong_in(key, &index.to_string(), text);
                }
            }
        }
        words
    }

    /// A list of different texts that are parsed.
    pub(super) fn parsed_list<T: FromStr<Err: Display> + PartialEq>(
        &mut self,
        key: &'static str,
        most: usize,
    ) -> Vec<T> {
        let mut parsed: Vec<T> = Vec::new();
        for (index, item) in self.list(key, most).iter().enumerate() {
            self.parse_item(key, index, item, &mut parsed);
        }
        parsed
    }

    /// Adds an item of a list to those before it.
    fn parse_item<T: FromStr<Err: Display> + PartialEq>(
        &mut self,
        key: &str,
        index: usize,
        item: &Value,
        parsed: &mut Vec<T>,
    ) {
        let text = item.as_str().map(str::parse::<T>);
        let error = match text {
            None => format!("must be a text, not {item}"),
            Some(Err(error)) => error.to_string(),
            Some(Ok(value)) if parsed.contains(&value) => format!("{item} is listed twice"),
            Some(Ok(value)) => return parsed.push(value),
        };
        self.wrong_in(key, &index.to_string(), error);
    }

    /// A mandatory name.
    pub(super) fn name(&mut self, key: &'static str) -> Option<String> {
        self.parsed::<SimpleName>(key).map(|name| name.0)
    }

    /// A list of different names and of objects, each of these with a reader of its own.
    pub(super) fn names_and_objects<T>(
        &mut self,
        key: &'static str,
        most: usize,
        mut read: impl FnMut(&mut ObjectReader<'_>) -> Option<T>,
    ) -> (Vec<String>, Vec<T>) {
        let (mut names, mut objects) = (Vec::<SimpleName>::new(), Vec::new());
        for (index, item) in self.list(key, most).iter().enumerate() {
            let Some(members) = item.as_object() else {
                self.parse_item(key, index, item, &mut names);
                continue;
            };
            let place = below(&below(&self.pointer, key), &index.to_string());
            let mut reader = ObjectReader::new(members, place, self.problems);
            objects.extend(read(&mut reader));
            reader.finish();
        }
        (names.into_iter().map(|name| name.0).collect(), objects)
    }

    /// A list of different names.
    pub(super) fn names(&mut self, key: &'static str, most: usize) -> Vec<String> {
        let names: Vec<SimpleName> = self.parsed_list(key, most);
        names.into_iter().map(|name| name.0).collect()
    }

    /// Variables of an environment.
    pub(super) fn variables(
        &mut self,
        key: &'static str,
        most: usize,
        longest: usize,
    ) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let Some(members) = self.object(key) else {
            return variables;
        };
        if members.len() > most {
            let text = format!(
                "has {} variables; at most {most} are possible",
                members.len()
            );
            self.wrong(key, text);
            return variables;
        }
        for (name, value) in members {
            let text = value.as_str().filter(|text| is_text(text, longest));
            if !is_variable(name) {
                self.wrong_in(key, name, "must be named with letters, digits and `_`");
            } else if let Some(text) = text {
                variables.insert(name.clone(), text.to_owned());
            } else {
                let text = format!("must be a text of at most {longest} characters, without NUL");
                self.wrong_in(key, name, text);
            }
        }
        variables
    }

    /// Reads the objects of a list, each with a reader of its own.
    pub(super) fn objects<T>(
        &mut self,
        key: &'static str,
        most: usize,
        mut read: impl FnMut(&mut ObjectReader<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (index, item) in self.list(key, most).iter().enumerate() {
            let place = below(&below(&self.pointer, key), &index.to_string());
            let Some(members) = item.as_object() else {
                let text = format!("must be an object, not {item}");
                self.problems.add(Problem::at(&place, text));
                continue;
            };
            let mut reader = ObjectReader::new(members, place, self.problems);
            all.extend(read(&mut reader));
            reader.finish();
        }
        all
    }

    /// Reads an object with a reader of its own; `None` if it is absent.
    pub(super) fn inner<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut ObjectReader<'_>) -> Option<T>,
    ) -> Option<T> {
        let members = self.object(key)?;
        let pointer = below(&self.pointer, key);
        let mut reader = ObjectReader::new(members, pointer, self.problems);
        let value = read(&mut reader);
        reader.finish();
        value
    }

    /// The members that are named twice in what was read so far.
    pub(super) fn refuse_twice(&mut self, key: &str, ids: &[String]) {
        let mut seen = BTreeSet::new();
        for (index, id) in ids.iter().enumerate() {
            if !seen.insert(id) {
                self.wrong_in(key, &index.to_string(), format!("{id} is listed twice"));
            }
        }
    }
}

fn is_text(text: &str, longest: usize) -> bool {
    text.chars().count() <= longest && !text.contains('\0')
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    let starts = bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    starts
        && name.len() <= MAX_NAME_BYTES
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name of a label or of a secret.
#[derive(PartialEq)]
struct SimpleName(String);

impl FromStr for SimpleName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
        if text.is_empty() || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_known) {
            return Err(format!(
                "must be a name of 1 to {MAX_NAME_BYTES} letters, digits and `-_./:`, not {text:?}"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}
