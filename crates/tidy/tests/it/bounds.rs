//! Every constant that bounds a batch, page, list, queue or number of things at once has a counting
//! test.
//!
//! Such a test uses `testing::sizes_around` with the path of the constant.

use std::collections::BTreeSet;

use regex::Regex;

use crate::bounds_listed::EXCUSED;
use crate::repository::{is_test, rust_files, shipped};

/// Names that say that they bound a time or a text.
const OTHER_UNITS: [&str; 10] = [
    "_MS",
    "_SECONDS",
    "_MINUTES",
    "_HOURS",
    "_DAYS",
    "_BYTES",
    "_CHARS",
    "_CHARACTERS",
    "_LENGTH",
    "_MIB",
];

/// The whole numbers among the constants of all crates, by their paths.
fn constants() -> BTreeSet<String> {
    let constant =
        r"(?m)^\s*(?:pub(?:\([a-z]+\))? )?const ([A-Z0-9_]+): (?:usize|[ui](?:8|16|32|64)) =";
    let constant = Regex::new(constant).unwrap();
    let mut found = BTreeSet::new();
    for (file, text) in rust_files(&["src"]) {
        if is_test(file) {
            continue;
        }
        for name in constant.captures_iter(&shipped(text)) {
            let name = &name[1];
            if !OTHER_UNITS.iter().any(|unit| name.ends_with(unit)) {
                found.insert(format!("{}::{name}", module(file)));
            }
        }
    }
    found
}

/// `crates/server/src/background/publish.rs` is `server::background::publish`.
fn module(file: &str) -> String {
    let path = file.strip_prefix("crates/").unwrap();
    let path = path.strip_suffix(".rs").unwrap();
    let path = path.replacen("/src/", "/", 1).replace('/', "::");
    let root = ["::lib", "::main"];
    let crate_root = root.iter().find_map(|root| path.strip_suffix(root));
    crate_root.unwrap_or(&path).to_owned()
}

/// The constants around which a test counts.
fn counted() -> BTreeSet<String> {
    let named = Regex::new(r#"sizes_around\(\s*"([a-z0-9_:]+::[A-Z0-9_]+)""#).unwrap();
    let files = rust_files(&["src", "tests"]);
    let files = files.filter(|(file, _)| !file.starts_with("crates/testing/"));
    let named = files.flat_map(|(_, text)| named.captures_iter(text));
    named.map(|found| found[1].to_owned()).collect()
}

fn is_excused(constant: &str) -> bool {
    let mut patterns = EXCUSED.iter().flat_map(|(_, patterns)| patterns.iter());
    patterns.any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => constant.starts_with(start),
        None => constant == *pattern,
    })
}

#[test]
fn every_constant_that_bounds_something_has_a_test_that_counts_around_it() {
    let (constants, counted) = (constants(), counted());
    assert!(constants.len() > 200, "the pattern finds what it is for");
    let new: Vec<_> = constants
        .iter()
        .filter(|name| !counted.contains(*name) && !is_excused(name))
        .collect();
    assert!(
        new.is_empty(),
        "{new:#?} may bound something: write a test that goes through `sizes_around` with this path, \
         or give the reason why none is needed in bounds_listed.rs"
    );
}

#[test]
fn named_bounds_exist_and_excused_ones_have_no_test() {
    let (constants, counted) = (constants(), counted());
    let unknown: Vec<_> = counted.difference(&constants).collect();
    assert!(unknown.is_empty(), "no such constant: {unknown:#?}");
    for (reason, patterns) in EXCUSED {
        for pattern in *patterns {
            let start = pattern.trim_end_matches('*');
            let known = constants.iter().any(|name| name.starts_with(start));
            assert!(known, "no such constant: {pattern} ({reason})");
        }
    }
    let needless: Vec<_> = counted.iter().filter(|name| is_excused(name)).collect();
    assert!(
        needless.is_empty(),
        "these have tests: remove them from bounds_listed.rs: {needless:#?}"
    );
}
