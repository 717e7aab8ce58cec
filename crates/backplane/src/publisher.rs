//! Publishes messages in order, many at a time, and knows which of them the broker has confirmed.
//!
//! All messages go through one channel, so the broker takes them in their order; a connection that breaks
//! loses an end of what was sent and nothing before it. Only confirmed messages count, and only up to
//! the first that is not: whoever publishes the rest again keeps the order, at the price of repeats.

use std::time::Duration;

use domain::time::Timestamp;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ExchangeKind, PublisherConfirm};
use tokio::time::timeout;

use crate::broker::{Broker, BrokerError, CONNECT_LIMIT, answer, short};

/// The contract: a publish that cannot be confirmed within this time has failed.
pub const CONFIRM_LIMIT: Duration = Duration::from_secs(30);
/// A message that is kept on disk.
const PERSISTENT: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The full name.
    pub exchange: String,
    pub routing_key: String,
    /// Further routing keys.
    pub routes: Vec<String>,
    /// By which a consumer can drop repeats.
    pub id: String,
    pub created: Timestamp,
    pub body: Vec<u8>,
}

/// What became of some messages.
#[derive(Debug)]
pub struct Published {
    /// How many of the first are with the broker for good.
    pub n_confirmed: usize,
    /// Why the others are not; then the publisher is of no use any more.
    pub problem: Option<BrokerError>,
}

/// A connection on which messages are published.
pub struct Publisher {
    connection: Connection,
    channel: Channel,
}

impl Publisher {
    /// Connects, and declares the exchanges as durable topics.
    pub async fn connect(broker: &Broker, exchanges: &[String]) -> Result<Self, BrokerError> {
        let connection = broker.connect("events").await?;
        let channel = answer("open a channel", connection.create_channel()).await?;
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        for exchange in exchanges {
            let declared = channel.exchange_declare(
                short(exchange)?,
                ExchangeKind::Topic,
                durable,
                FieldTable::default(),
            );
            answer(format!("declare {exchange}"), declared).await?;
        }
        let confirming = channel.confirm_select(ConfirmSelectOptions::default());
        answer("confirm messages", confirming).await?;
        Ok(Self {
            connection,
            channel,
        })
    }

    /// Whether the connection was there when it was last used.
    pub fn is_connected(&self) -> bool {
        self.channel.status().connected()
    }

    /// Publishes all of them, in order, and waits for the broker to confirm each.
    pub async fn publish(&self, messages: &[Message]) -> Published {
        let mut waiting = Vec::with_capacity(messages.len());
        let mut problem = None;
        for message in messages {
            match self.send(message).await {
                Ok(confirm) => waiting.push(confirm),
                Err(failed) => {
                    problem = Some(failed);
                    break;
                }
            }
        }
        let mut n_confirmed = 0;
        let confirming = async {
            for (confirm, message) in waiting.into_iter().zip(messages) {
                let confirmed = confirm.await.map_err(BrokerError::Lost)?;
                is_stored(&confirmed, message)?;
                n_confirmed += 1;
            }
            Ok(())
        };
        let confirmed = timeout(CONFIRM_LIMIT, confirming).await;
        let unconfirmed = confirmed.unwrap_or(Err(BrokerError::Unconfirmed)).err();
        Published {
            n_confirmed,
            problem: unconfirmed.or(problem),
        }
    }

    pub async fn close(self) {
        // All that counts is confirmed; a broker that does not say goodbye changes nothing.
        let _ = timeout(CONNECT_LIMIT, self.connection.close(200, "done".into())).await;
    }

    async fn send(&self, message: &Message) -> Result<PublisherConfirm, BrokerError> {
        let seconds = message.created.as_millis().div_euclid(1_000);
        let mut properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_content_encoding("utf-8".into())
            .with_delivery_mode(PERSISTENT)
            .with_message_id(short(&message.id)?)
            .with_timestamp(u64::try_from(seconds).unwrap_or(0));
        if !message.routes.is_empty() {
            properties = properties.with_headers(carbon_copies(&message.routes));
        }
        let sent = self.channel.basic_publish(
            short(&message.exchange)?,
            short(&message.routing_key)?,
            BasicPublishOptions::default(),
            &message.body,
            properties,
        );
        match timeout(CONFIRM_LIMIT, sent).await {
            Ok(sent) => sent.map_err(BrokerError::Lost),
            Err(_) => Err(BrokerError::Unconfirmed),
        }
    }
}

impl Message {
    /// AMQP has room for names of this length only; what is longer can never be published.
    pub fn is_too_long(&self) -> bool {
        [&self.exchange, &self.routing_key, &self.id]
            .into_iter()
            .any(|text| short(text).is_err())
    }
}

/// RabbitMQ routes by these keys as well.
fn carbon_copies(routes: &[String]) -> FieldTable {
    let routes: Vec<AMQPValue> = routes
        .iter()
        .map(|route| AMQPValue::LongString(LongString::from(route.as_str())))
        .collect();
    let mut headers = FieldTable::default();
    headers.insert("CC".into(), AMQPValue::FieldArray(routes.into()));
    headers
}

fn is_stored(confirmation: &Confirmation, message: &Message) -> Result<(), BrokerError> {
    match confirmation {
        Confirmation::Ack(_) => Ok(()),
        Confirmation::Nack(_) | Confirmation::NotRequested => Err(BrokerError::NotStored {
            id: message.id.clone(),
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
        }),
    }
}
