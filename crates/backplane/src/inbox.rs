//! A durable queue of a broker. It keeps messages until a reader connects.
//!
//! Several processes may read it, and each message goes to one of them. A message that its reader
//! has not acknowledged when its connection ends goes to another reader, or to the same one when it
//! is back. So messages come at least once.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Connection, Consumer};

use crate::broker::{Broker, BrokerError, QueueLimits, answer, short_name};
use crate::listener::Binding;

/// Unacknowledged messages of one reader at a time.
const PREFETCH: u16 = 1_000;
/// Messages in a queue at most. Above this the oldest are dropped.
const MAX_QUEUED: i32 = 100_000;
/// The broker deletes a queue without a reader after this long.
const UNUSED_QUEUE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection that reads the queue. Dropping it closes the connection.
pub struct Inbox {
    _connection: Connection,
    consumer: Consumer,
}

/// Received messages. The broker keeps them until they are acknowledged.
pub struct ReceivedBatch {
    pub bodies: Vec<Vec<u8>>,
    last: Option<Acker>,
}

impl Inbox {
    /// The limits of queues that `open` makes.
    pub const LIMITS: QueueLimits = QueueLimits {
        prefetch: PREFETCH,
        max_queued: MAX_QUEUED,
    };

    /// Reads the queue of this name (`queue/<user>/<name>`), and makes it if it does not exist.
    ///
    /// The broker refuses to open an existing queue with other limits, so change the limits and the
    /// name together.
    pub async fn open(
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
    ) -> Result<Self, BrokerError> {
        Self::open_within(Self::LIMITS, broker, queue, bindings).await
    }

    /// Opens the queue with other limits.
    pub async fn open_within(
        limits: QueueLimits,
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
    ) -> Result<Self, BrokerError> {
        let connection = broker.connect("inbox").await?;
        let channel = answer("open a channel", connection.create_channel()).await?;
        let name = short_name(queue)?;
        let limit = channel.basic_qos(limits.prefetch, BasicQosOptions::default());
        answer("limit unacknowledged messages", limit).await?;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declared = channel.queue_declare(name.clone(), options, arguments(limits));
        answer(format!("declare {queue}"), declared).await?;
        for Binding { exchange, pattern } in bindings {
            let (from, key) = (short_name(exchange)?, short_name(pattern)?);
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let bound = channel.queue_bind(name.clone(), from, key, options, none);
            answer(format!("bind {queue} to {exchange}"), bound).await?;
        }
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        // The broker chooses a name for the reader, since several may exist.
        let consuming = channel.basic_consume(name, "".into(), options, none);
        Ok(Self {
            consumer: answer(format!("read {queue}"), consuming).await?,
            _connection: connection,
        })
    }

    /// Returns the received messages, at most `limit`, without waiting.
    pub fn take(&mut self, limit: usize) -> Result<ReceivedBatch, BrokerError> {
        let mut taken = ReceivedBatch {
            bodies: Vec::new(),
            last: None,
        };
        while taken.bodies.len() < limit {
            match self.consumer.next().now_or_never() {
                None => break,
                Some(Some(Ok(delivery))) => {
                    taken.bodies.push(delivery.data);
                    taken.last = Some(delivery.acker);
                }
                Some(Some(Err(problem))) => return Err(BrokerError::Lost(problem)),
                // The broker has deleted the queue.
                Some(None) => return Err(BrokerError::Ended),
            }
        }
        Ok(taken)
    }
}

impl ReceivedBatch {
    /// Acknowledges these messages, and all that this reader took before.
    pub async fn acknowledge(self) -> Result<(), BrokerError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        let options = BasicAckOptions { multiple: true };
        answer("acknowledge messages", last.ack(options))
            .await
            .map(drop)
    }
}

fn arguments(limits: QueueLimits) -> FieldTable {
    let mut arguments = FieldTable::default();
    let max_queued = AMQPValue::LongInt(limits.max_queued);
    arguments.insert("x-max-length".into(), max_queued);
    let millis = i64::try_from(UNUSED_QUEUE_LIMIT.as_millis()).unwrap_or(i64::MAX);
    arguments.insert("x-expires".into(), AMQPValue::LongLongInt(millis));
    arguments
}
