//! Resolves the references of a result, after all rules are assigned.

use std::cell::Cell;

use serde_json::{Map, Value};

use crate::attributes::Attributes;
use crate::limits::{MAX_PROBLEMS, MAX_REFERENCE_DEPTH, MAX_REFERENCES, MAX_RESOLVED_BYTES};
use crate::problem::{kind, push_token};
use crate::references::{Part, Written, parts, written};

/// A text that could not be resolved, and the reason.
pub(crate) struct Unresolved {
    /// A JSON pointer into the result.
    pub(crate) pointer: String,
    pub(crate) message: String,
}

/// Puts texts in place of marked ones. A text with an error stays as it was written.
pub(crate) fn resolve(
    values: Map<String, Value>,
    attributes: &Attributes,
) -> (Map<String, Value>, Vec<Unresolved>) {
    let mut root = Value::Object(values);
    let mut found = Found::default();
    let resolver = Resolver::new(&root, attributes);
    collect(&resolver, &root, &mut String::new(), &mut found);
    let Found { resolved, errors } = found;
    for (pointer, value) in resolved {
        if let Some(place) = root.pointer_mut(&pointer) {
            *place = value;
        }
    }
    let values = std::mem::take(root.as_object_mut().expect("it was made from an object"));
    (values, errors)
}

/// The value that a reference stands for, if any.
pub(crate) fn referenced(
    values: &Map<String, Value>,
    attributes: &Attributes,
    part: Part<'_>,
) -> Option<Value> {
    // The resolver wants the root as a value.
    let root = Value::Object(values.clone());
    let resolver = Resolver::new(&root, attributes);
    resolver.part(part, &mut Vec::new()).ok()
}

#[derive(Default)]
struct Found {
    resolved: Vec<(String, Value)>,
    errors: Vec<Unresolved>,
}

fn collect(resolver: &Resolver<'_>, value: &Value, pointer: &mut String, found: &mut Found) {
    let length = pointer.len();
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                push_token(pointer, key);
                collect(resolver, value, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                push_token(pointer, &index.to_string());
                collect(resolver, value, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::String(text) => {
            let resolved = match written(text) {
                Written::Literal(literal) if literal.len() == text.len() => return,
                Written::Literal(literal) => Value::String(literal.to_owned()),
                Written::Template(template) => {
                    let mut stack = vec![pointer.clone()];
                    match resolver.template(template, &mut stack) {
                        Ok(value) => value,
                        Err(message) => {
                            if found.errors.len() < MAX_PROBLEMS {
                                found.errors.push(Unresolved {
                                    pointer: pointer.clone(),
                                    message,
                                });
                            }
                            Value::String(template.to_owned())
                        }
                    }
                }
            };
            found.resolved.push((pointer.clone(), resolved));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

struct Resolver<'a> {
    root: &'a Value,
    attributes: &'a Attributes,
    n_references: Cell<usize>,
    n_bytes: Cell<usize>,
}

impl<'a> Resolver<'a> {
    fn new(root: &'a Value, attributes: &'a Attributes) -> Self {
        Self {
            root,
            attributes,
            n_references: Cell::new(0),
            n_bytes: Cell::new(0),
        }
    }

    /// `stack` has the pointers that are being resolved.
    fn template(&self, template: &str, stack: &mut Vec<String>) -> Result<Value, String> {
        let parts = parts(template)?;
        if let [part @ (Part::Condition(_) | Part::Pointer(_))] = parts.as_slice() {
            return self.part(*part, stack);
        }
        let mut text = String::new();
        for part in parts {
            if let Part::Text(part) = part {
                text.push_str(part);
                continue;
            }
            match self.part(part, stack)? {
                Value::String(part) => text.push_str(&part),
                part @ (Value::Bool(_) | Value::Number(_)) => text.push_str(&part.to_string()),
                part @ (Value::Null | Value::Array(_) | Value::Object(_)) => {
                    let (reference, kind) = (source(template), kind(&part));
                    return Err(format!(
                        "{reference} has a reference to {kind}, which is no text"
                    ));
                }
            }
        }
        self.count(0, text.len())?;
        Ok(Value::String(text))
    }

    fn part(&self, part: Part<'_>, stack: &mut Vec<String>) -> Result<Value, String> {
        match part {
            Part::Text(text) => Ok(Value::String(text.to_owned())),
            Part::Condition(name) => match self.attributes.get(name) {
                Some(value) => {
                    self.count(1, value.len())?;
                    Ok(Value::String(value.to_owned()))
                }
                None => Err(format!(
                    "${{{name}}} has no value: this evaluation has no condition {name:?} (write `$${{` for a literal `${{`)"
                )),
            },
            Part::Pointer(pointer) => self.pointer(pointer, stack),
        }
    }

    fn pointer(&self, pointer: &str, stack: &mut Vec<String>) -> Result<Value, String> {
        if stack.iter().any(|known| known == pointer) {
            stack.push(pointer.to_owned());
            return Err(format!(
                "the value refers to itself: {}",
                stack.join(" to ")
            ));
        }
        if stack.len() > MAX_REFERENCE_DEPTH {
            return Err(format!(
                "at most {MAX_REFERENCE_DEPTH} values can refer to each other in a chain"
            ));
        }
        let value = match self.root.pointer(pointer) {
            Some(Value::Object(_)) => {
                return Err(format!(
                    "${{{pointer}}} is an object: refer to a value inside it"
                ));
            }
            Some(Value::Null) => return Err(format!("${{{pointer}}} is null")),
            Some(value) => value,
            None => {
                return Err(format!(
                    "${{{pointer}}} has no value: no rule that applies sets it"
                ));
            }
        };
        stack.push(pointer.to_owned());
        let resolved = self.deep(value, stack);
        stack.pop();
        resolved
    }

    /// A value with all texts inside resolved.
    fn deep(&self, value: &Value, stack: &mut Vec<String>) -> Result<Value, String> {
        self.count(1, 0)?;
        match value {
            Value::String(text) => match written(text) {
                Written::Literal(text) => {
                    self.count(0, text.len())?;
                    Ok(Value::String(text.to_owned()))
                }
                Written::Template(template) => self.template(template, stack),
            },
            Value::Array(list) => {
                let items = list.iter().map(|item| self.deep(item, stack));
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            Value::Object(object) => {
                let pairs = object.iter();
                let pairs = pairs.map(|(key, value)| Ok((key.clone(), self.deep(value, stack)?)));
                let pairs: Result<Map<String, Value>, String> = pairs.collect();
                pairs.map(Value::Object)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
        }
    }

    fn count(&self, n_references: usize, n_bytes: usize) -> Result<(), String> {
        self.n_references.update(|n| n + n_references);
        self.n_bytes.update(|n| n + n_bytes);
        if self.n_references.get() > MAX_REFERENCES {
            return Err(format!(
                "an evaluation resolves at most {MAX_REFERENCES} references"
            ));
        }
        if self.n_bytes.get() > MAX_RESOLVED_BYTES {
            return Err(format!(
                "the references of an evaluation give at most {MAX_RESOLVED_BYTES} bytes"
            ));
        }
        Ok(())
    }
}

/// The beginning of a template, for errors.
fn source(template: &str) -> String {
    let start: String = template.chars().take(60).collect();
    format!("{start:?}")
}
