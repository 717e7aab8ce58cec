//! The lines of a file at which rules and their values stand.

use std::collections::BTreeMap;
use std::path::Path;

use files::{Format, Lines};
use serde_json::Value;

use crate::input::{format_of, read_text};

/// Before the rules that a message names.
const NAMED: [&str; 2] = [" (rule ", " (rules "];

/// A file with the rules of one worker configuration.
pub(crate) struct RuleLines {
    file: String,
    lines: Lines,
    /// The JSON pointer of the list of rules.
    list: String,
    /// The JSON pointers of the rules in the file, by id.
    rules: BTreeMap<String, String>,
}

impl RuleLines {
    /// `pointer` is that of the worker configuration in the file. Nothing is known of a file that
    /// cannot be read again, such as standard input.
    pub(crate) fn read(file: &str, pointer: &str, document: &Value) -> Option<Self> {
        if file == "-" || !Path::new(file).is_file() {
            return None;
        }
        let text = read_text(file).ok()?;
        let format = Format::of(Path::new(file)).unwrap_or_else(|| format_of(&text));
        Some(Self::of(file, &text, format, pointer, document))
    }

    fn of(file: &str, text: &str, format: Format, pointer: &str, document: &Value) -> Self {
        let (listed, below) = match document.as_array() {
            Some(rules) => (Some(rules), ""),
            None => (document["rules"].as_array(), "/rules"),
        };
        let list = format!("{pointer}{below}");
        let rules = listed.into_iter().flatten().enumerate();
        let lines = Lines::of(text, format);
        let rules = rules.filter_map(|(position, rule)| {
            let id = rule["ruleId"].as_str()?.to_owned();
            let at = format!("{list}/{position}");
            // Those of other files with parts of it stand behind.
            lines.get(&at)?;
            Some((id, at))
        });
        let rules: BTreeMap<_, _> = rules.collect();
        Self {
            file: file.to_owned(),
            lines,
            rules,
            list,
        }
    }

    /// `FILE:LINE` of a JSON pointer into the file.
    pub(crate) fn at(&self, pointer: &str) -> Option<String> {
        let line = self.lines.nearest(pointer)?;
        Some(format!("{}:{line}", self.file))
    }

    /// `FILE:LINE` of a JSON pointer into the list of rules.
    pub(crate) fn rule_at(&self, pointer: &str) -> Option<String> {
        self.at(&format!("{}{pointer}", self.list))
    }

    /// `FILE:LINE` of the place in the rule, or of the nearest around it.
    pub(crate) fn place(&self, rule: &str, pointer: &str) -> Option<String> {
        let at = self.rules.get(rule)?;
        self.at(&format!("{at}{pointer}"))
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
            let at = format!("{}{pointer}", self.rules[**id]);
            self.lines.get(&at).is_some()
        };
        let rule = rules.iter().rev().find(sets).or(rules.last())?;
        self.place(rule, &pointer)
    }
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

    fn lines() -> RuleLines {
        let document = files::parse("f", TEXT, Format::Yaml).unwrap();
        let of = &document["workerConfigurations"][0];
        RuleLines::of("f.yaml", TEXT, Format::Yaml, "/workerConfigurations/0", of)
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
    fn rules_of_other_files_have_no_line_here() {
        let mut document = files::parse("f", TEXT, Format::Yaml).unwrap();
        let of = &mut document["workerConfigurations"][0];
        let part = serde_json::json!({"ruleId": "c", "values": {}});
        of["rules"].as_array_mut().unwrap().push(part);
        let lines = RuleLines::of("f.yaml", TEXT, Format::Yaml, "/workerConfigurations/0", of);
        assert!(lines.place("b", "").is_some());
        assert_eq!(lines.place("c", ""), None);
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
