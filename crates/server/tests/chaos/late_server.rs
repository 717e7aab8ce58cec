//! A scripted outside queue: it answers questions for counts at once, late, or with a failure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::PoolId;
use serde_json::{Value, json};
use server::config::OutsideQueue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const MAX_REQUEST: usize = 64 * 1024;

/// How it answers the next question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Prompt,
    /// With the numbers of the time of the question, when it is released.
    Late,
    Fails,
    /// Closes the connection without an answer.
    HangsUp,
    /// Leaves out every second pool.
    SaysHalf,
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) mood: Mood,
    pub(crate) pending: BTreeMap<PoolId, u64>,
    /// Questions that were kept waiting.
    pub(crate) n_held: usize,
    /// Answers with this many more than `said` shows: a mistake that the harness must find.
    pub(crate) exaggerates_by: u64,
    /// The answers since the last check: the maximum, by pool.
    pub(crate) said: BTreeMap<PoolId, u64>,
}

pub(crate) struct LateServer {
    script: Mutex<Script>,
    release: Notify,
}

impl LateServer {
    /// Its address.
    pub(crate) async fn start() -> (Arc<Self>, OutsideQueue, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Self {
            script: Mutex::default(),
            release: Notify::new(),
        });
        let outside = OutsideQueue {
            root_url: format!("http://{address}"),
            client_id: "fleet".to_owned(),
            access_token: Some(access::Secret::new("no-one-looks-at-this-token")),
            access_token_file: None,
            pulse: None,
        };
        let serving = Arc::clone(&server);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).answer(stream));
            }
        });
        (server, outside, serving)
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All late answers are given.
    pub(crate) fn release(&self) {
        self.release.notify_waiters();
    }

    async fn answer(self: Arc<Self>, mut stream: TcpStream) {
        let Some(question) = question(&mut stream).await else {
            return;
        };
        let (mood, counts) = {
            let script = self.script();
            (script.mood, script.counts(&question))
        };
        let body = match (mood, counts) {
            (Mood::HangsUp, _) => return,
            (Mood::Fails, _) | (_, None) => None,
            (Mood::Late, Some(counts)) => {
                let released = self.release.notified();
                self.script().n_held += 1;
                released.await;
                Some(counts)
            }
            (Mood::SaysHalf, Some(counts)) => Some(counts.into_iter().step_by(2).collect()),
            (Mood::Prompt, Some(counts)) => Some(counts),
        };
        let text = match body {
            Some(counts) => self.script().reply(counts),
            None => "HTTP/1.1 500 E\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        };
        let _ = stream.write_all(text.as_bytes()).await;
    }
}

impl Script {
    /// The pending tasks in the queues of this question; `None` if it asks something else.
    fn counts(&self, question: &Value) -> Option<Vec<(PoolId, u64)>> {
        let queues = question["taskQueueIds"].as_array()?.iter();
        let queues = queues.filter_map(|queue| queue.as_str()?.parse().ok());
        let count = |queue: PoolId| {
            let pending = self.pending.get(&queue).copied().unwrap_or(0);
            (queue, pending)
        };
        Some(queues.map(count).collect())
    }

    fn reply(&mut self, counts: Vec<(PoolId, u64)>) -> String {
        let mut rows = Vec::new();
        for (queue, pending) in counts {
            let told = pending + self.exaggerates_by;
            rows.push(
                json!({"taskQueueId": queue.as_str(), "pendingTasks": told, "claimedTasks": 0}),
            );
            let said = self.said.entry(queue).or_default();
            *said = pending.max(*said);
        }
        let body = json!({ "taskQueueCounts": rows }).to_string();
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    }
}

/// The body of a request; `null` if there is none.
async fn question(stream: &mut TcpStream) -> Option<Value> {
    let mut text = Vec::new();
    loop {
        if let Some(body) = body(&text) {
            return Some(body);
        }
        let mut some = [0; 4_096];
        let read = stream.read(&mut some).await.ok()?;
        text.extend_from_slice(&some[..read]);
        if read == 0 || text.len() > MAX_REQUEST {
            return None;
        }
    }
}

/// The body, if all of the request has arrived.
fn body(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.trim().parse().ok())?;
    (body.len() >= length).then(|| serde_json::from_str(body).unwrap_or(Value::Null))
}
