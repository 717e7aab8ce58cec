//! The commands of the tree, on an embedded one and on ZooKeeper.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{Done, Home, Server};

/// The exit code of a command that did not reach the server.
const UNREACHABLE: i32 = 6;
const MAX_UNREACHED: usize = 10;

const TIME: &str = "2026-01-01T00:00:00.000Z";

fn node(path: &str, text: &str) -> Value {
    json!({"path": path, "text": text, "version": 3, "created": TIME, "changed": TIME,
        "nextSequence": 2})
}

fn document(root: &str, nodes: &[Value]) -> String {
    json!({"version": 1, "root": root, "exported": TIME, "nEphemeral": 0, "nodes": nodes})
        .to_string()
}

/// A configuration with a migrated database.
fn embedded(home: &Home) -> String {
    let database = home.path("tree.sqlite");
    let text = format!("[database]\nurl = \"sqlite:{}\"\n", database.display());
    let file = home.write("c.toml", &text);
    let migrated = home.run(&["migrate", "--config", &file]);
    assert_eq!(migrated.code, 0, "{}", migrated.err);
    file
}

#[test]
fn an_embedded_tree_is_imported_listed_shown_and_exported() {
    let home = Home::new();
    let config = embedded(&home);
    let bytes = json!({"path": "/a/bytes", "base64": "/wA=", "version": 0, "created": TIME,
        "changed": TIME, "nextSequence": 0});
    let nodes = [node("/a", "one"), bytes, node("/a/b", "two")];
    let file = home.write("tree.json", &document("/", &nodes));
    let run = |arguments: &[&str]| {
        let with_config = [&["tree"], arguments, &["--config", &config]].concat();
        home.run(&with_config)
    };
    let dry = run(&["import", &file, "--dry-run"]);
    let summary = "would create 3 nodes, overwritten 0, unchanged 0, counters raised 2\n";
    assert_eq!(dry.out, summary, "{}", dry.err);
    let done = run(&["import", &file]);
    let summary = "created 3 nodes, overwritten 0, unchanged 0, counters raised 1\n";
    assert_eq!(done.out, summary, "{}", done.err);
    let again = run(&["import", &file, "--json"]);
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(
        (&again["unchanged"], &again["created"]),
        (&json!(3), &json!(0))
    );
    let listed = run(&["ls"]);
    let line = listed.out.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..5], ["/a", "persistent", "0", "3", "2"]);
    let listed = run(&["ls", "--recursive", "--json", "--limit", "2"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(
        (&listed["total"], &listed["nodes"][1]["path"]),
        (&json!(3), &json!("/a/b"))
    );
    assert_eq!(run(&["get", "/a/b"]).out, "two");
    let shown: Value = serde_json::from_str(&run(&["get", "/a/bytes", "--json"]).out).unwrap();
    assert_eq!(
        (&shown["base64"], &shown["version"]),
        (&json!("/wA="), &json!(0))
    );
    let output = home.path("again.json").display().to_string();
    let exported = run(&["export", "--output", &output]);
    assert_eq!(
        exported.err,
        "exported 4 nodes, left out 0 ephemeral nodes\n"
    );
    let exported: Value = serde_json::from_str(&home.read("again.json")).unwrap();
    assert_eq!(exported["nodes"][1]["text"], "one");
    assert_eq!(exported["nodes"][1]["nextSequence"], 2);
    assert_eq!(run(&["export"]).code, 0);
}

#[test]
fn nodes_with_other_data_are_replaced_only_with_overwrite() {
    let home = Home::new();
    let config = embedded(&home);
    let first = home.write("first.json", &document("/", &[node("/a", "one")]));
    let second = home.write(
        "second.json",
        &document("/", &[node("/a", "two"), node("/b", "")]),
    );
    let import = |file: &str, flags: &[&str]| {
        let arguments = [&["tree", "import", file, "--config", &config], flags].concat();
        home.run(&arguments)
    };
    assert_eq!(import(&first, &[]).code, 0);
    let refused = import(&second, &[]);
    assert_eq!(refused.code, 5);
    assert_eq!(
        refused.err,
        "error: 1 nodes exist with other data: /a\n  hint: nothing was written; --overwrite \
         replaces their data\n"
    );
    let get = |path: &str| home.run(&["tree", "get", path, "--config", &config]);
    assert_eq!((get("/a").out.as_str(), get("/b").code), ("one", 3));
    assert_eq!(import(&second, &["--overwrite"]).code, 0);
    assert_eq!((get("/a").out.as_str(), get("/b").code), ("two", 0));
}

#[test]
fn the_images_of_a_nodepool_get_our_layout_unless_asked_otherwise() {
    let home = Home::new();
    let config = embedded(&home);
    let record = r#"{"state":"ready","state_time":12.5}"#;
    let nodes = [
        node("/images", ""),
        node("/images/debian", ""),
        node("/images/debian/builds", ""),
        node(
            "/images/debian/builds/0123456789abcdef0123456789abcdef",
            record,
        ),
        node("/nodes/0000000001", "{}"),
    ];
    let file = home.write("nodepool.json", &document("/nodepool", &nodes));
    let done = home.run(&["tree", "import", &file, "--config", &config]);
    assert!(
        done.err.contains("left out: 1 node below nodes"),
        "{}",
        done.err
    );
    let build = "/fleetwright/image/debian/builds/0000000001";
    let shown = home.run(&["tree", "get", build, "--config", &config]);
    assert_eq!(shown.out, record);
    let as_is = home.run(&["tree", "import", &file, "--as-is", "--config", &config]);
    assert_eq!(as_is.code, 0, "{}", as_is.err);
    let kept = home.run(&["tree", "get", "/nodes/0000000001", "--config", &config]);
    assert_eq!(kept.out, "{}");
}

/// Runs commands of the tree, and checks their exit codes and messages.
fn check_refused(home: &Home, cases: &[(&[&str], i32, &str)]) {
    for (arguments, code, problem) in cases {
        let done = home.run(&[&["tree"], *arguments].concat());
        assert_eq!(done.code, *code, "{arguments:?}: {}", done.err);
        assert!(done.err.contains(problem), "{arguments:?}: {}", done.err);
    }
}

#[test]
fn errors_about_nodes_and_files_say_what_is_wrong() {
    let home = Home::new();
    let config = embedded(&home);
    let text = home.write("no.json", "{}");
    let c = config.as_str();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["get", "/a", "--config", c], 3, "node /a does not exist"),
        (&["ls", "/a", "--config", c], 3, "node /a does not exist"),
        (
            &["ls", "-r", "/a", "--config", c],
            3,
            "node /a does not exist",
        ),
        (
            &["ls", "a", "--config", c],
            2,
            "it does not begin with a slash",
        ),
        (
            &["import", &text, "--config", c],
            2,
            "is no export of a tree: missing field",
        ),
        (
            &["import", "/nowhere", "--config", c],
            2,
            "cannot read /nowhere",
        ),
        (
            &["export", "--config", c, "-o", "/nowhere/x"],
            1,
            "cannot write /nowhere/x",
        ),
    ];
    check_refused(&home, &cases);
}

