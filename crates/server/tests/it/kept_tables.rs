//! Every table has an entry in the documentation that says what bounds it.

use std::collections::BTreeSet;

use regex::Regex;

use crate::database::on_both;
use crate::references::repository;

/// Made by SQLite itself.
const OF_SQLITE: &str = "sqlite_sequence";

/// The rows of the table in the documentation: the names of tables, and how long they are kept.
fn documented() -> Vec<(Vec<String>, String)> {
    let text = std::fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    let (_, section) = text
        .split_once("## Tables, and how long their rows are kept")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let name = Regex::new("`([a-z_]+)`").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let names = name
            .captures_iter(cells[0])
            .map(|found| found[1].to_owned());
        (names.collect(), cells[1].trim().to_owned())
    });
    rows.collect()
}

on_both!(every_table_is_documented_with_its_bound, |world| {
    let rows = documented();
    let mut found = BTreeSet::new();
    for (names, kept) in &rows {
        assert!(kept.len() > 4, "{names:?} need a bound");
        for name in names {
            assert!(found.insert(name.clone()), "{name} is listed twice");
        }
    }
    let tables = world.app.engine.store.count_rows().await.unwrap();
    let tables: BTreeSet<String> = tables
        .into_keys()
        .filter(|name| name != OF_SQLITE)
        .collect();
    assert_eq!(
        found, tables,
        "docs/operations.md says how long the rows of each table are kept"
    );
});

#[test]
fn settings_in_the_list_of_tables_exist() {
    let example = std::fs::read_to_string(repository().join("docs/config.example.toml")).unwrap();
    let setting = Regex::new("`(worker_manager|fleet)\\.([a-z_]+)`").unwrap();
    let mut n_settings = 0;
    for (_, kept) in documented() {
        for found in setting.captures_iter(&kept) {
            let line = format!("\n{} = ", &found[2]);
            assert!(example.contains(&line), "{}", &found[0]);
            n_settings += 1;
        }
    }
    assert!(n_settings > 5, "{n_settings}");
}
