//! Matters that have one place stay there. Files are short, and begin with a caption.

use regex::Regex;

use crate::repository::rust_files;

/// No file is longer, tests included.
const MAX_LINES: usize = 600;

#[test]
fn files_are_short_and_begin_with_a_caption() {
    let mut n_files = 0;
    for (name, text) in rust_files(&["src", "tests", "build.rs", "benches", "examples"]) {
        n_files += 1;
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{name} has {lines} lines");
        let first = text.lines().next().unwrap_or_default();
        let captioned = first.starts_with("//! ") || first.starts_with("#![doc");
        assert!(
            captioned,
            "{name} begins with {first:?} instead of a caption"
        );
    }
    assert!(n_files > 100);
}

/// insta refuses an inline snapshot that is asserted twice in one process, as tests on both
/// databases would.
#[test]
fn tests_that_run_on_both_databases_assert_snapshots_by_our_own_macro() {
    for (name, text) in rust_files(&["tests"]) {
        let ours = name.starts_with("crates/server/") || name.starts_with("crates/store/");
        let is_the_macro = name == "crates/server/tests/it/database.rs";
        assert!(
            !ours || is_the_macro || !text.contains("insta::"),
            "{name}: use `database::assert_snapshot!` instead of insta's"
        );
    }
}

/// Else tests of one process would see each other's metrics.
#[test]
fn only_the_program_records_metrics_for_the_entire_process() {
    for (name, text) in rust_files(&["src", "tests"]) {
        let may_record = [
            "crates/server/src/telemetry.rs",
            "crates/server/src/start.rs",
            "crates/bench/src/fleet/host.rs",
            "crates/tidy/tests/it/places.rs",
        ];
        assert!(
            may_record.contains(&name) || !text.contains("Telemetry::of_process"),
            "{name}: tests record with `measure_here`"
        );
    }
}

#[test]
fn only_the_store_knows_sql() {
    let sql = r#""[^"]*\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|(CREATE|ALTER|DROP)\s+(TABLE|INDEX))\b"#;
    let sql = Regex::new(sql).unwrap();
    let mut n_store = 0;
    for (name, text) in rust_files(&["src"]) {
        let found = sql.find(text).map(|found| found.as_str());
        if name.starts_with("crates/testing/") {
            continue; // It makes databases for tests.
        }
        if name.starts_with("crates/store/") {
            n_store += usize::from(found.is_some());
        } else {
            assert_eq!(found, None, "{name}");
        }
    }
    assert!(n_store > 5, "the pattern finds what it is for");
}

#[test]
fn only_the_api_and_the_client_name_http_statuses() {
    let status = Regex::new(r"StatusCode::[A-Z_]{2,}").unwrap();
    for (name, text) in rust_files(&["src"]) {
        let place = name.starts_with("crates/server/src/api/")
            || name == "crates/server/src/authentication/remote.rs"
            || name == "crates/relay/src/answer.rs"
            || name.starts_with("crates/fleetwright/src/");
        assert!(
            place || !status.is_match(text),
            "{name} names an HTTP status"
        );
    }
}
