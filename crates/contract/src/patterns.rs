//! The patterns of identifiers in URLs and queries.
//!
//! They are texts, because error messages show the text and the published schemas contain it.

use regex::Regex;
use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

/// A worker pool or a task queue: `<provisioner>/<worker type>`.
pub const WORKER_POOL_ID: &str = r"^[a-zA-Z0-9-_]{1,38}\/[a-z]([-a-z0-9]{0,36}[a-z0-9])?$";
/// A task queue, which has the name of its worker pool.
pub const TASK_QUEUE_ID: &str = WORKER_POOL_ID;
/// Worker groups, worker ids, provisioners, and worker types in URLs.
pub const GENERIC_ID: &str = r"^[a-zA-Z0-9-_]{1,38}$";
/// A worker type in schemas.
pub const WORKER_TYPE: &str = r"^[a-z]([-a-z0-9]{0,36}[a-z0-9])?$";
/// A provider or a launch config in schemas (its length is checked separately).
pub const PROVIDER_ID: &str = r"^([a-zA-Z0-9-_]*)$";
/// A launch config in a query: without the underscore that schemas allow.
pub const LAUNCH_CONFIG_ID_QUERY: &str = r"^[a-zA-Z0-9-]{1,38}$";
/// A worker configuration: a set of rules.
pub const CONFIGURATION_ID: &str = r"^[a-zA-Z0-9-_.]{1,64}$";
/// An override.
pub const OVERRIDE_ID: &str = r"^[a-zA-Z0-9-_.]{1,128}$";
/// A budget.
pub const BUDGET_ID: &str = r"^[a-zA-Z0-9-_.]{1,64}$";
/// An image: valid as a part of a path in the tree and of a machine image's name in EC2.
pub const IMAGE_NAME: &str = r"^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,36}[a-zA-Z0-9])?$";
/// Tasks, task groups and errors: 22 characters of URL-safe base64 that hold a version 4 UUID.
pub const SLUGID: &str =
    r"^[A-Za-z0-9_-]{8}[Q-T][A-Za-z0-9_-][CGKOSWaeimquy26-][A-Za-z0-9_-]{10}[AQgw]$";
/// An error's id in a query.
pub const ERROR_ID_QUERY: &str = r"^[a-zA-Z0-9-_]+$";
/// A project that tasks belong to.
pub const PROJECT_ID: &str = r"^[a-zA-Z0-9._/-]{1,500}$";
/// A run of a task, in a URL.
pub const RUN_ID: &str = r"^[1-9]*[0-9]+$";
/// A client.
pub const CLIENT_ID: &str = r"^[A-Za-z0-9!@/:.+|_-]+$";
/// A role: printable ASCII.
pub const ROLE_ID: &str = r"^[\x20-\x7e]+$";
/// A scope: printable ASCII, possibly empty.
pub const SCOPE: &str = r"^[ -~]*$";
/// The secret of a registration, and of a static worker.
pub const SECRET: &str = r"^[a-zA-Z0-9_-]{44}$";
/// The access token of a client.
pub const ACCESS_TOKEN: &str = r"^[a-zA-Z0-9_-]{22,66}$";
/// A client of a websocktunnel.
pub const TUNNEL_CLIENT: &str = r"^[a-zA-Z0-9_~.%-]+$";
/// Limits and offsets in queries.
pub const DIGITS: &str = r"^[0-9]+$";

