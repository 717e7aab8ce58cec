//! `serve`: a server with a configuration file.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use access::seal::generate_key;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::world::{Done, Home};

#[test]
fn it_serves_its_configuration_and_stops_on_a_signal() {
    let home = Home::new();
    let token = "t".repeat(44);
    let key = generate_key(&mut StdRng::seed_from_u64(7));
    let keys = home.write("keys", &format!("k1 {}\n", key.expose()));
    let file = home.write(
        "c.toml",
        &format!(
            "listen = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:{}\"\n[keys]\nfile = \"{keys}\"\n[[auth.static_clients]]\nclient_id = \"static/me\"\naccess_token = \"{token}\"\nscopes = [\"worker-manager:list-providers\"]\n[providers.iron]\nkind = \"static\"\n[log]\nformat = \"json\"\n",
            home.path("x.sqlite").display(),
        ),
    );
    let mut process = home
        .command(&["serve", "--config", &file])
        .stdout(Stdio::piped())
        .stderr(File::create(home.path("log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let ready = lines.find_map(|line| {
        let line = line.unwrap();
        line.strip_prefix("fleetwright is ready at ")
            .map(str::to_owned)
    });
    let url = ready.unwrap();
    // Another one finds the address taken, and says so in the log's way.
    let address = url.strip_prefix("http://").unwrap();
    let text = home.read("c.toml").replace("127.0.0.1:0", address);
    let second = home.write("second.toml", &text);
    let refused = home.run(&["serve", "--config", &second]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains(address), "{}", refused.err);
    home.write("log-of-second", &refused.err);
    let mut command = home.command(&["--root-url", &url, "provider", "list"]);
    command
        .env("TASKCLUSTER_CLIENT_ID", "static/me")
        .env("TASKCLUSTER_ACCESS_TOKEN", &token);
    let listed = Done::of(command.output().unwrap());
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.out.contains("iron"), "{}", listed.out);

    let id = process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(process.wait().unwrap().code(), Some(0));
    for log in ["log", "log-of-second"] {
        for line in home.read(log).lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
        }
    }
}

#[test]
fn configuration_errors_are_reported_before_the_start() {
    let home = Home::new();
    for (text, part) in [
        ("", "database.url"),
        (
            "[database]\nurl = \"sqlite:x\"\n[log]\nfilter = \"a=b=c\"\n",
            "log.filter",
        ),
    ] {
        let file = home.write("c.toml", text);
        let done = home.run(&["serve", "--config", &file]);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(part), "{}", done.err);
    }
    let missing = home.run(&["serve", "--config", "/nosuch/file"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("/nosuch/file"), "{}", missing.err);
}
