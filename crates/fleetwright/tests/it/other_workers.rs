//! Taskcluster's start-worker and generic-worker on machines of an `exec` provider.
//!
//! The test sends the requests of these workers; if the real programs are on the PATH, a second
//! test runs them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use access::Secret;
use access::certificate::Certificate;
use access::hawk::{RequestLine, extension, payload_hash, sign_header};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::queue_calls::{now, wait_for};
use crate::world::{Home, Server};

const POOL: &str = "demo/theirs";
const IN_PATH: &str = "demo%2Ftheirs";
const LIVE: &str = "public/logs/live.log";
const BACKING: &str = "public/logs/live_backing.log";

/// Stores the request of a launch, and replies once the test has written the reply.
const SCRIPTED: &str = r#"#!/bin/sh
set -eu
cd "$PLACE"
question=$(cat)
case "$1" in
  launch) printf '%s' "$question" > question.new; mv question.new question.json
    read -r answer < answer; printf '%s' "$answer" ;;
  setup) echo '{"lookBatch":100}' ;;
  bids) echo '{"bids":[]}' ;;
  look) echo '{"sightings":[]}' ;;
  owned) echo '{"machines":[]}' ;;
  *) echo '{}' ;;
esac
"#;

/// Starts Taskcluster's worker for each launch: one machine, with a runner.yml from its identity.
const REAL: &str = r#"#!/bin/sh
set -eu
cd "$PLACE"
question=$(cat)
offered=$(printf '%s' "$question" | sed -e 's/.*"identities":\[{//' -e 's/\].*//')
get() { printf '%s' "$offered" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
alive() { [ -s "$1/pid" ] && grep -qs '^State:.[^Z]' "/proc/$(cat "$1/pid")/status"; }
named() { printf '"workerGroup":"shell","workerId":"%s"' "$1"; }
launch() {
  id=$(get workerId)
  mkdir "$id"
  cat > "$id/runner.yml" <<END
provider:
  providerType: static
  rootURL: $(printf '%s' "$question" | sed -n 's/.*"deployment":"\([^"]*\)".*/\1/p')
  providerID: shell
  workerPoolID: demo/theirs
  workerGroup: $(get workerGroup)
  workerID: $id
  staticSecret: $(get staticSecret)
getSecrets: true
worker:
  implementation: generic-worker
  path: $(command -v generic-worker)
  configPath: $PLACE/$id/generic-worker.config
END
  setsid start-worker "$id/runner.yml" </dev/null >"$PLACE/worker.log" 2>&1 &
  echo $! > "$id/pid"
  printf '{"machines":[{%s}]}' "$(named "$id")"
}
asked() { printf '%s' "$question" | tr '{' '\n' | sed -n 's/.*"workerId":"\([^"]*\)".*/\1/p'; }
case "$1" in
  launch) launch ;;
  look) asked | while read -r id; do
      if alive "$id"; then state=alive; else state=gone; fi
      printf '{"workerPoolId":"demo/theirs",%s,"state":"%s"}\n' "$(named "$id")" "$state"
    done | paste -sd, - | sed -e 's/^/{"sightings":[/' -e 's/$/]}/' ;;
  owned) for id in *-*; do
      if alive "$id"; then printf '{"token":"%s",%s}\n' "${id%-*}" "$(named "$id")"; fi
    done | paste -sd, - | sed -e 's/^/{"machines":[/' -e 's/$/]}/' ;;
  end) asked | while read -r id; do if alive "$id"; then kill -- "-$(cat "$id/pid")"; fi; done; echo '{}' ;;
  setup) echo '{"lookBatch":100}' ;;
  bids) echo '{"bids":[]}' ;;
  *) echo '{}' ;;
esac
"#;

/// The parts of a reply that these tests read.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

/// The credentials of a worker.
struct Worker {
    client_id: String,
    token: Secret,
    certificate: Certificate,
}

