//! Estimates how much memory a JSON text takes after parsing.
//!
//! Seven bytes of text, `{"":0}`, become about 660 bytes of memory, so the length of a text says
//! little. One pass over the bytes counts what makes the difference; it allocates nothing.

/// An object's first member allocates a tree node; each member takes a slot in a node.
const OBJECT_BYTES: usize = 640;
/// A list begins with slots for four values.
const LIST_BYTES: usize = 128;
/// A further value, with the spare capacity that lists and objects keep.
const VALUE_BYTES: usize = 112;

/// The estimated bytes of memory, including the text. The estimate is never much too small, for any
/// text. A text that is not JSON has a size, too.
pub(super) fn estimate(text: &[u8]) -> usize {
    let mut weight = text.len();
    let mut in_text = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (in_text, byte) {
            (_, b'"') => in_text = !in_text,
            (true, b'\\') => {
                bytes.next();
            }
            (false, b'{') => weight += OBJECT_BYTES,
            (false, b'[') => weight += LIST_BYTES,
            (false, b',') => weight += VALUE_BYTES,
            (true | false, _) => {}
        }
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_inside_strings_are_not_counted_as_values() {
        for (text, extra) in [
            ("", 0),
            ("1", 0),
            (r#""{[,\"{[,\\""#, 0),
            ("{}", OBJECT_BYTES),
            ("[1]", LIST_BYTES),
            ("[1,2]", LIST_BYTES + VALUE_BYTES),
            (r#"{"a\\":{"b":"}"}}"#, 2 * OBJECT_BYTES),
            (
                r#"{"a":[{}, {}]}"#,
                3 * OBJECT_BYTES + LIST_BYTES + VALUE_BYTES,
            ),
            ("\"unfinished {", 0),
            ("\"\\", 0),
        ] {
            assert_eq!(estimate(text.as_bytes()), text.len() + extra, "{text}");
        }
    }
}
