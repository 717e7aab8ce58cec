//! A broker behind encryption.

use std::error::Error;
use std::time::Duration;

use access::Secret;
use backplane::{Binding, Broker, BrokerError, Inbox, Message, Publisher};
use domain::time::Timestamp;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::broker::{address, delete_queue, unique};
use crate::database_over_tls::acceptor;
use crate::tls::{Identity, files};

/// Everything arrives within this time, or never.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than AMQP puts into one frame, and TLS into one record.
const LARGE: usize = 1 << 20;

/// Encrypts connections to the tests' broker, and ends with its test.
struct EncryptedBroker {
    broker: Broker,
    plain_url: String,
}

impl EncryptedBroker {
    /// Proves that it is this one.
    async fn start(identity: &Identity) -> Option<Self> {
        let plain_url = address()?;
        let server = Broker {
            url: Secret::new(plain_url.clone()),
            root_certificates: None,
        };
        let server = server.address().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = plain_url
            .replace("amqp://", "amqps://")
            .replace(&server, &format!("localhost:{port}"));
        let acceptor = acceptor(identity);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                tokio::spawn(async move {
                    // Fails for a client that trusts somebody else.
                    if let Ok(mut client) = acceptor.accept(client).await {
                        let mut server = TcpStream::connect(&server).await.unwrap();
                        let _ended = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        let broker = Broker {
            url: Secret::new(url),
            root_certificates: Some(pem(identity)),
        };
        Some(Self { broker, plain_url })
    }
}

fn pem(identity: &Identity) -> String {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    identity.write(&files);
    std::fs::read_to_string(&files.certificate_file).unwrap()
}

fn message(exchange: &str, number: usize, body: Vec<u8>) -> Message {
    Message {
        exchange: exchange.to_owned(),
        routing_key: format!("primary.{number}"),
        routes: Vec::new(),
        id: format!("id-{number}"),
        created: Timestamp::from_millis(1_790_000_000_000),
        body,
    }
}

/// Takes and acknowledges until this many have come.
async fn take(inbox: &mut Inbox, count: usize) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let batch = inbox.take(count).unwrap();
        bodies.extend(batch.bodies.iter().cloned());
        batch.acknowledge().await.unwrap();
        tokio::task::yield_now().await;
    }
    bodies
}

/// An error with all its causes.
fn causes(problem: &BrokerError) -> String {
    let mut text = problem.to_string();
    let mut source = problem.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_on_an_encrypted_connection_are_as_on_any_other() {
    let Some(encrypted) = EncryptedBroker::start(&Identity::new(1)).await else {
        return;
    };
    let broker = &encrypted.broker;
    broker.check().await.unwrap();
    let exchange = unique("exchange/test/v1/encrypted");
    let queue = unique("queue/fleetwright/encrypted");
    let publisher = Publisher::connect(broker, std::slice::from_ref(&exchange))
        .await
        .unwrap();
    let bindings = [Binding {
        exchange: exchange.clone(),
        pattern: "primary.#".to_owned(),
    }];
    let mut inbox = Inbox::open(broker, &queue, &bindings).await.unwrap();
    let mut messages: Vec<_> = (0..1_000)
        .map(|number| message(&exchange, number, number.to_string().into_bytes()))
        .collect();
    messages.push(message(&exchange, messages.len(), vec![7; LARGE]));
    let published = publisher.publish(&messages).await;
    assert!(published.error.is_none(), "{published:?}");
    assert_eq!(published.n_confirmed, messages.len());
    let taken = tokio::time::timeout(PATIENCE, take(&mut inbox, messages.len())).await;
    let expected: Vec<_> = messages.into_iter().map(|message| message.body).collect();
    assert!(
        taken.unwrap() == expected,
        "other messages, or another order"
    );
    publisher.close().await;
    drop(inbox);
    delete_queue(&encrypted.plain_url, &queue).await;
}

#[tokio::test]
async fn a_broker_with_a_certificate_that_is_not_trusted_is_refused() {
    let Some(encrypted) = EncryptedBroker::start(&Identity::new(1)).await else {
        return;
    };
    let mut broker = encrypted.broker;
    broker.root_certificates = Some(pem(&Identity::new(2)));
    let problem = broker.check().await.unwrap_err();
    let text = causes(&problem);
    assert!(
        text.starts_with("no connection to the broker at localhost:")
            && text.contains("invalid peer certificate"),
        "{text}"
    );
    // The operating system does not trust it either.
    broker.root_certificates = None;
    let problem = broker.check().await.unwrap_err();
    assert!(
        matches!(problem, BrokerError::Unreachable { .. }),
        "{problem:?}"
    );
}
