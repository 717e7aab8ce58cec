//! The public keys with which AWS signs identity documents: built-in and configured ones.
//!
//! Public facts, by region, as of November 2026. AWS has renewed the certificates of its older
//! regions, always for the same key. Opt-in regions have their own keys.

use std::collections::BTreeMap;

use crate::signing::public_key::PublicKey;

/// The key of all regions without a key of their own.
const SHARED: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCHvRjf/0kStpJ248khtIaN8qkDN3tkw4VjvA9nvPl2anJO+eIBUqPfQG09kZlwpWpmyO8bGB2RWqWxCwuB/dcnIob6w420k9WY5C0IIGtDRNauN3kuvGXkw3HEnF0EjYr0pcyWUvByWY4KswZV42X7Y7XSS13hOIcL6NLA+H94/QIDAQAB";

/// Regions with their own key: a line has the regions, separated by commas, and the key. Documents
/// from there that are signed with the shared key are false.
const REGIONAL: &str = include_str!("identity_keys.txt");

pub(crate) struct IdentityKeys {
    /// Configured keys, each for one region or (`None`) for all.
    added: Vec<(Option<String>, PublicKey)>,
    shared: PublicKey,
    regional: BTreeMap<&'static str, PublicKey>,
}

impl IdentityKeys {
    pub(crate) fn new(added: Vec<(Option<String>, PublicKey)>) -> Self {
        let pinned = |text| PublicKey::parse(text).expect("a test parses every pinned key");
        Self {
            added,
            shared: pinned(SHARED),
            regional: regional().map(|(it, key)| (it, pinned(key))).collect(),
        }
    }

    /// Whether AWS signed this document in that region.
    pub(crate) fn verify(&self, region: &str, document: &[u8], signature: &[u8]) -> bool {
        let pinned = self.regional.get(region).unwrap_or(&self.shared);
        let added = self
            .added
            .iter()
            .filter(|(of, _)| of.as_deref().is_none_or(|of| of == region))
            .map(|(_, key)| key);
        added
            .chain([pinned])
            .any(|key| key.verifies(document, signature))
    }
}

/// Each region with its own key.
fn regional() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = REGIONAL.lines().filter_map(|line| line.split_once(' '));
    lines.flat_map(|(regions, key)| regions.split(',').map(move |region| (region, key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pinned_key_is_a_key() {
        assert_eq!(regional().count(), 22);
        for (region, key) in regional() {
            assert!(PublicKey::parse(key).is_some(), "{region}");
        }
        assert!(PublicKey::parse(SHARED).is_some());
    }
}
