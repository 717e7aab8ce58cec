//! The commands of an operator: status, lists with levels, lists that are watched, `down`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::queue_calls::wait_for;
use crate::world::{Done, Home, Server};

const LOCAL: &str = "local/default";

/// A home whose data folder is the default one, so that commands find its server.
fn start_at_home() -> Server {
    let home = Home::new();
    let data = home.path(".local/share/fleetwright");
    let data = data.to_str().unwrap();
    let command = home.command(&["up", "--data", data, "--listen", "127.0.0.1:0"]);
    Server::start_by(home, command)
}

#[test]
fn the_status_of_a_new_server_is_one_screen_of_all_parts() {
    let server = Server::start();
    let wait = ["task", "create", "--pool", LOCAL, "--wait", "--", "true"];
    server.ok(&wait);
    let shown = server.ok(&["status"]);
    for part in [
        "\nWaiting 0; capacity: ",
        "\nPools 1: ",
        "\nPROVIDER ",
        "\nPROCESS ",
        "\nlocal ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.lines().count() <= 24, "{shown}");
    let all = server.ok(&["status", "--all"]);
    assert!(all.contains("\nlocal/default "), "{all}");
    // Once, without a terminal.
    let top = server.ok(&["top", "--once"]);
    assert!(top.contains("\nPROVIDER "), "{top}");
    let document = server.json(&["status"]);
    let providers = document["parts"]["providers"].as_array().unwrap();
    assert!(
        providers.iter().any(|it| it["providerId"] == "local"),
        "{document}"
    );
}

#[test]
fn an_ill_fleet_fails_a_check_only() {
    let home = Home::new();
    let text = "[providers.racks]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 3\"]\n";
    let file = home.write("c.toml", text);
    let server = Server::start_in(home, &["--config", &file]);
    wait_for("the provider", || {
        let shown = server.ok(&["status"]);
        shown
            .contains("racks     exec    out of service")
            .then_some(())
    });
    let task = [
        "task",
        "create",
        "--pool",
        "demo/racks",
        "--force",
        "--",
        "true",
    ];
    server.ok(&task);
    // A status may be a second old.
    wait_for("the waiting task", || {
        let shown = server.ok(&["status"]);
        let is_ill = shown.contains("1 tasks wait in demo/racks, and no worker pool");
        is_ill.then_some(())
    });
    let checked = server.run(&["status", "--check"]);
    assert_eq!(checked.code, 1, "{}", checked.out);
    assert!(checked.out.contains(" ill"), "{}", checked.out);
}

#[test]
fn a_caller_with_few_scopes_sees_which_parts_are_left_out() {
    let server = Server::start();
    let create = [
        "client",
        "create",
        "few",
        "--scope",
        "fleetwright:read-status",
        "--json",
    ];
    let made: Value = serde_json::from_str(&server.ok(&create)).unwrap();
    let mut command = server.home.command(&["status"]);
    command
        .env("TASKCLUSTER_ROOT_URL", server.root_url())
        .env("TASKCLUSTER_CLIENT_ID", "few")
        .env(
            "TASKCLUSTER_ACCESS_TOKEN",
            made["accessToken"].as_str().unwrap(),
        );
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains("Left out, since your scopes"),
        "{}",
        done.out
    );
}

