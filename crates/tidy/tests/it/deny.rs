//! Licences, versions and sources of the dependencies are as `deny.toml` has them.
//!
//! cargo-deny reads the same file, and looks for advisories too. These tests need no program and no
//! network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use crate::repository::{cargo, read};

/// How many dependencies a reason names.
const SHOWN: usize = 3;

/// A name, and a version.
type Package = (String, String);

fn policy() -> toml::Table {
    read("deny.toml").parse().unwrap()
}

fn texts(list: &toml::Value) -> BTreeSet<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|text| text.as_str().unwrap()).collect()
}

/// A command, and its option for each system that the program is built for.
fn for_our_systems(command: &[&str], option: &str) -> String {
    let policy = policy();
    let systems = texts(&policy["graph"]["targets"]).into_iter();
    let options = systems.flat_map(|system| [option, system]);
    let arguments: Vec<&str> = command.iter().copied().chain(options).collect();
    cargo(&arguments)
}

/// All packages that cargo knows of, some of which are not built.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let command = ["metadata", "--format-version=1", "--offline", "--locked"];
    serde_json::from_str(&for_our_systems(&command, "--filter-platform")).unwrap()
});

/// The packages that are built, for tests too.
static BUILT: LazyLock<BTreeSet<Package>> = LazyLock::new(|| built(&[]));

fn built(options: &[&str]) -> BTreeSet<Package> {
    let command = [
        "tree",
        "--workspace",
        "--all-features",
        "--offline",
        "--locked",
        "--prefix=none",
        "--format={p}",
        "--edges=normal,build,dev",
    ];
    let tree = for_our_systems(&[&command, options].concat(), "--target");
    let packages = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        let version = rest.split(' ').next()?;
        Some((name.to_owned(), version.to_owned()))
    });
    packages.collect()
}

#[test]
fn every_licence_is_allowed_and_every_allowed_one_is_needed() {
    let policy = policy();
    let allowed = texts(&policy["licenses"]["allow"]);
    let packages = METADATA["packages"].as_array().unwrap();
    assert!(packages.len() > 100);
    let refused = |allowed: &BTreeSet<&str>| {
        let refused = packages.iter().filter(|package| {
            let licence = package["license"].as_str();
            !licence.is_some_and(|licence| is_permitted(licence, allowed))
        });
        let refused =
            refused.map(|it| format!("{} {}: {}", it["name"], it["version"], it["license"]));
        refused.collect::<Vec<_>>()
    };
    assert_eq!(
        refused(&allowed),
        Vec::<String>::new(),
        "not allowed in deny.toml"
    );
    for licence in &allowed {
        let mut fewer = allowed.clone();
        fewer.remove(licence);
        assert!(
            !refused(&fewer).is_empty(),
            "remove {licence} from deny.toml"
        );
    }
}

/// Whether one may keep to an SPDX expression with these licences. Old crates write `/` for `OR`.
fn is_permitted(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let permitted = any_of(&mut words, allowed);
    assert_eq!(words.next(), None, "{expression}");
    permitted
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut permitted = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all_of(words, allowed);
    }
    permitted
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    let mut permitted = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        permitted &= one(words, allowed);
    }
    permitted
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let permitted = any_of(words, allowed);
        assert_eq!(words.next(), Some(")"));
        return permitted;
    }
    let mut licence = words.next().unwrap().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap());
    }
    allowed.contains(licence.as_str())
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = ["MIT", "ISC", "BSD-3-Clause"].into();
    for (expression, permitted) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("ISC AND (GPL-3.0 OR MIT) AND BSD-3-Clause", true),
        ("GPL-3.0 AND ISC OR MIT", true),
        ("(GPL-3.0 OR MIT) AND Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR ISC", true),
        ("MIT WITH LLVM-exception", false),
    ] {
        assert_eq!(
            is_permitted(expression, &allowed),
            permitted,
            "{expression}"
        );
    }
}

#[test]
fn a_package_is_built_in_one_version_or_named_with_a_reason() {
    let policy = policy();
    let skipped = policy["bans"]["skip"].as_array().unwrap().iter();
    let skipped = skipped.map(|entry| {
        let reason = entry["reason"].as_str().unwrap();
        assert!(!reason.is_empty(), "{entry} has no reason");
        let (name, version) = entry["crate"].as_str().unwrap().split_once('@').unwrap();
        (name.to_owned(), version.to_owned())
    });
    let skipped: BTreeSet<Package> = skipped.collect();
    let old = older_versions(&BUILT);
    let needless = skipped.difference(&old);
    let needless: Vec<_> = needless
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    let new: Vec<_> = old.difference(&skipped).collect();
    if needless.is_empty() && new.is_empty() {
        return;
    }
    let dependants = Dependants::new(&METADATA);
    let new = new.into_iter().map(|package| {
        let ((name, version), reason) = (package, dependants.reason(package));
        format!("    {{ crate = \"{name}@{version}\", reason = \"{reason}\" }},\n")
    });
    panic!(
        "in `skip` of deny.toml, remove {needless:?}, and avoid these or add them:\n{}",
        new.collect::<String>()
    );
}

