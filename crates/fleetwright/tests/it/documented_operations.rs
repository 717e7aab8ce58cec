//! Runs the commands of the guide to operations.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::command_blocks::{Block, block, root, run_in, shell};
use crate::world::Home;

/// The server of the guide, with folders and a database of the test, and without a proxy.
pub(crate) fn postgres(setup: &Block) {
    let home = Home::new();
    let here = |text: &str| {
        ["/etc/fleetwright", "/var/lib/fleetwright"]
            .iter()
            .fold(text.to_owned(), |text, folder| {
                let inside = home.path(folder.trim_start_matches('/'));
                text.replace(folder, inside.to_str().unwrap())
            })
    };
    run_in(&home, &home.path("."), &here(&setup.text));
    let guide = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let (_, guide) = guide.split_once("## With PostgreSQL").unwrap();
    let (_, config) = guide.split_once("```toml\n").unwrap();
    let (config, _) = config.split_once("```").unwrap();
    let database = testing::databases::Database::empty_postgres();
    let url = database.as_ref().map_or_else(
        || format!("sqlite:{}", home.path("db.sqlite").display()),
        |database| database.url.clone(),
    );
    let lines = here(config);
    let lines = lines.lines().map(|line| match line.split_once(" = ") {
        Some(("listen", _)) => "listen = \"127.0.0.1:0\"".to_owned(),
        Some(("url", _)) => format!("url = {url:?}"),
        Some(("root_url", _)) => String::new(),
        _ => line.to_owned(),
    });
    let lines: Vec<_> = lines.collect();
    home.write("etc/fleetwright/fleetwright.toml", &lines.join("\n"));

    let start = here(&block("docs/operations.md", "fleetwright doctor"));
    let (doctor, serve) = start.split_once('\n').unwrap();
    let said = run_in(&home, &home.path("."), doctor);
    assert!(said.contains("1 client can sign in"), "{said}");
    assert!(!said.contains("bad  "), "{said}");
    let serve: Vec<&str> = serve.split_whitespace().skip(1).collect();
    let mut server = home.command(&serve);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready = "fleetwright is ready at ";
    let url = lines.find_map(|line| Some(line.unwrap().strip_prefix(ready)?.to_owned()));
    let enter = here(&block("docs/operations.md", "export TASKCLUSTER_ROOT_URL"));
    let enter = enter.replace("https://fleet.example.com", &url.unwrap());
    let done = shell(&home, &home.path("."), &enter);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("static"), "{}", done.out);
}

pub(crate) fn keys(block_of_first: &Block) {
    let home = Home::new();
    let rotate = block("docs/operations.md", "(umask 077");
    run_in(
        &home,
        &home.path("."),
        &format!("{}\n{rotate}", block_of_first.text),
    );
    let keys = home.read("keys");
    let names: Vec<_> = keys.lines().map(|line| &line[..2]).collect();
    assert_eq!(names, ["k2", "k1"]);
}

/// Prometheus and its dashboard read them in `tests/monitoring`.
pub(crate) fn monitoring(block: &Block) {
    let home = Home::new();
    run_in(&home, &home.path("."), &block.text);
    let alerts = files::parse(
        "alerts.yaml",
        &home.read("alerts.yaml"),
        files::Format::Yaml,
    );
    let alerts = alerts.unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["alert"] == "FleetwrightDown"));
    let dashboard: Value = serde_json::from_str(&home.read("fleetwright.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let places: BTreeSet<String> = panels.iter().map(|it| it["gridPos"].to_string()).collect();
    assert_eq!(places.len(), panels.len(), "no panel hides another one");
}
