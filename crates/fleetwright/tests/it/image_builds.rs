//! Builds of images on the command line, by a server that builds.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

const CONFIG: &str = "\
[providers.local]
kind = \"local\"
[providers.cloud]
kind = \"fake\"
";

/// Makes a small tree of files.
pub(crate) const MAKE: &str =
    "mkdir root && date >root/made && tar -C root -cf \"$FLEETWRIGHT_OUTPUT.tar\" .";

pub(crate) fn start() -> Server {
    let home = Home::new();
    let file = home.write("builder.toml", CONFIG);
    Server::start_in(home, &["--config", &file])
}

/// A definition whose build runs this script. It is built only on request, and used without a
/// canary.
pub(crate) fn definition(script: &str) -> Value {
    json!({
        "imageId": "tiny",
        "build": {"command": ["/bin/sh", "-c", script]},
        "formats": ["tar"],
        "rebuildAgeSeconds": 0,
        "canary": {"share": 1},
        "uploads": [{"providerId": "local"}, {"providerId": "cloud"}],
    })
}

pub(crate) fn store(server: &Server, verb: &str, definition: &Value) {
    let file = server.home.write("tiny.json", &definition.to_string());
    server.ok(&["image", verb, "tiny", "--file", &file]);
}

pub(crate) fn create(server: &Server, script: &str) {
    store(server, "create", &definition(script));
}

/// Waits until the status of the image is as expected, and returns it.
pub(crate) fn status_when(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for(what, || {
        let status = server.json(&["image", "show", "tiny"]);
        is_so(&status).then_some(status)
    })
}

/// Both targets start machines from this build.
fn uses(status: &Value, build: u64) -> bool {
    let targets = status["targets"].as_array().unwrap();
    targets.len() == 2
        && targets
            .iter()
            .all(|target| target["inUse"]["build"] == build)
}

pub(crate) fn built(server: &Server, number: u64) -> Value {
    status_when(server, "machines start from the build", |status| {
        uses(status, number)
    })
}

fn failing(server: &Server, arguments: &[&str], code: i32, part: &str) {
    let done = server.run(arguments);
    assert_eq!(done.code, code, "{arguments:?}: {} {}", done.out, done.err);
    assert!(done.err.contains(part), "{arguments:?}: {}", done.err);
}

