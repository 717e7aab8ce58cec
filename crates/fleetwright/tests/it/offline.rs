//! Commands that need no server.

use serde_json::Value;

use crate::queue_calls::wait_for;
use crate::world::{Done, Home, Server};

#[test]
fn help_documents_the_exit_codes_and_the_settings() {
    let help = Home::new().run(&["--help"]);
    assert_eq!(help.code, 0);
    for part in ["3  not found", "TASKCLUSTER_ROOT_URL", "config.toml"] {
        assert!(help.out.contains(part), "{part}");
    }
}

#[test]
fn the_root_url_of_up_is_that_of_its_server() {
    let home = Home::new();
    let help = home.run(&["up", "--help"]).out;
    assert!(help.contains("by which clients reach"), "{help}");
    assert!(!help.contains("Root URL of the server"), "{help}");
    let folder = home.path("").display().to_string();
    assert!(help.contains(&folder), "{help}");
}

#[test]
fn unknown_arguments_are_usage_errors() {
    let home = Home::new();
    for arguments in [
        &["pools"][..],
        &["pool", "list", "--nosuch"],
        &["worker", "list", "a/b", "--state", "asleep"],
        &["worker", "update", "a/b", "g", "w", "--capacity", "-1"],
        &[],
    ] {
        assert_eq!(home.run(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn the_version_is_printed_as_text_and_json() {
    let home = Home::new();
    assert!(home.run(&["version"]).out.starts_with("fleetwright 0."));
    let version: Value = serde_json::from_str(&home.run(&["version", "--json"]).out).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn completions_exist_for_three_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let done = Home::new().run(&["completions", shell]);
        assert_eq!(done.code, 0);
        assert!(done.out.contains("COMPLETE"), "{shell}: {}", done.out);
    }
}

/// The answers to a shell, which asks by the variable of its script.
fn completed(command: &mut std::process::Command, words: &[&str]) -> String {
    let command = command
        .env("FLEETWRIGHT_COMPLETE", "fish")
        .args(["--", "fleetwright"]);
    let done = Done::of(command.args(words).output().unwrap());
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{words:?}");
    done.out
}

#[test]
fn a_shell_gets_the_commands_and_the_ids_of_the_server() {
    let home = Home::new();
    let commands = completed(&mut home.command(&[]), &["launch"]);
    assert!(commands.starts_with("launch-config"), "{commands}");
    // Without a server there are no ids, and no errors.
    assert_eq!(
        completed(&mut home.command(&[]), &["pool", "show", "x"]),
        ""
    );
    let server = Server::start();
    // A server that needs longer than a person waits is asked again.
    let offered = |words: &[&str]| {
        wait_for(&format!("ids for {words:?}"), || {
            let offered = completed(&mut server.command(&[]), words);
            (!offered.is_empty()).then_some(offered)
        })
    };
    assert_eq!(offered(&["pool", "show", "lo"]).trim(), "local/default");
    let providers = offered(&["provider", "test", ""]);
    assert!(providers.contains("local"), "{providers}");
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let folder = home.path("man");
    assert_eq!(home.run(&["man", folder.to_str().unwrap()]).code, 0);
    for page in [
        "fleetwright.1",
        "fleetwright-pool-create.1",
        "fleetwright-up.1",
    ] {
        assert!(folder.join(page).exists(), "{page}");
    }
    let page = home.read("man/fleetwright.1");
    assert!(page.contains(".SH EXTRA\n.nf\n"), "{page}");
}

#[test]
fn the_example_configuration_is_printed_and_valid() {
    let home = Home::new();
    let example = home.run(&["config", "example"]);
    assert_eq!(example.code, 0);
    let file = home.write("c.toml", &example.out);
    // Its files are not there, which is another matter than its keys.
    let doctor = home.run(&["doctor", "--config", &file]);
    assert_eq!(doctor.code, 1, "{}", doctor.err);
    assert!(doctor.out.contains("good     the configuration is valid"));
    assert!(doctor.out.contains("bad      the keys are not usable"));
    assert!(doctor.out.contains("hint: "));
}

#[test]
fn a_misspelt_key_is_named() {
    let home = Home::new();
    let file = home.write("c.toml", "[databse]\nurl = \"x\"\n");
    for arguments in [
        &["serve", "--config", &file][..],
        &["migrate", "--config", &file],
        &["doctor", "--config", &file],
    ] {
        let done = home.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}");
        assert!(done.err.contains("databse"), "{}", done.err);
    }
}

#[test]
fn migrations_are_shown_then_applied_then_done() {
    let home = Home::new();
    let database = home.path("x.sqlite");
    let text = format!("[database]\nurl = \"sqlite:{}\"\n", database.display());
    let file = home.write("c.toml", &text);
    let none = home.run(&["migrate", "--config", &file, "--dry-run"]);
    assert!(
        none.out.starts_with("would create the database"),
        "{}",
        none.err
    );
    assert!(!database.exists(), "a dry run made a database");
    std::fs::write(&database, "").unwrap(); // an empty file is a database without tables
    let dry = home.run(&["migrate", "--config", &file, "--dry-run"]);
    assert!(dry.out.starts_with("would apply 0001"), "{}", dry.err);
    let real = home.run(&["migrate", "--config", &file]);
    assert!(real.out.starts_with("applied 0001"), "{}", real.err);
    let again = home.run(&["migrate", "--config", &file]);
    assert_eq!(again.out, "the database is up to date\n");
}

#[test]
fn doctor_reports_a_missing_folder() {
    let done = Home::new().run(&["doctor"]);
    assert_eq!(done.code, 3);
    assert!(done.err.contains("fleetwright up"), "{}", done.err);
}

#[test]
fn a_missing_server_has_an_exit_code_and_a_hint() {
    let home = Home::new();
    let unknown = home.run(&["pool", "list"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.err.contains("TASKCLUSTER_ROOT_URL"),
        "{}",
        unknown.err
    );

    // Nothing can listen on port 0.
    let silent = home.run(&["--root-url", "http://127.0.0.1:0", "pool", "list", "-v"]);
    assert_eq!(silent.code, 6);
    assert!(silent.err.contains("`fleetwright up`"), "{}", silent.err);
    assert!(
        silent.err.contains("GET http://127.0.0.1:0/api/"),
        "{}",
        silent.err
    );
}

#[test]
fn a_settings_file_that_others_can_read_gives_a_warning() {
    let home = Home::new();
    let text = "[profiles.here]\nroot_url = \"http://127.0.0.1:0\"\nclient_id = \"c\"\naccess_token = \"t\"\n";
    home.write(".config/fleetwright/config.toml", text);
    let done = home.run(&["--profile", "here", "pool", "list"]);
    assert_eq!(done.code, 6);
    #[cfg(unix)]
    assert!(done.err.contains("warning: "), "{}", done.err);
    assert_eq!(home.run(&["--profile", "nosuch", "pool", "list"]).code, 2);
}

#[test]
fn invalid_arguments_are_usage_errors_with_a_reason() {
    let home = Home::new();
    let rules = home.write("rules.yaml", "[{ ruleId: r, values: {} }]\n");
    let set = [
        "override", "set", "o", "--region", "r", "--until", "2d", "--reason", "r",
    ];
    for (arguments, parts) in [
        (
            &["rules", "eval", &rules, "--set", "a=b", "--set", "a=c"][..],
            &["--set has two values for a"][..],
        ),
        (
            &["rules", "fmt", "-", "--write"],
            &["cannot write standard input"],
        ),
        (
            &["documentation", "check", "/no/such/file.tar"],
            &["/no/such/file.tar does not exist"],
        ),
        (
            &[
                "plan",
                "-f",
                "/no/such/folder",
                "--root-url",
                "http://127.0.0.1:0",
            ],
            &["/no/such/folder does not exist"],
        ),
        (
            &["worker", "run"],
            &["--identity <FILE>", "--provider <PROVIDER>"],
        ),
        (
            &["pool", "list", "--root-url", "http://127.0.0.1:1/y/z"],
            &["it has the path /y/z", "without a path"],
        ),
        (
            &set,
            &["--pause", "--min-capacity <N>", "--max-capacity <N>"],
        ),
    ] {
        let done = home.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.err);
        for part in parts {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
    }
}

#[test]
fn a_value_that_begins_with_a_hyphen_has_a_clear_error() {
    let home = Home::new();
    for (line, part) in [
        (
            "override set o --region r --until 2d --reason r --max-capacity -1",
            "expected a number that is not negative",
        ),
        (
            "worker quarantine a/b g w --until -1h",
            "--until: \"-1h\" is neither a time",
        ),
        (
            "task create --pool a/b --deadline -1 --force -- true",
            "\"-1\" is neither a time",
        ),
    ] {
        let address = ["--root-url", "http://127.0.0.1:0"];
        let words: Vec<&str> = address.into_iter().chain(line.split(' ')).collect();
        let done = home.run(&words);
        assert_eq!(done.code, 2, "{line}: {}", done.err);
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn the_help_of_the_audit_log_lists_all_types() {
    let help = Home::new().run(&["audit", "show", "--help"]).out;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let named =
        "a worker, a worker configuration, an override, a budget, an image or a test of a provider";
    assert!(words.contains(named), "{help}");
}

#[test]
fn a_broken_link_hides_no_other_error() {
    let home = Home::new();
    home.write("fleet/wrong.json", "{\"roles\": 3}");
    let link = home.path("fleet/link.yaml");
    std::os::unix::fs::symlink(home.path("nowhere"), link).unwrap();
    let folder = home.path("fleet");
    let address = ["--root-url", "http://127.0.0.1:0", "-f", "/no/such/file"];
    let done = home.run(&[&["plan", "-f", folder.to_str().unwrap()][..], &address].concat());
    assert_eq!(done.code, 2, "{}", done.err);
    for part in [
        "link.yaml: is a link to a file that does not exist",
        "wrong.json:1: /roles: must be a list",
        "/no/such/file does not exist",
        "hint: files whose names begin with a dot are skipped",
    ] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn hints_for_one_file_are_printed_with_errors_of_others() {
    let home = Home::new();
    let large = " ".repeat((16 << 20) + 1);
    home.write("fleet/large.yaml", &large);
    home.write("fleet/wrong.json", "{\"roles\": [],\n \"roles\": []}");
    let folder = home.path("fleet");
    let address = ["--root-url", "http://127.0.0.1:0"];
    let done = home.run(&[&["plan", "-f", folder.to_str().unwrap()][..], &address].concat());
    assert_eq!(done.code, 2, "{}", done.err);
    for part in [
        "large.yaml has more than 16 MiB",
        "hint: divide it into several files",
        "wrong.json:2:8: not valid JSON: the key \"roles\" occurs twice",
    ] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}
