//! Messages of commands about wrong input, and about nothing.

use serde_json::json;

use crate::queue_calls::wait_for;
use crate::worker_runs::{IRON, create_static_pool, work};
use crate::world::{Home, Server};

/// The words of a command.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn wrong_input_is_refused_with_what_to_write() {
    let home = Home::new();
    for (line, part) in [
        (
            "up --listen 9303",
            "such as 127.0.0.1:8080 or localhost:8080",
        ),
        (
            "--root-url http://127.0.0.1:1 task status AAAAAAAAAAAAAAAAAAAAAA",
            "are mistyped",
        ),
        (
            "--root-url http://127.0.0.1:1 pool update a/b",
            "nothing to change",
        ),
        (
            "--root-url http://127.0.0.1:1 event tail --exchange worker-runing",
            "there is no exchange \"worker-runing\", did you mean \"worker-running\"?",
        ),
    ] {
        let done = home.run(&words(line));
        assert_eq!(done.code, 2, "{line}: {}", done.err);
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn errors_in_a_config_name_it_as_its_flag_does() {
    let server = Server::start();
    let create = "pool create demo/x --provider local --owner o@example.com --config {}";
    let refused = server.run(&words(create));
    assert_eq!(refused.code, 1);
    let part = "\n  * config must have required property 'minCapacity'";
    assert!(refused.err.contains(part), "{}", refused.err);
}

#[test]
fn a_history_of_nothing_is_said_to_be_empty() {
    let server = Server::start();
    let done = server.run(&words("audit show override nosuch"));
    assert_eq!(done.code, 0);
    let part = "no entries: no override has been named nosuch";
    assert!(done.err.contains(part), "{}", done.err);
    assert_eq!(done.out, "");
    create_static_pool(&server);
    let of_worker = server.ok(&words("audit show worker demo/iron/rack/w1"));
    assert!(of_worker.contains("created"), "{of_worker}");
}

#[test]
fn the_changes_of_all_items_are_listed() {
    let server = Server::start();
    create_static_pool(&server);
    let listed = server.ok(&words("audit list --type worker --client static/owner"));
    assert!(listed.contains("demo/iron/rack/w1"), "{listed}");
    let listed = server.json(&words("audit list --type worker --id demo/iron/rack/w1"));
    assert_eq!(listed["entries"][0]["actionType"], "created");
    assert!(listed["entries"][0]["sourceIp"].is_string());
    let none = server.run(&words("audit list --client nosuch --since 1h"));
    assert!(none.err.contains("no entries since"), "{}", none.err);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    for wrong in ["audit list --id x", "audit list --since soon"] {
        assert_eq!(server.run(&words(wrong)).code, 2, "{wrong}");
    }
}

#[test]
fn reports_of_a_fleet_in_which_nothing_happened_are_empty() {
    let server = Server::start();
    let startup = server.ok(&words("startup --since 1h --by launch-config"));
    assert!(
        startup.starts_with("No machine was made since"),
        "{startup}"
    );
    let causes = server.json(&words("error causes --most"));
    assert_eq!(causes, serde_json::json!({"causes": []}));
    for wrong in ["startup --since soon", "error causes --since soon"] {
        assert_eq!(server.run(&words(wrong)).code, 2, "{wrong}");
    }
}

#[test]
fn a_quarantine_is_shown_with_its_author_and_reason() {
    let server = Server::start();
    create_static_pool(&server);
    let _worker = work(&server, &[]);
    let name = [IRON, "rack", "w1"];
    let more = ["--until", "2h", "--reason", "its disk is slow"];
    let quarantine = [&["worker", "quarantine"][..], &name, &more].concat();
    // The queue knows the worker as soon as it asks for work.
    wait_for("the worker asks for work", || {
        (server.run(&quarantine).code == 0).then_some(())
    });
    let shown = server.ok(&[&["worker", "show"][..], &name].concat());
    for part in ["static/owner", "its disk is slow"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_command_without_a_server_or_credentials_says_where_they_may_be() {
    let home = Home::new();
    let refused = home.run(&words("pool list"));
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("no server configured"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("`fleetwright up`"), "{}", refused.err);
    assert!(!refused.err.contains("owner.env"), "{}", refused.err);
    let server = Server::start();
    let file = server.home.write(".local/share/fleetwright/owner.env", "");
    let unsigned = format!("pool list --root-url {}", server.root_url());
    let refused = server.home.run(&words(&unsigned));
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains(&format!("`. {file}`")),
        "{}",
        refused.err
    );
}

#[test]
fn numbers_have_no_exponents_in_tables() {
    let server = Server::start();
    let set = "budget set tiny --pool * --per hour --limit 0.000001";
    server.ok(&words(set));
    let listed = server.ok(&words("budget list"));
    assert!(!listed.contains("e-6"), "{listed}");
    assert_eq!(listed.matches("0.000001").count(), 2, "{listed}");
    let reply = server.json(&words("budget list"));
    assert_eq!(reply["budgets"][0]["limit"], json!(0.000_001));
}
