//! Integers that are too large for any number here: the parsers round them, and nobody would be told.

use serde_json::Value;

/// From here on, whole numbers may be rounded ones. Below, the parsers give integers.
const LARGE: f64 = 9_223_372_036_854_775_808.0;
/// Shorter ones fit.
const MIN_DIGITS: usize = 19;

/// Where an integer stands of which `value`, which was read from the text, holds only an approximation.
pub(super) fn integer(text: &str, value: &Value) -> Option<usize> {
    let mut large = Vec::new();
    gather(value, &mut large);
    if large.is_empty() {
        return None;
    }
    let is_part = |c: char| c.is_alphanumeric() || "+-._\"'".contains(c);
    let mut start = 0;
    for word in text.split_inclusive(|c| !is_part(c)) {
        let number = word.trim_end_matches(|c| !is_part(c));
        let digits = number.trim_start_matches(['-', '+']);
        if digits.len() >= MIN_DIGITS
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && number.parse().is_ok_and(|number| large.contains(&number))
        {
            return Some(start);
        }
        start += word.len();
    }
    None
}

fn gather(value: &Value, large: &mut Vec<f64>) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => {}
        Value::Number(number) if number.is_f64() => {
            large.extend(number.as_f64().filter(|number| number.abs() >= LARGE));
        }
        Value::Number(_) => {}
        Value::Array(items) => items.iter().for_each(|item| gather(item, large)),
        Value::Object(fields) => fields.values().for_each(|value| gather(value, large)),
    }
}
