//! What of a YAML or TOML text its values do not hold, and rewriting would lose.
//!
//! Not a parser: it knows just enough of quotes, block texts and lines to tell a comment from a `#` in a value.

use files::Format;

/// What is lost, in a word.
pub(super) fn lost(text: &str, format: Format) -> Option<&'static str> {
    match format {
        Format::Json => None,
        Format::Yaml => Scanner::default().scan(text),
        Format::Toml => toml(text).then_some("comments"),
    }
}

/// Whether a line of TOML may hold a comment: a `#` that no quote precedes, or that follows the last one.
fn toml(text: &str) -> bool {
    let mut within: Option<&str> = None;
    for line in text.lines() {
        let mut rest = line;
        while !rest.is_empty() {
            let step = match within {
                Some(end) if rest.starts_with(end) => {
                    within = None;
                    end.len()
                }
                // Only in basic texts does a backslash take away the meaning of what follows.
                Some("\"" | "\"\"\"") if rest.starts_with('\\') => {
                    1 + rest[1..].chars().next().map_or(0, char::len_utf8)
                }
                None if rest.starts_with('#') => return true,
                None => {
                    let quotes = ["\"\"\"", "'''", "\"", "'"];
                    within = quotes.into_iter().find(|quote| rest.starts_with(quote));
                    within.map_or_else(|| first_len(rest), str::len)
                }
                Some(_) => first_len(rest),
            };
            rest = &rest[step..];
        }
        if within.is_some_and(|quote| quote.len() == 1) {
            within = None;
        }
    }
    false
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[derive(Default)]
struct Scanner {
    quote: Option<char>,
    /// Whether the character before closed a text in single quotes.
    closed: bool,
    /// How far the line with the header of a block text is indented, and its lines, once one was seen.
    block: Option<(usize, Option<usize>)>,
}

impl Scanner {
    fn scan(mut self, text: &str) -> Option<&'static str> {
        text.lines().find_map(|line| match self.is_in_block(line) {
            true => None,
            false => self.line(line),
        })
    }

    fn is_in_block(&mut self, line: &str) -> bool {
        let Some((header, content)) = self.block else {
            return false;
        };
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_within = line.trim().is_empty()
            || match content {
                Some(content) => indent >= content,
                None => indent > header,
            };
        if is_within && !line.trim().is_empty() {
            self.block = Some((header, content.or(Some(indent))));
        } else if !is_within {
            self.block = None;
        }
        is_within
    }

    fn line(&mut self, line: &str) -> Option<&'static str> {
        let mut before = String::new();
        let mut escaped = false;
        for character in line.chars() {
            let starts = before.is_empty() || before.ends_with([' ', '\t']);
            let closed = std::mem::take(&mut self.closed);
            match self.quote {
                Some('"') if escaped => escaped = false,
                Some('"') if character == '\\' => escaped = true,
                // Two single quotes close and open again, which is one quote in the text.
                Some(quote) if character == quote => {
                    self.quote = None;
                    self.closed = quote == '\'';
                }
                Some(_) => {}
                None if character == '#' && starts => return Some("comments"),
                None if is_start_of_value(&before) => match character {
                    '"' | '\'' => self.quote = Some(character),
                    '&' | '*' => return Some("aliases"),
                    _ => {}
                },
                // `''` within a text in single quotes.
                None if character == '\'' && closed => self.quote = Some('\''),
                None => {}
            }
            before.push(character);
        }
        if self.quote.is_none() && is_header_of_block(&before) {
            let indent = line.len() - line.trim_start_matches(' ').len();
            self.block = Some((indent, None));
        }
        None
    }
}

/// Whether a value (or key) begins after this part of a line.
fn is_start_of_value(before: &str) -> bool {
    let trimmed = before.trim_end();
    let apart = trimmed.len() < before.len();
    match trimmed.chars().next_back() {
        None | Some('[' | '{' | ',') => true,
        Some(':' | '-' | '?') => apart,
        Some(_) => false,
    }
}

/// Whether the line ends with `|` or `>`, perhaps with indicators.
fn is_header_of_block(line: &str) -> bool {
    let trimmed = line.trim_end();
    let head = trimmed.trim_end_matches(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
    head.strip_suffix(['|', '>']).is_some_and(is_start_of_value)
}

#[cfg(test)]
mod tests {
    use files::to_yaml;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn yaml(text: &str) -> Option<&'static str> {
        lost(text, Format::Yaml)
    }

    #[test]
    fn comments_are_found_wherever_they_stand() {
        for text in [
            "# head\na: 1\n",
            "a: 1 # end\n",
            "a: 'it''s' # x\n",
            "a: \"x \\\" y\" # x\n",
            "a: |\n  text\n# after\nb: 1\n",
            "a: |  # of the header\n  text\n",
            "a: it's # x\n",
            "a: [1, # x\n  2]\n",
        ] {
            assert_eq!(yaml(text), Some("comments"), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_comment_is_none() {
        for text in [
            "a: x#y\n",
            "a: 'x # y'\n",
            "a: \"x \\\" # y\"\n",
            "a: |\n  #!/bin/sh\n  echo # x\n\n  # y\nb: 1\n",
            "- a: >-\n    # text\n  b: 1\n",
            "a: 'x\n  # y'\n",
            "a: b|\n",
            "a: \"*x\"\n",
            "a: 2*3\n",
        ] {
            assert_eq!(yaml(text), None, "{text}");
        }
    }

    #[test]
    fn aliases_would_be_lost_too() {
        assert_eq!(yaml("a: &x {b: 1}\nc: 2\n"), Some("aliases"));
        assert_eq!(yaml("a: [*x]\n"), Some("aliases"));
    }

    #[test]
    fn toml_has_comments_too_and_json_has_none() {
        for (text, expected) in [
            ("a = 1 # x\n", true),
            ("a = \"x # y\"\nb = 'c # d'\n", false),
            ("a = \"\"\"\n# x\n\"\"\"\n", false),
            ("a = \"\\\" # y\"\n", false),
            ("a = 'x' # y\n", true),
        ] {
            assert_eq!(lost(text, Format::Toml).is_some(), expected, "{text}");
        }
        assert_eq!(lost("{\"a\": \" # \"}", Format::Json), None);
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~\\n]{0,30}", "(#| |'|\"|\\||>|\\n|a|:|-){0,10}"]
    }

    proptest! {
        #[test]
        fn what_was_written_without_comments_has_none_and_one_that_is_added_is_found(
            texts in prop::collection::vec((any_text(), any_text()), 1..5),
        ) {
            let fields = texts.into_iter().map(|(key, text)| (key, json!({"b": [text.clone(), {"c": text}]})));
            let written = to_yaml(&Value::Object(fields.collect()), &[]);
            prop_assert_eq!(yaml(&written), None, "{}", written);
            let commented = format!("{written}# c\n");
            prop_assert_eq!(yaml(&commented), Some("comments"), "{}", commented);
        }
    }
}
