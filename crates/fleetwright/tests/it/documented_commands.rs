//! Runs the commands in the documentation.
//!
//! Every block of shell commands is either run or skipped with a reason. A new block fails the test
//! until it is in the list.

use crate::command_blocks::{Block, block, blocks, root, run_in, shell};
use crate::configuration::BUILD;
use crate::documented_operations::{keys, monitoring, postgres};
use crate::launch_configs::with_launch_configs;
use crate::selected_workers::with_configuration;
use crate::world::{Home, Server};

/// How a test runs a block, by its file and the beginning of its first line.
const BLOCKS: &[(&str, &str, Way)] = &[
    (
        "README.md",
        "cargo run --release",
        Way::Skip("builds a release"),
    ),
    (
        "README.md",
        "target/release/fleetwright task",
        Way::Run(first_task),
    ),
    (
        "docs/tutorial.md",
        "fleetwright up",
        Way::Skip("is run by the test that follows the tutorial"),
    ),
    (
        "docs/no-worker.md",
        "fleetwright explain task",
        Way::Skip("the test that follows the page runs them on tasks that wait"),
    ),
    (
        "docs/first-image.md",
        "cargo run --release",
        Way::Skip("builds a release"),
    ),
    (
        "docs/first-image.md",
        "alias fleetwright",
        Way::Skip("needs half a minute, and more workers than `up` has by default"),
    ),
    (
        "docs/install.md",
        "sudo apt install",
        Way::Skip("is run by the tests of packages"),
    ),
    (
        "docs/install.md",
        "sudo -u fleetwright fleetwright doctor",
        Way::Skip("is run by the tests of packages"),
    ),
    (
        "docs/install.md",
        "python3 -m venv",
        Way::Skip("is run by the tests of packages"),
    ),
    (
        "docs/install.md",
        "tar -xzf",
        Way::Skip("is run by the tests of packages"),
    ),
    (
        "docs/install.md",
        "docker buildx build --tag",
        Way::Skip("needs Docker; the tests of packages build the image with Buildah"),
    ),
    (
        "docs/install.md",
        "docker buildx build --push",
        Way::Skip("needs a cluster; the tests of packages check the manifests"),
    ),
    (
        "docs/install.md",
        "cargo install",
        Way::Skip("builds a release"),
    ),
    (
        "docs/images.md",
        "fleetwright image create",
        Way::Skip("is run by the tests of builds of images"),
    ),
    (
        "docs/images.md",
        "fleetwright import nodepool",
        Way::Skip("is run by the tests of the import from Nodepool"),
    ),
    (
        "docs/operations.md",
        "fleetwright keys builder",
        Way::Skip("is run by the tests of builders"),
    ),
    (
        "docs/providers/protocol.md",
        "fleetwright worker create racks",
        Way::Skip("needs a program that makes single workers; the tests of the server have one"),
    ),
    (
        "docs/providers/protocol.md",
        "fleetwright provider test",
        Way::Skip("is run by the tests of the command"),
    ),
    (
        "docs/api.md",
        "fleetwright pool create",
        Way::Run(declared_worker),
    ),
    ("docs/api.md", "echo '{", Way::Run(secrets)),
    (
        "docs/api.md",
        "curl -X POST",
        Way::Skip("is run by the block before it"),
    ),
    (
        "docs/costs.md",
        "fleetwright cost",
        Way::Skip("needs machines with a price; the tests of the command show its output"),
    ),
    (
        "docs/documentation.md",
        "fleetwright documentation check",
        Way::Run(documentation),
    ),
    (
        "docs/demo.md",
        "fleetwright demo",
        Way::Skip("is run by the tests of the demo"),
    ),
    (
        "docs/page.md",
        "fleetwright open ",
        Way::Skip("opens a browser; tests of the pages use the link"),
    ),
    (
        "docs/page.md",
        "fleetwright role create",
        Way::Run(roles_of_people),
    ),
    (
        "docs/history.md",
        "fleetwright status ",
        Way::Skip("is run by a test of a new server"),
    ),
    ("docs/events.md", "fleetwright event tail", Way::Run(events)),
    (
        "docs/waiting.md",
        "fleetwright explain task",
        Way::Run(waits),
    ),
    (
        "docs/tree.md",
        "fleetwright tree ls",
        Way::Skip("is run by the tests of the commands of the tree"),
    ),
    (
        "docs/tree.md",
        "fleetwright tree export",
        Way::Skip("needs the ZooKeeper of a Nodepool"),
    ),
    (
        "docs/fleet.md",
        "fleetwright launch-config list",
        Way::Run(launch_configs),
    ),
    (
        "docs/fleet.md",
        "fleetwright override set",
        Way::Run(overrides),
    ),
    (
        "docs/datacentre.md",
        "fleetwright pool create",
        Way::Skip("is run by the tests of relays"),
    ),
    (
        "docs/datacentre.md",
        "umask 077",
        Way::Skip("is run by the tests of relays"),
    ),
    ("docs/fleet.md", "fleetwright budget set", Way::Run(budgets)),
    (
        "docs/fleet.md",
        "fleetwright worker count",
        Way::Run(selections),
    ),
    (
        "docs/fleet.md",
        "fleetwright worker list",
        Way::Skip("the tests of the commands run them on workers that exist"),
    ),
    (
        "docs/operations.md",
        "sudo -u postgres",
        Way::Skip("the tests have a database of their own"),
    ),
    (
        "docs/operations.md",
        "fleetwright config alerts",
        Way::Run(monitoring),
    ),
    ("docs/operations.md", "umask 077", Way::Run(postgres)),
    (
        "docs/operations.md",
        "fleetwright doctor",
        Way::Skip("is run by the block before it"),
    ),
    (
        "docs/operations.md",
        "export TASKCLUSTER_ROOT_URL",
        Way::Skip("is run by the same test"),
    ),
    ("docs/operations.md", "echo \"k1", Way::Run(keys)),
    (
        "docs/operations.md",
        "(umask 077",
        Way::Skip("is run by the block before it"),
    ),
    (
        "docs/rules.md",
        "fleetwright rules evaluate",
        Way::Skip("is run by the tests of the command"),
    ),
    (
        "docs/rules.md",
        "fleetwright up --config",
        Way::Run(three_clouds),
    ),
    (
        "docs/simulation.md",
        "fleetwright simulate scenarios",
        Way::Run(simulation),
    ),
    (
        "docs/simulation.md",
        "fleetwright simulate recorded",
        Way::Run(recorded_history),
    ),
    (
        "docs/worker.md",
        "fleetwright task create",
        Way::Skip("the tests of the commands run them on tasks that exist"),
    ),
    (
        "docs/strategies.md",
        "head -c 33",
        Way::Skip("serves for ever; the tests of the server start the same program"),
    ),
    (
        "docs/security.md",
        "#!/bin/sh",
        Way::Skip("needs root and a user ci"),
    ),
];

