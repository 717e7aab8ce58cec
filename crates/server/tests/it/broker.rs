//! A broker for tests: a shared one when `TEST_AMQP_URL` names it, or a private one for a test that
//! ends it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::{BasicGetMessage, Delivery};
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Consumer};
use server::config::{Amqp, Config};

/// Whatever is waited for comes within this time, or never.
const PATIENCE: Duration = Duration::from_secs(120);

/// `None`, with a word to the reader, when there is no broker to test with.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
pub(crate) fn address() -> Option<String> {
    let url = std::env::var("TEST_AMQP_URL").ok();
    if url.is_none() {
        println!("skipped: TEST_AMQP_URL is not set");
    }
    url
}

pub(crate) fn amqp(url: &str) -> Amqp {
    Amqp {
        url: Some(access::Secret::new(url)),
        ..Amqp::default()
    }
}

/// Lets a server publish there.
pub(crate) fn publish_to(config: &mut Config, url: &str) {
    config.events.amqp = Some(amqp(url));
}

/// A name that no other test uses: they share the broker's exchanges.
pub(crate) fn unique(word: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{word}-{}-{number}", std::process::id())
}

/// A broker of one test's own, which it may kill and start again.
pub(crate) struct PrivateBroker {
    pub(crate) url: String,
    control: PathBuf,
    process: Child,
}

impl PrivateBroker {
    /// `None` where there is no broker for the other tests either.
    pub(crate) fn start() -> Option<Self> {
        address()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/with-rabbitmq");
        let wait = r#"echo "$TEST_AMQP_URL $TEST_AMQP_CONTROL"; cat"#;
        let mut process = Command::new(script)
            .args(["bash", "-c", wait])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let (url, control) = line.trim().split_once(' ').unwrap();
        Some(Self {
            url: url.to_owned(),
            control: control.into(),
            process,
        })
    }

    /// `kill` or `start`; returns when that is done.
    pub(crate) async fn control(&self, what: &'static str) {
        let control = self.control.clone();
        let done = tokio::task::spawn_blocking(move || Command::new(control).arg(what).status());
        assert!(done.await.unwrap().unwrap().success(), "{what}");
    }
}

impl Drop for PrivateBroker {
    /// The command that the broker lives for ends with its input.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
    }
}

/// A queue, and what comes to it.
pub(crate) struct Reader {
    channel: Channel,
    queue: String,
    _connection: Connection,
}

impl Reader {
    /// A queue that survives the broker, bound to these exchanges.
    pub(crate) async fn bind(url: &str, queue: &str, exchanges: &[String], key: &str) -> Self {
        let reader = Self::of(url, queue).await;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let none = FieldTable::default();
        let declared = reader.channel.queue_declare(queue.into(), options, none);
        declared.await.unwrap();
        for exchange in exchanges {
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let (queue, from) = (queue.into(), exchange.as_str().into());
            let bound = reader
                .channel
                .queue_bind(queue, from, key.into(), options, none);
            bound.await.unwrap();
        }
        reader
    }

    /// A queue that exists.
    pub(crate) async fn of(url: &str, queue: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default());
        let connection = connection.await.unwrap();
        Self {
            channel: connection.create_channel().await.unwrap(),
            queue: queue.to_owned(),
            _connection: connection,
        }
    }

    /// All messages in the queue.
    pub(crate) async fn drain(&self) -> Vec<BasicGetMessage> {
        let mut messages = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self
            .channel
            .basic_get(self.queue.as_str().into(), options)
            .await
            .unwrap()
        {
            messages.push(message);
        }
        messages
    }

    pub(crate) async fn listen(self) -> Deliveries {
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let queue = self.queue.as_str().into();
        let consumer =
            self.channel
                .basic_consume(queue, "test".into(), options, FieldTable::default());
        Deliveries {
            consumer: consumer.await.unwrap(),
            _reader: self,
        }
    }
}

/// For queues that would outlive their test, and go on being filled by others.
pub(crate) async fn delete_queue(url: &str, queue: &str) {
    let reader = Reader::of(url, queue).await;
    let options = QueueDeleteOptions::default();
    let deleted = reader.channel.queue_delete(queue.into(), options);
    deleted.await.unwrap();
}

pub(crate) struct Deliveries {
    consumer: Consumer,
    _reader: Reader,
}

impl Deliveries {
    pub(crate) async fn next(&mut self) -> Delivery {
        let next = tokio::time::timeout(PATIENCE, self.consumer.next()).await;
        next.expect("a message in time").unwrap().unwrap()
    }

    /// The next message that mentions this.
    pub(crate) async fn next_about(&mut self, word: &str) -> Delivery {
        loop {
            let delivery = self.next().await;
            if String::from_utf8_lossy(&delivery.data).contains(word) {
                return delivery;
            }
        }
    }
}

pub(crate) fn id_of(message: &Delivery) -> String {
    message.properties.message_id().clone().unwrap().to_string()
}

/// As a consumer that drops repeats sees them.
pub(crate) fn without_repeats(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    ids.into_iter()
        .filter(|id| seen.insert(id.clone()))
        .collect()
}
