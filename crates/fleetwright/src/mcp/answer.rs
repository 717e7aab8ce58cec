//! Answers of tools: text of limited length.

use serde_json::{Value, json};

use crate::failure::Failure;

/// Maximum length of an answer: an assistant reads all of it.
const MAX_BYTES: usize = 100_000;
/// Maximum number of items of a list in an answer.
pub(super) const MAX_ITEMS: usize = 50;

pub(super) fn of_text(text: Result<String, Failure>) -> Value {
    match text {
        Ok(text) => content(&text, false),
        Err(failure) => content(&with_hint(&failure), true),
    }
}

/// The value as JSON. Long lists are cut, with a note in their place.
pub(super) fn of_value(value: Result<Value, Failure>) -> Value {
    of_text(value.map(|mut value| {
        cut_lists(&mut value);
        value.to_string()
    }))
}

fn with_hint(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message.clone(),
    }
}

fn content(text: &str, is_error: bool) -> Value {
    let end = text.floor_char_boundary(MAX_BYTES);
    let text = match text.len() - end {
        0 => text.to_owned(),
        more => format!("{}\n… {more} more bytes: ask for less", &text[..end]),
    };
    json!({"content": [{"type": "text", "text": text}], "isError": is_error})
}

fn cut_lists(value: &mut Value) {
    match value {
        Value::Array(items) => {
            // How many there are is not known: a list is read up to the first one more.
            let has_more = items.len() > MAX_ITEMS;
            items.truncate(MAX_ITEMS);
            items.iter_mut().for_each(cut_lists);
            if has_more {
                items.push(json!(format!(
                    "… and more: these are the first {MAX_ITEMS}"
                )));
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(cut_lists),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn long_texts_and_lists_are_cut() {
        for size in [0, MAX_BYTES - 1, MAX_BYTES, MAX_BYTES + 1, 2 * MAX_BYTES] {
            let answer = of_text(Ok("x".repeat(size)));
            let text = answer["content"][0]["text"].as_str().unwrap();
            assert_eq!(text.ends_with("ask for less"), size > MAX_BYTES);
            assert!(text.len() < MAX_BYTES + 100);
        }
        for size in sizes_around("fleetwright::mcp::answer::MAX_ITEMS", MAX_ITEMS) {
            let answer = of_value(Ok(json!({"a": vec![1; size]})));
            let text = answer["content"][0]["text"].as_str().unwrap();
            assert_eq!(text.contains("more"), size > MAX_ITEMS);
        }
    }

    #[test]
    fn a_failure_is_an_answer_with_its_hint() {
        let failure = Failure::failed("could not").with_hint("try");
        let expected = json!([{"type": "text", "text": "could not\nhint: try"}]);
        let answer = of_text(Err(failure));
        assert_eq!(
            (&answer["content"], &answer["isError"]),
            (&expected, &json!(true))
        );
    }
}
