//! Texts of others: programs, services and clouds.

/// One line without characters that control a terminal or change the direction of text, cut to this
/// length.
pub fn one_line(text: &str, max_characters: usize) -> String {
    let words = text.split(|c: char| is_harmful(c) || c.is_whitespace());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(max_characters) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Control characters, other line ends, and characters that change the direction of text.
pub fn is_harmful(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_clean_and_short() {
        let text = " a\r\nBcc: x@y\t\0b\u{85}c\u{1b}[2J\u{202e}d ";
        assert_eq!(one_line(text, 100), "a Bcc: x@y b c [2J d");
        assert_eq!(one_line("größer", 3), "grö…");
        for (length, expected) in [(0, 0), (9, 9), (10, 10), (11, 11), (100, 11)] {
            let line = one_line(&"x".repeat(length), 10);
            assert_eq!(line.chars().count(), expected, "{length}");
            assert_eq!(line.ends_with('…'), length > 10, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_line(text in ".*") {
            let line = one_line(&text, 50);
            prop_assert!(!line.chars().any(is_harmful));
            prop_assert!(line.chars().count() <= 51);
        }
    }
}