#[derive(Clone, Copy)]
enum Way {
    Run(fn(&Block)),
    Skip(&'static str),
}

fn way_of(block: &Block) -> Option<Way> {
    let known = |(file, start, _): &&(&str, &str, Way)| {
        *file == block.file && block.text.starts_with(start)
    };
    BLOCKS.iter().find(known).map(|(_, _, way)| *way)
}

/// Sources the owner's file of this server first.
fn as_owner(server: &Server, script: &str) -> String {
    let owner = server.home.path("data/owner.env");
    // No terminal can ask for confirmation.
    let script = script.replace(" remove ", " remove --yes ");
    let script = format!(". {}\n{script}", owner.display());
    run_in(&server.home, &server.home.path("."), &script)
}

#[test]
fn every_block_of_commands_is_run_or_has_a_reason_not_to_be() {
    let blocks = blocks();
    for block in &blocks {
        let first = block.text.lines().next().unwrap_or_default();
        match way_of(block) {
            Some(Way::Run(_)) => {}
            Some(Way::Skip(reason)) => eprintln!("skipped {}: {first}: {reason}", block.file),
            None => panic!(
                "{}: no test runs the block that begins with {first:?}",
                block.file
            ),
        }
    }
    assert_eq!(
        blocks.len(),
        BLOCKS.len(),
        "a block of the list is not in the documentation"
    );
}

macro_rules! runs {
    ($($test:ident, $file:literal, $start:literal;)*) => {$(
        #[test]
        fn $test() {
            let block = Block { file: $file.to_owned(), text: block($file, $start) };
            match way_of(&block) {
                Some(Way::Run(run)) => run(&block),
                Some(Way::Skip(_)) | None => panic!("is not to be run"),
            }
        }
    )*
        /// Each block to run has a test.
        #[test]
        fn no_block_that_can_be_run_is_forgotten() {
            let tested = [$(($file, $start)),*];
            for (file, start, way) in BLOCKS {
                let is_tested = tested.iter().any(|(f, s)| f == file && s == start);
                assert_eq!(is_tested, matches!(way, Way::Run(_)), "{file}: {start}");
            }
        }
    };
}

runs! {
    the_readme_leads_to_a_first_task_and_its_log, "README.md", "target/release/fleetwright task";
    the_api_guide_leads_to_a_registered_worker, "docs/api.md", "fleetwright pool create";
    the_commands_about_secrets_work, "docs/api.md", "echo '{";
    the_commands_about_documentation_work, "docs/documentation.md", "fleetwright documentation check";
    the_commands_about_events_work, "docs/events.md", "fleetwright event tail";
    the_commands_about_roles_of_people_work, "docs/page.md", "fleetwright role create";
    the_commands_about_waits_work, "docs/waiting.md", "fleetwright explain task";
    the_commands_about_launch_configs_work, "docs/fleet.md", "fleetwright launch-config list";
    the_commands_about_overrides_work, "docs/fleet.md", "fleetwright override set";
    the_commands_about_budgets_work, "docs/fleet.md", "fleetwright budget set";
    the_commands_about_selections_work, "docs/fleet.md", "fleetwright worker count";
    the_server_of_the_operations_guide_can_be_entered, "docs/operations.md", "umask 077";
    the_commands_about_monitoring_work, "docs/operations.md", "fleetwright config alerts";
    the_commands_about_keys_work, "docs/operations.md", "echo \"k1";
    the_commands_about_simulation_work, "docs/simulation.md", "fleetwright simulate scenarios";
    the_commands_about_recorded_history_work, "docs/simulation.md", "fleetwright simulate recorded";
    the_example_of_three_clouds_can_be_applied, "docs/rules.md", "fleetwright up --config";
}

fn first_task(block: &Block) {
    let server = Server::start();
    server.serves_its_user();
    let text = block
        .text
        .replace("target/release/fleetwright", "fleetwright");
    let out = run_in(&server.home, &server.home.path("."), &text);
    assert!(out.lines().any(|line| line == "hello"), "{out}");
    assert!(out.contains("Plan 1 ("), "{out}");
}

fn secrets(block: &Block) {
    let server = Server::without_pools();
    let owner = server.home.read("data/owner.env");
    let text = format!("{owner}\n{}", block.text);
    let out = run_in(&server.home, &server.home.path("."), &text);
    assert!(out.contains("\"token\": \"abc\""), "{out}");
    assert!(out.ends_with("project/demo\n"), "{out}");
}

fn declared_worker(session: &Block) {
    let server = Server::without_pools();
    server.serves_its_user();
    let out = run_in(&server.home, &server.home.path("."), &session.text);
    let mut words = out.split_whitespace();
    let secret = words.rfind(|word| word.len() == 44);
    let secret = secret.unwrap_or_else(|| panic!("no secret: {out}"));
    if shell(&server.home, &server.home.path("."), "curl --version").code != 0 {
        // Without curl there is nothing to run the second block with.
        return;
    }
    let registration = block("docs/api.md", "curl -X POST").replace('…', secret);
    let reply = as_owner(&server, &registration);
    assert!(reply.contains("\"credentials\""), "{reply}");
}

fn documentation(block: &Block) {
    let server = Server::start();
    let build = server.home.write("build.yaml", BUILD);
    server.ok(&["rules", "create", "build", "--file", &build]);
    for folder in ["docs", "opt-docs"] {
        let metadata = r#"{"version": 1, "tier": "workers"}"#;
        server
            .home
            .write(&format!("{folder}/metadata.json"), metadata);
        server.home.write(
            &format!("{folder}/README.md"),
            &format!("# About {folder}\n"),
        );
    }
    let out = as_owner(&server, &block.text);
    assert!(out.contains("docs/ is valid"), "{out}");
    assert!(out.contains("# About opt-docs"), "{out}");
    assert!(server.home.path("copy/README.md").exists());
}

fn simulation(block: &Block) {
    let home = Home::new();
    // One task, an hour after the start of the recording.
    let record = [3_600_000_u32.to_be_bytes(), 60_000_u32.to_be_bytes()].concat();
    std::fs::write(home.path("load.dat"), record).unwrap();
    let out = run_in(&home, &home.path(""), &block.text);
    assert!(out.contains("J DIFFERENCE"), "{out}");
    assert!(out.contains("NEVER WORKED"), "{out}");
    assert!(home.read("long.html").contains("<svg"));
}

fn recorded_history(block: &Block) {
    let server = Server::start();
    let pool = server.ok(&["pool", "show", "local/default", "--json"]);
    let mut pool: serde_json::Value = serde_json::from_str(&pool).unwrap();
    let keys = [
        "workerPoolId",
        "providerId",
        "description",
        "owner",
        "config",
    ];
    pool.as_object_mut()
        .unwrap()
        .retain(|key, _| keys.contains(&key.as_str()));
    pool["config"]["maxCapacity"] = 2.into();
    server.home.write("fleet/pool.json", &pool.to_string());
    let text = block.text.replace("build/linux", "local/default");
    let out = as_owner(&server, &text);
    assert!(out.contains("CONFIGURATION"), "{out}");
    assert!(out.contains("changed"), "{out}");
    assert!(server.home.read("week.html").contains("<svg"));
    assert!(server.home.read("week.jsonl").starts_with("{\"recording\""));
}

fn events(block: &Block) {
    let server = Server::without_pools();
    server.ok(&[
        "pool",
        "create",
        "demo/linux",
        "--provider",
        "static",
        "--owner",
        "me@example.com",
    ]);
    // One of them runs until it is interrupted.
    let lines = block.text.lines().filter(|line| !line.contains("--follow"));
    let text = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(text.lines().count(), block.text.lines().count() - 1);
    let out = as_owner(&server, &text);
    assert!(out.contains("worker-pool-created"), "{out}");
}

fn roles_of_people(block: &Block) {
    let server = Server::without_pools();
    let text = format!("{}\nfleetwright role list", block.text);
    let out = as_owner(&server, &text);
    assert!(
        out.contains("login-identity:openid/ann@example.com"),
        "{out}"
    );
}

fn waits(block: &Block) {
    let server = Server::without_pools();
    let pool = ["pool", "create", "demo/linux", "--provider", "static"];
    server.ok(&[&pool[..], &["--owner", "me@example.com"]].concat());
    let created = server.ok(&["task", "create", "--pool", "demo/linux", "--", "true"]);
    let mut words = created.split([' ', '\n', '`', ':', ',']);
    let id = words.find(|word| word.len() == 22).unwrap();
    let explained = server.ok(&["explain", "task", id]);
    let reason = "the pool demo/linux launches no workers, and none is declared";
    assert!(explained.contains(reason), "{explained}");
    // Watching ends with the wait.
    server.ok(&["task", "cancel", "--yes", id]);
    let out = as_owner(&server, &block.text.replace("TASK", id));
    for part in [
        "Where its waiting time went",
        "waiting for a claim",
        "day,cause,runs",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

fn overrides(block: &Block) {
    let server = Server::without_pools();
    let owner = ["--provider", "static", "--owner", "me@example.com"];
    server.ok(&[&["pool", "create", "proj/ci"][..], &owner].concat());
    let out = as_owner(&server, &block.text);
    for part in ["freeze-east", "friday", "outage of EC2, ticket 123"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // And what the page says about who set and removed it.
    let history = server.ok(&["audit", "show", "override", "freeze-east"]);
    assert_eq!(history.matches("static/owner").count(), 2, "{history}");
}

fn budgets(block: &Block) {
    let server = Server::without_pools();
    // The provider of the page is not configured here.
    let text = block.text.replace("--provider azure", "--provider static");
    let out = as_owner(&server, &text);
    for part in [
        "$0 of $240 a day are spent",
        "provider static",
        "14000 a month",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let history = server.ok(&["audit", "show", "budget", "fuzzing"]);
    assert_eq!(history.matches("static/owner").count(), 2, "{history}");
}

fn selections(block: &Block) {
    let server = with_configuration();
    let text = block
        .text
        .replace("--provider aws --region us-east-1", "--provider static");
    let out = as_owner(&server, &text.replace("--drain", "--drain --yes"));
    assert!(out.contains("RUNNING") && out.contains("host"), "{out}");
}

fn launch_configs(block: &Block) {
    let server = with_launch_configs();
    let out = as_owner(&server, &block.text);
    for part in [
        "Health share",
        "east of demo/cloud: paused until",
        "1 paused",
        "broken image, ticket 123",
        "resumed launch config east",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

fn three_clouds(block: &Block) {
    let root = root();
    let home = Home::new();
    let mut lines = block.text.lines();
    let start = lines.next().unwrap();
    let config = start.strip_prefix("fleetwright up --config ").unwrap();
    let config = root.join(config);
    let server = Server::start_in(home, &["--config", config.to_str().unwrap()]);
    server.serves_its_user();
    // No terminal can ask for confirmation.
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.replace("fleetwright apply ", "fleetwright apply --yes ");
    let out = run_in(&server.home, &root, &text);
    assert!(out.contains("created 1"), "{out}");
}

/// The example provider program launches workers that run tasks.
#[test]
fn the_example_of_a_provider_program_yields_a_worker_that_runs_a_task() {
    let home = Home::new();
    let program = root().join("docs/providers/example-exec.sh");
    let machine = format!(
        "{} worker --identity identity.json",
        env!("CARGO_BIN_EXE_fleetwright")
    );
    let config = format!(
        "[providers.local]\nkind = \"static\"\n[providers.shell]\nkind = \"exec\"\ncommand = [\"/bin/sh\", {:?}]\nenv = {{ MACHINE = {machine:?} }}\n",
        program.display().to_string()
    );
    let config = home.write("shell.toml", &config);
    let server = Server::start_in(home, &["--config", &config]);
    let pool = r#"{"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [{"workerConfig": {"fleetwright": {"idleTimeoutSeconds": 1}}}]}"#;
    let named = [
        "pool",
        "create",
        "demo/shell",
        "--provider",
        "shell",
        "--owner",
        "me@example.com",
    ];
    server.ok(&[&named[..], &["--config", pool]].concat());
    let out = server.ok(&[
        "task",
        "create",
        "--pool",
        "demo/shell",
        "--log",
        "--",
        "echo",
        "made by a program",
    ]);
    assert!(out.lines().any(|line| line == "made by a program"), "{out}");
}
