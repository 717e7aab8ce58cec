//! The standard error of a provider's program reaches the people who look for a cause.

use std::path::Path;

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

const CAUSE: &str = "KeyError: 'flavor'";
const CREATE: [&str; 7] = [
    "pool",
    "create",
    "demo/shell",
    "--provider",
    "shell",
    "--owner",
    "me@example.com",
];
const POOL: &str =
    r#"{"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{"workerConfig": {}}]}"#;

/// A server with the example program, which dies with a traceback in these operations.
fn server(operations: &str) -> Server {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = crate_folder.join("../../docs/providers/example-exec.sh");
    let script = format!(
        "case $1 in {operations}) printf '%s\\n' 'Traceback (most recent call last):' '  File \"p.py\"' \
         \"{CAUSE}\" >&2; exit 1;; *) exec /bin/sh {} \"$@\";; esac",
        program.canonicalize().unwrap().display()
    );
    let config = format!(
        "[providers.local]\nkind = \"static\"\n[providers.shell]\nkind = \"exec\"\n\
         command = [\"/bin/sh\", \"-c\", {script:?}, \"program\"]\n"
    );
    let home = Home::new();
    let file = home.write("shell.toml", &config);
    Server::start_in(home, &["--config", &file])
}

#[test]
fn a_program_that_cannot_be_set_up_is_explained_everywhere() {
    let server = server("setup");
    let listed = wait_for("the set-up has failed", || {
        let listed = server.ok(&["provider", "list"]);
        listed.contains(CAUSE).then_some(listed)
    });
    assert!(
        listed.contains("exit code 1, and the response is empty"),
        "{listed}"
    );
    let refused = server.run(&[&CREATE[..], &["--config", POOL]].concat());
    for part in [
        "The provider shell is out of service: ",
        CAUSE,
        "provider list",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    let config = server.home.path("shell.toml");
    let data = server.home.path("data");
    let places = [
        "--config",
        config.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ];
    let examined = server.run(&[&["doctor"][..], &places].concat());
    assert_eq!(examined.code, 1);
    assert!(examined.out.contains(CAUSE), "{}", examined.out);
}

#[test]
fn a_launch_that_dies_is_explained_to_those_who_wait_for_it() {
    let server = server("launch");
    server.ok(&[&CREATE[..], &["--config", POOL]].concat());
    let create = [
        "--json",
        "task",
        "create",
        "--pool",
        "demo/shell",
        "--",
        "true",
    ];
    let created: serde_json::Value = serde_json::from_str(&server.ok(&create)).unwrap();
    let task = created["status"]["taskId"].as_str().unwrap();
    let explained = wait_for("the launch has failed", || {
        let explained = server.ok(&["explain", "task", task]);
        explained.contains(CAUSE).then_some(explained)
    });
    assert!(
        explained.contains("leaves open whether it made any"),
        "{explained}"
    );
    assert!(!explained.contains("has not answered"), "{explained}");
    for command in [
        ["explain", "pool", "demo/shell"],
        ["pool", "errors", "demo/shell"],
    ] {
        let said = server.ok(&command);
        assert!(said.contains(CAUSE), "{command:?}: {said}");
    }
}
