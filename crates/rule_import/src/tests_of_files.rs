//! Files of projects and owners, and sets.

use std::collections::BTreeSet;

use files::{Format, parse};
use serde_json::{Value, json};

use super::FilesBy;
use super::configuration_file::ConfigurationFile;
use super::tests_common::{files_of, google, launching, made_fleet, pool, written_by};

#[test]
fn the_rules_of_a_project_are_in_its_file() {
    for (seed, n_projects, n_pools) in [(1, 2, 6), (3, 4, 4), (4, 3, 9)] {
        let written = written_by(
            made_fleet(seed, n_projects, n_pools),
            Some(FilesBy::Provisioner),
        );
        let files = files_of(&written);
        assert_eq!(files.len() as u64, n_projects + 1);
        let mut n_rules = 0;
        for (name, text) in &files {
            let document = parse(name, text, Format::Yaml).unwrap();
            let rules = document["rules"].as_array();
            n_rules += rules.map_or(0, Vec::len);
            if name.is_empty() {
                assert_eq!(document["workerTypes"], json!([]));
                continue;
            }
            assert_eq!(document["partOf"], "fleet");
            let own = |name_of: &Value| {
                let name_of = name_of.as_str().unwrap();
                assert!(
                    name_of.split_once('/').unwrap().0 == *name,
                    "{name_of} in {name}"
                );
            };
            document["workerTypes"]
                .as_array()
                .unwrap()
                .iter()
                .for_each(own);
            for rule in rules.into_iter().flatten() {
                let types = &rule["conditions"]["workerType"];
                let types = types
                    .as_array()
                    .map_or(std::slice::from_ref(types), Vec::as_slice);
                types.iter().filter(|name| name.is_string()).for_each(own);
            }
        }
        assert_eq!(n_rules, written.n_rules);
        let in_parts: usize = written.parts.iter().map(|part| part.n_rules).sum();
        assert!(
            in_parts as u64 >= n_projects,
            "{in_parts} rules in files of projects"
        );
    }
}

#[test]
fn a_change_of_one_pool_changes_the_file_of_its_project() {
    let mut pools = made_fleet(3, 4, 4);
    let before = written_by(pools.clone(), Some(FilesBy::Provisioner));
    pools[5]["config"]["maxCapacity"] = json!(77);
    let after = written_by(pools.clone(), Some(FilesBy::Provisioner));
    let differing = |left: &ConfigurationFile, right: &ConfigurationFile| -> Vec<String> {
        let (left, right) = (files_of(left), files_of(right));
        let names = left.keys().chain(right.keys()).collect::<BTreeSet<_>>();
        let differs = names
            .into_iter()
            .filter(|name| left.get(*name) != right.get(*name));
        differs.map(|name| (*name).to_owned()).collect()
    };
    assert_eq!(differing(&before, &after), ["proj-1"]);
    // Without its pools, a project has no file.
    pools.retain(|pool| {
        !pool["workerPoolId"]
            .as_str()
            .unwrap()
            .starts_with("proj-2/")
    });
    let without = written_by(pools, Some(FilesBy::Provisioner));
    assert!(differing(&after, &without).contains(&"proj-2".to_owned()));
    assert!(!files_of(&without).contains_key("proj-2"));
}

#[test]
fn files_by_owner_have_the_names_of_owners() {
    let mut pools = made_fleet(1, 3, 3);
    for (pool, owner) in pools.iter_mut().zip(
        ["team@a.com", "fleet@b.com", "team@c.com", "ops@a.com"]
            .iter()
            .cycle(),
    ) {
        pool["owner"] = json!(owner);
    }
    let written = written_by(pools, Some(FilesBy::Owner));
    let names: Vec<_> = files_of(&written).into_keys().collect();
    assert_eq!(
        names,
        ["", "fleet-pools", "ops", "team-a.com", "team-c.com"]
    );
}

/// Pools of which some have two exceptions, one of them in one zone only: their list repeats.
fn fleet_of_repeated_lists(seed: usize) -> Vec<Value> {
    let odd = [
        "amber-accounts",
        "birch-builders",
        "cedar-compilers",
        "daisy-documents",
        "elder-examples",
    ];
    let plain = [
        "fern-files",
        "gorse-graphs",
        "hazel-hosts",
        "iris-images",
        "juniper-jobs",
        "kale-keys",
    ];
    let pools = odd.iter().chain(&plain).enumerate().map(|(number, name)| {
        let is_odd = number < odd.len();
        let configs = ["us-east1-b", "us-west1-a"].map(|zone| {
            let is_odd_here = is_odd && zone.ends_with('b');
            let idle = if is_odd_here { 90 } else { 15 };
            google(zone, "n2", json!({"workerConfig": {"idle": idle}}))
        });
        let id = format!("proj-{}/{name}", (number + seed) % 3);
        let mut made = pool(&id, "gcp", launching(&configs));
        made["config"]["maxCapacity"] = json!(if is_odd { 7 } else { 9 });
        made
    });
    let mut pools: Vec<Value> = pools.collect();
    pools.sort_by_key(|pool| pool["workerPoolId"].to_string());
    pools
}