impl Answer {
    #[track_caller]
    fn json(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn location(&self) -> &str {
        let mut lines = self.head.lines();
        let line = lines.find(|line| line.to_lowercase().starts_with("location: "));
        line.unwrap().split_once(": ").unwrap().1
    }
}

impl Worker {
    /// Parses the credentials in replies to registrations and claims.
    fn of(reply: &Value) -> Self {
        let text = |name: &str| reply["credentials"][name].as_str().unwrap();
        Self {
            client_id: text("clientId").to_owned(),
            token: Secret::new(text("accessToken")),
            certificate: serde_json::from_str(text("certificate")).unwrap(),
        }
    }
}

/// Sends one request to the server; `path` may also be a complete URL.
fn ask(
    server: &Server,
    method: &str,
    path: &str,
    worker: Option<&Worker>,
    headers: &str,
    body: &[u8],
) -> Answer {
    let complete = match path.starts_with('/') {
        true => server.root_url() + path,
        false => path.to_owned(),
    };
    let (address, resource) = complete
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let resource = &format!("/{resource}");
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut head = format!("{method} {resource} HTTP/1.0\r\nHost: {address}\r\n{headers}");
    if let Some(worker) = worker {
        let line = RequestLine {
            method,
            resource,
            host,
            port: port.parse().unwrap(),
        };
        let content_type = if body.is_empty() {
            ""
        } else {
            "application/json"
        };
        let ext = extension(Some(&worker.certificate), None);
        let header = sign_header(
            &line,
            &worker.client_id,
            &worker.token,
            i64::try_from(now().as_secs()).unwrap(),
            "nonce",
            Some(&payload_hash(content_type, body)),
            ext.as_deref(),
        );
        head.push_str(&format!("Authorization: {header}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let end = reply
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(reply[..end].to_vec()).unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: reply[end + 4..].to_vec(),
        head,
    }
}

fn post(server: &Server, path: &str, worker: Option<&Worker>, body: &Value) -> Answer {
    let json = "Content-Type: application/json\r\n";
    let body = body.to_string();
    ask(server, "POST", path, worker, json, body.as_bytes())
}

fn get(server: &Server, path: &str, worker: Option<&Worker>) -> Answer {
    ask(server, "GET", path, worker, "", b"")
}

/// Follows the redirect of an artifact, as workers do that mount it.
fn fetch(server: &Server, task: &str, name: &str, worker: Option<&Worker>) -> Vec<u8> {
    let path = format!("/api/queue/v1/task/{task}/artifacts/{name}");
    let led = get(server, &path, worker);
    assert_eq!(led.status, 303, "{}", String::from_utf8_lossy(&led.body));
    let file = get(server, led.location(), None);
    assert_eq!(file.status, 200);
    file.body
}

/// A server with an `exec` provider that runs this script, and a pool of it.
fn start(script: &str, worker_config: &Value) -> (Server, PathBuf) {
    let home = Home::new();
    let program = home.write("provider", script);
    make_executable(&program);
    let place = home.path("place");
    std::fs::create_dir_all(&place).unwrap();
    let config = format!(
        "[fleet]\nround_seconds = 1\n[providers.shell]\nkind = \"exec\"\ncommand = [\"{program}\"]\n\
         env = {{ PLACE = \"{}\" }}\n",
        place.display()
    );
    let file = home.write("c.toml", &config);
    let server = Server::start_in(home, &["--config", &file]);
    let config = json!({"minCapacity": 0, "maxCapacity": 1,
        "launchConfigs": [{"workerConfig": worker_config}]});
    let owner = ["--provider", "shell", "--owner", "o@example.com"];
    let config = config.to_string();
    server.ok(&[&["pool", "create", POOL, "--config", &config][..], &owner].concat());
    (server, place)
}

fn make_executable(file: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Reads the head of a request. A reply before it would be ignored.
fn read_head(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let head = lines
        .map(Result::unwrap)
        .take_while(|line| !line.is_empty());
    head.map(|line| format!("{line}\n")).collect()
}

/// A log server of a worker: sends given texts to one reader, and returns the head of the request.
fn live_log() -> (String, Sender<&'static str>, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/log/secret", listener.local_addr().unwrap());
    let (say, said): (Sender<&'static str>, Receiver<&'static str>) = channel();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_head(&stream);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        .unwrap();
        for text in said {
            write!(stream, "{:x}\r\n{text}\r\n", text.len()).unwrap();
        }
        write!(stream, "0\r\n\r\n").unwrap();
        head
    });
    (url, say, serving)
}

/// A worker with the identity from a launch.
struct StandIn<'a> {
    server: &'a Server,
    worker: Worker,
    task: String,
}

impl<'a> StandIn<'a> {
    /// Is launched, registers before the reply to the launch, and claims its task.
    fn launched(server: &'a Server, place: &std::path::Path) -> Self {
        let task = server.create_task(POOL, &json!({}));
        let question = wait_for("the launch is asked for", || {
            std::fs::read_to_string(place.join("question.json")).ok()
        });
        let question: Value = serde_json::from_str(&question).unwrap();
        let identity = &question["identities"][0];
        let claim = json!({"workerPoolId": POOL, "providerId": "shell",
            "workerGroup": identity["workerGroup"], "workerId": identity["workerId"],
            "workerIdentityProof": {"staticSecret": identity["staticSecret"]}});
        let answer = json!({"machines": [{"workerGroup": identity["workerGroup"],
            "workerId": identity["workerId"]}]});
        let registered = std::thread::scope(|scope| {
            let path = "/api/worker-manager/v1/worker/register";
            let registering = scope.spawn(|| post(server, path, None, &claim));
            std::fs::write(place.join("answer"), format!("{answer}\n")).unwrap();
            registering.join().unwrap()
        });
        let registered = registered.json(200);
        assert_eq!(
            registered["workerConfig"],
            json!({"genericWorker": {"config": {}}})
        );
        let again = post(
            server,
            "/api/worker-manager/v1/worker/register",
            None,
            &claim,
        );
        assert_eq!(again.status, 400, "an identity is worth one registration");
        let itself = Worker::of(&registered);
        let work = json!({"tasks": 1, "workerGroup": identity["workerGroup"],
            "workerId": identity["workerId"]});
        let path = format!("/api/queue/v1/claim-work/{IN_PATH}");
        let claimed = post(server, &path, Some(&itself), &work).json(200);
        assert_eq!(claimed["tasks"][0]["status"]["taskId"], task);
        let open = format!("/api/purge-cache/v1/purge-cache/{IN_PATH}?since=");
        let purged = get(server, &open, Some(&itself)).json(200);
        assert_eq!(purged, json!({"requests": []}));
        Self {
            server,
            worker: Worker::of(&claimed["tasks"][0]),
            task,
        }
    }

