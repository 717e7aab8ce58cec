//! Sealed texts and digests, and the change of keys.

use access::Secret;
use access::seal::{BadKeyring, Key, Keyring, MAX_KEYS, OpenError, generate_key};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use testing::sizes_around;

use super::common::rng;

fn key(id: &str, seed: u64) -> Key {
    Key {
        id: id.to_owned(),
        secret: generate_key(&mut StdRng::seed_from_u64(seed)),
    }
}

fn keyring(keys: Vec<Key>) -> Keyring {
    Keyring::new(keys).expect("these keys are usable")
}

#[test]
fn a_sealed_text_opens_for_its_purpose_only() {
    let keys = keyring(vec![key("k1", 1)]);
    let sealed = keys.seal("client:a", &Secret::new("hunter2"), &mut rng());
    assert!(sealed.starts_with("s1.k1.") && !sealed.contains("hunter2"));
    assert_eq!(keys.open("client:a", &sealed).unwrap().expose(), "hunter2");
    assert_eq!(
        keys.open("client:b", &sealed).unwrap_err(),
        OpenError::Refused
    );
    let digest = keys.digest("client:a", &Secret::new("hunter2"));
    assert_eq!(
        keys.open("client:a", &digest).unwrap_err(),
        OpenError::NotSealed
    );
}

#[test]
fn a_digest_matches_its_secret_and_purpose_only() {
    let keys = keyring(vec![key("k1", 1)]);
    let digest = keys.digest("worker:a", &Secret::new("hunter2"));
    assert!(digest.starts_with("d1.k1."));
    assert!(keys.digest_matches("worker:a", &digest, &Secret::new("hunter2")));
    assert!(!keys.digest_matches("worker:a", &digest, &Secret::new("hunter3")));
    assert!(!keys.digest_matches("worker:b", &digest, &Secret::new("hunter2")));
    // The border between purpose and secret matters.
    assert!(!keys.digest_matches("worker:ah", &digest, &Secret::new("unter2")));
    assert!(!keys.digest_matches("worker:a", "nonsense", &Secret::new("hunter2")));
}

#[test]
fn the_first_key_seals_and_all_open() {
    let old = keyring(vec![key("old", 1)]);
    let both = keyring(vec![key("new", 2), key("old", 1)]);
    let new = keyring(vec![key("new", 2)]);
    let secret = Secret::new("hunter2");
    let sealed = old.seal("p", &secret, &mut rng());
    let digest = old.digest("p", &secret);
    assert!(old.is_current(&sealed) && old.is_current(&digest));
    assert!(!both.is_current(&sealed) && !both.is_current(&digest) && !both.is_current("x"));
    assert_eq!(both.open("p", &sealed).unwrap(), secret);
    assert!(both.digest_matches("p", &digest, &secret));

    let again = both.seal("p", &both.open("p", &sealed).unwrap(), &mut rng());
    assert!(both.is_current(&again));
    assert_eq!(new.open("p", &again).unwrap(), secret);
    assert_eq!(
        new.open("p", &sealed).unwrap_err(),
        OpenError::UnknownKey("old".to_owned())
    );
    assert!(!new.digest_matches("p", &digest, &secret));
    // Another key with the same id.
    let imposter = keyring(vec![key("old", 3)]);
    assert_eq!(imposter.open("p", &sealed).unwrap_err(), OpenError::Refused);
}

#[test]
fn repeated_randomness_does_not_repeat_a_nonce_for_another_text() {
    let keys = keyring(vec![key("k", 1)]);
    let one = keys.seal("p", &Secret::new("one"), &mut rng());
    let two = keys.seal("p", &Secret::new("two"), &mut rng());
    let nonce = |sealed: &str| sealed["s1.k.".len()..][..16].to_owned();
    assert_ne!(nonce(&one), nonce(&two));
}

#[test]
fn unusable_keys_are_refused_by_name() {
    let refused = |keys: Vec<Key>| Keyring::new(keys).unwrap_err();
    assert_eq!(refused(vec![]), BadKeyring::Empty);
    assert_eq!(
        refused(vec![key("a", 1), key("a", 2)]),
        BadKeyring::DuplicateId("a".to_owned())
    );
    for id in ["", "a.b", "é", &"x".repeat(39)] {
        assert_eq!(refused(vec![key(id, 1)]), BadKeyring::BadId(id.to_owned()));
    }
    for text in ["", "c2hvcnQ=", "not base64!", &"A".repeat(48)] {
        let bad = Key {
            id: "a".to_owned(),
            secret: Secret::new(text),
        };
        assert_eq!(refused(vec![bad]), BadKeyring::BadSecret("a".to_owned()));
    }
}

#[test]
fn the_keys_of_a_keyring_are_limited_and_each_opens() {
    for count in sizes_around("access::seal::MAX_KEYS", MAX_KEYS) {
        let keys = || (1..).take(count).map(|seed| key(&seed.to_string(), seed));
        match Keyring::new(keys().collect()) {
            Ok(all) => {
                assert!((1..=MAX_KEYS).contains(&count), "{count}");
                for one in keys() {
                    let sealed = keyring(vec![one]).seal("p", &Secret::new("x"), &mut rng());
                    assert_eq!(all.open("p", &sealed).unwrap().expose(), "x");
                }
            }
            Err(BadKeyring::Empty) => assert_eq!(count, 0),
            Err(refused) => {
                assert!(count > MAX_KEYS, "{count}: {refused}");
                assert_eq!(refused.to_string(), "the keyring has more than 16 keys");
            }
        }
    }
}

#[test]
fn a_keyring_prints_the_names_of_its_keys_only() {
    let keys = keyring(vec![key("new", 2), key("old", 1)]);
    assert_eq!(format!("{keys:?}"), r#"Keyring ["new", "old"]"#);
}

proptest! {
    #[test]
    fn any_text_comes_back_and_any_change_is_noticed(
        text in "\\PC*",
        purpose in "\\PC{0,20}",
        position: prop::sample::Index,
        new in "[A-Za-z0-9_.-]",
    ) {
        let keys = keyring(vec![key("k", 1)]);
        let secret = Secret::new(text);
        let sealed = keys.seal(&purpose, &secret, &mut rng());
        prop_assert_eq!(keys.open(&purpose, &sealed).unwrap(), secret);
        let position = position.index(sealed.len());
        let mut changed = sealed.clone();
        changed.replace_range(position..=position, &new);
        if changed != sealed {
            prop_assert!(keys.open(&purpose, &changed).is_err());
        }
    }

    #[test]
    fn any_text_is_opened_or_refused(text in "\\PC*", body in "[A-Za-z0-9_-]{0,60}") {
        let keys = keyring(vec![key("k", 1)]);
        for sealed in [text, format!("s1.k.{body}"), format!("d1.k.{body}")] {
            prop_assert!(keys.open("p", &sealed).is_err());
            prop_assert!(!keys.digest_matches("p", &sealed, &Secret::new("x")));
            let _ = keys.is_current(&sealed);
        }
    }
}
