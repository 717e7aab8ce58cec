//! `up`: its data folder, start and stop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;

use crate::queue_calls::wait_for;
use crate::world::{Done, Home, Server};

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_its_files() {
    let server = Server::start();
    for (name, expected) in [
        ("data", 0o700),
        ("data/owner.env", 0o600),
        ("data/keys", 0o600),
        ("data/fleetwright.sqlite", 0o600),
        ("data/fleetwright.sqlite-wal", 0o600),
    ] {
        assert_eq!(mode(&server.home.path(name)), expected, "{name}");
    }
}

#[test]
fn the_printed_commands_work() {
    let server = Server::start();
    let commands: Vec<_> = server
        .welcome
        .lines()
        .skip_while(|line| !line.starts_with("Try"))
        .filter(|line| line.starts_with("  "))
        .collect();
    assert_eq!(commands.len(), 3);
    let script = format!("set -e\n{}", commands.join("\n"));
    let mut shell = server.home.bare_command(Path::new("sh"), &["-c", &script]);
    let done = Done::of(shell.output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    for part in ["hello\n", "plan 1", "1 task waits"] {
        assert!(done.out.to_lowercase().contains(part), "{}", done.out);
    }
}

#[test]
fn a_stop_lists_the_worker_processes_that_keep_running() {
    let server = Server::start();
    let create = ["task", "create", "--pool", "local/default", "--wait", "--"];
    server.ok(&[&create[..], &["true"]].concat());
    let workers = server.json(&["worker", "list", "local/default"]);
    let worker = workers["workers"][0]["workerId"]
        .as_str()
        .unwrap()
        .to_owned();
    let (code, home) = server.terminate();
    assert_eq!(code, Some(0));
    let log = home.read("log");
    let said =
        format!("1 worker process keeps running without the server:\n  local/default {worker}\n");
    assert!(log.contains(&said), "{log}");
}

#[test]
fn a_failed_provider_is_shown_by_all_related_commands() {
    let home = Home::new();
    let text = "[providers.local]\nkind = \"static\"\n[providers.racks]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", \"echo oops >&2; exit 3\"]\n";
    let file = home.write("c.toml", text);
    let server = Server::start_in(home, &["--config", &file]);
    let listed = server.ok(&["provider", "list"]);
    let line = listed
        .lines()
        .find(|line| line.starts_with("racks"))
        .unwrap();
    assert!(line.contains("exit code 3"), "{listed}");
    let data = server.home.path("data");
    let examine = [
        "doctor",
        "--data",
        data.to_str().unwrap(),
        "--config",
        &file,
    ];
    let examined = server.home.run(&examine);
    assert_eq!(examined.code, 1, "{}", examined.out);
    let said = "bad      provider racks failed to start: ";
    assert!(examined.out.contains(said), "{}", examined.out);
    let metrics = wait_for("it is measured", || {
        let (status, metrics) = server.call("GET", "/metrics", None);
        assert_eq!(status, 200);
        let is_there = metrics.contains("fleetwright_provider_in_service{");
        is_there.then_some(metrics)
    });
    let help = "# HELP fleetwright_provider_in_service ";
    for line in [
        help,
        "fleetwright_provider_in_service{providerId=\"racks\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn a_later_start_keeps_the_token_and_rewrites_the_address() {
    let first = Server::start();
    let (token, url) = (first.home.token(), first.root_url());
    let (_, home) = first.terminate();
    let second = Server::start_in(home, &["--root-url", "http://fleet.example.com/"]);
    assert_eq!(second.home.token(), token);
    let text = second.home.read("data/owner.env");
    assert!(
        text.contains("ROOT_URL=http://fleet.example.com\n"),
        "{text}"
    );
    assert!(!text.contains(&url));
}

#[test]
fn the_second_on_one_folder_is_refused() {
    let server = Server::start();
    let data = server.home.path("data");
    let arguments = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let second = server.home.run(&arguments);
    assert_eq!(second.code, 5);
    assert!(
        second.err.contains("another `fleetwright up`"),
        "{}",
        second.err
    );
    server.ok(&["provider", "list"]);
}

#[test]
fn a_stop_by_signal_is_no_failure() {
    let (code, _) = Server::start().terminate();
    assert_eq!(code, Some(0));
}

#[test]
fn a_taken_address_is_named() {
    let server = Server::start();
    let address = server.root_url().replace("http://", "");
    let other = server.home.path("other");
    let arguments = [
        "up",
        "--listen",
        &address,
        "--data",
        other.to_str().unwrap(),
    ];
    let done = server.home.run(&arguments);
    assert_eq!(done.code, 1);
    assert!(done.err.contains(&address), "{}", done.err);
    assert!(done.err.contains("--listen"), "{}", done.err);
    assert!(!done.err.contains("doctor"), "{}", done.err);
}

#[test]
fn an_unusable_folder_is_an_error_with_a_hint() {
    let home = Home::new();
    let file = home.write("file", "");
    let done = home.run(&["up", "--data", &file]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains(&file), "{}", done.err);
    assert!(
        done.err.contains("select another folder with --data"),
        "{}",
        done.err
    );
}

#[test]
fn damaged_or_missing_files_are_errors_and_stay_unchanged() {
    let (_, home) = Server::start().terminate();
    let data = home.path("data");
    let arguments = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let refused = |part: &str| {
        let done = home.run(&arguments);
        assert_eq!(done.code, 1, "{}", done.err);
        assert!(done.err.contains(part), "{}", done.err);
        assert!(done.err.contains("hint: "), "{}", done.err);
    };

    let owner = home.read("data/owner.env");
    home.write(
        "data/owner.env",
        "export TASKCLUSTER_CLIENT_ID=static/owner\n",
    );
    refused("owner.env is damaged");
    home.write("data/owner.env", &owner);

    let keys = home.read("data/keys");
    home.write("data/keys", "k1 short\n");
    refused("keys");
    assert_eq!(home.read("data/keys"), "k1 short\n");
    std::fs::remove_file(home.path("data/keys")).unwrap();
    refused("is missing, but the database needs it");
    assert!(!home.path("data/keys").exists());

    home.write("data/keys", &keys);
    Server::start_in(home, &[]).ok(&["provider", "list"]);
}

#[test]
fn a_public_address_gives_a_warning() {
    let server = Server::start_in(Home::new(), &["--listen", "0.0.0.0:0"]);
    let log = server.home.read("log");
    assert!(log.contains("connections are not encrypted"), "{log}");
    server.ok(&["provider", "list"]);
}

#[test]
fn a_configuration_adds_and_changes_providers() {
    let home = Home::new();
    let text = "[providers.gcp-copy]\nkind = \"fake\"\naccepts = \"google\"\n[providers.fake]\nkind = \"static\"\n";
    let file = home.write("c.toml", text);
    let server = Server::start_in(home, &["--config", &file]);
    let listed = server.json(&["provider", "list"]);
    let mut listed: Vec<_> = listed["providers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|provider| ["providerId", "providerType"].map(|key| provider[key].as_str().unwrap()))
        .collect();
    listed.sort_unstable();
    assert_eq!(
        listed,
        [
            ["fake", "static"],
            ["gcp-copy", "fake"],
            ["local", "local"],
            ["static", "static"]
        ]
    );
}

#[test]
fn the_doctor_finds_a_healthy_server_healthy() {
    let server = Server::start();
    let data = server.home.path("data");
    let arguments = ["doctor", "--data", data.to_str().unwrap()];
    let done = server.home.run(&arguments);
    assert_eq!(done.code, 0, "{}", done.out);
    assert!(done.out.contains("a server answers at"), "{}", done.out);
    assert!(!done.out.contains("bad "), "{}", done.out);
    let note = "tasks of provider local run as the server's user";
    assert!(done.out.contains(note), "{}", done.out);
    let file = server.home.write("c.toml", "[log]\nformat = \"json\"\n");
    let both = server
        .home
        .run(&[&arguments[..], &["--config", &file]].concat());
    assert_eq!(both.code, 0, "{}{}", both.out, both.err);
    assert!(both.out.contains("the owner's credential"), "{}", both.out);
    let json = server.home.run(&[&arguments[..], &["--json"]].concat());
    let findings: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(findings["findings"][0]["state"], "good");
}

/// Runs a command without credentials.
fn anybody(server: &Server, arguments: &[&str]) -> Done {
    let mut command = server.home.command(arguments);
    Done::of(
        command
            .env("TASKCLUSTER_ROOT_URL", server.root_url())
            .output()
            .unwrap(),
    )
}

#[test]
fn anonymous_clients_on_this_machine_may_read_public_data_until_the_role_is_deleted() {
    let server = Server::start();
    assert!(
        server.welcome.contains("role delete anonymous"),
        "{}",
        server.welcome
    );
    let role = server.json(&["role", "show", "anonymous"]);
    let scopes: Vec<_> = role["scopes"].as_array().unwrap().iter().collect();
    assert_eq!(
        scopes,
        [
            "purge-cache:purge-requests:*",
            "queue:get-artifact:public/*",
            "queue:get-task:*",
            "queue:list-artifacts:*",
            "queue:list-dependent-tasks:*",
            "queue:list-task-group:*",
            "queue:status:*",
        ]
    );
    let made = server.ok(&[
        "--json",
        "task",
        "create",
        "--pool",
        "local/default",
        "--wait",
        "--",
        "echo",
        "hello",
    ]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let task = made["status"]["taskId"].as_str().unwrap();
    let log = anybody(&server, &["task", "log", task]);
    assert!(log.out.contains("hello\n"), "{}", log.err);
    assert_eq!(anybody(&server, &["task", "status", task]).code, 0);
    assert_eq!(anybody(&server, &["pool", "list"]).code, 4);

    server.ok(&["role", "delete", "anonymous", "--yes"]);
    let (_, home) = server.terminate();
    let again = Server::start_in(home, &[]);
    assert!(!again.welcome.contains("anonymous"), "{}", again.welcome);
    assert_eq!(again.run(&["role", "show", "anonymous"]).code, 3);
    assert_eq!(anybody(&again, &["task", "log", task]).code, 4);
}

#[test]
fn a_public_server_has_no_anonymous_role() {
    let beyond = ["--root-url", "http://fleet.example.com"];
    let server = Server::start_in(Home::new(), &beyond);
    assert!(!server.welcome.contains("anonymous"), "{}", server.welcome);
    let (_, home) = server.terminate();
    let here = Server::start_in(home, &[]);
    assert_eq!(here.run(&["role", "show", "anonymous"]).code, 3);
    assert!(!here.home.read("log").contains("warning: everybody"));
}

#[test]
fn anonymous_scopes_of_a_public_server_give_a_warning() {
    let (_, home) = Server::start().terminate();
    let server = Server::start_in(home, &["--root-url", "http://fleet.example.com"]);
    let log = server.home.read("log");
    assert!(log.contains("warning: anonymous clients have the"), "{log}");
    assert!(log.contains("fleetwright role delete anonymous"), "{log}");
}

/// A server with a low limit on open files, as on most systems.
#[cfg(unix)]
fn with_open_files(limits: &str) -> Server {
    let home = Home::new();
    let data = home.path("data");
    let script = format!("{limits} && exec \"$0\" \"$@\"");
    let program = env!("CARGO_BIN_EXE_fleetwright");
    let up = [
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let arguments = [&["-c", &script, program][..], &up].concat();
    let command = home.bare_command(Path::new("sh"), &arguments);
    Server::start_by(home, command)
}

/// Whether a request gets a reply; its connection stays open.
#[cfg(unix)]
fn ask_on(connection: &TcpStream) -> bool {
    let mut line = String::new();
    let request = b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n";
    (&*connection).write_all(request).unwrap();
    BufReader::new(connection).read_line(&mut line).unwrap();
    line.starts_with("HTTP/1.1 200")
}

#[cfg(unix)]
#[test]
fn the_limit_on_open_files_is_raised_for_connections() {
    let server = with_open_files("ulimit -Sn 150");
    let address = server.root_url().replace("http://", "");
    let connect = || TcpStream::connect(&address).unwrap();
    let connections: Vec<TcpStream> = (0..400).map(|_| connect()).collect();
    assert!(connections.iter().all(ask_on));
}

#[cfg(unix)]
#[test]
fn a_low_limit_on_open_files_reduces_connections_and_gives_a_warning() {
    let server = with_open_files("ulimit -n 200");
    let log = server.home.read("log");
    assert!(log.contains("at most 100 connections at a time"), "{log}");
    assert!(log.contains("ulimit -n"), "{log}");
    let address = server.root_url().replace("http://", "");
    let connect = || TcpStream::connect(&address).unwrap();
    // The program's own requests need places, too; at the limit, connections that have not sent
    // a request are closed.
    let first: Vec<TcpStream> = (0..90).map(|_| connect()).collect();
    assert!(first.iter().all(ask_on));
    // Another connection is accepted after one is closed, and the server can open its other files.
    let late = connect();
    drop(first);
    assert!(ask_on(&late));
    server.ok(&["provider", "list"]);
}
