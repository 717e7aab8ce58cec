//! `docs/designs.md` names places that exist, for every sentence of the designs.

use std::collections::BTreeMap;

use regex::Regex;

use crate::repository::{read, repository};

const PAGE: &str = "docs/designs.md";

/// The designs by the prefix of their sentences, with the number of these.
const DESIGNS: [(&str, usize); 5] = [("124", 104), ("P", 35), ("145", 19), ("191", 49), ("N", 31)];

/// The states that a row may have.
const STATES: [&str; 3] = ["done", "different", "partly"];

/// The clouds without a provider: the only reason for `partly`.
const MISSING_CLOUDS: [&str; 2] = ["openstack", "kubernetes"];

/// A row of a table: one sentence, or several of one design.
struct Row<'a> {
    design: &'a str,
    /// Its cells but the first.
    cells: Vec<&'a str>,
    numbers: Vec<usize>,
}

impl Row<'_> {
    fn name(&self) -> String {
        format!("{}-{}", self.design, self.numbers[0])
    }
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut design = None;
    for line in page.lines().filter(|line| !line.starts_with("|--")) {
        let Some(cells) = line.strip_prefix("| ").and_then(|it| it.strip_suffix('|')) else {
            // A table without a prefix in its first heading is not about sentences.
            design = None;
            continue;
        };
        let mut cells = cells.split('|').map(str::trim);
        let first = cells.next().unwrap();
        if let Some(prefix) = first.strip_suffix('-') {
            design = Some(prefix);
        } else if let Some(design) = design {
            rows.push(Row {
                design,
                cells: cells.collect(),
                numbers: numbers(first),
            });
        }
    }
    rows
}

/// `1, 3 to 5` is 1, 3, 4, 5.
fn numbers(text: &str) -> Vec<usize> {
    let parts = text.split(", ").flat_map(|part| {
        let (first, last) = part.split_once(" to ").unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    parts.collect()
}

#[test]
fn every_sentence_of_the_designs_has_one_row() {
    let page = read(PAGE);
    let mut found: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for row in rows(&page) {
        found.entry(row.design).or_default().extend(row.numbers);
    }
    for (design, count) in DESIGNS {
        let mut numbers = found.remove(design).unwrap_or_default();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=count), "sentences of {design}");
    }
    assert!(found.is_empty(), "unknown designs: {found:?}");
}

#[test]
fn every_row_has_a_state_and_says_where_it_is_seen() {
    let page = read(PAGE);
    for row in rows(&page) {
        let name = row.name();
        let [sentence, state, place, test] = row.cells[..] else {
            panic!("{name} has {} cells and its number", row.cells.len());
        };
        assert!(STATES.contains(&state), "{name} has the state {state:?}");
        assert!(place.contains('`'), "{name} names no place in the code");
        assert!(!test.is_empty(), "{name} names no test and no record");
        if state == "different" {
            assert!(test.contains("decisions/"), "{name} names no decision");
        }
        if state == "partly" {
            let missing = MISSING_CLOUDS.iter().all(|cloud| sentence.contains(cloud));
            assert!(missing, "{name} lacks more than clouds");
        }
    }
}

#[test]
fn every_place_of_the_designs_exists() {
    let page = read(PAGE);
    let place = Regex::new(r"`((?:crates|docs|scripts|tests)/[^`:]+)(?:::([a-z0-9_]+))?`").unwrap();
    let decision = Regex::new(r"\[decision (\d+)\]\((decisions/(\d+)-[^)]+)\)").unwrap();
    let mut n_places = 0;
    for row in rows(&page) {
        let name = row.name();
        for cell in &row.cells[2..] {
            // Other texts would not be checked, so the cells have none.
            let unknown = decision.replace_all(cell, "");
            let unknown = place.replace_all(&unknown, "");
            let unknown = unknown.replace([',', ' '], "");
            assert_eq!(unknown, "", "{name} names an unknown kind of place");
            for found in place.captures_iter(cell) {
                n_places += 1;
                let path = &found[1];
                let is_there = repository().join(path).exists();
                assert!(is_there, "{name} names {path}, which does not exist");
                if let Some(test) = found.get(2).map(|test| test.as_str()) {
                    let is_defined = defines_test(&read(path), test);
                    assert!(is_defined, "{name}: {path} has no test {test}");
                }
            }
            for found in decision.captures_iter(cell) {
                let (number, path) = (&found[1], format!("docs/{}", &found[2]));
                assert_eq!(found[3].trim_start_matches('0'), number, "{name}");
                let is_there = repository().join(&path).exists();
                assert!(is_there, "{name} names {path}, which does not exist");
            }
        }
    }
    assert!(n_places > 300, "only {n_places} places were checked");
}

/// Whether a file has a test of this name: a function, a macro's first argument, or a module of one
/// test for each database.
fn defines_test(text: &str, name: &str) -> bool {
    let definition = format!(r"(?:\b(?:fn|mod|parallel)\s+|!\(\s*){name}\b");
    Regex::new(&definition).unwrap().is_match(text)
}

#[test]
fn tests_are_found_by_their_definitions_only() {
    for text in [
        "#[test]\nfn a_name() {}",
        "on_both!(a_name, |world| {",
        "on_both!(parallel a_name, |world| {",
        "fleet_test!(\n    a_name,\n",
        "mod a_name {",
    ] {
        assert!(defines_test(text, "a_name"), "{text}");
    }
    for text in ["fn a_name_too() {}", "// a_name", "a_name()", ""] {
        assert!(!defines_test(text, "a_name"), "{text}");
    }
}

#[test]
fn rows_are_numbered_by_themselves_in_lists_and_in_ranges() {
    let page =
        "| P- | Sentence |\n|---|---|\n| 1, 3 to 5 | a |\n\n| Other | b |\n|---|---|\n| x | c |\n";
    let rows = rows(page);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].design, &rows[0].cells), ("P", &vec!["a"]));
    assert_eq!(rows[0].numbers, [1, 3, 4, 5]);
}
