//! The lines of a file at which rules and their values stand.

use std::collections::BTreeMap;
use std::path::Path;

use files::{Format, Lines};
use serde_json::Value;

use crate::input::{format_of, read_text};

/// Before the rules that a message names.
const NAMED: [&str; 2] = [" (rule ", " (rules "];

const RULES: &str = "/rules";
const WORKER_TYPES: &str = "/workerTypes";
/// Mappings that parts have, too.
const MAPPINGS: [&str; 2] = ["/sets", "/launchConfigIds"];

/// The files with the rules of one worker configuration.
pub(crate) struct RuleLines {
    /// The file that defines it, then those with its parts in their order.
    files: Vec<FileLines>,
    /// The JSON pointer of the list of rules.
    list: &'static str,
    /// The rules by id: the number of the file and the JSON pointer in it.
    rules: BTreeMap<String, (usize, String)>,
}

struct FileLines {
    file: String,
    lines: Lines,
    /// The JSON pointer of the configuration, or its part, in the file.
    pointer: String,
    n_rules: usize,
    n_worker_types: usize,
}

/// A place in one of the files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// `FILE:LINE`.
    pub(crate) place: String,
    /// The JSON pointer into the configuration or the part that the file has.
    pub(crate) pointer: String,
}

impl FileLines {
    /// Nothing is known of a file that cannot be read again, such as standard input.
    fn read(file: &str, pointer: &str, list: &str) -> Option<Self> {
        if file == "-" || !Path::new(file).is_file() {
            return None;
        }
        let text = read_text(file).ok()?;
        let format = Format::of(Path::new(file)).unwrap_or_else(|| format_of(&text));
        Some(Self::of(file, &text, format, pointer, list))
    }

    fn of(file: &str, text: &str, format: Format, pointer: &str, list: &str) -> Self {
        let lines = Lines::of(text, format);
        let count = |list: &str| {
            let exists = |number: &usize| lines.get(&format!("{pointer}{list}/{number}")).is_some();
            (0..).take_while(exists).count()
        };
        Self {
            file: file.to_owned(),
            n_rules: count(list),
            n_worker_types: count(WORKER_TYPES),
            pointer: pointer.to_owned(),
            lines,
        }
    }

    /// The line of the value, or of the nearest around it.
    fn at(&self, pointer: &str) -> Option<String> {
        let line = self.lines.nearest(&format!("{}{pointer}", self.pointer))?;
        Some(format!("{}:{line}", self.file))
    }

    fn has(&self, pointer: &str) -> bool {
        let pointer = format!("{}{pointer}", self.pointer);
        self.lines.get(&pointer).is_some()
    }
}

impl RuleLines {
    /// `pointer` is that of the worker configuration in the file.
    pub(crate) fn read(file: &str, pointer: &str, document: &Value) -> Option<Self> {
        Self::read_with_parts(file, pointer, &[], document)
    }

    /// `parts` are the files with parts of the configuration, in the order in which they are read.
    pub(crate) fn read_with_parts(
        file: &str,
        pointer: &str,
        parts: &[String],
        document: &Value,
    ) -> Option<Self> {
        let list = list_of(document);
        let own = std::iter::once(FileLines::read(file, pointer, list));
        let parts = parts.iter().map(|part| FileLines::read(part, "", list));
        let files = own.chain(parts).collect::<Option<Vec<_>>>()?;
        Some(Self::of(files, document))
    }

    fn of(files: Vec<FileLines>, document: &Value) -> Self {
        let mut lines = Self {
            files,
            list: list_of(document),
            rules: BTreeMap::new(),
        };
        let listed = match lines.list {
            "" => document.as_array(),
            _ => document["rules"].as_array(),
        };
        for (position, rule) in listed.into_iter().flatten().enumerate() {
            let id = rule["ruleId"].as_str();
            // Those of unknown files with parts come last.
            if let Some((id, place)) = id.zip(lines.nth(lines.list, position)) {
                lines.rules.insert(id.to_owned(), place);
            }
        }
        lines
    }

    /// The file with this item of a list, and the JSON pointer in it.
    fn nth(&self, list: &str, position: usize) -> Option<(usize, String)> {
        let mut position = position;
        for (number, file) in self.files.iter().enumerate() {
            let n_items = match list {
                WORKER_TYPES => file.n_worker_types,
                _ => file.n_rules,
            };
            if position < n_items {
                return Some((number, format!("{list}/{position}")));
            }
            position -= n_items;
        }
        None
    }

    /// The place of a JSON pointer into the configuration with all its parts.
    pub(crate) fn locate(&self, pointer: &str) -> Option<Location> {
        let (file, pointer) = self.file_of(pointer)?;
        let place = file.at(&pointer)?;
        Some(Location { place, pointer })
    }

    fn file_of(&self, pointer: &str) -> Option<(&FileLines, String)> {
        for list in [WORKER_TYPES, self.list] {
            if let Some((position, rest)) = item_of(pointer, list) {
                let (number, at) = self.nth(list, position)?;
                return Some((&self.files[number], format!("{at}{rest}")));
            }
        }
        for mapping in MAPPINGS {
            let key = pointer.strip_prefix(mapping);
            if let Some(key) = key.and_then(|key| key.strip_prefix('/')) {
                let key = key.split('/').next().unwrap_or_default();
                let at = format!("{mapping}/{key}");
                let file = self.files.iter().find(|file| file.has(&at))?;
                return Some((file, pointer.to_owned()));
            }
        }
        Some((self.files.first()?, pointer.to_owned()))
    }

    /// `FILE:LINE` of the place in the rule, or of the nearest around it.
    pub(crate) fn place(&self, rule: &str, pointer: &str) -> Option<String> {
        let (number, at) = self.rules.get(rule)?;
        self.files[*number].at(&format!("{at}{pointer}"))
    }

