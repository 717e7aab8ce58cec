//! Crates use only those below them, and ARCHITECTURE.md has a map of all.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::repository::{our_packages, read, repository, rust_files};

/// The crates that each crate may use: those of the layers below it, never its neighbours.
const MAY_USE: [(&str, &[&str]); 25] = [
    ("tidy", &[]),
    ("testing", &[]),
    ("access", &[]),
    ("api_client", &["access"]),
    ("contract", &[]),
    ("rules", &[]),
    ("files", &[]),
    ("permissions", &[]),
    ("processes", &[]),
    ("documentation", &[]),
    ("page", &["api_client", "domain"]),
    ("tls", &["api_client"]),
    ("domain", &["access", "contract", "rules"]),
    ("rule_import", &["rules", "files", "domain"]),
    ("simulate", &["page", "domain"]),
    ("store", &["access", "contract", "rules", "domain"]),
    (
        "cloud",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
            "permissions",
            "processes",
            "domain",
        ],
    ),
    (
        "backplane",
        &["access", "api_client", "contract", "rules", "domain"],
    ),
    (
        "worker",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
            "permissions",
            "processes",
            "domain",
        ],
    ),
    ("relay", &["access", "api_client", "domain", "tls"]),
    (
        "images",
        &[
            "access",
            "contract",
            "permissions",
            "processes",
            "domain",
            "cloud",
            "backplane",
        ],
    ),
    (
        "engine",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
            "documentation",
            "permissions",
            "domain",
            "store",
            "cloud",
            "backplane",
        ],
    ),
    (
        "server",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
            "documentation",
            "page",
            "permissions",
            "domain",
            "simulate",
            "store",
            "cloud",
            "backplane",
            "images",
            "engine",
            "tls",
        ],
    ),
    (
        "fleetwright",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
            "files",
            "documentation",
            "permissions",
            "processes",
            "domain",
            "rule_import",
            "simulate",
            "store",
            "cloud",
            "backplane",
            "images",
            "worker",
            "relay",
            "engine",
            "server",
        ],
    ),
    (
        "bench",
        &[
            "access",
            "api_client",
            "contract",
            "domain",
            "store",
            "cloud",
            "backplane",
            "images",
            "engine",
            "server",
        ],
    ),
];

#[test]
fn crates_are_built_only_on_those_below_them() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in our_packages() {
        let name = our_name(package["name"].as_str().unwrap());
        let manifest = package["manifest_path"].as_str().unwrap();
        let is_called_as_its_folder = manifest.ends_with(&format!("/crates/{name}/Cargo.toml"));
        assert!(
            is_called_as_its_folder,
            "{manifest} calls its package {name}"
        );
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ours = dependencies
            .filter(|dependency| dependency.get("path").is_some_and(Value::is_string))
            .map(|dependency| {
                let used = our_name(dependency["name"].as_str().unwrap());
                (used, &dependency["kind"])
            });
        // Every crate's tests may use what is for tests only.
        let ours = ours.filter(|(used, kind)| *kind != "dev" || *used != "testing");
        let ours: BTreeSet<String> = ours.map(|(used, _)| used.to_owned()).collect();
        uses.insert(name.to_owned(), ours);
    }
    let known: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(uses.keys().cloned().collect::<BTreeSet<_>>(), known);
    for (name, allowed) in MAY_USE {
        let allowed: BTreeSet<_> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let wrong: Vec<_> = uses[name].difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} must not use {wrong:?}");
    }
}

/// A published package has the name of its folder behind ours, because others own the short names.
fn our_name(package: &str) -> &str {
    package.strip_prefix("fleetwright-").unwrap_or(package)
}

const MAP_START: &str = "<!-- code map -->\n\n";
const MAP_END: &str = "<!-- end of code map -->";

/// One line for each larger folder: the caption of its module. `UPDATE_DOCS=1` writes it instead.
/// The lines about entire crates are written by hand.
#[test]
fn the_code_map_has_the_caption_of_every_folders_module() {
    let text = read("ARCHITECTURE.md");
    let (before, rest) = text.split_once(MAP_START).unwrap();
    let (map, after) = rest.split_once(MAP_END).unwrap();
    let headings: Vec<&str> = map.lines().filter(|line| line.starts_with('`')).collect();
    assert_eq!(headings.len(), MAY_USE.len(), "one line about each crate");
    let captions: BTreeMap<&str, &str> = rust_files(&["src"])
        .map(|(name, text)| (name, caption(text)))
        .collect();
    let mut lines = Vec::new();
    for heading in headings {
        let source = heading.split('`').nth(1).unwrap();
        lines.extend([heading.to_owned(), String::new()]);
        for folder in folders_below(source, captions.keys().copied()) {
            let module = format!("{source}/{folder}.rs");
            let caption = captions.get(module.as_str());
            let caption = caption.unwrap_or_else(|| panic!("{source}/{folder}/ has no {module}"));
            lines.push(format!("- `{folder}/` {caption}"));
        }
        if lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(String::new());
        }
    }
    lines.pop();
    let map = lines.join("\n");
    let wanted = format!("{before}{MAP_START}{map}\n{MAP_END}{after}");
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(repository().join("ARCHITECTURE.md"), &wanted).unwrap();
    }
    assert!(
        read("ARCHITECTURE.md") == wanted,
        "the code map of ARCHITECTURE.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

fn caption(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("//! ").unwrap_or_default()
}

/// A folder with fewer files is part of its module, which stands beside it.
const FILES_OF_A_LISTED_FOLDER: usize = 5;

/// Those with code in them; tests are found beside what they test.
fn folders_below<'a>(source: &str, files: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut folders = BTreeMap::<String, usize>::new();
    for file in files {
        let below = file
            .strip_prefix(source)
            .and_then(|rest| rest.strip_prefix('/'));
        let mut folder = below.and_then(|below| below.rsplit_once('/'));
        while let Some((path, _)) = folder {
            let is_for_tests = path.split('/').any(|part| part == "tests");
            if !is_for_tests {
                *folders.entry(path.to_owned()).or_default() += 1;
            }
            folder = path.rsplit_once('/');
        }
    }
    folders.retain(|_, n_files| *n_files >= FILES_OF_A_LISTED_FOLDER);
    folders.into_keys().collect()
}

#[test]
fn the_architecture_is_short_enough_to_be_read() {
    let bytes = read("ARCHITECTURE.md").len();
    assert!(bytes <= 20_480, "{bytes} bytes");
}
