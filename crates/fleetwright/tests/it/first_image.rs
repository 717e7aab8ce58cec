//! The beginning of the page about a first image, word for word: as the user of the tests, and as
//! a user without rights.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{Done, Home, Server};

/// The user `nobody`.
const NOBODY: u32 = 65534;
const CREDENTIAL: &str = "hunter2-of-the-server";
const SETPRIV: [&str; 5] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
];

fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.join("../..").canonicalize().unwrap()
}

/// The words of each command of the walk, up to the first task.
fn commands() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(repository().join("docs/first-image.md")).unwrap();
    let (_, walk) = page
        .split_once("alias fleetwright=target/release/fleetwright\n")
        .unwrap();
    let words = |line: &str| {
        let command = line.split(" #").next().unwrap().split_whitespace();
        command.skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let commands: Vec<_> = walk.lines().take(4).map(words).collect();
    assert_eq!(commands[3].last().unwrap(), "/etc/built");
    commands
}

/// Walks, and returns the output of the task.
fn walk(server: &Server) -> String {
    let mut out = String::new();
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = server.command(&words);
        let done = Done::of(command.current_dir(repository()).output().unwrap());
        let log = || server.home.read("log");
        assert_eq!(done.code, 0, "{words:?}: {}{}{}", done.out, done.err, log());
        out = done.out;
    }
    out
}

/// The year in the file that `date` wrote into the image.
fn assert_is_date(out: &str) {
    let years = out
        .split_whitespace()
        .filter(|word| word.len() == 4 && word.starts_with("20"));
    assert_eq!(years.count(), 1, "{out}");
}

fn start(home: Home, before: &[&str], program: &Path) -> Server {
    let config = repository().join("docs/examples/image/up.toml");
    let data = home.path("data");
    let arguments = [
        program.to_str().unwrap(),
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
    ];
    let words = [before, &arguments].concat();
    let mut command = home.bare_command(Path::new(words[0]), &words[1..]);
    command.env("AWS_SECRET_ACCESS_KEY", CREDENTIAL);
    Server::start_by(home, command)
}

/// A task of the server's user looks at the worker and at the server. Root may read all processes.
fn assert_that_a_task_cannot_read_them(server: &Server) {
    let script = r#"
        server=$(cut -d ' ' -f 4 "/proc/$PPID/stat")
        tr '\0' ' ' <"/proc/$server/cmdline"
        for process in $PPID $server; do
            cat "/proc/$process/environ" 2>&1 || true
        done
    "#;
    let task = ["task", "create", "--pool", "local/default", "--log", "--"];
    let out = server.ok(&[&task[..], &["sh", "-c", script]].concat());
    assert!(out.contains(" up --listen "), "{out}");
    assert_eq!(out.matches("Permission denied").count(), 2, "{out}");
    assert!(!out.contains(CREDENTIAL), "{out}");
}

#[test]
fn the_page_about_a_first_image_works() {
    let program = Path::new(env!("CARGO_BIN_EXE_fleetwright"));
    assert_is_date(&walk(&start(Home::new(), &[], program)));
}

#[test]
fn the_page_about_a_first_image_works_without_rights() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|it| {
        use std::os::unix::fs::MetadataExt as _;
        it.uid() == 0
    });
    if !is_root {
        eprintln!("skipped: the other test has run the walk without rights");
        return;
    }
    let may_unshare = ["unshare", "--user", "--map-root-user", "--mount", "true"];
    let words = [&SETPRIV[..], &may_unshare].concat();
    let tried = Command::new(words[0]).args(&words[1..]).output().unwrap();
    if !tried.status.success() {
        let text = String::from_utf8_lossy(&tried.stderr);
        eprintln!("skipped: this system has no user namespaces: {text}");
        return;
    }
    let home = Home::new();
    let program = home.path("fleetwright");
    std::fs::copy(env!("CARGO_BIN_EXE_fleetwright"), &program).unwrap();
    chown(home.path("."), Some(NOBODY), Some(NOBODY)).unwrap();
    let server = start(home, &SETPRIV, &program);
    assert_is_date(&walk(&server));
    assert_that_a_task_cannot_read_them(&server);
    let workers = server.home.path("data/local/local");
    let in_image = std::fs::read_dir(workers).unwrap().flatten().any(|worker| {
        let launch = std::fs::read_to_string(worker.path().join("launch.json"));
        launch.is_ok_and(|text| text.contains("\"isolation\":\"user-overlay"))
    });
    assert!(in_image, "{}", server.home.read("log"));
}
