//! `worker log`: the output of a worker process that never registers.

use serde_json::json;

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

const POOL: &str = "demo/broken";
const CONFIG: &str = r#"
[fleet]
round_seconds = 1
scan_seconds = 1
[providers.broken]
kind = "local"
command = ["/bin/sh", "-c", 'printf "no server at port 80\n"; printf "\033[2J" >&2; exit 3', "{identity}"]
"#;

#[test]
fn the_output_of_a_worker_that_never_registers_is_shown() {
    let home = Home::new();
    let file = home.write("c.toml", CONFIG);
    let server = Server::start_in(home, &["--config", &file]);
    let config =
        json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{"workerConfig": {}}]});
    let config = config.to_string();
    let owner = ["--provider", "broken", "--owner", "o@example.com"];
    server.ok(&[&["pool", "create", POOL, "--config", &config][..], &owner].concat());
    server.create_task(POOL, &json!({"command": ["true"]}));
    let worker = wait_for("a worker has ended", || {
        let workers = server.json(&["worker", "list", POOL, "--state", "stopped"]);
        let worker = &workers["workers"][0];
        worker.is_object().then(|| worker.clone())
    });
    let text = |key: &str| worker[key].as_str().unwrap().to_owned();
    let (group, id) = (text("workerGroup"), text("workerId"));
    let name = format!("{POOL}/{group}/{id}");
    let shown = server.ok(&["worker", "log", &name]);
    assert!(shown.contains("no server at port 80\n"), "{shown}");
    // The bytes stay where no terminal obeys them.
    assert!(shown.contains("\u{1b}[2J"), "{shown:?}");
    let document = server.json(&["worker", "log", POOL, &group, &id]);
    assert_eq!(
        (&document["text"], &document["workerId"]),
        (&json!(shown), &json!(id))
    );
    let explained = server.ok(&["explain", "worker", &name]);
    let step = format!("it never registered: `fleetwright worker log {name}`");
    assert!(explained.contains(&step), "{explained}");

    let unknown = server.run(&["worker", "log", POOL, &group, "nobody"]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert!(
        unknown.err.contains("fleetwright worker list"),
        "{}",
        unknown.err
    );
}
