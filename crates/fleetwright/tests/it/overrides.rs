//! Overrides on the command line.

use serde_json::json;

use crate::world::Server;

#[test]
fn an_override_is_set_shown_listed_and_removed() {
    let server = Server::start();
    let owner = ["--provider", "static", "--owner", "you@example.com"];
    server.ok(&[&["pool", "create", "demo/linux"][..], &owner].concat());
    let set = [
        "override",
        "set",
        "freeze",
        "--until",
        "2h",
        "--reason",
        "prices are up",
    ];
    let said = server.ok(&[&set[..], &["--pool", "demo/linux", "--pause"]].concat());
    assert!(
        said.starts_with("pool demo/linux: paused until 2"),
        "{said}"
    );
    let shown = server.json(&["override", "show", "freeze"]);
    assert_eq!(
        (&shown["pause"], &shown["inForce"]),
        (&json!(true), &json!(true))
    );
    let listed = server.ok(&["override", "list"]);
    assert!(
        listed.contains("freeze    pool demo/linux  paused  in "),
        "{listed}"
    );
    assert!(
        server
            .ok(&["override", "show", "freeze"])
            .contains("prices are up")
    );
    let limits = [
        "override",
        "set",
        "cap",
        "--pool",
        "demo/linux",
        "--max-capacity",
        "3",
    ];
    let limits = [&limits[..], &["--until", "1d", "--reason", "budget"]].concat();
    let said = server.ok(&limits);
    assert!(
        said.starts_with("pool demo/linux: at most 3 until"),
        "{said}"
    );
    server.ok(&["override", "remove", "freeze", "--yes"]);
    let gone = server.run(&["override", "show", "freeze"]);
    assert_eq!(gone.code, 3, "{}", gone.err);
}

#[test]
fn an_incomplete_or_contradictory_override_is_not_sent() {
    let server = Server::start();
    let set = [
        "override", "set", "freeze", "--until", "2h", "--reason", "r",
    ];
    for rest in [
        &["--pause"][..],
        &["--pool", "demo/linux"],
        &["--pool", "demo/linux", "--provider", "static", "--pause"],
        &["--pool", "demo/linux", "--pause", "--max-capacity", "1"],
        &["--provider", "static", "--launch-config", "lc", "--pause"],
    ] {
        assert_eq!(server.run(&[&set[..], rest].concat()).code, 2, "{rest:?}");
    }
    let refused = server.run(&[&set[..], &["--provider", "none", "--pause"]].concat());
    assert!(
        refused.err.contains("Provider none does not exist"),
        "{}",
        refused.err
    );
}