#[test]
fn repeated_lists_become_sets() {
    for seed in 0..3 {
        for files_by in [None, Some(FilesBy::Provisioner)] {
            let written = written_by(fleet_of_repeated_lists(seed), files_by);
            let document = parse("f", &written.text, Format::Yaml).unwrap();
            let sets = document["sets"].as_object().unwrap();
            assert_eq!(sets.len(), 1, "{}", written.text);
            let (name, texts) = sets.iter().next().unwrap();
            assert_eq!(texts.as_array().unwrap().len(), 5, "{}", written.text);
            let set = format!("{{ set: {name} }}");
            assert_eq!(written.text.matches(&set).count(), 2, "{}", written.text);
        }
    }
}

/// A pool of each of these provisioners and owners, with values of its own.
fn pools_of(groups: &[(&str, &str)]) -> Vec<Value> {
    let pools = (10..).zip(groups).map(|(number, (provisioner, owner))| {
        let config = google(
            "us-east1-b",
            "n2",
            json!({"workerConfig": {"idle": number}}),
        );
        let mut made = pool(&format!("{provisioner}/linux"), "gcp", launching(&[config]));
        made["owner"] = json!(owner);
        made["config"]["maxCapacity"] = json!(number);
        made
    });
    pools.collect()
}

fn names_of_parts(groups: &[(&str, &str)], by: FilesBy) -> Vec<String> {
    let written = written_by(pools_of(groups), Some(by));
    let parts = written.parts.into_iter();
    parts.map(|part| part.name).collect()
}

#[test]
fn no_two_files_have_a_name_that_differs_only_in_case() {
    let provisioners = ["A", "Fleet", "Launch-config-ids", "a", "a-pools", "b"];
    let groups = provisioners.map(|provisioner| (provisioner, "o@example.com"));
    let mut names = names_of_parts(&groups, FilesBy::Provisioner);
    names.sort();
    assert_eq!(
        names,
        [
            "A",
            "Fleet-pools",
            "Launch-config-ids-pools",
            "a-pools",
            "a-pools-pools",
            "b"
        ]
    );
}

#[test]
fn owners_without_letters_and_long_owners_have_usable_file_names() {
    let long = "very-long-".repeat(30);
    let owners = [
        "\u{65e5}@a.com".to_owned(),
        "\u{672c}@a.com".to_owned(),
        "\u{4eba}@b.com".to_owned(),
        format!("{long}a@a.com"),
        format!("{long}b@a.com"),
    ];
    let groups: Vec<(String, &String)> = (0..)
        .zip(&owners)
        .map(|(number, owner)| (format!("p{number}"), owner))
        .collect();
    let groups: Vec<(&str, &str)> = groups
        .iter()
        .map(|(provisioner, owner)| (provisioner.as_str(), owner.as_str()))
        .collect();
    let names = names_of_parts(&groups, FilesBy::Owner);
    assert_eq!(names.len(), owners.len(), "{names:?}");
    assert!(names.contains(&"b.com".to_owned()), "{names:?}");
    for name in &names {
        assert!(name.starts_with(|first: char| first.is_ascii_alphanumeric()));
        assert!(name.len() <= 100, "{name}");
    }
}

#[test]
fn parts_are_proven_in_the_order_in_which_their_files_are_read() {
    let groups = [("a", "o@example.com"), ("a-b", "o@example.com")];
    let names = names_of_parts(&groups, FilesBy::Provisioner);
    // `a-b.yaml` is before `a.yaml`.
    assert_eq!(names, ["a-b", "a"]);
}

#[test]
fn long_names_of_pools_hinder_no_division_into_files() {
    let (provisioner, start) = ("p".repeat(38), "n".repeat(30));
    let mut pools = fleet_of_repeated_lists(1);
    for pool in &mut pools {
        let id = pool["workerPoolId"].as_str().unwrap();
        let (_, name) = id.split_once('/').unwrap();
        pool["workerPoolId"] = json!(format!("{provisioner}/{start}-{}", &name[..4]));
    }
    let other = pool("other/a", "gcp", launching(&[]));
    pools.push(other);
    // With the rules in their files.
    let written = written_by(pools, Some(FilesBy::Provisioner));
    assert!(written.text.contains("set:") || written.parts[1].text.contains("set:"));
}
