//! A broker for tests, and a consumer like others would have.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use access::Secret;
use backplane::{Broker, Message};
use domain::time::Timestamp;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicGetOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{Channel, Connection, ConnectionProperties, Consumer};

/// Time limit for everything that tests wait for.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// `None`, with a printed note, if no broker is configured.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
pub(crate) fn broker() -> Option<Broker> {
    let Ok(url) = std::env::var("TEST_AMQP_URL") else {
        println!("skipped: TEST_AMQP_URL is not set");
        return None;
    };
    Some(Broker {
        url: Secret::new(url),
        root_certificates: None,
    })
}

/// A name that no other test uses.
pub(crate) fn unique(word: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{word}-{}-{number}", std::process::id())
}

pub(crate) fn message(exchange: &str, number: usize) -> Message {
    Message {
        exchange: exchange.to_owned(),
        routing_key: format!("primary.{number}"),
        routes: Vec::new(),
        id: format!("id-{number}"),
        created: Timestamp::from_millis(1_790_000_000_000),
        body: number.to_string().into_bytes(),
    }
}

/// Receives the messages that are bound to it.
pub(crate) struct Reader {
    _connection: Connection,
    consumer: Consumer,
}

impl Reader {
    pub(crate) async fn new(broker: &Broker, exchange: &str, pattern: &str) -> Self {
        let url = broker.url.expose();
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(url, properties).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = channel.queue_declare("".into(), options, FieldTable::default());
        let queue = queue.await.unwrap().name().clone();
        let (from, key) = (exchange.into(), pattern.into());
        let options = QueueBindOptions::default();
        let bound = channel.queue_bind(queue.clone(), from, key, options, FieldTable::default());
        bound.await.unwrap();
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let consumer = channel.basic_consume(queue, "test".into(), options, FieldTable::default());
        Self {
            consumer: consumer.await.unwrap(),
            _connection: connection,
        }
    }

    pub(crate) async fn next(&mut self) -> Delivery {
        let next = tokio::time::timeout(WAIT_LIMIT, self.consumer.next()).await;
        next.unwrap().unwrap().unwrap()
    }
}

/// A queue with room for one message, with which the broker refuses all further ones.
pub(crate) struct FullQueue {
    _connection: Connection,
    channel: Channel,
    name: String,
}

impl FullQueue {
    pub(crate) async fn of_one(broker: &Broker, exchange: &str) -> Self {
        let url = broker.url.expose();
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(url, properties).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let mut arguments = FieldTable::default();
        let reject = LongString::from("reject-publish");
        arguments.insert("x-overflow".into(), AMQPValue::LongString(reject));
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
        let queue = channel.queue_declare("".into(), options, arguments);
        let name = queue.await.unwrap().name().clone();
        let options = QueueBindOptions::default();
        let (from, key) = (exchange.into(), "#".into());
        let bound = channel.queue_bind(name.clone(), from, key, options, FieldTable::default());
        bound.await.unwrap();
        Self {
            _connection: connection,
            channel,
            name: name.to_string(),
        }
    }

    /// Takes one message, so that the queue has room.
    pub(crate) async fn take(&self) -> Vec<u8> {
        let options = BasicGetOptions { no_ack: true };
        let got = self.channel.basic_get(self.name.as_str().into(), options);
        got.await
            .unwrap()
            .expect("the queue has a message")
            .delivery
            .data
    }
}

pub(crate) async fn delete_queue(broker: &Broker, queue: &str) {
    let (_connection, channel) = channel(broker).await;
    let options = lapin::options::QueueDeleteOptions::default();
    channel.queue_delete(queue.into(), options).await.unwrap();
}

async fn channel(broker: &Broker) -> (Connection, Channel) {
    let properties = ConnectionProperties::default();
    let connection = Connection::connect(broker.url.expose(), properties);
    let connection = connection.await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// The number of waiting messages without unacknowledged ones, and the number of readers.
pub(crate) async fn depth(broker: &Broker, queue: &str) -> (usize, u32) {
    let (_connection, channel) = channel(broker).await;
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
    let declared = declared.await.unwrap();
    let n_waiting = usize::try_from(declared.message_count()).unwrap();
    (n_waiting, declared.consumer_count())
}

/// Whether the existing queue has this `max_queued`: the broker refuses to declare it with other
/// limits.
pub(crate) async fn has_room_for(broker: &Broker, queue: &str, max_queued: i32) -> bool {
    let (_connection, channel) = channel(broker).await;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let mut arguments = FieldTable::default();
    let day_ms = 24 * 60 * 60 * 1_000;
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(max_queued));
    arguments.insert("x-expires".into(), AMQPValue::LongLongInt(day_ms));
    let declared = channel.queue_declare(queue.into(), options, arguments);
    declared.await.is_ok()
}
