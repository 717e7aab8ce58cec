//! Client commands against a server, as text and with `--json`.

use std::io::Read as _;
use std::process::Stdio;

use access::Secret;
use access::certificate::{self, Issuer};
use domain::time::Clock as _;
use engine::clock::SystemClock;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::world::{Done, Server, drain};

const POOL: [&str; 7] = [
    "pool",
    "create",
    "demo/linux",
    "--provider",
    "static",
    "--owner",
    "you@example.com",
];

#[test]
fn a_pool_is_made_shown_changed_counted_and_deleted() {
    let server = Server::start();
    server.ok(&[
        &POOL[..],
        &[
            "--description",
            "First",
            "--config",
            r#"{"workerConfig": {"a": 1}}"#,
        ],
    ]
    .concat());
    // The same again is no conflict: the API takes it for a repeat.
    server.ok(&[
        &POOL[..],
        &[
            "--description",
            "First",
            "--config",
            r#"{"workerConfig": {"a": 1}}"#,
        ],
    ]
    .concat());

    let shown = server.json(&["pool", "show", "demo/linux"]);
    assert_eq!(shown["config"], json!({"workerConfig": {"a": 1}}));
    assert!(
        server
            .ok(&["pool", "show", "demo/linux"])
            .contains("Owner            you@example.com")
    );
    let listed = server.ok(&["pool", "list"]);
    assert!(listed.starts_with("POOL           WAITING"), "{listed}");
    let line = listed.lines().find(|line| line.starts_with("demo/linux "));
    assert!(line.unwrap().contains(" static "), "{listed}");

    server.ok(&[
        "pool",
        "update",
        "demo/linux",
        "--description",
        "Second",
        "--email-on-error",
    ]);
    let shown = server.json(&["pool", "show", "demo/linux"]);
    assert_eq!(
        (
            &shown["description"],
            &shown["emailOnError"],
            &shown["owner"]
        ),
        (&json!("Second"), &json!(true), &json!("you@example.com"))
    );

    assert_eq!(
        server.json(&["pool", "stats"])["workerPoolsStats"][0]["workerPoolId"],
        "demo/linux"
    );
    let stats = server.json(&["pool", "stats", "demo/linux"]);
    assert_eq!(stats["launchConfigStats"][0]["launchConfigId"], "unknown");
    assert!(server.ok(&["pool", "stats"]).contains("CAPACITY"));
    assert!(
        server
            .ok(&["pool", "stats", "demo/linux"])
            .contains("unknown")
    );

    assert!(
        server
            .ok(&["pool", "delete", "demo/linux", "--yes"])
            .contains("deleted")
    );
    assert_eq!(
        server.json(&["pool", "show", "demo/linux"])["providerId"],
        "null-provider"
    );
}

#[test]
fn shown_items_can_be_edited_and_sent_back() {
    let server = Server::start();
    server.ok(&POOL);
    let mut shown = server.json(&["pool", "show", "demo/linux"]);
    shown["description"] = json!("edited");
    let arguments = ["pool", "update", "demo/linux", "--file", "-"];
    let done = server.with_input(&arguments, &shown.to_string());
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(
        server.json(&["pool", "show", "demo/linux"])["description"],
        "edited"
    );

    let file = server
        .home
        .write("f.json", &json!({"ownr": "x"}).to_string());
    let done = server.run(&["pool", "update", "demo/linux", "--file", &file]);
    assert_eq!(done.code, 2);
    assert!(done.err.contains("\"ownr\""), "{}", done.err);
}

#[test]
fn lists_are_read_up_to_the_limit() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        let pool = format!("demo/{name}");
        server.ok(&[
            "pool",
            "create",
            &pool,
            "--provider",
            "static",
            "--owner",
            "o@example.com",
        ]);
    }
    let all = server.json(&["pool", "list"]);
    assert_eq!(
        all["workerPools"].as_array().unwrap().len(),
        4,
        "and local/default"
    );
    assert_eq!(all.as_object().unwrap().len(), 1, "no token is left over");
    let two = server.json(&["pool", "list", "--limit", "2"]);
    assert_eq!(two["workerPools"].as_array().unwrap().len(), 2);
    assert_eq!(
        server.ok(&["pool", "list", "--limit", "1"]).lines().count(),
        2
    );
}

