//! Modules import each other in one direction: no circle between the folders of a crate, none
//! between its files.
//!
//! Circles that exist are listed with their size, and may only become smaller.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{Imports, crates};

/// A circle that is left: its crate, one of its files, and their number. A name with a `/` is a
/// folder of the crate, with the file beside it.
type KnownRing = (&'static str, &'static str, usize);

const KNOWN: [KnownRing; 46] = [
    ("access", "hawk", 5),
    ("access", "role", 2),
    ("backplane", "broker/", 2),
    ("backplane", "broker", 2),
    ("backplane", "taskcluster_queue", 2),
    ("backplane", "tree", 7),
    ("backplane", "tree::embedded", 2),
    ("bench", "accounts", 3),
    ("bench", "all", 4),
    ("bench", "fleet", 4),
    ("bench", "fleet::year", 2),
    ("cloud", "aws", 2),
    ("cloud", "fake", 3),
    ("cloud", "image::object_store", 2),
    ("cloud", "local", 2),
    ("cloud", "protocol", 3),
    ("contract", "payload_schema", 2),
    ("documentation", "lib/", 9),
    ("documentation", "lib", 9),
    ("domain", "budgets", 2),
    ("domain", "configuration", 7),
    ("domain", "facts", 2),
    ("domain", "plan", 20),
    ("domain", "waits", 2),
    ("engine", "engine/", 9),
    ("engine", "engine", 24),
    ("engine", "fleet::learn", 4),
    ("engine", "pools", 3),
    ("files", "lib/", 3),
    ("files", "lib", 3),
    ("fleetwright", "commands::explain", 4),
    ("fleetwright", "commands::image", 5),
    ("fleetwright", "commands::rules", 5),
    ("fleetwright", "commands::task", 3),
    ("fleetwright", "output", 2),
    ("images", "builder", 6),
    ("rule_import", "nodepool", 6),
    ("rules", "lint", 4),
    ("server", "api::worker_manager::documentation", 2),
    ("server", "api::worker_manager::list_workers", 2),
    ("server", "authentication", 2),
    ("server", "config", 8),
    ("server", "notify", 7),
    ("server", "telemetry", 2),
    ("simulate", "study", 2),
    ("simulate", "world", 2),
];

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut found = Vec::new();
    for (name, imports) in crates() {
        for ring in [rings(&by_folder(&imports)), rings(&imports)].concat() {
            found.push((name.clone(), ring));
        }
    }
    let problems = compare(&found, &KNOWN);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The circles that are new, or have another size than the known ones.
fn compare(found: &[(String, Vec<String>)], known: &[KnownRing]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_of = |(of, ring): &(String, Vec<String>), known: &KnownRing| {
        of == known.0 && ring.iter().any(|file| file == known.1)
    };
    for circle in found {
        let (name, ring) = circle;
        let largest = known.iter().filter(|known| is_of(circle, known));
        let size = largest.map(|(_, _, size)| *size).max().unwrap_or_default();
        let files = ring.join(", ");
        let n_files = ring.len();
        match n_files.cmp(&size) {
            Ordering::Greater if size == 0 => {
                problems.push(format!("{name}: {n_files} import each other: {files}"));
            }
            Ordering::Greater => problems.push(format!(
                "{name}: {n_files} import each other, which were {size}: {files}"
            )),
            Ordering::Less => problems.push(format!(
                "{name}: write {n_files} in rings.rs for these, which were {size}: {files}"
            )),
            Ordering::Equal => {}
        }
    }
    for lost in known {
        if !found.iter().any(|circle| is_of(circle, lost)) {
            let (name, file, _) = lost;
            problems.push(format!(
                "{name}: remove {file} from rings.rs: it is in no circle"
            ));
        }
    }
    problems
}

#[test]
fn circles_may_only_become_smaller() {
    let ring = |of: &str, files: &[&str]| {
        let files = files.iter().map(|file| (*file).to_owned());
        (of.to_owned(), files.collect::<Vec<_>>())
    };
    let known = [("x", "a", 3), ("x", "d", 2)];
    let same = [ring("x", &["a", "b", "c"]), ring("x", &["d", "e"])];
    assert_eq!(compare(&same, &known), Vec::<String>::new());
    for (found, problem) in [
        (ring("x", &["a", "b"]), "write 2 in rings.rs"),
        (
            ring("x", &["a", "b", "c", "f"]),
            "4 import each other, which were 3: a, b, c, f",
        ),
        (
            ring("x", &["d", "a", "b", "e"]),
            "4 import each other, which were 3",
        ),
        (ring("x", &["f", "g"]), "x: 2 import each other: f, g"),
        (ring("y", &["a", "b"]), "y: 2 import each other: a, b"),
    ] {
        let problems = compare(&[found], &known);
        assert!(problems[0].contains(problem), "{problems:?}");
    }
    assert_eq!(compare(&[], &known).len(), 2);
}

#[test]
fn a_circle_is_found_without_the_modules_outside_it() {
    let imports = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e")];
    let mut graph = Imports::new();
    for (from, to) in imports {
        graph
            .entry(from.to_owned())
            .or_default()
            .insert(to.to_owned());
    }
    assert_eq!(rings(&graph), [["b".to_owned(), "c".to_owned()]]);
}

fn by_folder(imports: &Imports) -> Imports {
    let folder = |module: &str| format!("{}/", module.split("::").next().unwrap());
    let mut folders = Imports::new();
    for (module, others) in imports {
        let own = folder(module);
        let others = others.iter().map(|other| folder(other));
        let others: BTreeSet<String> = others.filter(|other| *other != own).collect();
        folders.entry(own).or_default().extend(others);
    }
    folders
}

/// Modules that can be reached from themselves, those of one circle together.
fn rings(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|module| (module, reach(module, imports)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reached {
        let back = |other: &&&String| {
            reached
                .get(**other)
                .is_some_and(|them| them.contains(module))
        };
        let ring: BTreeSet<String> = others
            .iter()
            .filter(back)
            .map(|other| (*other).clone())
            .collect();
        if ring.len() > 1 {
            found.insert(ring.into_iter().collect());
        }
    }
    found.into_iter().collect()
}

fn reach<'a>(module: &str, imports: &'a Imports) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = imports.get(module).into_iter().flatten().collect();
    while let Some(other) = next.pop() {
        if reached.insert(other) {
            next.extend(imports.get(other).into_iter().flatten());
        }
    }
    reached
}
