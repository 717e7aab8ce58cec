//! A real image: a Debian root file system, in which a task runs. It needs a mirror of Debian.

use std::process::Command;

use serde_json::json;

use crate::queue_calls::wait_for;
use crate::world::Server;

/// Written into the image only.
const MARK: &str = "built by fleetwright";

#[test]
fn a_task_runs_in_a_debian_that_a_build_made() {
    let version = Command::new("mmdebstrap").arg("--version").output();
    assert!(
        version.is_ok_and(|it| it.status.success()),
        "this test needs mmdebstrap: ./check installs it, and `./check quick` skips this test"
    );
    let server = Server::start();
    let mark = format!("--customize-hook=echo '{MARK}' >\"$1/etc/mark\"");
    // Mirrors and the clock of this machine may be behind.
    let any_age = "--aptopt=Acquire::Check-Valid-Until \"false\"";
    let command = [
        "mmdebstrap",
        "--variant=essential",
        // Nothing needs to survive a crash of this machine.
        "--dpkgopt=force-unsafe-io",
        any_age,
        &mark,
        "stable",
        "{output}.tar",
    ];
    let definition = json!({
        "imageId": "debian",
        "build": {"command": command},
        "formats": ["tar"],
        "rebuildAgeSeconds": 0,
        "timeLimitSeconds": 900,
        "uploads": [{"providerId": "local"}],
    });
    let file = server.home.write("debian.json", &definition.to_string());
    server.ok(&["image", "create", "debian", "--file", &file]);
    wait_for("it is being built", || {
        let status = server.json(&["image", "show", "debian"]);
        status["builds"][0].is_object().then_some(())
    });
    let log = server.run(&["image", "log", "debian", "--follow"]);
    let status = server.json(&["image", "show", "debian"]);
    assert_eq!(
        status["builds"][0]["state"], "ready",
        "Debian cannot be installed; can a mirror of Debian be reached? {} {}{}",
        status["builds"][0]["error"], log.out, log.err
    );
    let image = wait_for("the image is on this host", || {
        let status = server.json(&["image", "show", "debian"]);
        let id = status["targets"][0]["inUse"]["externalId"].as_str()?;
        Some(id.to_owned())
    });
    let config = json!({
        "minCapacity": 0,
        "maxCapacity": 1,
        "launchConfigs": [
            {"image": image, "workerConfig": {"fleetwright": {"idleTimeoutSeconds": 1}}}
        ],
    });
    let owner = ["--owner", "me@example.com", "--config", &config.to_string()];
    let create = ["pool", "create", "demo/debian", "--provider", "local"];
    server.ok(&[&create[..], &owner].concat());
    // Where file systems cannot be mounted, the worker runs beside the image.
    let script = "root=${FLEETWRIGHT_IMAGE:-}; cat $root/etc/mark; . $root/etc/os-release; \
                  echo \"release $ID $VERSION_ID\"";
    let task = ["task", "create", "--pool", "demo/debian", "--log", "--"];
    let out = server.ok(&[&task[..], &["/bin/sh", "-c", script]].concat());
    assert!(out.lines().any(|line| line == MARK), "{out}");
    assert!(out.contains("release debian "), "{out}");
}