#[test]
fn a_worker_is_declared_shown_changed_and_removed() {
    let server = Server::start();
    server.ok(&POOL);
    let worker = ["demo/linux", "rack-1", "w1"];
    let with = |verb: &str, more: &[&str]| -> Value {
        server.json(&[&["worker", verb][..], &worker, more].concat())
    };
    let made = server.run(
        &[
            &["worker", "create"][..],
            &worker,
            &["--expires", "30d", "--json"],
        ]
        .concat(),
    );
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(made.err, "");
    let reply: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(reply["staticSecret"].as_str().unwrap().len(), 44);
    assert_eq!(reply["capacity"], 1);

    assert_eq!(with("show", &[])["state"], "running");
    assert_eq!(with("should-terminate", &[])["terminate"], false);
    assert!(
        server
            .ok(&["worker", "should-terminate", "demo/linux", "rack-1", "w1"])
            .contains("should keep running")
    );
    for more in [&[][..], &["--group", "rack-1"], &["--state", "running"]] {
        let arguments = [&["worker", "list", "demo/linux"][..], more].concat();
        assert!(server.ok(&arguments).contains("in 30d"), "{more:?}");
        assert_eq!(
            server.json(&arguments)["workers"].as_array().unwrap().len(),
            1
        );
    }
    let expires = with("show", &[])["expires"].clone();
    let changed = with("update", &["--capacity", "3"]);
    assert_eq!(
        (&changed["capacity"], &changed["expires"]),
        (&json!(3), &expires)
    );
    let changed = with("update", &["--expires", "60d"]);
    assert_eq!(changed["capacity"], 3);
    assert!(with("update", &["--new-secret"])["staticSecret"].is_string());
    let secret = server.home.write("secret", &"s".repeat(44));
    let changed = with("update", &["--capacity", "4", "--secret-file", &secret]);
    assert_eq!(changed["capacity"], 4);
    assert_eq!(with("remove", &["--yes"]), json!({}));
    assert_eq!(with("show", &[])["state"], "stopped");

    let other = server.ok(&["worker", "create", "demo/linux", "rack-1", "w2"]);
    assert_eq!(token_in(&other).len(), 44);
    let again = server.run(&[&["worker", "create"][..], &worker].concat());
    assert_eq!(again.code, 5);
    assert!(
        again.err.contains("keeps its name until it expires"),
        "{}",
        again.err
    );
}

#[test]
fn a_worker_is_explained_by_its_id_alone_if_it_is_unique() {
    let server = Server::start();
    server.ok(&[
        "pool",
        "create",
        "demo/linux",
        "--provider",
        "static",
        "--owner",
        "a@example.com",
    ]);
    server.ok(&["worker", "create", "demo/linux", "rack-1", "w1"]);
    let explain = ["explain", "worker", "demo/linux"];
    let explained = server.ok(&[&explain[..], &["w1"]].concat());
    assert!(explained.contains("declared by hand"), "{explained}");
    let none = server.run(&[&explain[..], &["w9"]].concat());
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("has no worker w9"), "{}", none.err);
    server.ok(&["worker", "create", "demo/linux", "rack-2", "w1"]);
    let several = server.run(&[&explain[..], &["w1"]].concat());
    assert_eq!(several.code, 2);
    assert!(several.err.contains("rack-1, rack-2"), "{}", several.err);
    let one = server.ok(&[&explain[..], &["rack-2", "w1"]].concat());
    assert!(one.contains("declared by hand"), "{one}");
    let quarantine = ["worker", "quarantine", "demo/linux", "rack-2", "w1"];
    let unseen = server.run(&[&quarantine[..], &["--until", "2h"]].concat());
    assert_ne!(unseen.code, 0, "it has never asked for work");
}

#[test]
fn launch_configs_and_errors_are_listed() {
    let server = Server::start();
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{
        "region": "r", "zone": "z", "machineType": "m", "disks": [{}], "networkInterfaces": [{}],
        "scheduling": {}, "workerConfig": {}, "workerManager": {"capacityPerInstance": 1},
    }]});
    let file = server.home.write("config.json", &config.to_string());
    server.ok(&[
        "pool",
        "create",
        "demo/cloud",
        "--provider",
        "fake",
        "--owner",
        "o@example.com",
        "--config",
        &format!("@{file}"),
    ]);
    let listed = server.json(&["launch-config", "list", "demo/cloud"]);
    assert_eq!(listed["launchConfigs"].as_array().unwrap().len(), 1);
    assert!(
        server
            .ok(&["launch-config", "list", "demo/cloud", "--archived"])
            .contains("lc-")
    );
    let id = listed["launchConfigs"][0]["launchConfigId"].as_str();
    let explain = ["explain", "launch-config", "demo/cloud", id.unwrap()];
    let explained = server.ok(&explain);
    assert!(
        explained.contains("Machines made in the last day: 0"),
        "{explained}"
    );
    assert_eq!(server.json(&explain)["regions"], json!([]));
    let none = server.run(&["explain", "launch-config", "demo/cloud", "nosuch"]);
    assert_eq!(none.code, 3, "{}", none.err);

    for arguments in [
        &["error", "list", "demo/cloud"][..],
        &["pool", "errors", "demo/cloud"],
    ] {
        assert_eq!(server.json(arguments), json!({"workerPoolErrors": []}));
        assert!(server.ok(arguments).starts_with("REPORTED"));
    }
    assert_eq!(
        server.json(&["error", "stats", "demo/cloud"])["totals"]["total"],
        0
    );
    assert!(server.ok(&["error", "stats"]).starts_with("0 errors"));
}

