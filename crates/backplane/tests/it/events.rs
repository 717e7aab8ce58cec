//! Publishing: in order, confirmed, and with the properties that consumers need.

use std::error::Error;
use std::io::Read;

use access::Secret;
use backplane::{Broker, BrokerError, Publisher};

use crate::broker::{FullQueue, Reader, WAIT_LIMIT, broker, message, unique};

#[tokio::test]
async fn messages_arrive_in_their_order_with_their_properties() {
    let Some(broker) = broker() else { return };
    let exchange = unique("exchange/test/v1/order");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange))
        .await
        .unwrap();
    let mut reader = Reader::new(&broker, &exchange, "primary.#").await;
    let messages: Vec<_> = (0..2_000)
        .map(|number| message(&exchange, number))
        .collect();
    for batch in messages.chunks(500) {
        let published = publisher.publish(batch).await;
        assert_eq!(published.n_confirmed, 500);
        assert!(published.error.is_none(), "{published:?}");
    }
    for expected in &messages {
        let delivery = reader.next().await;
        assert_eq!(delivery.data, expected.body);
        assert_eq!(delivery.exchange.as_str(), exchange);
        assert_eq!(delivery.routing_key.as_str(), expected.routing_key);
        let properties = &delivery.properties;
        let text = |text: &Option<_>| text.as_ref().map(ToString::to_string);
        assert_eq!(text(properties.message_id()), Some(expected.id.clone()));
        let content_type = text(properties.content_type());
        assert_eq!(content_type.as_deref(), Some("application/json"));
        let encoding = text(properties.content_encoding());
        assert_eq!(encoding.as_deref(), Some("utf-8"));
        assert_eq!(*properties.delivery_mode(), Some(2), "kept on disk");
        assert_eq!(*properties.timestamp(), Some(1_790_000_000));
    }
    publisher.close().await;
}

#[tokio::test]
async fn a_message_is_found_by_its_further_routes() {
    let Some(broker) = broker() else { return };
    let exchange = unique("exchange/test/v1/routes");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange))
        .await
        .unwrap();
    let mut reader = Reader::new(&broker, &exchange, "route.index.latest").await;
    let plain = message(&exchange, 1);
    let mut routed = message(&exchange, 2);
    routed.routes = vec!["route.other".to_owned(), "route.index.latest".to_owned()];
    assert!(publisher.publish(&[plain, routed]).await.error.is_none());
    assert_eq!(reader.next().await.data, b"2");
}

#[tokio::test]
async fn an_exchange_of_another_kind_is_named() {
    let Some(broker) = broker() else { return };
    let exchanges = ["amq.direct".to_owned()];
    let problem = Publisher::connect(&broker, &exchanges).await.err().unwrap();
    assert_eq!(
        problem.to_string(),
        "the broker refused to declare amq.direct"
    );
}

#[tokio::test]
async fn messages_after_a_refusal_do_not_count() {
    let Some(broker) = broker() else { return };
    let exchange = unique("exchange/test/v1/known");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange))
        .await
        .unwrap();
    let messages = [
        message(&exchange, 1),
        message("exchange/test/v1/nosuch", 2),
        message(&exchange, 3),
    ];
    let published = publisher.publish(&messages).await;
    assert!(published.n_confirmed <= 1, "{published:?}");
    assert!(
        matches!(published.error, Some(BrokerError::Lost(_))),
        "{published:?}"
    );
    // The channel is closed, and each use fails.
    let published = publisher.publish(&messages[..1]).await;
    assert_eq!(published.n_confirmed, 0);
    assert!(published.error.is_some());
}

#[tokio::test]
async fn names_that_are_too_long_for_amqp_are_detected() {
    let Some(broker) = broker() else { return };
    let mut long = message("e", 1);
    assert!(!long.is_too_long());
    long.routing_key = "x".repeat(256);
    assert!(long.is_too_long());
    let publisher = Publisher::connect(&broker, &[]).await.unwrap();
    let published = publisher.publish(&[long]).await;
    assert!(matches!(published.error, Some(BrokerError::TooLong(_))));
}

#[tokio::test]
async fn a_wrong_password_is_no_connection() {
    let Some(broker) = broker() else { return };
    let address = broker.address().unwrap();
    let stranger = Broker {
        url: Secret::new(format!("amqp://fleetwright:wrong@{address}/%2f")),
        root_certificates: None,
    };
    let problem = stranger.check().await.unwrap_err();
    assert!(
        matches!(problem, BrokerError::Unreachable { .. }),
        "{problem:?}"
    );
    let cause = problem.source().unwrap().to_string();
    assert!(cause.contains("ACCESS-REFUSED"), "{cause}");
    broker.check().await.unwrap();
}

/// A server that accepts connections and sends nothing.
#[tokio::test(start_paused = true)]
async fn a_silent_broker_is_an_error_after_a_time() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let broker = Broker {
        url: Secret::new(format!("amqp://a:b@{}/%2f", mute.local_addr().unwrap())),
        root_certificates: None,
    };
    let problem = broker.check().await.unwrap_err();
    assert!(
        matches!(problem, BrokerError::TimedOut { .. }),
        "{problem:?}"
    );
    // The connection that was given up is closed, so nothing of it waits for ever.
    let (mut connection, _) = mute.accept().unwrap();
    connection.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    connection.read_to_end(&mut Vec::new()).unwrap();
}

#[tokio::test]
async fn a_queue_that_is_full_and_rejects_is_named_as_the_likely_cause_and_nothing_is_lost() {
    let Some(broker) = broker() else { return };
    let exchange = unique("exchange/test/v1/full");
    let exchanges = std::slice::from_ref(&exchange);
    let messages: Vec<_> = (1..=3).map(|number| message(&exchange, number)).collect();
    let publisher = Publisher::connect(&broker, exchanges).await.unwrap();
    let full = FullQueue::of_one(&broker, &exchange).await;
    let published = publisher.publish(&messages).await;
    assert_eq!(published.n_confirmed, 1, "{published:?}");
    let problem = published.error.unwrap().to_string();
    assert!(
        problem.starts_with("the broker refuses to store message id-2 with routing key primary.2;")
            && problem.contains(&exchange)
            && problem.contains("x-overflow: reject-publish"),
        "{problem}"
    );
    assert_eq!(full.take().await, b"1");
    let publisher = Publisher::connect(&broker, exchanges).await.unwrap();
    let again = publisher.publish(&messages[1..2]).await;
    assert_eq!(again.n_confirmed, 1, "{again:?}");
    assert_eq!(full.take().await, b"2");
}