#[test]
fn an_image_is_built_uploaded_looked_at_and_explained() {
    let server = start();
    create(&server, &format!("echo greetings && {MAKE}"));
    let status = built(&server, 1);
    assert_eq!(
        (&status["state"], &status["builds"][0]["state"]),
        (&json!("ready"), &json!("ready"))
    );
    let listed = server.ok(&["image", "list"]);
    for part in ["IN USE", "local: 1", "cloud: 1", "1 ready", "ready"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let shown = server.ok(&["image", "show", "tiny"]);
    for part in [
        "image tiny: ready",
        "in use",
        "IMAGE THERE",
        "only on request",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(
        server.json(&["image", "list"])["images"][0],
        server.json(&["image", "show", "tiny"])
    );

    // The next one, followed.
    let asked = server.run(&[
        "image",
        "build",
        "tiny",
        "--reason",
        "new packages",
        "--follow",
    ]);
    assert_eq!(asked.code, 0, "{}", asked.err);
    assert!(asked.out.contains("greetings\n"), "{}", asked.out);
    assert!(
        asked.err.contains("build 2 of image tiny is ready"),
        "{}",
        asked.err
    );
    let status = built(&server, 2);
    let reason = status["builds"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("static/owner") && reason.contains("new packages"),
        "{reason}"
    );
    let explained = server.ok(&["explain", "image", "tiny"]);
    assert!(
        explained.contains("next: wait: ") && explained.contains("only on request"),
        "{explained}"
    );
    let explained = server.json(&["explain", "image", "tiny"]);
    assert_eq!(
        (&explained["state"], &explained["nextSteps"][0]["action"]),
        (&json!("ready"), &json!("wait"))
    );
    let log = server.ok(&["image", "log", "tiny", "1"]);
    assert!(log.starts_with("greetings\n"), "{log}");
    let log = server.json(&["image", "log", "tiny"]);
    assert_eq!((&log["build"], &log["hasEnded"]), (&json!(2), &json!(true)));
    let statement = server.ok(&["image", "provenance", "tiny", "2"]);
    let statement: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    let provenance = server.json(&["image", "provenance", "tiny", "2"]);
    assert_eq!(
        (&provenance["isTrusted"], &provenance["problem"]),
        (&json!(true), &json!(""))
    );
}

#[test]
fn a_log_is_followed_while_the_build_runs() {
    let server = start();
    let gate = server.home.path("gate");
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done", gate.display());
    create(&server, &format!("echo before; {wait}; echo after; {MAKE}"));
    wait_for("the build has begun", || {
        (server.json(&["image", "list"])["images"][0]["state"] == "building").then_some(())
    });
    let mut following = server
        .command(&["image", "log", "tiny", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    // Without `--follow`, it ends although the build goes on.
    assert_eq!(server.ok(&["image", "log", "tiny", "1"]), "before\n");
    let partial = server.json(&["image", "log", "tiny", "1"]);
    assert_eq!(partial["hasEnded"], false);
    failing(
        &server,
        &["image", "promote", "tiny", "1"],
        5,
        "no ready upload",
    );
    failing(
        &server,
        &["image", "delete-build", "tiny", "1", "--yes"],
        5,
        "cancel it first",
    );
    failing(
        &server,
        &["image", "provenance", "tiny", "1"],
        3,
        "has no provenance record",
    );
    std::fs::write(&gate, "").unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("after\n"), "{rest}");
    assert_eq!(following.wait().unwrap().code(), Some(0));
    built(&server, 1);
}

#[test]
fn a_failed_build_shows_its_error_and_the_next_try() {
    let server = start();
    create(&server, "echo no room >&2; exit 7");
    let status = status_when(&server, "it failed", |status| {
        status["state"] == "build failed"
    });
    assert!(
        status["builds"][0]["error"].as_str().unwrap().contains('7'),
        "{status}"
    );
    let explained = server.ok(&["explain", "image", "tiny"]);
    for part in [
        "image tiny: build failed",
        "failed once: ",
        "7; next try at ",
        " (in ",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let explained = server.json(&["explain", "image", "tiny"]);
    assert!(
        explained["nextSteps"][0]["until"].is_string(),
        "{explained}"
    );
    assert!(server.ok(&["image", "list"]).contains("1 failed"));
    let asked = server.run(&["image", "build", "tiny", "--follow"]);
    assert_eq!(asked.code, 1, "{}", asked.out);
    assert!(asked.out.contains("no room\n"), "{}", asked.out);
    assert!(
        asked.err.contains("build 2 of image tiny failed: "),
        "{}",
        asked.err
    );
    // A build that cannot begin has no log.
    let mut without = definition("exit 0");
    without["secrets"] = json!(["TOKEN"]);
    store(&server, "update", &without);
    // A request during the build that the change begins would wait for the try after its failure.
    status_when(&server, "the change is built", |status| {
        let newest = &status["builds"][0];
        newest["build"] == 3 && newest["state"] == "failed"
    });
    let done = server.run(&["image", "build", "tiny", "--follow", "--json"]);
    let record: Value = serde_json::from_str(&done.out).unwrap();
    let error = record["error"].as_str().unwrap();
    assert!(
        done.code == 1 && error.contains("has no secret TOKEN"),
        "{error}"
    );
}

#[test]
fn a_running_build_is_cancelled_and_an_image_paused() {
    let server = start();
    create(&server, "echo begun; sleep 600");
    status_when(&server, "it builds", |status| status["state"] == "building");
    let said = server.ok(&["image", "cancel", "tiny", "1", "--reason", "wrong mirror"]);
    assert_eq!(said.trim(), "requested the end of build 1 of image tiny");
    let status = status_when(&server, "it ended", |status| {
        status["builds"][0]["state"] == "failed"
    });
    let error = status["builds"][0]["error"].as_str().unwrap();
    assert_eq!(error, "static/owner cancelled it: wrong mirror");
    failing(
        &server,
        &["image", "cancel", "tiny", "1"],
        5,
        "there is nothing to cancel",
    );

    server.ok(&["image", "pause", "tiny", "--reason", "holidays"]);
    let status = status_when(&server, "it is paused", |status| {
        status["state"] == "paused"
    });
    assert_eq!(status["pause"]["by"], "static/owner");
    let shown = server.ok(&["image", "show", "tiny"]);
    for part in [
        "paused by static/owner at ",
        "holidays",
        "paused by static/owner: holidays",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    store(&server, "update", &definition(MAKE));
    server.ok(&["image", "resume", "tiny"]);
    status_when(&server, "it is built", |status| status["state"] == "ready");
}

#[test]
fn builds_are_pinned_promoted_rolled_back_to_and_deleted() {
    let server = start();
    create(&server, MAKE);
    built(&server, 1);
    server.ok(&["image", "build", "tiny", "--follow"]);
    built(&server, 2);
    failing(
        &server,
        &["image", "delete-build", "tiny", "2", "--yes"],
        5,
        "start from build 2 of tiny",
    );
    server.ok(&["image", "pin", "tiny", "1", "--reason", "for ticket 7"]);
    let status = status_when(&server, "it is pinned", |status| {
        status["builds"][1].get("pin").is_some()
    });
    assert_eq!(status["builds"][1]["pin"]["reason"], "for ticket 7");
    server.ok(&[
        "image",
        "rollback",
        "tiny",
        "--to",
        "1",
        "--reason",
        "slow tests",
    ]);
    built(&server, 1);
    let shown = server.ok(&["image", "show", "tiny"]);
    assert!(
        shown.contains("rolled back") && shown.contains("in use, pinned"),
        "{shown}"
    );
    let explained = server.ok(&["explain", "image", "tiny"]);
    for (line, text) in [
        ("build 1 was promoted by ", &shown),
        ("build 2 was rolled back by ", &explained),
    ] {
        let line = text.lines().find(|it| it.starts_with(line));
        assert!(
            line.is_some_and(|it| it.ends_with(": slow tests")),
            "{text}"
        );
    }
    let explained = server.json(&["explain", "image", "tiny"]);
    let decision = &explained["decisions"][0];
    assert_eq!(
        (
            &decision["build"],
            &decision["decision"],
            &decision["reason"]
        ),
        (&json!(2), &json!("rolled back"), &json!("slow tests"))
    );
    assert!(server.ok(&["image", "list"]).contains("2 rolled back"));
    server.ok(&["image", "promote", "tiny", "2"]);
    built(&server, 2);
    server.ok(&["image", "rollback", "tiny", "--to", "1"]);
    built(&server, 1);
    server.ok(&["image", "unpin", "tiny", "1"]);
    let said = server.ok(&["image", "delete-build", "tiny", "2", "--yes"]);
    assert_eq!(said.trim(), "build 2 of image tiny is being deleted");
    status_when(&server, "it is deleted", |status| {
        status["builds"].as_array().unwrap().len() == 1
    });
    failing(&server, &["image", "log", "tiny", "2"], 3, "has no build 2");
    failing(
        &server,
        &["image", "rollback", "tiny", "--to", "2"],
        3,
        "has no build 2",
    );
}

#[test]
fn unknown_images_and_builds_are_named() {
    let server = start();
    create(&server, "exit 1");
    for arguments in [
        &["image", "show", "moon"][..],
        &["image", "definition", "moon"],
        &["explain", "image", "moon"],
        &["image", "log", "moon"],
    ] {
        failing(&server, arguments, 3, "Image does not exist");
    }
    let following = ["image", "build", "moon", "--follow"];
    failing(
        &server,
        &following,
        3,
        "could not build image moon: image moon does not exist",
    );
    for verb in ["build", "pause", "resume"] {
        failing(
            &server,
            &["image", verb, "moon"],
            3,
            "image moon does not exist",
        );
    }
    // Each command says what it could not do, and with what.
    failing(
        &server,
        &["image", "log", "moon"],
        3,
        "could not read the log of image moon: ",
    );
    let back = ["image", "rollback", "tiny", "--to", "77"];
    failing(
        &server,
        &back,
        3,
        "could not roll back to build 77 of image tiny: ",
    );
    failing(
        &server,
        &back,
        3,
        "`fleetwright image show tiny` lists what exists",
    );
    for verb in ["cancel", "pin", "unpin", "promote", "log", "provenance"] {
        failing(&server, &["image", verb, "tiny", "99"], 3, "99");
    }
    failing(
        &server,
        &["image", "delete-build", "tiny", "99", "--yes"],
        3,
        "no build 99",
    );
    failing(
        &server,
        &["image", "delete-build", "tiny", "99"],
        2,
        "--yes",
    );
    failing(
        &server,
        &["image", "promote", "tiny", "one"],
        2,
        "must be the number of a build, such as `3`",
    );
}

#[test]
fn secrets_of_a_build_are_not_in_its_log() {
    let home = Home::new();
    let secret = home.write("token", "open-sesame\n");
    let config = format!("{CONFIG}[images.secrets.TOKEN]\nfile = {secret:?}\n");
    let file = home.write("builder.toml", &config);
    let server = Server::start_in(home, &["--config", &file]);
    let mut with_secret = definition(&format!("echo \"token $TOKEN\"; {MAKE}"));
    with_secret["secrets"] = json!(["TOKEN"]);
    store(&server, "create", &with_secret);
    built(&server, 1);
    let log = server.ok(&["image", "log", "tiny", "1"]);
    assert!(log.starts_with("token [redacted]\n"), "{log}");
    for document in [
        server.json(&["image", "show", "tiny"]),
        server.json(&["image", "provenance", "tiny", "1"]),
    ] {
        assert!(!document.to_string().contains("open-sesame"), "{document}");
    }
}

#[test]
fn builds_and_uploads_are_measured() {
    let server = start();
    create(&server, MAKE);
    built(&server, 1);
    let metrics = wait_for("they are measured", || {
        let (_, metrics) = server.call("GET", "/metrics", None);
        metrics
            .contains("fleetwright_image_uploads_total{imageId=\"tiny\",target=\"cloud\",outcome=\"ready\"} 1")
            .then_some(metrics)
    });
    for part in [
        "fleetwright_image_builds_total{imageId=\"tiny\",outcome=\"ready\"} 1\n",
        "fleetwright_image_build_seconds_count{outcome=\"ready\"} 1\n",
        "fleetwright_image_uploads_total{imageId=\"tiny\",target=\"local\",outcome=\"ready\"} 1\n",
        "fleetwright_image_upload_seconds_count{providerId=\"cloud\",outcome=\"ready\"} 1\n",
        "fleetwright_image_age_seconds{imageId=\"tiny\",target=\"local\"} ",
        "fleetwright_image_builders 1\n",
        "fleetwright_image_builds_running 0\n",
        "fleetwright_image_build_requests 0\n",
    ] {
        assert!(metrics.contains(part), "{part}: {metrics}");
    }
}

/// A `fleetwright builder`, killed at the end of the test.
struct Builder(Child);

impl Builder {
    fn start(home: &Home, config: &str) -> Self {
        let log = std::fs::File::create(home.path("builder.log")).unwrap();
        let mut command = home.command(&["builder", "--config", config]);
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(
            line.ends_with(" is ready\n"),
            "{line} {}",
            home.read("builder.log")
        );
        Self(process)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

#[test]
fn a_server_shows_the_logs_of_another_builder() {
    let Some((_, servers)) = crate::tree::zookeeper() else {
        return;
    };
    let home = Home::new();
    let root = format!("/image-builds-{}", std::process::id());
    let common = format!(
        "[providers.local]\nkind = \"static\"\n[providers.cloud]\nkind = \"fake\"\n\
         [tree]\nkind = \"zookeeper\"\nservers = {servers:?}\nroot = {root:?}\n\
         insecure = true\n"
    );
    let config = format!("roles = [\"api\", \"housekeeper\"]\n{common}");
    let config = home.write("server.toml", &config);
    let server = Server::start_in(home, &["--config", &config]);
    let home = &server.home;
    let own = format!(
        "root_url = {:?}\ndata = {:?}\nkeys.file = {:?}\n{common}",
        server.root_url(),
        home.path("builder"),
        home.path("builder.keys"),
    );
    let keys = home.path("builder.keys");
    let data = home.path("data");
    let made = home.run(&[
        "keys",
        "builder",
        "--data",
        data.to_str().unwrap(),
        "--output",
        keys.to_str().unwrap(),
    ]);
    assert_eq!(made.code, 0, "{}", made.err);
    let builder = Builder::start(home, &home.write("b.toml", &own));
    let gate = home.path("gate");
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done", gate.display());
    let mut elsewhere = definition(&format!("echo before; {wait}; echo after; {MAKE}"));
    elsewhere["uploads"] = json!([{"providerId": "cloud"}]);
    store(&server, "create", &elsewhere);
    status_when(&server, "it is built", |status| {
        status["state"] == "building"
    });
    let mut following = server
        .command(&["image", "log", "tiny", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    std::fs::write(&gate, "").unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("after\n"), "{rest}");
    assert_eq!(following.wait().unwrap().code(), Some(0));
    // The log is in the artifact store of the builder, on its disk.
    let log = server.ok(&["image", "log", "tiny", "1"]);
    assert!(log.starts_with("before\nafter\n"), "{log}");
    drop(builder);
    let part = "has the log, and ";
    let refused = wait_for("the builder is missed", || {
        let done = server.run(&["image", "log", "tiny", "1"]);
        assert!(done.code != 0 && done.err.contains(part), "{}", done.err);
        (done.code == 3).then_some(done.err)
    });
    assert!(refused.contains("cannot reach it"), "{refused}");
}
