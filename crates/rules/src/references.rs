//! References in texts: `zones/${zone}/disks`, `${/google/region}`, and `$${` for a literal `${`.
//!
//! Only the texts of rules with `references: true` are templates. After all rules are assigned, a
//! text no longer has a rule. So templates are marked while they are assigned: with a first
//! character that other texts do not have, because such texts are marked, too.

use serde_json::{Map, Value};

use crate::limits::MAX_NAME_CHARS;

/// The first character of each marked text.
const MARK: char = '\0';
/// The second character of a template.
const TEMPLATE: char = '$';
/// The second character of a text that only begins like a marked one.
const LITERAL: char = '=';

/// A part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    /// The value of a condition in this evaluation.
    Condition(&'a str),
    /// The value at a JSON pointer in the result.
    Pointer(&'a str),
}

/// A text while rules are assigned.
pub(crate) enum Written<'a> {
    Literal(&'a str),
    Template(&'a str),
}

/// The text that this one stands for.
pub(crate) fn written(text: &str) -> Written<'_> {
    let Some(marked) = text.strip_prefix(MARK) else {
        return Written::Literal(text);
    };
    match marked.strip_prefix(TEMPLATE) {
        Some(template) => Written::Template(template),
        None => Written::Literal(marked.strip_prefix(LITERAL).unwrap_or(marked)),
    }
}

impl<'a> Written<'a> {
    /// The text of the rule.
    pub(crate) fn as_str(&self) -> &'a str {
        match self {
            Self::Literal(text) | Self::Template(text) => text,
        }
    }
}

/// The value with its texts marked, if any needs a mark.
pub(crate) fn marked(value: &Value, are_templates: bool) -> Option<Value> {
    match value {
        Value::String(text) if are_templates && text.contains("${") => {
            Some(Value::String(format!("{MARK}{TEMPLATE}{text}")))
        }
        Value::String(text) if text.starts_with(MARK) => {
            Some(Value::String(format!("{MARK}{LITERAL}{text}")))
        }
        Value::Array(list) => {
            let mut marked_list: Option<Vec<Value>> = None;
            for (index, item) in list.iter().enumerate() {
                if let Some(item) = marked(item, are_templates) {
                    marked_list.get_or_insert_with(|| list.clone())[index] = item;
                }
            }
            marked_list.map(Value::Array)
        }
        Value::Object(object) => marked_object(object, are_templates).map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

pub(crate) fn marked_object(
    object: &Map<String, Value>,
    are_templates: bool,
) -> Option<Map<String, Value>> {
    let mut marked_object: Option<Map<String, Value>> = None;
    for (key, value) in object {
        if let Some(value) = marked(value, are_templates) {
            let marked = marked_object.get_or_insert_with(|| object.clone());
            marked.insert(key.clone(), value);
        }
    }
    marked_object
}

/// The parts of a template, or the error for people.
pub(crate) fn parts(template: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    // Texts before `from` are in the parts, and texts before `at` are read.
    let (mut from, mut at) = (0, 0);
    while let Some(distance) = template[at..].find('$') {
        let start = at + distance;
        let rest = &template[start..];
        if rest.starts_with("$${") {
            parts.push(Part::Text(&template[from..start]));
            from = start + 1;
            at = start + 3;
        } else if let Some(inner) = rest.strip_prefix("${") {
            let Some(end) = inner.find('}') else {
                let place = template[..start].chars().count() + 1;
                return Err(format!(
                    "`${{` at character {place} has no `}}`: write `$${{` for a literal `${{`"
                ));
            };
            parts.push(Part::Text(&template[from..start]));
            parts.push(reference(&inner[..end])?);
            from = start + "${".len() + end + "}".len();
            at = from;
        } else {
            at = start + 1;
        }
    }
    parts.push(Part::Text(&template[from..]));
    parts.retain(|part| *part != Part::Text(""));
    Ok(parts)
}

/// Calls `visit` with the template of each marked text.
pub(crate) fn visit_templates<'a>(value: &'a Value, visit: &mut impl FnMut(&'a str)) {
    match value {
        Value::String(text) => {
            if let Written::Template(template) = written(text) {
                visit(template);
            }
        }
        Value::Array(list) => list.iter().for_each(|item| visit_templates(item, visit)),
        Value::Object(object) => object
            .values()
            .for_each(|item| visit_templates(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn reference(inner: &str) -> Result<Part<'_>, String> {
    if inner.starts_with('/') {
        return Ok(Part::Pointer(inner));
    }
    match inner.chars().count() {
        1..=MAX_NAME_CHARS => Ok(Part::Condition(inner)),
        length => Err(format!(
            "a reference is the name of a condition of 1 to {MAX_NAME_CHARS} characters, or a JSON pointer that \
             begins with `/`; this one has {length} characters: write `$${{` for a literal `${{`"
        )),
    }
}
