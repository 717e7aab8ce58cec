//! Listens to a broker for as long as the connection lasts.
//!
//! What is heard is a hint and nothing more: messages that come while nobody listens are lost, so the queue
//! lives no longer than its listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, Consumer};
use tokio::task::JoinHandle;

use crate::broker::{Broker, BrokerError, QueueLimits, answer, short};

/// So many messages are under way at a time.
const PREFETCH: u16 = 100;
/// The oldest hints go when there are more; what they say is then said by the level, a moment later.
const MAX_QUEUED: i32 = 10_000;

/// Which messages to hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The full name of the exchange.
    pub exchange: String,
    /// `*` stands for one word, `#` for any number of them.
    pub pattern: String,
}

/// A connection on which somebody listens; it hangs up when it is dropped.
pub struct Listener {
    _connection: Connection,
    reading: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl Listener {
    /// Those of the queues of all listeners.
    pub const LIMITS: QueueLimits = QueueLimits {
        prefetch: PREFETCH,
        max_queued: MAX_QUEUED,
    };

    /// Listens with a queue of this name (`queue/<user>/<name>`), which is nobody else's.
    pub async fn start(
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
        hear: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, BrokerError> {
        Self::start_within(Self::LIMITS, broker, queue, bindings, hear).await
    }

    /// The same with other limits.
    pub async fn start_within(
        limits: QueueLimits,
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
        hear: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, BrokerError> {
        let connection = broker.connect("hints").await?;
        let channel = answer("open a channel", connection.create_channel()).await?;
        let name = short(queue)?;
        let limit = channel.basic_qos(limits.prefetch, BasicQosOptions::default());
        answer("limit what is under way", limit).await?;
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
            let (from, key) = (short(exchange)?, short(pattern)?);
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let bound = channel.queue_bind(name.clone(), from, key, options, none);
            answer(format!("bind {queue} to {exchange}"), bound).await?;
        }
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = channel.basic_consume(name, "fleetwright".into(), options, none);
        let consumer = answer(format!("read {queue}"), consuming).await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let reading = tokio::spawn(read(consumer, Arc::clone(&is_over), hear));
        Ok(Self {
            _connection: connection,
            reading,
            is_over,
        })
    }

    /// Whether the connection has ended: then it takes a new listener.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read(
    mut consumer: Consumer,
    is_over: Arc<AtomicBool>,
    hear: impl Fn(&[u8]) + Send + Sync + 'static,
) {
    while let Some(Ok(delivery)) = consumer.next().await {
        hear(&delivery.data);
        if delivery.ack(BasicAckOptions::default()).await.is_err() {
            break;
        }
    }
    is_over.store(true, Ordering::SeqCst);
}