/// The compiled patterns by the address of their text, since comparing addresses is cheaper than
/// comparing texts. The number of entries is limited by the `'static` texts of the program.
static COMPILED: RwLock<BTreeMap<usize, (&'static str, Option<Regex>)>> =
    RwLock::new(BTreeMap::new());

/// Whether the entire value matches. An invalid pattern matches nothing.
pub fn matches(pattern: &'static str, value: &str) -> bool {
    matches_quickly(pattern, value).unwrap_or_else(|| matches_compiled(pattern, value))
}

/// The identifiers that are in each row of a list, without the engine of regular expressions.
fn matches_quickly(pattern: &str, value: &str) -> Option<bool> {
    let text = value.as_bytes();
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match pattern {
        GENERIC_ID => Some((1..=38).contains(&text.len()) && text.iter().all(is_of_word)),
        PROVIDER_ID => Some(text.iter().all(is_of_word)),
        _ => None,
    }
}

fn matches_compiled(pattern: &'static str, value: &str) -> bool {
    let is_match =
        |regex: &Option<Regex>| regex.as_ref().is_some_and(|regex| regex.is_match(value));
    let address = pattern.as_ptr().addr();
    let compiled = COMPILED.read().unwrap_or_else(PoisonError::into_inner);
    // Two texts of different lengths may begin at the same address.
    if let Some((known, regex)) = compiled.get(&address)
        && known.len() == pattern.len()
    {
        return is_match(regex);
    }
    drop(compiled);
    let regex = Regex::new(pattern).ok();
    let is_matched = is_match(&regex);
    COMPILED
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(address, (pattern, regex));
    is_matched
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 20] = [
        TUNNEL_CLIENT,
        WORKER_POOL_ID,
        GENERIC_ID,
        WORKER_TYPE,
        PROVIDER_ID,
        LAUNCH_CONFIG_ID_QUERY,
        CONFIGURATION_ID,
        OVERRIDE_ID,
        BUDGET_ID,
        IMAGE_NAME,
        SLUGID,
        ERROR_ID_QUERY,
        PROJECT_ID,
        RUN_ID,
        CLIENT_ID,
        ROLE_ID,
        SCOPE,
        SECRET,
        ACCESS_TOKEN,
        DIGITS,
    ];

    #[test]
    fn every_pattern_compiles_and_matches_to_the_end_of_the_text() {
        for pattern in ALL {
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
            assert!(!matches(pattern, "1\n"), "{pattern}");
        }
    }

    #[test]
    fn a_worker_pool_id_has_two_parts_and_a_small_letter_first_in_the_second() {
        for good in [
            "a/b",
            "proj-x_1/linux-2",
            "-/b",
            &format!("{}/{}", "a".repeat(38), "b".repeat(38)),
        ] {
            assert!(matches(WORKER_POOL_ID, good), "{good}");
        }
        for bad in [
            "",
            "a",
            "a/",
            "/b",
            "a/B",
            "a/1",
            "a/b-",
            "a/b/c",
            "a.b/c",
            "a/b\n",
            &format!("{}/b", "a".repeat(39)),
        ] {
            assert!(!matches(WORKER_POOL_ID, bad), "{bad}");
        }
    }

    #[test]
    fn a_launch_config_in_a_query_has_no_underscore() {
        assert!(
            matches(LAUNCH_CONFIG_ID_QUERY, "lc-12") && !matches(LAUNCH_CONFIG_ID_QUERY, "lc_12")
        );
        assert!(matches(GENERIC_ID, "lc_12") && matches(PROVIDER_ID, "lc_12"));
    }

    #[test]
    fn a_slugid_is_a_version_4_uuid() {
        assert!(matches(SLUGID, "fN1SbArXTPSVFNUvaOlinQ"));
        assert!(!matches(SLUGID, "fN1SbArXAPSVFNUvaOlinQ"), "not version 4");
        assert!(!matches(SLUGID, "fN1SbArXTPSVFNUvaOlinQA"));
    }

    #[test]
    fn clients_roles_and_runs_have_their_patterns() {
        assert!(matches(CLIENT_ID, "static/a:b.c+d|e@f!g_h-i") && !matches(CLIENT_ID, "a b"));
        assert!(
            matches(ROLE_ID, "hook-id:a b*") && !matches(ROLE_ID, "") && !matches(ROLE_ID, "ä")
        );
        assert!(matches(RUN_ID, "10") && !matches(RUN_ID, "-1"));
    }

    #[test]
    fn identifiers_match_quickly_as_their_patterns_say() {
        let letters = ["a", "Z", "0", "-", "_", "/", ".", " ", "\n", "\0", "é", "٣"];
        let mut texts = vec![String::new()];
        for first in letters {
            for second in letters {
                texts.push(format!("{first}{second}"));
                texts.extend([37, 38, 39].map(|n| format!("{}{first}", "a".repeat(n - 1))));
            }
            texts.push(first.to_owned());
        }
        for pattern in [GENERIC_ID, PROVIDER_ID] {
            for text in &texts {
                let expected = matches_compiled(pattern, text);
                assert_eq!(
                    matches_quickly(pattern, text),
                    Some(expected),
                    "{pattern} {text:?}"
                );
            }
        }
        assert_eq!(matches_quickly(SLUGID, "a"), None);
    }

    #[test]
    fn an_invalid_pattern_matches_nothing() {
        assert!(!matches("(", "(") && !matches("(", ""));
    }
}
