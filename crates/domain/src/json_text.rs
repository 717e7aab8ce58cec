//! JSON as PostgreSQL's `jsonb` prints it, so that launch config ids equal those of Taskcluster.
//!
//! Object keys are ordered by their length in bytes, then bytewise; separators are `, ` and `: `;
//! numbers are plain decimals as JavaScript would have handed them over.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Prints a document. The recursion is as deep as the document, whose depth its parser has limited.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Number(number) => write_number(out, number),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| (key.len(), *key));
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write!(out, "{}: ", Value::from(key.as_str()))
                    .expect("writing to a string cannot fail");
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

fn write_number(out: &mut String, number: &Number) {
    // JavaScript holds doubles only; Rust prints the same shortest digits, without an exponent.
    let double = number.as_f64().unwrap_or(0.0);
    if double == 0.0 {
        out.push('0'); // also for -0, whose sign JavaScript does not print
    } else {
        write!(out, "{double}").expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shorter_keys_come_first_and_equal_lengths_are_ordered_bytewise() {
        let document = json!({"bb": 1, "a": 2, "B": 3, "é": 4, "ccc": 5});
        assert_eq!(
            canonical(&document),
            r#"{"B": 3, "a": 2, "bb": 1, "é": 4, "ccc": 5}"#
        );
    }

    #[test]
    fn numbers_have_no_exponent_and_no_needless_zero() {
        let document: Value =
            serde_json::from_str("[1.0, 1e21, 1e-7, -0.0, 12345678901234567890, 0.5]").unwrap();
        let text = "[1, 1000000000000000000000, 0.0000001, 0, 12345678901234567000, 0.5]";
        assert_eq!(canonical(&document), text);
    }
}
