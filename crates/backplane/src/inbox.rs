//! A queue of a broker that outlives its readers: what comes while nobody reads waits there.
//!
//! Several processes may read it, each message goes to one of them. What a reader has not taken note of when its
//! connection ends goes to another, or to itself when it is back; so messages come at least once.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Connection, Consumer};

use crate::broker::{Broker, BrokerError, QueueLimits, answer, short};
use crate::listener::Binding;

/// So many messages are under way to one reader.
const PREFETCH: u16 = 1_000;
/// The oldest messages go when there are more.
const MAX_QUEUED: i32 = 100_000;
/// A queue that nobody reads any more does not stay for ever.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A connection over which somebody reads; it hangs up when it is dropped.
pub struct Inbox {
    _connection: Connection,
    consumer: Consumer,
}

/// Messages that were taken out. The broker keeps them until it hears that they are done with.
pub struct Taken {
    pub bodies: Vec<Vec<u8>>,
    last: Option<Acker>,
}

impl Inbox {
    /// Those of queues that `open` makes.
    pub const LIMITS: QueueLimits = QueueLimits {
        prefetch: PREFETCH,
        max_queued: MAX_QUEUED,
    };

    /// Reads the queue of this name (`queue/<user>/<name>`), which is made if there is none.
    ///
    /// The broker refuses a queue that is there with other limits: change those and the name together.
    pub async fn open(
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
    ) -> Result<Self, BrokerError> {
        Self::open_within(Self::LIMITS, broker, queue, bindings).await
    }

    /// The same with other limits.
    pub async fn open_within(
        limits: QueueLimits,
        broker: &Broker,
        queue: &str,
        bindings: &[Binding],
    ) -> Result<Self, BrokerError> {
        let connection = broker.connect("inbox").await?;
        let channel = answer("open a channel", connection.create_channel()).await?;
        let name = short(queue)?;
        let limit = channel.basic_qos(limits.prefetch, BasicQosOptions::default());
        answer("limit what is under way", limit).await?;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declared = channel.queue_declare(name.clone(), options, arguments(limits));
        answer(format!("declare {queue}"), declared).await?;
        for Binding { exchange, pattern } in bindings {
            let (from, key) = (short(exchange)?, short(pattern)?);
            let (options, none) = (QueueBindOptions::default(), FieldTable::default());
            let bound = channel.queue_bind(name.clone(), from, key, options, none);
            answer(format!("bind {queue} to {exchange}"), bound).await?;
        }
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        // The broker makes up a name for the reader, since there may be several.
        let consuming = channel.basic_consume(name, "".into(), options, none);
        Ok(Self {
            consumer: answer(format!("read {queue}"), consuming).await?,
            _connection: connection,
        })
    }

    /// What has come, at most so many messages; it does not wait for any.
    pub fn take(&mut self, limit: usize) -> Result<Taken, BrokerError> {
        let mut taken = Taken {
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
                // The broker has taken the queue away.
                Some(None) => return Err(BrokerError::Ended),
            }
        }
        Ok(taken)
    }
}

impl Taken {
    /// The broker may forget these, and whatever this reader took before.
    pub async fn done(self) -> Result<(), BrokerError> {
        let Some(last) = self.last else {
            return Ok(());
        };
        let options = BasicAckOptions { multiple: true };
        answer("forget messages", last.ack(options)).await.map(drop)
    }
}

fn arguments(limits: QueueLimits) -> FieldTable {
    let mut arguments = FieldTable::default();
    let max_queued = AMQPValue::LongInt(limits.max_queued);
    arguments.insert("x-max-length".into(), max_queued);
    let millis = i64::try_from(FORGOTTEN_AFTER.as_millis()).unwrap_or(i64::MAX);
    arguments.insert("x-expires".into(), AMQPValue::LongLongInt(millis));
    arguments
}
