//! Listening: what is published is heard, and a lost connection is noticed.

use std::time::Duration;

use backplane::{Binding, BrokerError, Listener, Publisher};
use tokio::sync::mpsc;

use crate::broker::{PATIENCE, broker, message, unique};

fn binding(exchange: &str, pattern: &str) -> Binding {
    Binding {
        exchange: exchange.to_owned(),
        pattern: pattern.to_owned(),
    }
}

#[tokio::test]
async fn what_is_bound_is_heard() {
    let Some(broker) = broker() else { return };
    let exchange = unique("exchange/test/v1/hints");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange))
        .await
        .unwrap();
    let (heard, mut hears) = mpsc::unbounded_channel();
    let queue = unique("queue/fleetwright/hints");
    let bindings = [binding(&exchange, "primary.#")];
    let listener = Listener::start(&broker, &queue, &bindings, move |body| {
        heard.send(body.to_vec()).unwrap();
    });
    let listener = listener.await.unwrap();
    let messages: Vec<_> = (0..300).map(|number| message(&exchange, number)).collect();
    assert!(publisher.publish(&messages).await.problem.is_none());
    for expected in messages {
        let body = tokio::time::timeout(PATIENCE, hears.recv()).await;
        assert_eq!(body.unwrap().unwrap(), expected.body);
    }
    assert!(!listener.is_over());
}

#[tokio::test]
async fn an_exchange_that_is_not_there_cannot_be_heard() {
    let Some(broker) = broker() else { return };
    let bindings = [binding("exchange/test/v1/nosuch", "#")];
    let queue = unique("queue/fleetwright/hints");
    let problem = Listener::start(&broker, &queue, &bindings, |_| {}).await;
    let problem = problem.err().unwrap();
    assert!(
        matches!(problem, BrokerError::Refused { .. }),
        "{problem:?}"
    );
    assert!(problem.to_string().contains("exchange/test/v1/nosuch"));
}

#[tokio::test]
async fn a_queue_belongs_to_one_listener() {
    let Some(broker) = broker() else { return };
    let queue = unique("queue/fleetwright/hints");
    let first = Listener::start(&broker, &queue, &[], |_| {}).await.unwrap();
    assert!(Listener::start(&broker, &queue, &[], |_| {}).await.is_err());
    drop(first);
    // The queue goes with its listener, a moment later.
    let again = async {
        while Listener::start(&broker, &queue, &[], |_| {}).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again)
        .await
        .unwrap();
}