#[test]
fn a_clients_token_is_printed_once_and_works_until_it_is_replaced() {
    let server = Server::start();
    let scope = "worker-manager:list-worker-pools";
    let text = server.ok(&[
        "client",
        "create",
        "me/ci",
        "--scope",
        scope,
        "--expires",
        "90d",
    ]);
    let token = token_in(&text);
    let as_client = |token: &str, arguments: &[&str]| {
        let mut command = server.command(arguments);
        command
            .env("TASKCLUSTER_CLIENT_ID", "me/ci")
            .env("TASKCLUSTER_ACCESS_TOKEN", token);
        Done::of(command.output().unwrap())
    };
    assert_eq!(as_client(&token, &["pool", "list"]).code, 0);
    let refused = as_client(&token, &["client", "delete", "x", "--yes"]);
    assert_eq!(refused.code, 4);
    assert!(
        refused.err.contains("auth:delete-client:x"),
        "{}",
        refused.err
    );

    server.ok(&["client", "disable", "me/ci", "--yes"]);
    assert_eq!(as_client(&token, &["pool", "list"]).code, 4);
    server.ok(&["client", "enable", "me/ci"]);
    let reset = server.json(&["client", "reset", "me/ci", "--yes"]);
    assert_eq!(as_client(&token, &["pool", "list"]).code, 4);
    let token = reset["accessToken"].as_str().unwrap();
    assert_eq!(as_client(token, &["pool", "list"]).code, 0);

    server.ok(&["client", "update", "me/ci", "--description", "for CI"]);
    let shown = server.json(&["client", "show", "me/ci"]);
    assert_eq!(
        (&shown["description"], &shown["scopes"]),
        (&json!("for CI"), &json!([scope]))
    );
    assert!(shown.get("accessToken").is_none());
    assert!(server.ok(&["client", "show", "me/ci"]).contains(scope));
    let listed = server.json(&["client", "list", "--prefix", "me/"]);
    assert_eq!(listed["clients"].as_array().unwrap().len(), 1);
    server.ok(&["client", "delete", "me/ci", "--yes"]);
    assert_eq!(server.run(&["client", "show", "me/ci"]).code, 3);
}

fn token_in(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains("not shown again"))
        .collect();
    assert_eq!(lines.len(), 1, "{text}");
    lines[0].rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn roles_scopes_and_their_history() {
    let server = Server::start();
    server.ok(&[
        "role",
        "create",
        "team:*",
        "--scope",
        "a:<..>",
        "--scope",
        "b",
        "--description",
        "d",
    ]);
    assert!(server.ok(&["role", "show", "team:*"]).contains("a:<..>"));
    assert_eq!(
        server.json(&["scope", "expand", "assume:team:x"]),
        json!({"scopes": ["a:x", "assume:team:x", "b"]})
    );
    assert_eq!(server.ok(&["scope", "current"]), "*\n");
    server.ok(&["role", "update", "team:*", "--scope", "c"]);
    assert_eq!(server.json(&["role", "show", "team:*"])["description"], "d");
    let listed = server.json(&["role", "list"]);
    let team = &listed["roles"][1];
    assert_eq!(
        (&team["roleId"], &team["scopes"]),
        (&json!("team:*"), &json!(["c"]))
    );
    server.ok(&["role", "delete", "team:*", "--yes"]);

    let history = server.json(&["audit", "show", "role", "team:*"]);
    let actions: Vec<_> = history["auditHistory"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["actionType"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["created", "updated", "deleted"]);
    assert!(
        server
            .ok(&["audit", "show", "role", "team:*"])
            .contains("static/owner")
    );
}

#[test]
fn each_kind_of_failure_has_its_exit_code() {
    let server = Server::start();
    server.ok(&POOL);
    let code = |arguments: &[&str]| server.run(arguments).code;
    assert_eq!(
        code(&["pool", "create", "demo/x", "--owner", "o@example.com"]),
        2
    );
    assert_eq!(
        code(&[
            "pool",
            "create",
            "nonsense",
            "--provider",
            "static",
            "--owner",
            "o@example.com"
        ]),
        2
    );
    let arguments = [
        "pool",
        "create",
        "demo/x",
        "--provider",
        "static",
        "--owner",
        "nobody",
    ];
    let refused = server.run(&arguments);
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .err
            .contains("hint: the owner must be an e-mail address"),
        "{}",
        refused.err
    );
    let tls = server.root_url().replace("http://", "https://");
    let refused = server.home.run(&["--root-url", &tls, "provider", "list"]);
    assert_eq!(refused.code, 6);
    assert!(refused.err.contains("try http://"), "{}", refused.err);
    let refused = server.run(&["pool", "update", "demo/nosuch", "--owner", "o@x.org"]);
    assert!(refused.err.contains("could not update"), "{}", refused.err);
    assert_eq!(code(&["pool", "show", "demo/nosuch"]), 3);
    assert_eq!(code(&[&POOL[..], &["--description", "other"]].concat()), 5);
    let nobody = server
        .home
        .run(&["--root-url", &server.root_url(), "pool", "list"]);
    assert_eq!(nobody.code, 4);
    assert!(nobody.err.contains("_CLIENT_ID and"), "{}", nobody.err);
    let missing = server.run(&["pool", "show", "demo/nosuch"]);
    assert!(missing.err.contains("demo/nosuch"), "{}", missing.err);
    assert!(
        missing.err.contains("fleetwright pool list"),
        "{}",
        missing.err
    );
}

