//! `fleetwright provider test`: providers of several kinds, and one with a fault.

use std::path::Path;

use serde_json::Value;

use crate::world::{Done, Home, Server};

const LAUNCH_CONFIG: &str = "workerConfig: {}\n";

/// A server with the example program, which does this first.
fn server(first: &str) -> Server {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = crate_folder.join("../../docs/providers/example-exec.sh");
    let script = format!(
        "{first} exec /bin/sh {} \"$@\"",
        program.canonicalize().unwrap().display()
    );
    let config = format!(
        "[providers.shell]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}, \"program\"]\n\
         env = {{ MACHINE = \"sleep 600\" }}\n\
         [providers.local]\nkind = \"local\"\n[providers.fake]\nkind = \"fake\"\n\
         [providers.racks]\nkind = \"static\"\n"
    );
    let home = Home::new();
    let file = home.write("c.toml", &config);
    Server::start_in(home, &["--config", &file])
}

fn launch(server: &Server, provider: &str) -> Done {
    let file = server.home.write("launch-config.yaml", LAUNCH_CONFIG);
    let command = ["provider", "test", provider, "--launch", "--launch-config"];
    server.run(&[&command[..], &[&file]].concat())
}

#[test]
fn providers_of_each_kind_pass() {
    let server = server("");
    for provider in ["shell", "local", "fake"] {
        let done = launch(&server, provider);
        assert_eq!(done.code, 0, "{provider}: {}{}", done.out, done.err);
        for line in [
            "ok     Does a second order with the same token make no second machine?",
            "ok     Has the machine left its list? yes",
        ] {
            assert!(done.out.contains(line), "{provider}: {}", done.out);
        }
    }
    let racks = server.ok(&["provider", "test", "racks"]);
    assert!(
        racks.contains("-      Where can it start workers? people declare"),
        "{racks}"
    );
    let config = r#"{"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{"workerConfig": {}}]}"#;
    let owner = ["--owner", "me@example.com", "--config", config];
    let create = ["pool", "create", "demo/shell", "--provider", "shell"];
    server.ok(&[&create[..], &owner].concat());
    let reply = server.json(&["provider", "test", "shell", "--pool", "demo/shell"]);
    assert_eq!(reply["state"], "done");
    let questions = reply["questions"].as_array().unwrap();
    assert!(
        questions.iter().any(|it| it["question"] == "bids"),
        "{reply}"
    );
    let history = server.json(&["audit", "show", "provider", "shell"]);
    assert_eq!(history["auditHistory"].as_array().unwrap().len(), 2);
}

#[test]
fn a_program_with_faults_shows_the_failing_lines() {
    let server = server(
        "case $1 in owned) echo '{\"cause\":\"credentials\",\"message\":\"no right to list\"}'; exit 1;; \
         launch) echo '{\"cause\":\"quota\",\"message\":\"no racks left\"}'; exit 1;; esac;",
    );
    let done = launch(&server, "shell");
    assert_eq!(done.code, 1, "{}", done.out);
    for line in [
        "FAILED Can it list its own machines? ",
        "no right to list",
        "       next: see whether its credentials may list machines",
        "FAILED Does it make the one machine that is ordered? ",
        "no racks left",
        "-      Has the machine left its list? it made no machine",
    ] {
        assert!(done.out.contains(line), "{line}: {}", done.out);
    }
    assert!(
        done.err.contains("did not answer 2 questions"),
        "{}",
        done.err
    );
    let json = server.run(&["provider", "test", "shell", "--json"]);
    assert_eq!(json.code, 1);
    serde_json::from_str::<Value>(&json.out).unwrap();
    let bare = server.run(&["provider", "test", "shell", "--launch"]);
    assert_eq!(bare.code, 2, "{}", bare.err);
    let unknown = server.run(&["provider", "test", "none"]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);
}
