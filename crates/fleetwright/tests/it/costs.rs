//! Costs, waits, budgets, series and the status on the command line.

use crate::queue_calls::wait_for;
use crate::world::Server;

#[test]
fn a_name_that_does_not_exist_is_not_free_and_does_not_wait_for_nothing() {
    let server = Server::start();
    let owner = ["--provider", "static", "--owner", "you@example.com"];
    server.ok(&[&["pool", "create", "demo/linux"][..], &owner].concat());
    for existing in [
        &["cost", "--pool", "demo/linux"][..],
        &["cost", "--provider", "static"],
        &["cost", "--owner", "you@example.com"],
        &["cost"],
    ] {
        let said = server.ok(existing);
        assert!(said.starts_with("$0 since 2"), "{said}");
    }
    let said = server.ok(&["wait", "--pool", "demo/linux"]);
    assert!(said.starts_with("No task waited"), "{said}");
    for (missing, what) in [
        (
            ["cost", "--pool", "demo/linus"],
            "Pool demo/linus does not exist",
        ),
        (
            ["cost", "--provider", "nope"],
            "Provider nope does not exist",
        ),
        (
            ["cost", "--owner", "me@example.com"],
            "me@example.com owns no pool",
        ),
        (
            ["wait", "--pool", "demo/linus"],
            "Pool demo/linus does not exist",
        ),
    ] {
        let ran = server.run(&missing);
        assert_eq!(ran.code, 3, "{missing:?}: {}", ran.err);
        assert!(ran.err.contains(what), "{}", ran.err);
        assert!(ran.err.contains(" list"), "{}", ran.err);
    }
}

#[test]
fn a_budget_moves_to_another_scope_only_on_demand() {
    let server = Server::start();
    let set = |more: &[&str]| {
        let budget = ["budget", "set", "x", "--per", "day", "--limit"];
        server.run(&[&budget[..], more].concat())
    };
    assert_eq!(set(&["5", "--pool", "a/*"]).code, 0);
    // The same scope, with another limit.
    assert_eq!(set(&["6", "--pool", "a/*"]).code, 0);
    for other in [["--pool", "b/*"], ["--owner", "a/*"]] {
        let refused = set(&[&["7"][..], &other].concat());
        assert_eq!(refused.code, 5, "{}", refused.err);
        let why = "could not set budget x: it exists, and limits a/*";
        assert!(refused.err.contains(why), "{}", refused.err);
        assert!(refused.err.contains("--move-scope"), "{}", refused.err);
    }
    let kept = server.json(&["budget", "show", "x"]);
    assert_eq!(
        (&kept["workerPools"], &kept["limit"]),
        (&"a/*".into(), &6.0.into())
    );
    assert_eq!(set(&["7", "--pool", "b/*", "--move-scope"]).code, 0);
    let moved = server.json(&["budget", "show", "x"]);
    assert_eq!(
        (&moved["workerPools"], &moved["limit"]),
        (&"b/*".into(), &7.0.into())
    );
}

#[test]
fn the_status_and_series_of_a_new_server_are_answers() {
    let server = Server::start();
    let owner = ["--provider", "static", "--owner", "you@example.com"];
    server.ok(&[&["pool", "create", "demo/linux"][..], &owner].concat());
    // A status may be a second old.
    let ran = wait_for("the status of two pools", || {
        let ran = server.run(&["status"]);
        ran.out.contains("\nPools 2: ").then_some(ran)
    });
    assert!(ran.code == 0 || ran.out.contains(" ill"), "{}", ran.out);
    let status = server.run(&["status", "--json"]).out;
    assert!(status.contains("\"isWell\""), "{status}");
    // Either the first minute is recorded already, or the day is a gap.
    for arguments in [&["series"][..], &["series", "--pool", "demo/linux"]] {
        let said = server.ok(arguments);
        assert!(said.contains("not recorded"), "{said}");
    }
    let csv = server.ok(&["series", "--csv", "--step", "hour"]);
    assert!(csv.starts_with("time,recorded,waiting,"), "{csv}");
    let ran = server.run(&["series", "--pool", "demo/linus"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(
        ran.err.contains("Pool demo/linus does not exist"),
        "{}",
        ran.err
    );
    assert_eq!(server.run(&["series", "--launch-config", "a"]).code, 2);
}