    fn artifact(&self, name: &str, mut body: Value) -> Value {
        // No later than the task itself.
        body["expires"] = self.server.json(&["task", "status", &self.task])["expires"].clone();
        let path = format!("/api/queue/v1/task/{}/runs/0/artifacts/{name}", self.task);
        post(self.server, &path, Some(&self.worker), &body).json(200)
    }

    fn upload(&self, name: &str, encoding: &str, content: &[u8]) {
        let body = json!({"storageType": "s3", "contentType": "text/plain"});
        let made = self.artifact(name, body);
        let url = made["putUrl"].as_str().unwrap();
        let headers = format!("Content-Type: text/plain\r\nContent-Encoding: {encoding}\r\n");
        let put = ask(self.server, "PUT", url, None, &headers, content);
        assert_eq!(put.status, 200);
    }

    fn refers_to(&self, url: &str) {
        let body = json!({"storageType": "reference", "url": url, "contentType": "text/plain"});
        self.artifact(LIVE, body);
    }

    fn links_to_backing_log(&self) {
        let body = json!({"storageType": "link", "artifact": BACKING, "contentType": "text/plain"});
        self.artifact(LIVE, body);
    }

    fn completes(&self) {
        let path = format!("/api/queue/v1/task/{}/runs/0/completed", self.task);
        post(self.server, &path, Some(&self.worker), &json!({})).json(200);
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

fn scripted() -> (Server, PathBuf) {
    let config = json!({"genericWorker": {"config": {}}});
    let (server, place) = start(SCRIPTED, &config);
    let made = std::process::Command::new("mkfifo")
        .arg(place.join("answer"))
        .status();
    assert!(made.unwrap().success());
    (server, place)
}

#[test]
fn a_worker_as_taskclusters_runs_a_task_shows_its_log_and_leaves_artifacts() {
    let (server, place) = scripted();
    let worker = StandIn::launched(&server, &place);
    let (url, say, serving) = live_log();
    let mut watching = server
        .command(&["task", "log", "-f", "--any-host", &worker.task])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    worker.refers_to(&url);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    say.send("one\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    say.send("two\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    drop(say);
    let head = serving.join().unwrap().to_lowercase();
    assert!(head.starts_with("get /log/secret "), "{head}");
    assert!(!head.contains("authorization"), "{head}");

    worker.upload("public/build.txt", "identity", b"built");
    worker.upload(BACKING, "gzip", &packed("one\ntwo\n"));
    worker.links_to_backing_log();
    worker.completes();
    assert!(lines.next().is_none());
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    assert_eq!(server.ok(&["task", "log", &worker.task]), "one\ntwo\n");
    // A task that mounts it has credentials of its own or none.
    assert_eq!(
        fetch(&server, &worker.task, "public/build.txt", None),
        b"built"
    );
    let itself = Some(&worker.worker);
    assert_eq!(
        fetch(&server, &worker.task, "public/build.txt", itself),
        b"built"
    );
    let refused = get(
        &server,
        &format!("/api/queue/v1/task/{}/artifacts/private/x", worker.task),
        None,
    );
    assert_eq!(refused.status, 403);
}

#[test]
fn a_broken_log_continues_at_its_new_address() {
    let (server, place) = scripted();
    let worker = StandIn::launched(&server, &place);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    worker.refers_to(&format!("http://{}/", listener.local_addr().unwrap()));
    let mut watching = server
        .command(&["task", "log", "-f", "--any-host", &worker.task])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    read_head(&stream);
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\none\n"
    )
    .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    worker.upload(BACKING, "gzip", &packed("one\ntwo\n"));
    worker.links_to_backing_log();
    worker.completes();
    drop((stream, listener));
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    assert!(lines.next().is_none());
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}

#[test]
fn a_run_that_never_began_shows_its_existing_log() {
    let (server, place) = scripted();
    let worker = StandIn::launched(&server, &place);
    worker.upload("public/logs/other.log", "identity", b"malformed\n");
    let path = format!("/api/queue/v1/task/{}/runs/0/exception", worker.task);
    let body = json!({"reason": "malformed-payload"});
    post(&server, &path, Some(&worker.worker), &body).json(200);
    assert_eq!(server.ok(&["task", "log", &worker.task]), "malformed\n");
    assert_eq!(
        server.ok(&["task", "log", "-f", &worker.task]),
        "malformed\n"
    );
}

#[test]
fn a_log_on_a_host_that_the_task_refers_to_is_only_read_on_request() {
    let (server, place) = scripted();
    let worker = StandIn::launched(&server, &place);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    worker.refers_to(&format!("http://{address}/log/secret"));
    let done = server.run(&["task", "log", &worker.task]);
    assert_eq!(done.code, 6, "{}", done.err);
    let text = format!("the task refers to {address}, not to a log of the server");
    assert!(done.err.contains(&text), "{}", done.err);
    assert!(!done.err.contains("secret"), "{}", done.err);
    assert!(done.err.contains("--any-host"), "{}", done.err);
    // It was not called.
    listener.set_nonblocking(true).unwrap();
    listener.accept().unwrap_err();
}

#[test]
fn an_unreachable_log_is_an_error_with_its_address() {
    let (server, place) = scripted();
    let worker = StandIn::launched(&server, &place);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    worker.refers_to(&format!("http://{address}/log/secret"));
    let done = server.run(&["task", "log", "--any-host", &worker.task]);
    assert_eq!(done.code, 6, "{}", done.err);
    assert!(done.err.contains(&address.to_string()), "{}", done.err);
    assert!(!done.err.contains("secret"), "{}", done.err);
    assert!(
        done.err.contains("check that this machine can reach it"),
        "{}",
        done.err
    );
}

fn is_on_path(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Ends the processes of start-worker at the end of the test.
struct Ends(PathBuf);

impl Drop for Ends {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if let Ok(pid) = std::fs::read_to_string(entry.path().join("pid")) {
                let group = format!("-{}", pid.trim());
                let _gone_already = std::process::Command::new("kill")
                    .args(["--", &group])
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}

#[test]
fn taskclusters_own_worker_runs_a_task_if_it_is_on_the_path() {
    if !is_on_path("start-worker") || !is_on_path("generic-worker") {
        println!("skipped: start-worker and generic-worker are not on the PATH");
        return;
    }
    let home = Home::new();
    let key = home.path("key").display().to_string();
    let made = std::process::Command::new("generic-worker")
        .args(["new-ed25519-keypair", "--file", &key])
        .stdout(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    let folder = |name: &str| home.path(name).display().to_string();
    let config = json!({"genericWorker": {"config": {
        "ed25519SigningKeyLocation": key,
        "cachesDir": folder("caches"), "downloadsDir": folder("downloads"), "tasksDir": folder("tasks"),
        "enableTaskclusterProxy": false, "enableInteractive": false, "disableReboots": true,
        "enableLiveLog": is_on_path("livelog"), "publicIP": "127.0.0.1",
        "requiredDiskSpaceMegabytes": 1, "minAvailableMemoryBytes": 1,
        "idleTimeoutSecs": 5, "numberOfTasksToRun": 2,
    }}});
    let (server, place) = start(REAL, &config);
    let _ends = Ends(place.clone());
    let payload = |command: &str, more: Value| {
        let mut payload = json!({"command": [["sh", "-c", command]], "maxRunTime": 60});
        let members = more.as_object().unwrap().clone();
        payload.as_object_mut().unwrap().extend(members);
        payload
    };
    let built = json!({"artifacts": [{"name": "public/built", "path": "built", "type": "file"}]});
    let first = server.create_task(POOL, &payload("echo hello; echo made > built", built));
    let log = server.run(&["task", "log", "-f", "--any-host", &first]);
    let worker = || std::fs::read_to_string(place.join("worker.log")).unwrap_or_default();
    assert_eq!(log.code, 0, "{}\n{}", log.err, worker());
    assert!(log.out.contains("\nhello\n"), "{}\n{}", log.out, worker());
    assert_eq!(server.resolved(&first)["state"], "completed", "{}", log.out);
    let mounts = json!({"mounts": [
        {"file": "mounted", "content": {"taskId": first, "artifact": "public/built"}},
        {"cacheName": "a-cache", "directory": "cache"},
    ]});
    let mounting = payload("cat mounted; echo warm > cache/x", mounts);
    // It mounts artifacts of dependencies only.
    let further = json!({"dependencies": [first], "scopes": ["generic-worker:cache:a-cache"]});
    let second = server.create_task_with(POOL, &mounting, &further);
    let state = server.resolved(&second)["state"].clone();
    let log = server.ok(&["task", "log", &second]);
    assert_eq!(state, "completed", "{log}\n{}", worker());
    assert!(log.contains("\nmade\n"), "{log}");
    assert!(!log.contains("404"), "{log}");
}