#[test]
fn errors_about_the_place_of_the_tree_say_what_is_wrong() {
    let home = Home::new();
    let config = embedded(&home);
    let missing = home.write(
        "missing.toml",
        "[database]\nurl = \"sqlite:/nowhere/x.sqlite\"\n",
    );
    let wrong = home.write("wrong.toml", "[tree]\nkind = \"zookeeper\"\n");
    let unknown = home.write("unknown.toml", "[tree]\nserver = \"a:1\"\n");
    let c = config.as_str();
    let cases: [(&[&str], i32, &str); 9] = [
        (
            &["watch", "--config", c],
            2,
            "cannot be watched from another process",
        ),
        (
            &["ls", "--root", "/x", "--config", c],
            2,
            "--root needs ZooKeeper",
        ),
        (
            &["ls", "--config", &missing],
            3,
            "/nowhere/x.sqlite does not exist",
        ),
        (&["ls", "--config", &wrong], 2, "tree.servers: is missing"),
        (&["ls", "--config", &unknown], 2, "unknown field `server`"),
        (
            &["ls", "--config", c, "--servers", "a:1"],
            2,
            "cannot be used with",
        ),
        (&["ls", "--servers", "a"], 2, "\"a\" is not an address"),
        (
            &["ls", "--servers", "a:1", "--user", "u"],
            2,
            "--password-file",
        ),
        (
            &["ls", "--servers", "a:1", "--tls-ca", "/nowhere"],
            2,
            "cannot read /nowhere",
        ),
    ];
    check_refused(&home, &cases);
}

/// The folder of a real server, or `None` with a printed note.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
pub(crate) fn zookeeper() -> Option<(String, String)> {
    let Ok(folder) = std::env::var("TEST_ZOOKEEPER") else {
        println!("skipped: TEST_ZOOKEEPER is not set");
        return None;
    };
    let address = std::fs::read_to_string(Path::new(&folder).join("main/address"));
    Some((folder, address.unwrap()))
}

