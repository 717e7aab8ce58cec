//! A secret text: it never prints, and compares in constant time.
//!
//! Tokens, launch secrets and keys have this type, so that no log line, error or plan can show them
//! by accident. Only `expose` returns the text, so every use is easy to find.

use std::fmt;

use serde::Deserialize;
use subtle::ConstantTimeEq as _;

/// A text that never prints. Only `expose` returns it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Do not log, store or send it without a reason.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl PartialEq for Secret {
    /// Takes the same time wherever two texts of one length differ. Lengths are not secret.
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    /// Overwrites the text. `black_box` keeps the compiler from removing the write. Without unsafe
    /// code no more is possible, and a moved `String` may leave copies.
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        std::hint::black_box(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints_its_text() {
        let secret = Secret::new("hunter2");
        assert_eq!(
            format!("{secret} {secret:?} {secret:#?}"),
            "[secret] [secret] [secret]"
        );
    }

    #[test]
    fn secrets_are_equal_when_their_texts_are() {
        assert_eq!(Secret::new("a"), Secret::new("a"));
        assert_ne!(Secret::new("a"), Secret::new("b"));
        assert_ne!(Secret::new("a"), Secret::new("ab"));
    }

    #[test]
    fn a_secret_is_read_from_a_plain_json_string() {
        let secret: Secret = serde_json::from_str("\"abc\"").unwrap();
        assert_eq!(secret.expose(), "abc");
    }
}
