//! Receives messages from a broker while its connection lasts.
//!
//! The messages are only wake-ups: those that arrive without a listener are lost, so the broker
//! deletes the queue together with its listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, Consumer};
use tokio::task::JoinHandle;

use crate::broker::{Broker, BrokerError, QueueLimits, answer, short_name};

/// Unacknowledged messages at a time.
const PREFETCH: u16 = 100;
/// Messages in a queue at most. Above this the oldest are dropped; a later poll finds what they
/// announced.
const MAX_QUEUED: i32 = 10_000;

/// The messages to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The full name of the exchange.
    pub exchange: String,
    /// `*` stands for one word, `#` for any number of words.
    pub pattern: String,
}

/// A connection that receives messages. Dropping it closes the connection.
pub struct Listener {
    _connection: Connection,
    reading: JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

impl Listener {
    /// The limits of the queues of all listeners.
    pub const LIMITS: QueueLimits = QueueLimits {
        prefetch: PREFETCH,
        max_queued: MAX_QUEUED,
    };

    /// Listens with an exclusive queue of this name (`queue/<user>/<name>`).
    pub async fn start(
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
        hear: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, BrokerError> {
        Self::start_within(Self::LIMITS, broker, queue, bindings, hear).await
    }

    /// Listens with other limits.
    pub async fn start_within(
        limits: QueueLimits,
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
        hear: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, BrokerError> {
        let connection = broker.connect("hints").await?;
        let channel = answer("open a channel", connection.create_channel()).await?;
        let name = short_name(queue)?;
        let limit = channel.basic_qos(limits.prefetch, BasicQosOptions::default());
        answer("limit unacknowledged messages", limit).await?;
        let options = QueueDeclareOptions {
            exclusive: true,
            auto_delete: true,
            ..QueueDeclareOptions::default()
        };
        let mut arguments = FieldTable::default();
        let max_queued = AMQPValue::LongInt(limits.max_queued);
        arguments.insert("x-max-length".into(), max_queued);
        let declared = channel.queue_declare(name.clone(), options, arguments);
        answer(format!("declare {queue}"), declared).await?;
        for Binding { exchange, pattern } in bindings {
            let (from, key) = (short_name(exchange)?, short_name(pattern)?);
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let bound = channel.queue_bind(name.clone(), from, key, options, none);
            answer(format!("bind {queue} to {exchange}"), bound).await?;
        }
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = channel.basic_consume(name, "fleetwright".into(), options, none);
        let consumer = answer(format!("read {queue}"), consuming).await?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let reading = tokio::spawn(read(consumer, Arc::clone(&has_ended), hear));
        Ok(Self {
            _connection: connection,
            reading,
            has_ended,
        })
    }

    /// Whether the connection has ended, so that a new listener is needed.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read(
    mut consumer: Consumer,
    has_ended: Arc<AtomicBool>,
    hear: impl Fn(&[u8]) + Send + Sync + 'static,
) {
    while let Some(Ok(delivery)) = consumer.next().await {
        hear(&delivery.data);
        if delivery.ack(BasicAckOptions::default()).await.is_err() {
            break;
        }
    }
    has_ended.store(true, Ordering::SeqCst);
}
