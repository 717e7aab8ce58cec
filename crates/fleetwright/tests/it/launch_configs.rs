//! Launch configs on the command line: states, pauses, and the health of launches.

use serde_json::json;

use crate::world::Server;

/// A server with the pool demo/cloud, which has two launch configs.
pub(crate) fn with_launch_configs() -> Server {
    let server = Server::start();
    let launch_config = |id: &str, region: &str| {
        json!({"region": region, "zone": format!("{region}-a"), "machineType": "n2",
            "disks": [{}], "networkInterfaces": [{}], "scheduling": {}, "workerConfig": {},
            "workerManager": {"launchConfigId": id, "capacityPerInstance": 1}})
    };
    let configs = [
        launch_config("east", "us-east1"),
        launch_config("west", "us-west1"),
    ];
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": configs});
    let file = server.home.write("config.json", &config.to_string());
    let pool = ["pool", "create", "demo/cloud", "--provider", "fake"];
    let owner = ["--owner", "o@example.com", "--config", &format!("@{file}")];
    server.ok(&[&pool[..], &owner].concat());
    server
}

#[test]
fn launch_configs_are_listed_shown_paused_and_resumed() {
    let server = with_launch_configs();
    let listed = server.ok(&["launch-config", "list", "demo/cloud"]);
    let mut lines = listed.lines();
    assert!(
        lines.next().unwrap().starts_with("LAUNCH CONFIG  STATE"),
        "{listed}"
    );
    assert!(
        lines.next().unwrap().starts_with("east           active"),
        "{listed}"
    );
    assert!(listed.contains("50 %"), "{listed}");
    let name = ["demo/cloud", "east"];
    let show = || server.ok(&[&["launch-config", "show"][..], &name].concat());
    assert!(show().contains("State             active"), "{}", show());
    assert!(show().contains("Chance            50 %"), "{}", show());

    let pause = [
        "launch-config",
        "pause",
        "demo/cloud",
        "east",
        "--reason",
        "broken image",
    ];
    let said = server.ok(&[&pause[..], &["--until", "10m"]].concat());
    assert!(
        said.starts_with("launch config east of demo/cloud: paused until 2"),
        "{said}"
    );
    assert!(show().contains("State             paused"), "{}", show());
    assert!(show().contains("static/owner (override pause.demo.cloud.east): broken image"));
    let shown = server.json(&[&["launch-config", "show"][..], &name].concat());
    assert_eq!(shown["pause"]["owner"], "static/owner");
    assert!(
        server
            .ok(&["override", "list"])
            .contains("pause.demo.cloud.east")
    );
    let health = server.ok(&["health"]);
    assert!(health.contains("1 paused"), "{health}");
    assert!(health.contains("broken image"), "{health}");

    let said = server.ok(&[&["launch-config", "resume"][..], &name].concat());
    assert_eq!(said.trim(), "resumed launch config east of demo/cloud");
    assert!(show().contains("State             active"), "{}", show());
    let again = server.run(&[&["launch-config", "resume"][..], &name].concat());
    assert_eq!(again.code, 3, "{}", again.err);
    assert!(
        again.err.contains("was not paused by pauseLaunchConfig"),
        "{}",
        again.err
    );
}

#[test]
fn the_health_of_launches_is_shown_by_region_cause_and_launch_config() {
    let server = with_launch_configs();
    let columns = [
        ("region", "PROVIDER"),
        ("machine", "MACHINE"),
        ("launch-config", "LAUNCH CONFIG"),
    ];
    for (by, heading) in columns {
        let said = server.ok(&["health", "--since", "1h", "--by", by]);
        assert!(said.starts_with("0 machines tried since 2"), "{said}");
        assert!(
            said.contains("none is shut off, on trial or paused."),
            "{said}"
        );
        assert!(said.contains(heading), "{said}");
    }
    let said = server.ok(&["health", "--by", "cause"]);
    assert_eq!(said.lines().count(), 1, "nothing failed: {said}");
    // The longest period: the server's clock is later than the start of the command.
    let day = server.ok(&["health", "--since", "24h"]);
    assert!(day.contains("tried since"), "{day}");
    let all = server.json(&["health", "--since", "30m"]);
    let ids: Vec<_> = all["launchConfigs"].as_array().unwrap().iter().collect();
    assert!(ids.iter().any(|item| item["launchConfigId"] == "west"));
}

#[test]
fn a_request_that_makes_no_sense_is_not_sent() {
    let server = with_launch_configs();
    for arguments in [
        &[
            "launch-config",
            "pause",
            "demo/cloud",
            "east",
            "--reason",
            "r",
        ][..],
        &[
            "launch-config",
            "pause",
            "demo/cloud",
            "east",
            "--until",
            "1h",
        ],
        &[
            "launch-config",
            "pause",
            "demo/cloud",
            "--until",
            "1h",
            "--reason",
            "r",
        ],
        &[
            "launch-config",
            "pause",
            "demo/cloud",
            "east",
            "--until",
            "soon",
            "--reason",
            "r",
        ],
        &["launch-config", "show", "demo/cloud", "not an id"],
        &["launch-config", "show", "demo"],
        &["health", "--by", "colour"],
        &["health", "--since", "yesterday"],
    ] {
        assert_eq!(server.run(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn what_the_server_refuses_is_shown_with_its_reason() {
    let server = with_launch_configs();
    for (arguments, part) in [
        (
            &["launch-config", "show", "demo/cloud", "none"][..],
            "Launch config none does not exist in worker pool demo/cloud",
        ),
        (
            &["launch-config", "list", "demo/none"],
            "Worker pool does not exist",
        ),
        (
            &[
                "launch-config",
                "pause",
                "demo/cloud",
                "none",
                "--until",
                "1h",
                "--reason",
                "r",
            ],
            "Launch config none does not exist",
        ),
        (
            &[
                "launch-config",
                "pause",
                "demo/cloud",
                "east",
                "--until",
                "91d",
                "--reason",
                "r",
            ],
            "within 90 days",
        ),
        (
            &["health", "--since", "25h"],
            "launches are counted over a day at most",
        ),
    ] {
        let refused = server.run(arguments);
        assert_ne!(refused.code, 0, "{arguments:?}");
        assert!(refused.err.contains(part), "{arguments:?}: {}", refused.err);
    }
}
