//! Every dependency that a manifest names is used by the sources that it is for.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::repository::{code, is_test, our_packages, read, rust_files, shipped};

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
    let files: Vec<_> = rust_files(&["src", "tests", "benches", "examples", "build.rs"]).collect();
    let mut needless = Vec::new();
    for package in our_packages() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let folder = manifest.rsplit('/').nth(1).unwrap();
        let start = format!("crates/{folder}/");
        let sources = files.iter().filter_map(|(path, text)| {
            let path = path.strip_prefix(&start)?;
            Some((path, *text))
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
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let listed = manifest["workspace"]["dependencies"].as_table().unwrap();
    let packages = our_packages();
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
    let (shipped, all) = (named(&shipped), named(&all));
    let is_needless = |dependency: &&Dependency| {
        let library = match dependency.name.as_str() {
            "md-5" => "md5".to_owned(),
            name => name.replace('-', "_"),
        };
        let of_crate = dependencies
            .iter()
            .find(|other| !other.is_dev && other.name == dependency.name);
        match (dependency.is_dev, of_crate) {
            (false, _) => !shipped.contains(library.as_str()),
            (true, None) => !all.contains(library.as_str()),
            (true, Some(of_crate)) => dependency.features.is_subset(&of_crate.features),
        }
    };
    let needless = dependencies.iter().filter(is_needless);
    needless.map(|dependency| dependency.name.clone()).collect()
}

/// The names with which paths begin, and of which imports consist.
fn named(code: &str) -> BTreeSet<&str> {
    let path = Regex::new(r"(?:^|[^:\w])(?:::)?([a-z]\w*)::").unwrap();
    let import = Regex::new(r"\b(?:use|extern crate)\s+(?:::)?(\w+)\s*(?:;|as\b)").unwrap();
    let found = path.captures_iter(code).chain(import.captures_iter(code));
    found.map(|found| found.get(1).unwrap().as_str()).collect()
}

/// The code of a file that is built without tests, if there is any.
fn shipped_code((path, text): &Source<'_>) -> Option<String> {
    let is_shipped = !is_test(path) && (path.starts_with("src/") || *path == "build.rs");
    is_shipped.then(|| code(&shipped(text)))
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