#[test]
fn destructive_commands_need_confirmation() {
    let server = Server::start();
    server.ok(&POOL);
    for arguments in [
        &["pool", "delete", "demo/linux"][..],
        &["worker", "remove", "demo/linux", "g", "w"],
        &["client", "delete", "c"],
        &["client", "reset", "c"],
        &["client", "disable", "c"],
        &["role", "delete", "r"],
    ] {
        let done = server.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}");
        assert!(done.err.contains("--yes"), "{}", done.err);
    }
    assert_eq!(
        server.json(&["pool", "show", "demo/linux"])["providerId"],
        "static"
    );
}

#[test]
fn temporary_credentials_do_what_their_certificate_allows() {
    let server = Server::start();
    let owner = Secret::new(server.home.token());
    let issuer = Issuer {
        client_id: "static/owner",
        access_token: &owner,
    };
    let now = SystemClock.now().as_millis();
    let given = certificate::issue(
        &issuer,
        Some("temporary/me"),
        vec!["worker-manager:list-providers".to_owned()],
        now,
        now + 60_000,
        &mut StdRng::seed_from_u64(7),
    );
    let code = |arguments: &[&str]| {
        let mut command = server.command(arguments);
        command
            .env("TASKCLUSTER_CLIENT_ID", &given.client_id)
            .env("TASKCLUSTER_ACCESS_TOKEN", given.access_token.expose())
            .env("TASKCLUSTER_CERTIFICATE", given.certificate_text());
        Done::of(command.output().unwrap()).code
    };
    assert_eq!(code(&["provider", "list"]), 0);
    assert_eq!(code(&["pool", "list"]), 4);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let server = Server::start();
    let mut child = server
        .command(&["provider", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let errors = drain(child.stderr.take().unwrap());
    assert!(child.wait().unwrap().success(), "{errors}");
    assert_eq!(errors, "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let server = Server::start();
    for arguments in [&["pool", "list", "--json"][..], &["--help"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = server.command(arguments);
        let done = Done::of(
            command
                .stdout(full)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
                .wait_with_output()
                .unwrap(),
        );
        assert_eq!(done.code, 1, "{arguments:?}");
        assert!(
            done.err.starts_with("error: cannot write the output: "),
            "{}",
            done.err
        );
    }
}

#[test]
fn settings_come_from_a_file_with_profiles_too() {
    let server = Server::start();
    let token = server
        .home
        .write(".config/fleetwright/token", &server.home.token());
    assert!(!token.is_empty());
    server.home.write(
        ".config/fleetwright/config.toml",
        &format!(
            "[profiles.here]\nroot_url = \"{}\"\nclient_id = \"static/owner\"\naccess_token_file = \"token\"\n",
            server.root_url()
        ),
    );
    let done = server.home.run(&["--profile", "here", "provider", "list"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let mut by_variable = server.home.command(&["provider", "list"]);
    let mut child = by_variable
        .env("FLEETWRIGHT_PROFILE", "here")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert!(text.contains("static"));
}

#[test]
fn json_output_names_the_deleted_item() {
    let server = Server::without_pools();
    for (noun, name) in [("role", "roleId"), ("client", "clientId")] {
        server.ok(&[noun, "create", "team"]);
        let gone = server.json(&[noun, "delete", "team", "--yes"]);
        assert_eq!(gone[name], "team");
    }
}
