//! Workers of a pool or provider on the command line: listed, counted, drained, ended.

use crate::world::Server;

const POOL: &str = "demo/linux";

fn with_workers() -> Server {
    let server = Server::start();
    let owner = ["--provider", "static", "--owner", "you@example.com"];
    server.ok(&[&["pool", "create", POOL][..], &owner].concat());
    for id in ["one", "two"] {
        server.ok(&["worker", "create", POOL, "rack", id]);
    }
    server
}

#[test]
fn workers_are_counted_drained_and_ended_with_a_preview() {
    let server = with_workers();
    let counted = server.json(&["worker", "count", "--pool", POOL]);
    assert_eq!(counted["workerPoolsStats"][0]["runningCount"], 2);
    let listed = server.ok(&["worker", "select", "--provider", "static"]);
    assert!(listed.contains("one") && listed.contains("two"), "{listed}");

    let end = ["worker", "end", "--pool", POOL, "--reason", "moved"];
    let refused = server.run(&end);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused
            .err
            .contains("cannot ask for confirmation to end 2 workers of pool demo/linux"),
        "{}",
        refused.err
    );
    let drained = server.json(&[&end[..], &["--drain", "--yes"]].concat());
    assert_eq!(drained["workers"][0]["state"], "running");
    let advised = server.ok(&["worker", "should-terminate", POOL, "rack", "one"]);
    assert!(advised.contains("should terminate"), "{advised}");
    assert!(advised.contains("moved"), "{advised}");

    let ended = server.run(&[&end[..], &["--yes"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.err.contains("ended: 2 workers of pool demo/linux"),
        "{}",
        ended.err
    );
    // Nothing is left to ask about.
    server.ok(&end);
    let counted = server.json(&["worker", "count", "--pool", POOL]);
    assert_eq!(counted["workerPoolsStats"], serde_json::json!([]));
}

#[test]
fn workers_of_all_pools_are_listed_and_filtered() {
    let server = with_workers();
    let owner = ["--provider", "static", "--owner", "you@example.com"];
    server.ok(&[&["pool", "create", "demo/iron"][..], &owner].concat());
    server.ok(&["worker", "create", "demo/iron", "rack", "three"]);
    let listed = |more: &[&str]| {
        let listed = server.json(&[&["worker", "list"][..], more].concat());
        let workers = listed["workers"].as_array().unwrap().iter();
        let mut ids: Vec<String> = workers
            .map(|worker| worker["workerId"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids.join(" ")
    };
    assert_eq!(listed(&[]), "one three two");
    assert_eq!(listed(&["--all", "--provider", "static"]), "one three two");
    assert_eq!(listed(&["--search", "T"]), "three two");
    assert_eq!(listed(&["--search", "iron"]), "three");
    assert_eq!(listed(&[POOL]), "one two");
    assert_eq!(listed(&[POOL, "--search", "tw"]), "two");
    assert_eq!(listed(&["--presence", "busy"]), "");
    let table = server.ok(&["worker", "list"]);
    assert!(
        table.contains("demo/iron") && table.contains("DOES"),
        "{table}"
    );
    let refused = server.run(&["worker", "list", "--group", "rack"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn workers_are_ended_and_quarantined_by_name() {
    let server = with_workers();
    let end = [
        "worker",
        "end",
        "demo/linux/rack/one",
        "demo/linux/rack/nosuch",
    ];
    let reason = ["--reason", "noisy disk"];
    let refused = server.run(&[&end[..], &reason].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    let ended = server.run(&[&end[..], &reason, &["--yes"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.err);
    let left = "could not end workers: 1 worker left, as shown";
    assert!(ended.err.contains(left), "{}", ended.err);
    assert!(ended.out.contains("not-found"), "{}", ended.out);
    let one = ["worker", "end", "demo/linux/rack/one", "--yes"];
    let again = server.json(&[&one[..], &reason].concat());
    assert_eq!(again["workers"][0]["result"], "already");
    let history = server.ok(&["audit", "show", "worker", "demo/linux/rack/one"]);
    assert!(history.contains("noisy disk"), "{history}");
    // The queue does not know workers that have not asked for tasks.
    let two = [
        "worker",
        "quarantine",
        "demo/linux/rack/two",
        "demo/linux/rack/one",
    ];
    let quarantined = server.run(&[&two[..], &["--until", "2h"], &reason].concat());
    assert_eq!(quarantined.code, 1, "{}", quarantined.err);
    assert_eq!(quarantined.out.matches("not-found").count(), 2);
    for wrong in ["demo/linux/rack", "one"] {
        let end = ["worker", "end", wrong, "--yes"];
        assert_eq!(server.run(&[&end[..], &reason].concat()).code, 2);
        let quarantine = server.run(&["worker", "quarantine", wrong, "--until", "2h"]);
        assert_eq!(quarantine.code, 2, "{}", quarantine.err);
    }
    let both = [&one[..], &["--pool", POOL], &reason].concat();
    assert_eq!(server.run(&both).code, 2);
}

#[test]
fn a_selection_is_one_thing() {
    let server = Server::start();
    for rest in [
        &[][..],
        &["--pool", POOL, "--provider", "static"],
        &["--configuration", "build", "--launch-config", "lc"],
        &["--pool", POOL, "--region", "r"],
    ] {
        let count = [&["worker", "count"][..], rest].concat();
        assert_eq!(server.run(&count).code, 2, "{rest:?}");
    }
    let missing = server.run(&["worker", "count", "--pool", POOL]);
    assert_eq!(missing.code, 3, "{}", missing.err);
}

/// A server with the configuration `build`, whose worker type has one declared host.
pub(crate) fn with_configuration() -> Server {
    let server = Server::without_pools();
    let rules = "workerConfigurationId: build\nworkerTypes: [build-opt]\nrules:\n  \
        - ruleId: all\n    values: { owner: o@example.com, description: d, \
        providers: { static: {} } }\n";
    let file = server.home.write("build.yaml", rules);
    server.ok(&["rules", "create", "build", "--file", &file]);
    server.ok(&[
        "worker",
        "create",
        "worker-manager/build-opt",
        "rack",
        "host",
    ]);
    server
}
