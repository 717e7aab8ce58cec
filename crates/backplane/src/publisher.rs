//! Publishes messages in order, many at a time, and reports which of them the broker has confirmed.
//!
//! All messages go through one channel, so the broker takes them in their order. A connection that
//! breaks loses only the last messages. Messages count as published up to the first unconfirmed
//! one. Publishing the others again keeps the order, but may repeat messages.

use std::time::Duration;

use domain::time::Timestamp;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ExchangeKind, PublisherConfirm};
use tokio::time::timeout;

use crate::broker::{Broker, BrokerError, CONNECT_LIMIT, answer, short_name};

/// A publish that is not confirmed within this time has failed. Part of the contract.
pub const CONFIRM_LIMIT: Duration = Duration::from_secs(30);
/// Delivery mode of a message that is kept on disk.
const PERSISTENT: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The full name.
    pub exchange: String,
    pub routing_key: String,
    /// Further routing keys.
    pub routes: Vec<String>,
    /// With this id a consumer can drop repeated messages.
    pub id: String,
    pub created: Timestamp,
    pub body: Vec<u8>,
}

/// The result of publishing some messages.
#[derive(Debug)]
pub struct PublishResult {
    /// How many of the first messages the broker has stored.
    pub n_confirmed: usize,
    /// Why the others are not stored. After an error, the publisher is unusable.
    pub error: Option<BrokerError>,
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
                short_name(exchange)?,
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

    /// Whether the connection worked when it was last used.
    pub fn is_connected(&self) -> bool {
        self.channel.status().connected()
    }

    /// Publishes all messages in order, and waits for the broker to confirm each.
    pub async fn publish(&self, messages: &[Message]) -> PublishResult {
        let mut waiting = Vec::with_capacity(messages.len());
        let mut error = None;
        for message in messages {
            match self.send(message).await {
                Ok(confirm) => waiting.push(confirm),
                Err(failed) => {
                    error = Some(failed);
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
        PublishResult {
            n_confirmed,
            error: unconfirmed.or(error),
        }
    }

    pub async fn close(self) {
        // All messages are confirmed already, so a failure to close does not matter.
        let _ = timeout(CONNECT_LIMIT, self.connection.close(200, "done".into())).await;
    }

    async fn send(&self, message: &Message) -> Result<PublisherConfirm, BrokerError> {
        let seconds = message.created.as_millis().div_euclid(1_000);
        let mut properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_content_encoding("utf-8".into())
            .with_delivery_mode(PERSISTENT)
            .with_message_id(short_name(&message.id)?)
            .with_timestamp(u64::try_from(seconds).unwrap_or(0));
        if !message.routes.is_empty() {
            properties = properties.with_headers(carbon_copies(&message.routes));
        }
        let sent = self.channel.basic_publish(
            short_name(&message.exchange)?,
            short_name(&message.routing_key)?,
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
    /// Whether a name exceeds AMQP's limit, so that the message can never be published.
    pub fn is_too_long(&self) -> bool {
        [&self.exchange, &self.routing_key, &self.id]
            .into_iter()
            .any(|text| short_name(text).is_err())
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
