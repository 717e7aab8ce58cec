//! Starts `tests/peers/azure.py`, which plays Azure, and steers it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// One server of its own, which ends with it.
pub(super) struct FakeAzure {
    pub(super) url: String,
    child: Child,
}

impl FakeAzure {
    pub(super) fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut child = Command::new("python3")
            .arg(root.join("tests/peers/azure.py"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready at ");
        let url = url.expect("the fake starts").to_owned();
        Self { url, child }
    }

    /// A call that only tests make.
    pub(super) fn steer(&self, name: &str, body: &Value) -> Value {
        let host = self.url.strip_prefix("http://").unwrap();
        let body = body.to_string();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "POST /_fake/{name} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{name}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    /// Ends all operations that go on.
    pub(super) fn advance(&self) {
        self.steer("advance", &json!({}));
    }

    pub(super) fn fault(&self, fault: &Value) {
        self.steer("faults", fault);
    }

    /// The requests since the last call, as `METHOD path`.
    pub(super) fn requests(&self) -> Vec<String> {
        let taken = self.steer("requests", &json!({}));
        let text = |request: &Value, key: &str| request[key].as_str().unwrap().to_owned();
        let all = taken.as_array().unwrap().iter();
        all.map(|it| format!("{} {}", text(it, "method"), text(it, "path")))
            .collect()
    }

    /// The names of all resources of these kinds, with their kinds: `virtualmachines/vm-1`.
    pub(super) fn resources(&self) -> Vec<String> {
        let ids = self.steer("resources", &json!({}));
        let ids = ids
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap());
        let short = ids.map(|id| {
            let parts: Vec<&str> = id.rsplit('/').take(2).collect();
            format!("{}/{}", parts[1], parts[0])
        });
        let ours = short.filter(|id| !id.starts_with("virtualnetworks/"));
        ours.collect()
    }

    pub(super) fn resource(&self, kind: &str, group: &str, name: &str) -> Value {
        let id = format!("/subscriptions/s-1/resourceGroups/{group}/providers/{kind}/{name}");
        self.steer("resource", &json!({ "id": id }))
    }
}

impl Drop for FakeAzure {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
