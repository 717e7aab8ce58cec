//! Converts numbers to the form that JavaScript prints.
//!
//! The services that clients know are written in JavaScript, where every number is a double: `1.0`
//! becomes `1`, and an integer beyond 2^53 becomes its nearest double. Hashes of documents depend
//! on this.

use serde_json::{Number, Value};

/// From here on, not every integer is an exact double (nor below the negative value).
const FIRST_INEXACT: u64 = 1 << 53;

/// Rewrites every number of `value`. The recursion is as deep as the value, which the parser limits
/// to 128.
pub fn as_javascript(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(other) = rewritten(number) {
                *number = other;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_javascript),
        Value::Object(members) => members.values_mut().for_each(as_javascript),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The number that JavaScript prints instead, if it differs.
fn rewritten(number: &Number) -> Option<Number> {
    let exact = number
        .as_i64()
        .map(i64::unsigned_abs)
        .or_else(|| number.as_u64());
    if exact.is_some_and(|magnitude| magnitude <= FIRST_INEXACT) {
        return None;
    }
    let double = number.as_f64()?;
    if double.fract() != 0.0 {
        return None;
    }
    // The shortest digits of this double, filled up with zeros, like JavaScript prints them. A
    // number beyond the integer types stays a double, with an exponent.
    let digits = double.to_string();
    let signed = digits.parse::<i64>().map(Number::from);
    let integer = signed.or_else(|_| digits.parse::<u64>().map(Number::from));
    integer.ok().or_else(|| Number::from_f64(double))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> String {
        let mut value: Value = serde_json::from_str(text).unwrap();
        as_javascript(&mut value);
        value.to_string()
    }

    #[test]
    fn doubles_without_a_fraction_become_integers() {
        assert_eq!(
            after(r#"{"a":[1.0,-2.0,0.5,-0.0,1e3]}"#),
            r#"{"a":[1,-2,0.5,0,1000]}"#
        );
    }

    #[test]
    fn large_integers_become_the_digits_of_the_nearest_double() {
        assert_eq!(after("9007199254740991"), "9007199254740991");
        assert_eq!(after("9007199254740992"), "9007199254740992");
        assert_eq!(after("9007199254740993"), "9007199254740992");
        assert_eq!(after("-9007199254740993"), "-9007199254740992");
        assert_eq!(after("12345678901234567890"), "12345678901234567000");
    }

    #[test]
    fn a_number_beyond_the_integers_stays_a_double() {
        assert_eq!(after("1e300"), "1e+300");
        assert_eq!(after("18446744073709551615"), "1.8446744073709552e+19");
    }
}