#[test]
fn a_tree_in_zookeeper_is_moved_watched_and_protected() {
    let Some((folder, servers)) = zookeeper() else {
        return;
    };
    let home = Home::new();
    let root = format!("/commands-{}", std::process::id());
    let password = format!("{folder}/password");
    let place = [
        "--servers",
        &servers,
        "--root",
        &root,
        "--user",
        "fleetwright",
        "--password-file",
        &password,
        "--authentication",
        "sasl",
    ];
    let run =
        |arguments: &[&str]| when_reached(&home, &[&["tree"], arguments, &place[..]].concat());
    let missing = run(&["ls"]);
    assert_eq!(
        (missing.code, missing.err),
        (3, format!("error: node {root} does not exist\n"))
    );
    let file = home.write(
        "tree.json",
        &document("/", &[node("/a", "one"), node("/a/b", "two")]),
    );
    let imported = run(&["import", &file]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    let watch = [&["tree", "watch", "/a", "--json"], &place[..]].concat();
    let mut watch = home
        .command(&watch)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let watch = watch.as_mut().unwrap();
    let mut notes = BufReader::new(watch.stderr.take().unwrap());
    let mut line = String::new();
    notes.read_line(&mut line).unwrap();
    assert_eq!(line, "watching /a; stop with Ctrl-C\n");
    let other = home.write("other.json", &document("/", &[node("/a/b", "changed")]));
    let imported = run(&["import", &other, "--overwrite"]);
    assert_eq!(imported.code, 0, "{}", imported.err);
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["event"], &event["path"]),
        (&json!("changed"), &json!("/a/b"))
    );
    watch.kill().unwrap();
    watch.wait().unwrap();
    let exported = run(&["export"]);
    assert_eq!(exported.code, 0, "{}", exported.err);
    let exported: Value = serde_json::from_str(&exported.out).unwrap();
    assert_eq!(
        (&exported["root"], &exported["nodes"][2]["text"]),
        (&json!(root), &json!("changed"))
    );
    let without = home.run(&["tree", "get", "/a", "--servers", &servers, "--root", &root]);
    assert_eq!(without.code, 4);
    assert!(
        without.err.contains("another user owns it"),
        "{}",
        without.err
    );
}

/// Runs a command, and again if it did not reach the server, as its error asks for: on a machine
/// that does much else, ZooKeeper may answer too late.
#[expect(clippy::print_stdout, reason = "if the test fails, this may be why")]
fn when_reached(home: &Home, arguments: &[&str]) -> Done {
    for _ in 0..MAX_UNREACHED {
        let done = home.run(arguments);
        if done.code != UNREACHABLE {
            return done;
        }
        println!("not reached: {}", done.err);
    }
    home.run(arguments)
}

/// Runs a command until its output fits, with a limit.
fn until(home: &Home, arguments: &[&str], fits: impl Fn(&str) -> bool) -> String {
    for _ in 0..500 {
        let done = home.run(arguments);
        if fits(&done.out) {
            return done.out;
        }
    }
    panic!("{arguments:?} has another output");
}

#[test]
fn a_server_owns_the_embedded_tree_of_its_database_until_it_stops() {
    let server = Server::without_pools();
    let data = server.home.path("data").display().to_string();
    let listed = ["tree", "ls", "/fleetwright", "--data", &data];
    until(&server.home, &listed, |out| {
        out.contains("/fleetwright/members")
    });
    let file = server
        .home
        .write("tree.json", &document("/", &[node("/a", "one")]));
    let import = ["tree", "import", &file, "--data", &data];
    let refused = server.home.run(&import);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(
        refused
            .err
            .contains("owns the embedded tree of this database"),
        "{}",
        refused.err
    );
    let (code, home) = server.terminate();
    assert_eq!(code, Some(0));
    let done = home.run(&import);
    assert_eq!(done.code, 0, "{}", done.err);
}

#[test]
fn a_server_is_a_member_of_the_tree_in_zookeeper_while_it_runs() {
    let Some((_, servers)) = zookeeper() else {
        return;
    };
    let home = Home::new();
    let root = format!("/members-{}", std::process::id());
    let text = format!(
        "[tree]\nkind = \"zookeeper\"\nservers = {servers:?}\nroot = {root:?}\ninsecure = true\n"
    );
    let config = home.write("c.toml", &text);
    let server = Server::start_in(home, &["--config", &config]);
    let keys = server.home.path("data/keys");
    let place = [
        "--servers",
        servers.as_str(),
        "--root",
        root.as_str(),
        "--keys",
        keys.to_str().unwrap(),
    ];
    let list = [
        &["tree", "ls", "/fleetwright/members", "--json"],
        &place[..],
    ]
    .concat();
    let listed = until(&server.home, &list, |out| out.contains("ephemeral"));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let path = listed["nodes"][0]["path"].as_str().unwrap();
    let get = [&["tree", "get", path], &place[..]].concat();
    let member: Value = serde_json::from_str(&server.home.run(&get).out).unwrap();
    assert_eq!(member["address"], server.root_url());
    assert_eq!(member["role"][0], "api");
    let (_, home) = server.terminate();
    let left: Value = serde_json::from_str(&home.run(&list).out).unwrap();
    assert_eq!(left["total"], 0);
}
