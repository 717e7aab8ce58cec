//! Identifies documents by their content.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::json_text::canonical;

/// The SHA-256 of a document as 64 hex digits.
pub(super) fn hash(document: &Value) -> String {
    hex(&Sha256::digest(canonical(document)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number from 0 to just below 1 that follows from a text.
pub(super) fn fraction(text: &str) -> f64 {
    let digest = Sha256::digest(text);
    let number = digest
        .iter()
        .take(6)
        .fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
    number as f64 / (1_u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_keys() {
        let one = serde_json::from_str(r#"{"a": 1, "b": [2, null]}"#).unwrap();
        let other = serde_json::from_str(r#"{"b": [2, null], "a": 1}"#).unwrap();
        assert_eq!(hash(&one), hash(&other));
        assert_ne!(hash(&one), hash(&json!({"a": 1, "b": [2]})));
        assert_eq!(hash(&json!({})).len(), 64);
    }

    #[test]
    fn fractions_of_texts_are_spread_evenly() {
        let below = |limit: f64| {
            (0..2_000)
                .filter(|n| fraction(&format!("m-{n}")) < limit)
                .count()
        };
        assert!((150..250).contains(&below(0.1)), "{}", below(0.1));
        assert!((900..1_100).contains(&below(0.5)), "{}", below(0.5));
        assert_eq!((below(0.0), below(1.0)), (0, 2_000));
    }
}
