//! Rules of the project that the compiler does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde_json::Value;

/// No file is longer, tests included.
const MAX_LINES: usize = 600;

/// The crates that each crate may use: those of the layers below it, never its neighbours.
const MAY_USE: [(&str, &[&str]); 20] = [
    ("testing", &[]),
    ("access", &[]),
    ("api_client", &["access"]),
    ("contract", &[]),
    ("rules", &[]),
    ("files", &[]),
    ("processes", &[]),
    ("documentation", &[]),
    ("domain", &["access", "contract", "rules"]),
    ("rule_import", &["rules", "files", "domain"]),
    ("simulate", &["domain"]),
    ("store", &["access", "contract", "rules", "domain"]),
    (
        "cloud",
        &[
            "access",
            "api_client",
            "contract",
            "rules",
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
            "processes",
            "domain",
        ],
    ),
    (
        "images",
        &[
            "access",
            "contract",
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
            "domain",
            "store",
            "cloud",
            "backplane",
            "images",
            "engine",
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
            "domain",
            "rule_import",
            "simulate",
            "store",
            "cloud",
            "backplane",
            "images",
            "worker",
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

/// Cryptography that is never built: there is one library for it, aws-lc-rs.
const NOT_BUILT: [&str; 4] = ["ring", "openssl", "openssl-sys", "native-tls"];
/// Those of them that may stand in `Cargo.lock`: parts of quinn-proto and rustls-webpki that are
/// locked as they could be switched on, and that nothing switches on.
const LOCKED_ONLY: [&str; 1] = ["ring"];

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(repository())
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn metadata() -> Value {
    let text = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ]);
    serde_json::from_str(&text).unwrap()
}

/// All Rust files of a folder below `crates/<name>/`, with their paths from the repository.
pub(crate) fn rust_files(folders: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        for part in folders {
            collect(&folder.as_ref().unwrap().path().join(part), &mut found);
        }
    }
    let root = repository().canonicalize().unwrap();
    let named = found.into_iter().map(|path| {
        let name = path.canonicalize().unwrap();
        let name = name.strip_prefix(&root).unwrap().display().to_string();
        (name, std::fs::read_to_string(&path).unwrap())
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
        found.push(path.to_owned());
    }
}

#[test]
fn crates_are_built_only_on_those_below_them() {
    // Tests of the server simulate what it recorded.
    let tests_may_use = [("server", "simulate")];
    let metadata = metadata();
    let short = |name: &str| {
        let short = name.strip_prefix("fleetwright-").unwrap_or(name);
        short.replace('-', "_")
    };
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = short(package["name"].as_str().unwrap());
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let ours = dependencies
            .filter(|dependency| dependency.get("path").is_some_and(Value::is_string))
            .map(|dependency| {
                (
                    short(dependency["name"].as_str().unwrap()),
                    &dependency["kind"],
                )
            });
        // Every crate's tests may use what is for tests only.
        let ours = ours.filter(|(used, kind)| {
            let may_use = tests_may_use.contains(&(name.as_str(), used.as_str()));
            *kind != "dev" || used != "testing" && !may_use
        });
        let ours: BTreeSet<String> = ours.map(|(used, _)| used).collect();
        uses.insert(name, ours);
    }
    let known: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(uses.keys().cloned().collect::<BTreeSet<_>>(), known);
    for (name, allowed) in MAY_USE {
        let allowed: BTreeSet<_> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let wrong: Vec<_> = uses[name].difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} must not use {wrong:?}");
    }
}

#[test]
fn files_are_short_and_begin_with_a_caption() {
    let files = rust_files(&["src", "tests", "build.rs", "benches", "examples"]);
    assert!(files.len() > 100);
    for (name, text) in files {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{name} has {lines} lines");
        let first = text.lines().next().unwrap_or_default();
        let captioned = first.starts_with("//! ") || first.starts_with("#![doc");
        assert!(
            captioned,
            "{name} begins with {first:?} instead of a caption"
        );
    }
}

/// insta refuses an inline snapshot that is asserted twice in one process, as tests on both
/// databases would.
#[test]
fn tests_that_run_on_both_databases_assert_snapshots_by_our_own_macro() {
    for (name, text) in rust_files(&["tests"]) {
        let ours = name.starts_with("crates/server/") || name.starts_with("crates/store/");
        let is_the_macro = name == "crates/server/tests/it/database.rs";
        assert!(
            !ours || is_the_macro || name.ends_with("tidy.rs") || !text.contains("insta::"),
            "{name}: use `database::assert_snapshot!` instead of insta's"
        );
    }
}

/// Else tests of one process would see each other's metrics.
#[test]
fn only_the_program_records_metrics_for_the_entire_process() {
    for (name, text) in rust_files(&["src", "tests"]) {
        let of_program = [
            "server/src/telemetry.rs",
            "server/src/start.rs",
            "bench/src/fleet/host.rs",
        ];
        let of_program = of_program.iter().any(|file| name.ends_with(file));
        assert!(
            of_program || name.ends_with("tidy.rs") || !text.contains("Telemetry::of_process"),
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
        let found = sql.find(&text).map(|found| found.as_str());
        if name.starts_with("crates/store/") {
            n_store += usize::from(found.is_some());
        } else if !name.starts_with("crates/testing/") {
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
            || name.starts_with("crates/fleetwright/src/");
        assert!(
            place || !status.is_match(&text),
            "{name} names an HTTP status"
        );
    }
}

#[test]
fn there_is_one_library_for_cryptography() {
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let locked = |name: &&str| lock.contains(&format!("name = \"{name}\"\n"));
    let found: Vec<&str> = NOT_BUILT.into_iter().filter(|name| locked(name)).collect();
    assert_eq!(found, LOCKED_ONLY);
    assert!(locked(&"aws-lc-rs"));
    let built = cargo(&[
        "tree",
        "--workspace",
        "--offline",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--edges",
        "normal,build,dev",
    ]);
    for line in built.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(!NOT_BUILT.contains(&name), "{line} is built");
    }
}

const MAP_START: &str = "<!-- code map -->\n\n";
const MAP_END: &str = "<!-- end of code map -->";

/// One line for each larger folder: the caption of its module. `UPDATE_DOCS=1` writes it instead.
/// The lines about entire crates are written by hand.
#[test]
fn the_code_map_has_the_caption_of_every_folders_module() {
    let path = repository().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MAP_START).unwrap();
    let (map, after) = rest.split_once(MAP_END).unwrap();
    let headings: Vec<&str> = map.lines().filter(|line| line.starts_with('`')).collect();
    assert_eq!(headings.len(), MAY_USE.len(), "one line about each crate");
    let captions: BTreeMap<String, String> = rust_files(&["src"])
        .into_iter()
        .map(|(name, text)| (name, caption(&text).to_owned()))
        .collect();
    let mut lines = Vec::new();
    for heading in headings {
        let source = heading.split('`').nth(1).unwrap();
        lines.extend([heading.to_owned(), String::new()]);
        for folder in folders_below(source, captions.keys()) {
            let module = format!("{source}/{folder}.rs");
            let caption = captions.get(&module);
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
        std::fs::write(&path, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == wanted,
        "the code map of ARCHITECTURE.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

fn caption(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("//! ").unwrap_or_default()
}

/// A folder with fewer files is part of its module, which stands beside it.
const FILES_OF_A_LISTED_FOLDER: usize = 3;

/// Those with code in them; tests are found beside what they test.
fn folders_below<'a>(source: &str, files: impl Iterator<Item = &'a String>) -> Vec<String> {
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
    let path = repository().join("ARCHITECTURE.md");
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes <= 20_480, "{bytes} bytes");
}
