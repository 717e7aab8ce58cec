//! Finds the comments of YAML and TOML files, and aliases in YAML, which formatting would delete.
//!
//! Not a parser: it reads only quotes, block scalars and lines, to tell a comment from a `#` in a
//! value.

use files::Format;

/// A comment in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comment {
    /// From 1.
    pub(super) line: usize,
    /// From 1, in characters.
    pub(super) column: usize,
    /// From the `#`, without spaces at the end.
    pub(super) text: String,
    /// Whether nothing else is on the line.
    pub(super) is_alone: bool,
}

/// The parts of a text that its values do not have.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) comments: Vec<Comment>,
    pub(super) has_aliases: bool,
}

pub(super) fn find(text: &str, format: Format) -> Found {
    let mut found = Found::default();
    match format {
        Format::Json => {}
        Format::Yaml => Scanner::default().scan(text, &mut found),
        Format::Toml => toml(text, &mut found),
    }
    found
}

impl Found {
    /// Adds the comment that begins at this byte of the line.
    fn add(&mut self, number: usize, line: &str, start: usize) {
        let (before, text) = line.split_at(start);
        self.comments.push(Comment {
            line: number + 1,
            column: before.chars().count() + 1,
            text: text.trim_end().to_owned(),
            is_alone: before.trim().is_empty(),
        });
    }
}

/// A comment in TOML is a `#` outside of quotes.
fn toml(text: &str, found: &mut Found) {
    let mut within: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let mut rest = line;
        while !rest.is_empty() {
            let step = match within {
                Some(end) if rest.starts_with(end) => {
                    within = None;
                    end.len()
                }
                // Only basic strings have escapes.
                Some("\"" | "\"\"\"") if rest.starts_with('\\') => {
                    1 + rest[1..].chars().next().map_or(0, char::len_utf8)
                }
                None if rest.starts_with('#') => {
                    found.add(number, line, line.len() - rest.len());
                    break;
                }
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
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[derive(Default)]
struct Scanner {
    quote: Option<char>,
    /// Whether the previous character closed a single-quoted string.
    closed: bool,
    /// The indentation of a block scalar's header, and of its content after its first line.
    block: Option<(usize, Option<usize>)>,
}

impl Scanner {
    fn scan(mut self, text: &str, found: &mut Found) {
        for (number, line) in text.lines().enumerate() {
            if !self.is_in_block(line) {
                self.line(number, line, found);
            }
        }
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

    fn line(&mut self, number: usize, line: &str, found: &mut Found) {
        let mut before = String::new();
        let mut escaped = false;
        for character in line.chars() {
            let starts = before.is_empty() || before.ends_with([' ', '\t']);
            let closed = std::mem::take(&mut self.closed);
            match self.quote {
                Some('"') if escaped => escaped = false,
                Some('"') if character == '\\' => escaped = true,
                // Two single quotes in a single-quoted string are an escaped quote.
                Some(quote) if character == quote => {
                    self.quote = None;
                    self.closed = quote == '\'';
                }
                Some(_) => {}
                None if character == '#' && starts => {
                    found.add(number, line, before.len());
                    break;
                }
                None if is_start_of_value(&before) => match character {
                    '"' | '\'' => self.quote = Some(character),
                    '&' | '*' => found.has_aliases = true,
                    _ => {}
                },
                // `''` in a single-quoted string.
                None if character == '\'' && closed => self.quote = Some('\''),
                None => {}
            }
            before.push(character);
        }
        if self.quote.is_none() && is_header_of_block(&before) {
            let indent = line.len() - line.trim_start_matches(' ').len();
            self.block = Some((indent, None));
        }
    }
}

/// Whether a value or key begins after this part of a line.
fn is_start_of_value(before: &str) -> bool {
    let trimmed = before.trim_end();
    let apart = trimmed.len() < before.len();
    match trimmed.chars().next_back() {
        None | Some('[' | '{' | ',') => true,
        Some(':' | '-' | '?') => apart,
        Some(_) => false,
    }
}

/// Whether the line ends with `|` or `>` and optional indicators.
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
        let found = find(text, Format::Yaml);
        if found.has_aliases {
            return Some("aliases");
        }
        (!found.comments.is_empty()).then_some("comments")
    }

    #[test]
    fn comments_have_their_place() {
        let text = "a: 1 # one \nb:\n  # two\n  - é # three\n";
        let found = find(text, Format::Yaml).comments;
        let shown = found.iter();
        let shown = shown.map(|it| (it.line, it.column, it.text.as_str(), it.is_alone));
        let expected = [
            (1, 6, "# one", false),
            (3, 3, "# two", true),
            (4, 7, "# three", false),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
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
    fn number_signs_in_values_are_no_comments() {
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
            let found = find(text, Format::Toml).comments;
            assert_eq!(!found.is_empty(), expected, "{text}");
        }
        let json = find("{\"a\": \" # \"}", Format::Json);
        assert!(json.comments.is_empty());
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~\\n]{0,30}", "(#| |'|\"|\\||>|\\n|a|:|-){0,10}"]
    }

    proptest! {
        #[test]
        fn added_comments_are_found_and_generated_files_have_none(
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
