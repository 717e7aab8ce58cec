//! How much memory a JSON text takes once it is parsed, estimated before it is.
//!
//! Seven bytes of text, `{"":0}`, become some 660 bytes of memory, so the length of a text says little. What
//! makes the difference is counted in one pass over the bytes, without making anything.

/// A member of an object takes a place in a node of a tree; the first one takes the node.
const OBJECT_BYTES: usize = 640;
/// A list begins with places for four values.
const LIST_BYTES: usize = 128;
/// A further value, with the room that lists and objects keep for more.
const VALUE_BYTES: usize = 112;

/// About this many bytes of memory, its texts among them. Never much too few, whatever the text is; a
/// text that is no JSON weighs something, too.
pub(super) fn weight(text: &[u8]) -> usize {
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
    fn what_is_counted_is_what_makes_values_and_not_what_stands_in_texts() {
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
            assert_eq!(weight(text.as_bytes()), text.len() + extra, "{text}");
        }
    }
}
