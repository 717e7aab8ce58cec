//! Every dependency that a manifest names is used by the sources that it is for.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::tidy::{metadata, repository, rust_files};

/// Dependencies that no source names, with the reason why they are needed: crate, dependency,
/// reason.
const UNNAMED: [(&str, &str, &str); 0] = [];

/// A dependency in the manifest of a crate.
struct Dependency {
    /// As the manifest calls it.
    name: String,
    /// For tests and benchmarks only.
    is_dev: bool,
    features: BTreeSet<String>,
}

/// A Rust file of a crate, by its path in the folder of the crate.
type Source<'a> = (&'a str, &'a str);

#[test]
fn every_dependency_is_used() {
    let files = rust_files(&["src", "tests", "benches", "examples", "build.rs"]);
    let mut needless = Vec::new();
    for package in metadata()["packages"].as_array().unwrap() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let folder = manifest.rsplit('/').nth(1).unwrap();
        let start = format!("crates/{folder}/");
        let sources = files.iter().filter_map(|(path, text)| {
            let path = path.strip_prefix(&start)?;
            Some((path, text.as_str()))
        });
        let sources: Vec<Source<'_>> = sources.collect();
        let dependencies: Vec<_> = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(Dependency::new)
            .collect();
        let found = find_needless(&dependencies, &sources);
        let known = |name: &str| {
            UNNAMED
                .iter()
                .any(|(of, known, _)| *of == folder && *known == name)
        };
        let found = found.into_iter().filter(|name| !known(name));
        needless.extend(found.map(|name| format!("{folder}: {name}")));
    }
    assert!(
        needless.is_empty(),
        "these dependencies are not used, or only by tests: {needless:#?}"
    );
}

#[test]
fn every_dependency_of_the_workspace_is_named_by_a_crate() {
    let text = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let listed = manifest["workspace"]["dependencies"].as_table().unwrap();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let named: BTreeSet<String> = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().unwrap())
        .map(|dependency| Dependency::new(dependency).name)
        .collect();
    let unnamed: Vec<_> = listed
        .keys()
        .filter(|name| !named.contains(*name))
        .collect();
    assert!(unnamed.is_empty(), "no crate names {unnamed:?}");
}

impl Dependency {
    fn new(document: &Value) -> Self {
        let name = document["rename"].as_str().or(document["name"].as_str());
        let features = document["features"].as_array().unwrap().iter();
        Self {
            name: name.unwrap().to_owned(),
            is_dev: document["kind"] == "dev",
            features: features
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
        }
    }
}

/// The dependencies that can be removed, or that are for tests only and do not say so.
fn find_needless(dependencies: &[Dependency], sources: &[Source<'_>]) -> Vec<String> {
    let shipped: String = sources.iter().filter_map(shipped_code).collect();
    let all: String = sources.iter().map(|(_, text)| code(text)).collect();
    let is_needless = |dependency: &&Dependency| {
        let library = match dependency.name.as_str() {
            "md-5" => "md5".to_owned(),
            name => name.replace('-', "_"),
        };
        let of_crate = dependencies
            .iter()
            .find(|other| !other.is_dev && other.name == dependency.name);
        match (dependency.is_dev, of_crate) {
            (false, _) => !is_named(&library, &shipped),
            (true, None) => !is_named(&library, &all),
            (true, Some(of_crate)) => dependency.features.is_subset(&of_crate.features),
        }
    };
    let needless = dependencies.iter().filter(is_needless);
    needless.map(|dependency| dependency.name.clone()).collect()
}

/// Whether a path begins with the library, or an import names it.
fn is_named(library: &str, code: &str) -> bool {
    let path = format!(r"(?:^|[^:\w])(?:::)?{library}::");
    let import = format!(r"\b(?:use|extern crate)\s+(?:::)?{library}\s*(?:;|as\b)");
    [path, import]
        .iter()
        .any(|pattern| Regex::new(pattern).unwrap().is_match(code))
}

/// The code of a file that is built without tests, if there is any.
fn shipped_code((path, text): &Source<'_>) -> Option<String> {
    let is_of_tests = path.contains("/tests/") || path.ends_with("tests.rs");
    if is_of_tests || !(path.starts_with("src/") || *path == "build.rs") {
        return None;
    }
    let tests = Regex::new(r"#\[cfg\(test\)\]\n(?:pub(?:\([a-z]+\))? )?mod \w+ \{").unwrap();
    let end = tests.find(text).map_or(text.len(), |tests| tests.start());
    Some(code(&text[..end]))
}

/// A text without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_needless_dependency_is_found() {
    let dependency = |name: &str, is_dev: bool, features: &[&str]| Dependency {
        name: name.to_owned(),
        is_dev,
        features: features.iter().map(|name| (*name).to_owned()).collect(),
    };
    let dependencies = [
        dependency("serde-json", false, &[]),
        dependency("md-5", false, &[]),
        dependency("bytes", false, &[]),
        dependency("only-tests", false, &[]),
        dependency("only-comments", false, &[]),
        dependency("tokio", false, &["net"]),
        dependency("tokio", true, &["net"]),
        dependency("hyper", false, &["http1"]),
        dependency("hyper", true, &["http1", "server"]),
        dependency("testing", true, &[]),
        dependency("insta", true, &[]),
    ];
    let sources = [
        (
            "src/lib.rs",
            "use md5;\nfn a() -> ::serde_json::Value { super::bytes::b(); tokio::c(hyper::D) }\n\
             // only_comments::x\n#[cfg(test)]\nmod tests {\n    only_tests::y();\n}\n",
        ),
        ("src/a/tests.rs", "use only_tests::Z;\n"),
        ("tests/it/main.rs", "testing::sizes();\n"),
    ];
    assert_eq!(
        find_needless(&dependencies, &sources),
        ["bytes", "only-tests", "only-comments", "tokio", "insta"]
    );
}
