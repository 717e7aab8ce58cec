//! docs/security.md names the test of each line about attackers.

use crate::repository::{read, rust_files};

#[test]
fn each_line_about_attackers_names_a_test() {
    let text = read("docs/security.md");
    let (_, section) = text.split_once("## Attackers and their limits").unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let tests: Vec<&str> = rows.map(name_of_test).collect();
    assert!(tests.len() > 20, "{tests:?}");
    let files: Vec<_> = rust_files(&["src", "tests"]).collect();
    let is_missing = |test: &&str| {
        let (function, word) = (format!("fn {test}("), format!("{test},"));
        let has = |code: &str| code.contains(&function) || code.contains(&word);
        !files.iter().any(|(_, code)| has(code))
    };
    let missing: Vec<&str> = tests.into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "there are no such tests: {missing:#?}");
}

/// The last cell of a row.
fn name_of_test(row: &str) -> &str {
    let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
    cell.trim().trim_matches('`')
}
