//! The address of the AMQP broker, and connections to it.

use std::future::Future;
use std::time::Duration;

use access::Secret;
use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use tokio::time::timeout;

use crate::broker_stream;

/// Time limit for a connection and for each command.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Both sides notice within this time, in seconds, that the other one is lost.
const HEARTBEAT_SECONDS: u16 = 20;

/// A broker: RabbitMQ, or Taskcluster's Pulse.
#[derive(Clone, Debug)]
pub struct Broker {
    /// `amqp://user:password@host:port/vhost`, or `amqps:`.
    pub url: Secret,
    /// Certificates (PEM) to trust instead of those of the operating system.
    pub root_certificates: Option<String>,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Messages that one reader gets before it acknowledges the first of them.
    pub prefetch: u16,
    /// Above this number of waiting messages, the oldest are dropped.
    pub max_queued: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker's address is invalid; write it like amqps://user:password@host:5671/%2f")]
    BadAddress,
    #[error("the broker at {address} did not answer within {} seconds", CONNECT_LIMIT.as_secs())]
    TimedOut { address: String },
    #[error("no connection to the broker at {address}")]
    Unreachable {
        address: String,
        #[source]
        source: lapin::Error,
    },
    #[error("the broker refused to {what}")]
    Refused {
        what: String,
        #[source]
        source: lapin::Error,
    },
    #[error("the broker did not respond to the request to {what}")]
    NoAnswer { what: String },
    #[error("AMQP names have at most 255 bytes, and this one has more: {0:?}")]
    TooLong(String),
    #[error("the connection to the broker was lost")]
    Lost(#[source] lapin::Error),
    #[error("the broker stopped sending messages; check whether the queue was deleted")]
    Ended,
    #[error(
        "the broker did not confirm a message within {} seconds; check its memory and disk",
        crate::CONFIRM_LIMIT.as_secs()
    )]
    Unconfirmed,
    /// The broker refuses the message until the full queue has room.
    #[error(
        "the broker refuses to store message {id} with routing key {routing_key}; most likely a queue that is \
         bound to {exchange} is full and rejects more (x-overflow: reject-publish): empty it, unbind it or raise \
         its limit"
    )]
    NotStored {
        id: String,
        exchange: String,
        routing_key: String,
    },
}

impl Broker {
    /// Host and port, for messages.
    pub fn address(&self) -> Result<String, BrokerError> {
        let authority = self.uri()?.authority;
        Ok(format!("{}:{}", authority.host, authority.port))
    }

    /// The user name at the broker, with which the names of queues begin.
    pub fn user(&self) -> Result<String, BrokerError> {
        Ok(self.uri()?.authority.userinfo.username)
    }

    /// Connects, and closes the connection.
    pub async fn check(&self) -> Result<(), BrokerError> {
        let connection = self.connect("doctor").await?;
        // The check has passed once the connection is open, so a failure to close does not matter.
        let _ = timeout(CONNECT_LIMIT, connection.close(200, "checked".into())).await;
        Ok(())
    }

    /// `purpose` is shown in the broker's list of connections.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<Connection, BrokerError> {
        let uri = self.uri()?;
        let address = format!("{}:{}", uri.authority.host, uri.authority.port);
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("fleetwright {purpose}").into());
        let connecting = broker_stream::connect(uri, self.root_certificates.as_deref(), properties);
        let connected = timeout(CONNECT_LIMIT, connecting).await;
        match connected {
            Ok(connected) => {
                connected.map_err(|source| BrokerError::Unreachable { address, source })
            }
            Err(_) => Err(BrokerError::TimedOut { address }),
        }
    }

    /// The parser's error repeats the address with its password, so it is dropped.
    fn uri(&self) -> Result<AMQPUri, BrokerError> {
        let text = self.url.expose();
        let parsed: Result<AMQPUri, String> = text.parse();
        let mut uri = parsed.map_err(|_| BrokerError::BadAddress)?;
        // The parser does not see a host in brackets, and falls back to localhost.
        if text.contains('[') {
            return Err(BrokerError::BadAddress);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(uri)
    }
}

/// Waits for the broker's response to one command.
pub(crate) async fn answer<T>(
    what: impl Into<String>,
    command: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    let what = what.into();
    match timeout(CONNECT_LIMIT, command).await {
        Ok(answered) => answered.map_err(|source| BrokerError::Refused { what, source }),
        Err(_) => Err(BrokerError::NoAnswer { what }),
    }
}

pub(crate) fn short_name(text: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(text).map_err(|_| BrokerError::TooLong(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(url: &str) -> Broker {
        Broker {
            url: Secret::new(url),
            root_certificates: None,
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let broker = broker("amqps://me:hunter2@mq.example.com/%2f");
        assert_eq!(broker.address().unwrap(), "mq.example.com:5671");
        assert!(!format!("{broker:?}").contains("hunter2"));
    }

    #[test]
    fn an_invalid_address_is_refused_without_repeating_it() {
        for url in [
            "",
            "mq",
            "http://me:hunter2@x/",
            "amqp:hunter2",
            "amqp://[::1]/",
        ] {
            let error = broker(url).address().unwrap_err();
            assert!(matches!(error, BrokerError::BadAddress), "{url}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[tokio::test]
    async fn an_unreachable_broker_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let unused = broker(&format!("amqp://me:hunter2@127.0.0.1:{port}"));
        let error = unused.check().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("no connection to the broker at 127.0.0.1:{port}")
        );
    }
}