#[test]
fn lists_show_levels_tasks_and_workers() {
    let server = Server::start();
    let script = "while [ ! -e go ]; do read x < fifo; done";
    let script = format!("mkfifo fifo; echo $PWD; {script}");
    let create = [
        "--json", "task", "create", "--pool", LOCAL, "--", "sh", "-c", &script,
    ];
    let made: Value = serde_json::from_str(&server.ok(&create)).unwrap();
    let task = made["status"]["taskId"].as_str().unwrap();
    let folder = wait_for("it runs", || {
        let log = server.run(&["task", "log", task]).out;
        log.lines()
            .find(|line| line.starts_with('/'))
            .map(str::to_owned)
    });
    let pools = server.ok(&["pool", "list"]);
    let titles = pools.lines().next().unwrap();
    for title in [
        "POOL",
        "WAITING",
        "STARTING",
        "BUSY",
        "IDLE",
        "MAX",
        "PROVIDERS",
    ] {
        assert!(titles.contains(title), "{pools}");
    }
    let tasks = server.ok(&["task", "ls"]);
    assert!(tasks.contains(task) && tasks.contains("running"), "{tasks}");
    let of_pool = server.ok(&["task", "list", "--pool", LOCAL]);
    assert!(
        of_pool.contains(task) && of_pool.contains("running"),
        "{of_pool}"
    );
    wait_for("the worker is busy", || {
        let workers = server.ok(&["worker", "list", LOCAL]);
        workers.contains(task).then_some(())
    });
    std::fs::write(format!("{folder}/go"), "").unwrap();
    std::fs::write(format!("{folder}/fifo"), "x\n").unwrap();
    server.ok(&["task", "log", "--follow", task]);
    // The outcome is counted a moment after the task ended.
    let ended = ["task", "list", "--state", "completed"];
    let listed = wait_for("it is listed as completed", || {
        let listed = server.ok(&ended);
        listed.contains(task).then_some(listed)
    });
    assert!(listed.contains("completed"), "{listed}");
    let failed = server.json(&["task", "list", "--pool", LOCAL, "--state", "failed"]);
    assert_eq!(failed, json!({"tasks": []}));
    let refused = server.run(&["task", "list", "--state", "unscheduled"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn a_watched_list_is_printed_again_when_it_changed() {
    let server = Server::start();
    let mut watching = server
        .command(&["role", "list", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut wait_for_line = |part: &str| {
        let found = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(part));
        assert!(found.is_some(), "no line has {part}");
    };
    wait_for_line("anonymous");
    server.ok(&["role", "create", "team:new", "--scope", "a"]);
    wait_for_line("team:new");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn commands_find_the_server_of_this_machine_and_down_ends_it() {
    let server = start_at_home();
    assert!(
        !server.welcome.contains("owner.env\n  "),
        "{}",
        server.welcome
    );
    let pools = server.home.run(&["pool", "list", "-v"]);
    assert_eq!(pools.code, 0, "{}", pools.err);
    assert!(pools.out.contains(LOCAL), "{}", pools.out);
    let said = "with the credentials of ";
    assert!(pools.err.contains(said), "{}", pools.err);
    let quiet = server.home.run(&["pool", "list"]);
    assert!(!quiet.err.contains(said), "{}", quiet.err);

    let ended = server.home.run(&["down"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.out.starts_with("ended the server of "),
        "{}",
        ended.out
    );
    let again = server.home.run(&["down"]);
    assert_eq!(again.code, 3, "{}", again.err);
    let away = server.home.run(&["pool", "list"]);
    assert_eq!(away.code, 2, "{}", away.err);
    assert!(away.err.contains("does not answer at"), "{}", away.err);
    assert!(away.err.contains("`fleetwright up`"), "{}", away.err);
    let elsewhere = server.home.run(&["down", "--data", "/nonexistent"]);
    assert_eq!(elsewhere.code, 3, "{}", elsewhere.err);
}

#[test]
fn a_pool_of_this_machine_needs_no_config_and_one_of_a_cloud_says_what_it_needs() {
    let home = Home::new();
    let file = home.write(
        "c.toml",
        "[providers.cloud]\nkind = \"fake\"\naccepts = \"google\"\n",
    );
    let server = Server::start_in(home, &["--config", &file]);
    let create = [
        "pool",
        "create",
        "demo/small",
        "--provider",
        "local",
        "--max-capacity",
        "4",
    ];
    server.ok(&create);
    let pool = server.json(&["pool", "show", "demo/small"]);
    assert_eq!(pool["config"]["maxCapacity"], 4);
    server.ok(&[
        "task",
        "create",
        "--pool",
        "demo/small",
        "--wait",
        "--",
        "true",
    ]);
    server.ok(&["pool", "update", "demo/small", "--max-capacity", "2"]);
    let pool = server.json(&["pool", "show", "demo/small"]);
    assert_eq!(pool["config"]["maxCapacity"], 2);
    assert_eq!(pool["config"]["launchConfigs"].as_array().unwrap().len(), 1);
    let misspelt = server.run(&["pool", "create", "demo/x", "--provider", "lokal"]);
    assert_eq!(misspelt.code, 3, "{}", misspelt.err);
    let said = "provider lokal does not exist, did you mean \"local\"?";
    assert!(misspelt.err.contains(said), "{}", misspelt.err);
    let refused = server.run(&["pool", "create", "demo/cloud", "--provider", "cloud"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    for part in [
        "provider cloud needs a config",
        "launchConfigs",
        "docs/providers/fake.md",
    ] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
}
