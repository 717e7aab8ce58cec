//! Replaces secrets in a stream of output, also where a secret comes in two pieces.

use serde_json::Value;

/// Shorter secrets cannot be redacted: they would occur by chance.
pub(crate) const MIN_SECRET_BYTES: usize = 4;
/// Lines of a secret with several lines, like a private key, are redacted one by one from this
/// length on.
const MIN_LINE_BYTES: usize = 16;
const REDACTED: &[u8] = b"[redacted]";

/// A secret, and the texts in it if it is JSON: programs take it apart.
fn with_parts(secret: &str) -> Vec<String> {
    let mut texts = vec![secret.to_owned()];
    let mut left: Vec<Value> = serde_json::from_str(secret).ok().into_iter().collect();
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.into_values()),
            Value::String(text) => texts.push(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

pub(crate) struct Redactor {
    /// The longest comes first.
    secrets: Vec<Vec<u8>>,
    /// The end of the output so far, as far as a secret may begin there.
    held: Vec<u8>,
}

impl Redactor {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<Vec<u8>> = Vec::new();
        let texts = secrets.into_iter().flat_map(with_parts);
        for secret in texts {
            // A log often lacks the newline at the end of a secret's file.
            let trimmed = secret.trim_end();
            let lines = trimmed.lines().filter(|it| it.len() >= MIN_LINE_BYTES);
            all.extend(lines.map(|line| line.as_bytes().to_vec()));
            if trimmed.len() >= MIN_SECRET_BYTES {
                all.push(trimmed.as_bytes().to_vec());
            }
        }
        all.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        all.dedup();
        Self {
            secrets: all,
            held: Vec::new(),
        }
    }

    /// Takes output, and returns what can be written now.
    pub(crate) fn push(&mut self, output: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return output.to_vec();
        }
        self.held.extend_from_slice(output);
        let (mut ready, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while at < self.held.len() {
            let rest = &self.held[at..];
            // A longer secret may still come; the shorter one in it must not end it.
            if self
                .secrets
                .iter()
                .any(|it| it.len() > rest.len() && it.starts_with(rest))
            {
                break;
            }
            match self.secrets.iter().find(|it| rest.starts_with(it)) {
                Some(secret) => {
                    ready.extend_from_slice(REDACTED);
                    at += secret.len();
                }
                None => {
                    ready.push(rest[0]);
                    at += 1;
                }
            }
        }
        self.held.drain(..at);
        ready
    }

    /// The rest, at the end of the output.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut ready = Vec::new();
        while !self.held.is_empty() {
            let secret = self.secrets.iter().find(|it| self.held.starts_with(it));
            let length = match secret {
                Some(secret) => {
                    ready.extend_from_slice(REDACTED);
                    secret.len()
                }
                None => {
                    ready.push(self.held[0]);
                    1
                }
            };
            self.held.drain(..length);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(secrets: &[&str], output: &str, piece: usize) -> String {
        let mut redactor = Redactor::new(secrets.iter().copied());
        let mut text = Vec::new();
        for some in output.as_bytes().chunks(piece) {
            text.extend(redactor.push(some));
        }
        text.extend(redactor.finish());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn secrets_are_redacted_wherever_the_output_is_cut() {
        let cases = [
            ("token=hunter22\n", "token=[redacted]\n"),
            ("hunter2", "[redacted]"),
            ("hunterhunter2hunter22", "hunter[redacted][redacted]"),
            ("hunte", "hunte"),
            ("", ""),
            ("é hunter2 é", "é [redacted] é"),
        ];
        for (output, expected) in cases {
            for piece in 1..=output.len().max(1) {
                let text = redacted(&["hunter2", "hunter22", "abc"], output, piece);
                assert_eq!(text, expected, "{output} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_lines_of_a_key_are_redacted_and_short_texts_are_not() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nab\n";
        let output = "> MIIEvQIBADANBgkqhkiG < ab abc";
        assert_eq!(
            redacted(&[key, "ab", ""], output, 5),
            "> [redacted] < ab abc"
        );
        assert_eq!(redacted(&[], "abc", 2), "abc");
    }

    #[test]
    fn the_texts_in_a_secret_of_json_are_redacted() {
        let secret = r#"{"user": "robot", "keys": [{"password": "open sesame"}], "port": 54321}"#;
        let shown = redacted(&[secret], "user robot, password open sesame, port 54321", 5);
        assert_eq!(shown, "user [redacted], password [redacted], port 54321");
    }

    #[test]
    fn a_text_that_only_begins_like_a_secret_is_held_back_and_then_shown() {
        let mut redactor = Redactor::new(["secret-value"]);
        assert_eq!(redactor.push(b"x secret-"), b"x ");
        assert_eq!(redactor.push(b"nothing"), b"secret-nothing");
        assert_eq!(redactor.finish(), b"");
    }
}
