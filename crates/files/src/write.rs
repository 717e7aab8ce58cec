//! Values as YAML for people: important keys first, small values on one line.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::pointer::below;
use super::scalar;

/// A value that fits into this many columns is written on one line.
const WIDTH: usize = 100;
/// YAML requires longer keys to be marked.
const MAX_SIMPLE_KEY: usize = 900;

/// Writes a document. In every mapping, the keys in `first` come first, in that order, then the
/// others by name.
pub fn to_yaml(value: &Value, first: &[&str]) -> String {
    to_yaml_in_blocks(value, first, &BTreeSet::new())
}

/// The same, with the mappings and lists at these JSON pointers never on one line: their parts have
/// comments.
pub fn to_yaml_in_blocks(value: &Value, first: &[&str], blocks: &BTreeSet<String>) -> String {
    let writer = Writer { first, blocks };
    let mut text = String::new();
    match Block::of(value) {
        Some(block) => writer.block(&mut text, block, 0, ""),
        None => text = format!("{}\n", writer.flow(value)),
    }
    text
}

struct Writer<'a> {
    first: &'a [&'a str],
    blocks: &'a BTreeSet<String>,
}

enum Block<'a> {
    Mapping(&'a Map<String, Value>),
    Sequence(&'a [Value]),
}

impl<'a> Block<'a> {
    /// The value as a block, unless it is a scalar or empty.
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Object(fields) => (!fields.is_empty()).then_some(Self::Mapping(fields)),
            Value::Array(items) => (!items.is_empty()).then_some(Self::Sequence(items)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

impl Writer<'_> {
    /// The lines of a mapping; the first is appended to the current line.
    fn mapping(&self, out: &mut String, fields: &Map<String, Value>, indent: usize, pointer: &str) {
        for (position, (name, value)) in ordered(fields, self.first).into_iter().enumerate() {
            let margin = " ".repeat(indent);
            if position > 0 {
                out.push_str(&margin);
            }
            if name.len() > MAX_SIMPLE_KEY {
                out.push_str(&format!("? {}\n{margin}", scalar::text(name)));
            } else {
                out.push_str(&scalar::text(name));
            }
            out.push(':');
            let pointer = below(pointer, name);
            match self.as_block(value, column(out), &pointer) {
                None => self.on_this_line(out, value, indent),
                Some(block) => {
                    out.push_str(&format!("\n{margin}  "));
                    self.block(out, block, indent + 2, &pointer);
                }
            }
        }
    }

    fn sequence(&self, out: &mut String, items: &[Value], indent: usize, pointer: &str) {
        for (position, item) in items.iter().enumerate() {
            if position > 0 {
                out.push_str(&" ".repeat(indent));
            }
            out.push('-');
            // Rules and the like get lines of their own, however small they are.
            let column = if indent <= 2 && item.is_object() {
                WIDTH
            } else {
                column(out)
            };
            let pointer = format!("{pointer}/{position}");
            match self.as_block(item, column, &pointer) {
                None => self.on_this_line(out, item, indent),
                Some(block) => {
                    out.push(' ');
                    self.block(out, block, indent + 2, &pointer);
                }
            }
        }
    }

    fn block(&self, out: &mut String, block: Block<'_>, indent: usize, pointer: &str) {
        match block {
            Block::Mapping(fields) => self.mapping(out, fields, indent, pointer),
            Block::Sequence(items) => self.sequence(out, items, indent, pointer),
        }
    }

    /// The value as a block, if it does not fit on the line.
    fn as_block<'a>(&self, value: &'a Value, column: usize, pointer: &str) -> Option<Block<'a>> {
        let block = Block::of(value)?;
        let is_small = !self.blocks.contains(pointer) && !has_lines(value) && {
            let flow = self.flow(value);
            column + 1 + flow.chars().count() <= WIDTH
        };
        (!is_small).then_some(block)
    }

    fn on_this_line(&self, out: &mut String, value: &Value, indent: usize) {
        out.push(' ');
        match value
            .as_str()
            .and_then(|text| scalar::literal(text, indent + 2))
        {
            Some(literal) => out.push_str(&literal),
            None => {
                out.push_str(&self.flow(value));
                out.push('\n');
            }
        }
    }

    /// The value on one line.
    fn flow(&self, value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => scalar::number(number),
            Value::String(text) => scalar::text(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
            Value::Object(fields) => {
                let fields = ordered(fields, self.first).into_iter();
                let fields: Vec<_> = fields
                    .map(|(name, value)| format!("{}: {}", scalar::text(name), self.flow(value)))
                    .collect();
                format!("{{ {} }}", fields.join(", "))
            }
        }
    }
}

/// The entries of a mapping: those of the keys in `first` come first, then the others by name.
pub fn ordered<'a>(fields: &'a Map<String, Value>, first: &[&str]) -> Vec<(&'a String, &'a Value)> {
    let mut ordered: Vec<_> = fields.iter().collect();
    let rank = |name: &str| {
        first
            .iter()
            .position(|first| *first == name)
            .unwrap_or(first.len())
    };
    ordered.sort_by_key(|(name, _)| (rank(name), *name));
    ordered
}

fn column(out: &str) -> usize {
    let line = out.rsplit('\n').next().unwrap_or_default();
    line.chars().count()
}

/// Whether it contains a text of several lines, which is best written as a block.
fn has_lines(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\n'),
        Value::Array(items) => items.iter().any(has_lines),
        Value::Object(fields) => fields.values().any(has_lines),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Format, parse};

    #[test]
    fn important_keys_come_first_and_small_things_stand_on_one_line() {
        let document = json!({
            "rules": [{
                "ruleId": "r", "conditions": {"provider": ["a", "b*"]},
                "values": {
                    "script": "#!/bin/sh\necho \"x\"\n",
                    "list": ["a".repeat(60), "b".repeat(60)],
                    "odd": ["yes", "1", "", "a: b", "# c", "C:\\d", "é", "0x1f", "x,y", null, 1.0],
                },
            }],
            "id": "x",
            "none": {},
        });
        insta::assert_snapshot!(to_yaml(&document, &["id", "ruleId"]), @r##"
        id: x
        none: {}
        rules:
          - ruleId: r
            conditions: { provider: [a, b*] }
            values:
              list:
                - aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
                - bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
              odd: ["yes", "1", "", "a: b", "# c", 'C:\d', "é", "0x1f", "x,y", null, 1.0]
              script: |
                #!/bin/sh
                echo "x"
        "##);
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[ -~\\n\\t]{0,40}",
            "[a-z0-9.:_ \\n-]{0,12}",
            "(a|\\n| |\\t|#|:){0,8}",
            "[0-9+.eExXoO_:-]{1,8}",
            Just("k".repeat(1_200)),
            prop::sample::select(vec![
                "null", "~", "yes", "No", "TRUE", "on", "---", "...", "<<", "=", ".inf", ".NaN",
                "-", "?",
            ])
            .prop_map(str::to_owned),
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any_text().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any_text(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn written_values_are_read_back_unchanged(value in any_value()) {
            let text = to_yaml(&value, &["a", "b"]);
            let read = parse("f", &text, Format::Yaml);
            prop_assert!(read.as_ref().is_ok_and(|read| *read == value), "{read:?}\n{text}");
        }
    }
}
