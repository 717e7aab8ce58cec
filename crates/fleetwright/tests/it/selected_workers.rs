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
