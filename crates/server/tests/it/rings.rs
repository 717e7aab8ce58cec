//! Modules import each other in one direction: no circle between the folders of a crate, none between its files.
//!
//! What the root of a crate exports is not followed: in `engine`, workflows take the `Engine`, which keeps for them what
//! is only in memory.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::tidy::rust_files;

type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut found = BTreeSet::new();
    for (name, imports) in crates() {
        for ring in rings(&by_folder(&imports))
            .into_iter()
            .chain(rings(&imports))
        {
            found.insert((name.clone(), ring));
        }
    }
    assert_eq!(found, BTreeSet::new());
}

#[test]
fn a_circle_is_found_and_what_only_follows_from_one_is_not() {
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

#[test]
fn paths_lead_to_the_modules_that_they_name() {
    let modules = ["a", "a::b", "a::c", "d"].map(str::to_owned).into();
    for (path, module) in [
        ("crate::d::Thing", Some("d")),
        ("crate::a::b::thing", Some("a::b")),
        ("super::c", Some("a::c")),
        ("super::super::d", Some("d")),
        // An item of the parent, and the file itself.
        ("super::Thing", None),
        ("crate::a::b", Some("a::b")),
        ("crate::Thing", None),
    ] {
        let found = resolve("a::c", path, &modules);
        let found = found.filter(|found| found != "a");
        assert_eq!(found.as_deref(), module, "{path}");
    }
}

/// What the modules of each crate import from it. An item of a module's parent is not counted.
fn crates() -> BTreeMap<String, Imports> {
    let mut sources: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in rust_files(&["src"]) {
        let path = path.strip_prefix("crates/").unwrap();
        let (name, file) = path.split_once("/src/").unwrap();
        let module = file.trim_end_matches(".rs").replace('/', "::");
        if !["lib", "main"].contains(&module.as_str()) {
            sources
                .entry(name.to_owned())
                .or_default()
                .insert(module, text);
        }
    }
    let paths = Regex::new(r"\b(?:crate|super)(?:::[a-z_0-9]+)+(?:::\{[^}]*\})?").unwrap();
    let of_crate = |files: BTreeMap<String, String>| {
        let modules: BTreeSet<String> = files.keys().cloned().collect();
        let imports = files.iter().map(|(module, text)| {
            let text = text.split("#[cfg(test)]").next().unwrap();
            let code: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().starts_with("//"))
                .collect();
            let code = code.join("\n");
            let named = paths
                .find_iter(&code)
                .flat_map(|path| expand(path.as_str()));
            let parent = module.rsplit_once("::").map(|(parent, _)| parent);
            let known = named.filter_map(|path| resolve(module, &path, &modules));
            let others = known.filter(|known| known != module && Some(known.as_str()) != parent);
            (module.clone(), others.collect())
        });
        imports.collect()
    };
    sources
        .into_iter()
        .map(|(name, files)| (name, of_crate(files)))
        .collect()
}

/// `crate::a::{b, c}` names two paths.
fn expand(path: &str) -> Vec<String> {
    match path.split_once("::{") {
        None => vec![path.to_owned()],
        Some((start, rest)) => {
            let names = rest.trim_end_matches('}').split(',').map(str::trim);
            names.map(|name| format!("{start}::{name}")).collect()
        }
    }
}

/// The deepest module that a path in a module names.
fn resolve(module: &str, path: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut at: Vec<&str> = match path.starts_with("crate") {
        true => Vec::new(),
        false => module.split("::").collect(),
    };
    for part in path.split("::") {
        match part {
            "crate" => {}
            "super" => {
                at.pop();
            }
            part => at.push(part),
        }
    }
    while !at.is_empty() {
        let name = at.join("::");
        if modules.contains(&name) {
            return Some(name);
        }
        at.pop();
    }
    None
}

fn by_folder(imports: &Imports) -> Imports {
    let folder = |module: &str| module.split("::").next().unwrap().to_owned();
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