    /// `FILE:LINE` of the value at this pointer in the results, as this rule sets it.
    pub(crate) fn value(&self, rule: &str, pointer: &str) -> Option<String> {
        self.place(rule, &format!("/values{pointer}"))
    }

    /// A message of the server with the line of the last rule that each of its lines names.
    pub(crate) fn annotate(&self, message: &str) -> String {
        let lines = message.lines().map(|line| {
            let place = self.named_place(line);
            match (place, line.strip_suffix(')')) {
                (Some(place), Some(line)) => format!("{line}; {place})"),
                (_, _) => line.to_owned(),
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn named_place(&self, line: &str) -> Option<String> {
        let start = NAMED.into_iter().filter_map(|words| line.rfind(words));
        let (before, named) = line.split_at(start.max()?);
        let rules = quoted(named);
        let rules: Vec<&String> = rules
            .iter()
            .filter(|id| self.rules.contains_key(*id))
            .collect();
        // The pointer of the value, if the message has one.
        let pointer = before.split(' ').find(|word| word.starts_with('/'));
        let pointer = format!(
            "/values{}",
            pointer.unwrap_or_default().trim_end_matches(':')
        );
        let sets = |id: &&&String| {
            let (number, at) = &self.rules[**id];
            self.files[*number].has(&format!("{at}{pointer}"))
        };
        let rule = rules.iter().rev().find(sets).or(rules.last())?;
        self.place(rule, &pointer)
    }
}

/// The JSON pointer of the list of rules: a document may be only a list.
fn list_of(document: &Value) -> &'static str {
    match document.is_array() {
        true => "",
        false => RULES,
    }
}

/// The position of an item of this list, and the JSON pointer in the item.
fn item_of<'a>(pointer: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let below = pointer.strip_prefix(list)?.strip_prefix('/')?;
    let end = below.find('/').unwrap_or(below.len());
    let (position, rest) = below.split_at(end);
    Some((position.parse().ok()?, rest))
}

/// The texts in double quotes.
fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let mut values = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<String>();
        match values.next() {
            Some(Ok(text)) => {
                found.push(text);
                rest = &rest[start + values.byte_offset()..];
            }
            Some(Err(_)) | None => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "workerConfigurations:\n  - rules:\n      - ruleId: a\n        values:\n          \
                        x: { y: 1 }\n      - ruleId: b\n        conditions: { z: 1 }\n        values:\n          w: 1\n";

    fn files() -> Vec<FileLines> {
        let at = "/workerConfigurations/0";
        vec![FileLines::of("f.yaml", TEXT, Format::Yaml, at, RULES)]
    }

    fn lines() -> RuleLines {
        let document = files::parse("f", TEXT, Format::Yaml).unwrap();
        let of = &document["workerConfigurations"][0];
        RuleLines::of(files(), of)
    }

    #[test]
    fn rules_and_values_have_lines() {
        let place = |rule: &str, pointer: &str| lines().place(rule, pointer).unwrap_or_default();
        assert_eq!(place("a", ""), "f.yaml:3");
        assert_eq!(place("b", "/conditions/z"), "f.yaml:7");
        assert_eq!(lines().value("a", "/x/y").unwrap(), "f.yaml:5");
        // The nearest value around a missing one.
        assert_eq!(lines().value("b", "/x/y").unwrap(), "f.yaml:8");
        assert_eq!(place("c", ""), "");
    }

    #[test]
    fn rules_of_parts_have_lines_in_their_files_if_these_are_known() {
        let mut document = files::parse("f", TEXT, Format::Yaml).unwrap();
        let of = &mut document["workerConfigurations"][0];
        let part = serde_json::json!({"ruleId": "c", "values": {}});
        of["rules"].as_array_mut().unwrap().push(part);
        let lines = RuleLines::of(files(), of);
        assert!(lines.place("b", "").is_some());
        assert_eq!(lines.place("c", ""), None);
        assert_eq!(lines.locate("/rules/2/values"), None);
        assert_eq!(lines.locate("/sets/s"), None);

        let part =
            "partOf: x\nworkerTypes: [a]\nsets: { s: [] }\nrules:\n  - { ruleId: c, values: {} }\n";
        let mut files = files();
        files.push(FileLines::of("p.yaml", part, Format::Yaml, "", RULES));
        let lines = RuleLines::of(files, of);
        assert_eq!(lines.place("c", "").unwrap(), "p.yaml:5");
        for (pointer, place, local) in [
            ("/rules/1/values/w", "f.yaml:9", "/rules/1/values/w"),
            ("/rules/2/values", "p.yaml:5", "/rules/0/values"),
            ("/workerTypes/0", "p.yaml:2", "/workerTypes/0"),
            ("/sets/s/0", "p.yaml:3", "/sets/s/0"),
            ("/rules", "f.yaml:2", "/rules"),
        ] {
            let located = lines.locate(pointer).unwrap();
            assert_eq!(
                (located.place.as_str(), located.pointer.as_str()),
                (place, local)
            );
        }
        assert_eq!(lines.locate("/rules/3"), None);
    }

    #[test]
    fn messages_get_the_line_of_the_last_rule_that_sets_the_value() {
        let message = "refused:\n* with z=1: /x/y: must be 2 (rules \"a\", \"b\")\n* /v is missing (rule \"b\")\n* \
                       text (rule \"c\")";
        insta::assert_snapshot!(lines().annotate(message), @r#"
        refused:
        * with z=1: /x/y: must be 2 (rules "a", "b"; f.yaml:5)
        * /v is missing (rule "b"; f.yaml:8)
        * text (rule "c")
        "#);
    }
}
