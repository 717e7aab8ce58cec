//! Tests of patterns.

use fleetwright_rules::{BadPattern, Pattern};

#[test]
fn a_table_of_globs() {
    let table: [(&str, &[&str], &[&str]); 21] = [
        (
            "us-east-1",
            &["us-east-1"],
            &["us-east-1a", "US-east-1", "", "us-east-"],
        ),
        ("*", &["", "anything", "a/b"], &[]),
        ("**", &["", "a/b"], &[]),
        (
            "us-*",
            &["us-", "us-east-1", "us-a/b"],
            &["eu-west-1", "us"],
        ),
        ("*-1", &["-1", "us-east-1"], &["us-east-2"]),
        ("us-*-1", &["us--1", "us-east-1"], &["us-1", "us-east-2"]),
        ("ab*ba", &["abba", "ab-ba"], &["aba"]),
        ("*east*", &["us-east-1", "east"], &["us-west-1"]),
        ("a/**/b", &["a//b", "a/x/b", "a/x/y/b"], &["a/b"]),
        ("?", &["a", "/"], &["", "ab"]),
        ("us-east-1?", &["us-east-1a"], &["us-east-1", "us-east-1ab"]),
        (
            "us-east-1[a-c]",
            &["us-east-1a", "us-east-1c"],
            &["us-east-1d", "us-east-1A"],
        ),
        (
            "us-east-1[!a-c]",
            &["us-east-1d"],
            &["us-east-1a", "us-east-1"],
        ),
        ("us-east-1[^a-c]", &["us-east-1d"], &["us-east-1a"]),
        ("[]]", &["]"], &["[", ""]),
        ("[*?]", &["*", "?"], &["a"]),
        ("{us,eu}-*", &["us-east-1", "eu-"], &["ap-1", "us"]),
        ("a{,b{c,d}}", &["a", "abc", "abd"], &["ab", "b"]),
        (r"a\*", &["a*"], &["ab", r"a\*"]),
        (r"\{a,b\}", &["{a,b}"], &["a", "b"]),
        ("größe-*,]", &["größe-1,]"], &["grosse-1,]"]),
    ];
    for (pattern, matching, others) in table {
        let parsed = Pattern::parse(pattern).unwrap();
        assert_eq!(parsed.as_str(), pattern);
        for value in matching {
            assert!(parsed.matches(value), "{pattern} matches {value:?}");
        }
        for value in others {
            assert!(!parsed.matches(value), "{pattern} does not match {value:?}");
        }
    }
}

#[test]
fn an_invalid_glob_has_its_reason() {
    let problem = |text: &str| Pattern::parse(text).unwrap_err();
    for text in ["[a", "{a", "a}", "a\\", "[z-a]", "{a,{b}"] {
        assert!(matches!(problem(text), BadPattern::Syntax(..)), "{text}");
    }
    assert_eq!(problem("[ö]"), BadPattern::NotAscii('ö'));
    assert_eq!(problem(&"{".repeat(9)), BadPattern::TooDeep);
    assert_eq!(problem(&"a".repeat(257)), BadPattern::TooLong(257));
}
