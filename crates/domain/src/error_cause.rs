//! Groups errors by cause: the same problem on a hundred machines is one cause.
//!
//! A cause has a kind, a title and a code; within a pool also a launch config. Of the words in the
//! description, only those count that do not vary with the machine or the time.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error_report::ErrorReport;

/// Stands for a word that varies.
const VARYING: &str = "#";
/// A word of this length with letters of both cases is a random id, even without a digit.
const LONG_ID: usize = 20;
/// The description is read up to this length.
const MAX_TEXT: usize = 4_096;
/// Names of the machine in a report's `extra`.
const MACHINE: [&str; 4] = ["workerId", "workerGroup", "instanceId", "hostname"];

/// Names the cause of an error: the same in all pools.
pub fn cause_of(report: &ErrorReport) -> String {
    let machine = names_of_machine(report);
    digest(&[
        &report.kind,
        &pattern(&report.title, &machine),
        report.code(),
        &pattern(&report.description, &machine),
    ])
}

/// Names the cause of an error within its pool: launch configs have causes of their own.
pub fn cause_in_pool(report: &ErrorReport) -> String {
    let config = report.launch_config_id.as_ref();
    digest(&[config.map_or("", |id| id.as_str()), &cause_of(report)])
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        // The length in front keeps parts from running into each other.
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn names_of_machine(report: &ErrorReport) -> Vec<&str> {
    let names = MACHINE
        .iter()
        .filter_map(|key| report.extra.get(*key).and_then(Value::as_str));
    names.filter(|name| !name.is_empty()).collect()
}

/// The text without the parts that vary by machine: numbers, ids, times, the machine's names.
fn pattern(text: &str, machine: &[&str]) -> String {
    let mut text = text.chars().take(MAX_TEXT).collect::<String>();
    for name in machine {
        text = without_name(&text, name);
    }
    let mut pattern = String::with_capacity(text.len());
    let mut after_varying = false;
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let word_begins = is_of_word(first);
        let end = rest
            .find(|c| is_of_word(c) != word_begins)
            .unwrap_or(rest.len());
        let (piece, others) = rest.split_at(end);
        rest = others;
        if !word_begins {
            pattern.push_str(piece);
        } else if !varies(piece) {
            pattern.push_str(piece);
            after_varying = false;
        } else {
            // "1", "1:2" and "1, 2, 3" give the same pattern, so the length of a list does
            // not matter.
            if after_varying {
                let end = pattern.rfind(VARYING).map_or(0, |at| at + VARYING.len());
                pattern.truncate(end);
            } else {
                pattern.push_str(VARYING);
            }
            after_varying = true;
        }
    }
    pattern
}

/// Removes a name where it is not a part of a longer word.
fn without_name(text: &str, name: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        let within_word = before.ends_with(is_of_word) || after.starts_with(is_of_word);
        kept.push_str(before);
        kept.push_str(if within_word { name } else { VARYING });
        rest = after;
    }
    kept.push_str(rest);
    kept
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_') || VARYING.contains(character)
}

fn varies(word: &str) -> bool {
    let has = |test: fn(char) -> bool| word.chars().any(test);
    has(char::is_numeric)
        || VARYING.chars().any(|mark| word.contains(mark))
        || (word.len() >= LONG_ID && has(char::is_lowercase) && has(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::time::Timestamp;

    fn report(description: &str, extra: Value) -> ErrorReport {
        ErrorReport {
            pool_id: "a/b".parse().unwrap(),
            error_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
            reported: Timestamp::from_millis(0),
            kind: "creation-error".to_owned(),
            title: "Instance Creation Error".to_owned(),
            description: description.to_owned(),
            extra: extra.as_object().unwrap().clone(),
            launch_config_id: None,
        }
    }

    fn same(one: &str, other: &str) -> bool {
        cause_of(&report(one, json!({}))) == cause_of(&report(other, json!({})))
    }

    #[test]
    fn differences_between_machines_make_no_other_cause() {
        for (one, other) in [
            ("i-0abc12 has gone", "i-0fff99 has gone"),
            (
                "request 6f1e3a00-aaaa-bbbb-cccc-0123456789ab failed",
                "request 550e8400-e29b-41d4-a716-446655440000 failed",
            ),
            ("at 2026-09-21T14:13:20.007Z", "at 2027-01-01T00:00:00Z"),
            ("disk /dev/sda1: 12 of 40 GB", "disk /dev/sdb2: 9 of 41 GB"),
            ("10.0.0.1:8080 refused", "192.168.17.4:443 refused"),
            ("gone: i-1, i-2", "gone: i-1, i-2, i-3, i-4"),
            (
                "task abcdefGHIJKLmnopqrstuv died",
                "task zyxwvuTSRQPOnmlkjihgfe died",
            ),
            ("exit 1 2", "exit 1"),
        ] {
            assert!(same(one, other), "{one} / {other}");
        }
    }

    #[test]
    fn other_words_are_another_cause() {
        for (one, other) in [
            ("disk full", "disk broken"),
            ("no capacity in zone a", "no capacity in zone b"),
            ("", "x"),
            ("1 of x", "1 or x"),
        ] {
            assert!(!same(one, other), "{one} / {other}");
        }
        let base = report("x", json!({}));
        let differing = [
            ErrorReport {
                kind: "other".to_owned(),
                ..base.clone()
            },
            ErrorReport {
                title: "Other".to_owned(),
                ..base.clone()
            },
            report("x", json!({"code": "capacity"})),
        ];
        for other in differing {
            assert_ne!(cause_of(&base), cause_of(&other), "{other:?}");
        }
    }

    #[test]
    fn launch_configs_have_causes_of_their_own_only_within_a_pool() {
        let base = report("x", json!({}));
        let other = ErrorReport {
            launch_config_id: "lc-1".parse().ok(),
            pool_id: "a/other".parse().unwrap(),
            ..base.clone()
        };
        assert_eq!(cause_of(&base), cause_of(&other));
        assert_ne!(cause_in_pool(&base), cause_in_pool(&other));
    }

    #[test]
    fn the_names_of_the_machine_do_not_count_anywhere() {
        let of = |name: &str| {
            let text = format!("{name}.rack lost its disk; reboot {name}");
            cause_of(&report(
                &text,
                json!({"workerId": name, "uptime": name.len()}),
            ))
        };
        assert_eq!(of("alpha"), of("bravo"));
        let other = cause_of(&report(
            "charlie.rack lost its disk",
            json!({"workerId": "lost"}),
        ));
        assert_ne!(of("alpha"), other);
    }

    #[test]
    fn a_name_within_a_longer_word_stays() {
        assert_eq!(pattern("mac macro mac", &["mac"]), "# macro #");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_grow(text in ".{0,200}", name in ".{1,5}") {
            let cause = cause_of(&report(&text, json!({"workerId": name})));
            prop_assert_eq!(cause.len(), 32);
        }

        #[test]
        fn numbers_never_matter(one in 0_u64.., other in 0_u64..) {
            let text = |number: u64| format!("after {number} s on vm-{number}");
            prop_assert!(same(&text(one), &text(other)));
        }
    }
}
