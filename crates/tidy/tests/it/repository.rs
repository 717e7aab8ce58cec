//! The files of the repository, as the rules read them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The Rust files of all crates, with their paths from the repository, sorted.
static FILES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        for part in ["src", "tests", "benches", "examples", "build.rs"] {
            collect(&folder.as_ref().unwrap().path().join(part), &mut found);
        }
    }
    let named = found.into_iter().map(|path| {
        let name = path.strip_prefix(repository()).unwrap().to_str().unwrap();
        (name.to_owned(), std::fs::read_to_string(&path).unwrap())
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
});

pub(crate) fn repository() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.canonicalize().unwrap()
    });
    &ROOT
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// All Rust files of a folder below `crates/<name>/`, with their paths from the repository.
pub(crate) fn rust_files(folders: &[&str]) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(move |(path, text)| {
        let (_, below) = path
            .strip_prefix("crates/")
            .unwrap()
            .split_once('/')
            .unwrap();
        let is_in = |folder: &&str| {
            let rest = below.strip_prefix(*folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_asked_for = folders.iter().any(is_in);
        is_asked_for.then_some((path.as_str(), text.as_str()))
    })
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

/// `crates/domain/src/plan.rs` is a file of `domain`.
pub(crate) fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap()
}

/// Modules with other names that are built for tests only, by their paths without `.rs`.
static TEST_MODULES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let module = r"#\[cfg\(test\)\]\n *(?:pub(?:\([a-z]+\))? )?mod (\w+);";
    let module = Regex::new(module).unwrap();
    let mut modules = BTreeSet::new();
    for (path, text) in rust_files(&["src"]) {
        let path = path.strip_suffix(".rs").unwrap();
        let root = path.strip_suffix("/lib").or(path.strip_suffix("/main"));
        let found = module.captures_iter(text);
        modules.extend(found.map(|found| format!("{}/{}", root.unwrap_or(path), &found[1])));
    }
    modules
});

/// Whether a file is built for tests or benchmarks only.
pub(crate) fn is_test(path: &str) -> bool {
    let named_so = path.contains("/tests/") || path.ends_with("tests.rs");
    let module = path.trim_end_matches(".rs");
    let mut parents = Path::new(module).ancestors();
    named_so
        || path.contains("/benches/")
        || parents.any(|parent| TEST_MODULES.contains(parent.to_str().unwrap()))
}

/// The code of a file that is built without tests. The lines of tests are empty.
pub(crate) fn shipped(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    // The indentation of an item for tests.
    let mut item: Option<&str> = None;
    for line in text.lines() {
        let (space, code) = line.split_at(line.len() - line.trim_start().len());
        match item {
            None if code == "#[cfg(test)]" => item = Some(space),
            None => kept.push_str(line),
            // The tests of a file are its last module, and quote anything.
            Some("") if code.contains("mod tests {") => break,
            Some(of_item) => {
                let is_end = code.ends_with([';', ',', '}']);
                if is_end && space == of_item {
                    item = None;
                }
            }
        }
        kept.push('\n');
    }
    kept
}

/// A text without the lines that are comments, which are empty.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
        }
        code.push('\n');
    }
    code
}

/// Runs cargo in the repository, and returns what it prints.
pub(crate) fn cargo(arguments: &[&str]) -> String {
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

/// The packages below `crates/`, as cargo describes them.
pub(crate) fn our_packages() -> Vec<Value> {
    let text = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ]);
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let is_crate = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().unwrap();
        manifest.contains("/crates/")
    };
    packages.filter(is_crate).cloned().collect()
}

#[test]
fn code_of_tests_is_not_shipped() {
    let text = "use a;\n#[cfg(test)]\nuse b::{\n    c,\n};\nmod d;\n#[cfg(test)]\nmod tests;\nimpl E {\n    \
                #[cfg(test)]\n    fn f() {\n        g();\n    }\n\n    fn h() {}\n}\n\n#[cfg(test)]\n\
                mod tests {\n}\n\";\"\n";
    let kept: Vec<_> = shipped(text).lines().map(str::to_owned).collect();
    assert_eq!(kept[0..2], ["use a;", ""]);
    let code = kept.iter().filter(|line| !line.is_empty());
    let code: Vec<_> = code.map(|line| line.trim()).collect();
    assert_eq!(code, ["use a;", "mod d;", "impl E {", "fn h() {}", "}"]);
    assert_eq!(kept[14], "    fn h() {}");
}
