//! Signed calls of the queue with the owner's credentials.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use access::slugid;
use rand::SeedableRng as _;
use rand::rngs::{StdRng, SysRng};
use serde_json::{Value, json};

use crate::world::Server;

const LIMIT: Duration = Duration::from_secs(300);
/// A week, longer than any test.
const DEADLINE_SECONDS: u64 = 24 * 60 * 60;

impl Server {
    /// Sends a signed call and returns status and reply.
    pub(crate) fn call(&self, method: &str, resource: &str, body: Option<&Value>) -> (u16, String) {
        let url = self.root_url();
        let address = url.strip_prefix("http://").unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let content_type = if body.is_empty() {
            ""
        } else {
            "application/json"
        };
        let line = RequestLine {
            method,
            resource,
            host,
            port: port.parse().unwrap(),
        };
        let seconds = now().as_secs();
        let header = sign_header(
            &line,
            "static/owner",
            &Secret::new(self.home.token()),
            i64::try_from(seconds).unwrap(),
            "nonce",
            Some(&payload_hash(content_type, body.as_bytes())),
            None,
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(
            stream,
            "{method} {resource} HTTP/1.0\r\nHost: {address}\r\nAuthorization: {header}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn queue(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text) = self.call(method, &format!("/api/queue/v1{path}"), body);
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Creates a task and returns its id.
    pub(crate) fn create_task(&self, queue: &str, payload: &Value) -> String {
        self.create_task_with(queue, payload, &json!({}))
    }

    /// Creates a task with further fields of the definition.
    pub(crate) fn create_task_with(&self, queue: &str, payload: &Value, further: &Value) -> String {
        let task = slugid::nice(&mut StdRng::try_from_rng(&mut SysRng).unwrap());
        let mut body = json!({
            "taskQueueId": queue,
            "created": moment(0),
            "deadline": moment(DEADLINE_SECONDS),
            "payload": payload,
            "metadata": {"name": "test", "description": "a task of a test",
                "owner": "owner@example.com", "source": "https://example.com/"},
        });
        let further = further.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(further);
        self.queue("PUT", &format!("/task/{task}"), Some(&body));
        task
    }

    pub(crate) fn cancel_task(&self, task: &str) {
        self.queue("POST", &format!("/task/{task}/cancel"), None);
    }

    pub(crate) fn task_status(&self, task: &str) -> Value {
        let reply = self.queue("GET", &format!("/task/{task}/status"), None);
        reply["status"].clone()
    }

    /// The complete log of a run; waits until the run has ended.
    pub(crate) fn whole_log(&self, task: &str, run: u32) -> String {
        let path = format!("/api/fleetwright/v1/task/{task}/runs/{run}/log?follow=true");
        let (status, text) = self.call("GET", &path, None);
        assert_eq!(status, 200, "{text}");
        text
    }

    /// The current log; empty if it does not exist yet.
    pub(crate) fn log_now(&self, task: &str, run: u32) -> String {
        let path = format!("/api/fleetwright/v1/task/{task}/runs/{run}/log");
        match self.call("GET", &path, None) {
            (200, text) => text,
            (404, _) => String::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the task is in one of these states, and returns its last run.
    pub(crate) fn resolved(&self, task: &str) -> Value {
        wait_for(&format!("task {task} is resolved"), || {
            let status = self.task_status(task);
            let is_over = !matches!(
                status["state"].as_str().unwrap(),
                "unscheduled" | "pending" | "running"
            );
            is_over.then(|| status["runs"].as_array().unwrap().last().unwrap().clone())
        })
    }
}

/// Polls until the function returns a value.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() - start < LIMIT, "not reached: {what}");
        // Hands the processor to whom is waited for.
        // Time: between looks.
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of these tests")]
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
}

fn moment(seconds_ahead: u64) -> String {
    let millis = i64::try_from(now().as_millis() + u128::from(seconds_ahead) * 1_000).unwrap();
    domain::time::Timestamp::from_millis(millis).to_string()
}