/// Of packages in several versions, all but the newest.
fn older_versions(packages: &BTreeSet<Package>) -> BTreeSet<Package> {
    let mut newest: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, version) in packages {
        let known = newest.entry(name).or_insert(version);
        if numbers(version) > numbers(known) {
            *known = version;
        }
    }
    let older = packages
        .iter()
        .filter(|(name, version)| newest[name.as_str()] != version);
    older.cloned().collect()
}

/// `1.1.3+spec-1.1.0` is 1, 1, 3.
fn numbers(version: &str) -> Vec<u64> {
    let version = version.split(['+', '-']).next().unwrap();
    version
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect()
}

#[test]
fn all_versions_but_the_newest_are_old() {
    let packages = [
        "a 0.9.5",
        "a 0.10.1",
        "b 1.0.0",
        "c 1.1.3+spec-1.1.0",
        "c 0.6.11",
    ];
    let packages = packages.map(|package| {
        let (name, version) = package.split_once(' ').unwrap();
        (name.to_owned(), version.to_owned())
    });
    let old: Vec<_> = older_versions(&packages.into()).into_iter().collect();
    assert_eq!(old[0], ("a".to_owned(), "0.9.5".to_owned()));
    assert_eq!(old[1], ("c".to_owned(), "0.6.11".to_owned()));
    assert_eq!(old.len(), 2);
}

/// The packages that name a package among their dependencies.
struct Dependants {
    of: BTreeMap<Package, BTreeSet<Package>>,
    ours: BTreeSet<Package>,
}

impl Dependants {
    fn new(metadata: &Value) -> Self {
        let mut ours = BTreeSet::new();
        let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
        for package in metadata["packages"].as_array().unwrap() {
            let part = |key: &str| package[key].as_str().unwrap().to_owned();
            packages.insert(
                package["id"].as_str().unwrap(),
                (part("name"), part("version")),
            );
            if package["source"].is_null() {
                ours.insert((part("name"), part("version")));
            }
        }
        let mut of: BTreeMap<Package, BTreeSet<Package>> = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array().unwrap() {
            let dependant = &packages[node["id"].as_str().unwrap()];
            for dependency in node["dependencies"].as_array().unwrap() {
                let dependency = packages[dependency.as_str().unwrap()].clone();
                if BUILT.contains(dependant) {
                    of.entry(dependency).or_default().insert(dependant.clone());
                }
            }
        }
        Self { of, ours }
    }

    /// Names the dependencies in our manifests that lead to a package.
    fn reason(&self, package: &Package) -> String {
        let (mut named, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut next = vec![package];
        while let Some(at) = next.pop() {
            for dependant in self.of.get(at).into_iter().flatten() {
                if self.ours.contains(dependant) {
                    named.insert(at.0.as_str());
                } else if seen.insert(dependant) {
                    next.push(dependant);
                }
            }
        }
        let shown: Vec<&str> = named.iter().copied().take(SHOWN).collect();
        let more = if named.len() > SHOWN { ", …" } else { "" };
        format!("of {}{more}", shown.join(", "))
    }
}

/// Unwanted packages that may be locked: others could switch them on, and nothing does.
const LOCKED_ONLY: [&str; 1] = ["ring"];

#[test]
fn unwanted_packages_are_not_built() {
    let policy = policy();
    let lock: toml::Table = read("Cargo.lock").parse().unwrap();
    let locked = lock["package"].as_array().unwrap().iter();
    let locked: BTreeSet<_> = locked
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let unwanted = policy["bans"]["deny"].as_array().unwrap().iter();
    let unwanted: Vec<_> = unwanted
        .map(|entry| entry["crate"].as_str().unwrap())
        .collect();
    // The official Rust client signs with ring; only its test builds it.
    let built = built(&["--exclude=interop-rust-client"]);
    for name in &unwanted {
        let is_built = built.iter().any(|(built, _)| built == name);
        assert!(!is_built, "{name} is built");
    }
    let found: Vec<_> = unwanted
        .into_iter()
        .filter(|name| locked.contains(name))
        .collect();
    assert_eq!(found, LOCKED_ONLY, "locked");
}

#[test]
fn dependencies_come_from_known_registries() {
    let policy = policy();
    let sources = &policy["sources"];
    for key in ["unknown-registry", "unknown-git"] {
        assert_eq!(sources[key].as_str(), Some("deny"), "{key}");
    }
    let known = texts(&sources["allow-registry"]);
    let lock: toml::Table = read("Cargo.lock").parse().unwrap();
    for package in lock["package"].as_array().unwrap() {
        // Our own have none.
        if let Some(source) = package.get("source") {
            let registry = source.as_str().unwrap().strip_prefix("registry+");
            let is_known = registry.is_some_and(|registry| known.contains(registry));
            assert!(is_known, "{} comes from {source}", package["name"]);
        }
    }
}
