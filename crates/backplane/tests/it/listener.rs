//! Listeners: they receive published messages, and notice a lost connection.

use std::sync::Arc;

use backplane::{Binding, BrokerError, Listener, Message, Publisher, QueueLimits};
use testing::sizes_around;
use tokio::sync::{Semaphore, mpsc};

use crate::broker::{WAIT_LIMIT, broker, message, unique};

fn binding(exchange: &str, pattern: &str) -> Binding {
    Binding {
        exchange: exchange.to_owned(),
        pattern: pattern.to_owned(),
    }
}

#[tokio::test]
async fn bound_messages_are_received() {
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
    assert!(publisher.publish(&messages).await.error.is_none());
    for expected in messages {
        let body = tokio::time::timeout(WAIT_LIMIT, hears.recv()).await;
        assert_eq!(body.unwrap().unwrap(), expected.body);
    }
    assert!(!listener.has_ended());
}

#[tokio::test]
async fn a_missing_exchange_is_an_error() {
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
    // The queue is deleted with its listener, a moment later.
    let again = async {
        while Listener::start(&broker, &queue, &[], |_| {}).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_LIMIT, again).await.unwrap();
}

/// Sends `count` messages to a listener that is still busy with the first. Returns whether it
/// receives exactly the expected ones; `None`: no broker is configured.
async fn receives_while_busy(
    limits: QueueLimits,
    count: usize,
    expected: &[usize],
) -> Option<bool> {
    let broker = broker()?;
    let exchange = unique("exchange/test/v1/hints");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange));
    let publisher = publisher.await.unwrap();
    let publish = async |messages: &[Message]| {
        let published = publisher.publish(messages).await;
        assert!(published.error.is_none(), "{published:?}");
    };
    let (heard, mut hears) = mpsc::unbounded_channel();
    let free = Arc::new(Semaphore::new(0));
    let is_free = Arc::clone(&free);
    let queue = unique("queue/fleetwright/hints");
    let bindings = [binding(&exchange, "primary.#")];
    let listener = Listener::start_within(limits, &broker, &queue, &bindings, move |body| {
        let number: usize = String::from_utf8_lossy(body).parse().unwrap();
        heard.send(number).unwrap();
        tokio::task::block_in_place(|| {
            let free = tokio::runtime::Handle::current().block_on(is_free.acquire());
            drop(free.unwrap());
        });
    });
    let _listener = listener.await.unwrap();
    let mut next = async || {
        let number = tokio::time::timeout(WAIT_LIMIT, hears.recv()).await;
        number.unwrap().unwrap()
    };
    let messages: Vec<_> = (0..count)
        .map(|number| message(&exchange, number))
        .collect();
    let (first, others) = messages.split_at(count.min(1));
    publish(first).await;
    let mut all = Vec::new();
    if !first.is_empty() {
        all.push(next().await);
    }
    publish(others).await;
    free.add_permits(1);
    while all.len() < expected.len() {
        all.push(next().await);
    }
    // It has room for this one now, so it comes next, unless more messages than expected wait.
    let end = usize::MAX;
    publish(&[message(&exchange, end)]).await;
    Some(all == expected && next().await == end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_messages_of_a_listener_are_limited() {
    let prefetch = usize::from(Listener::LIMITS.prefetch);
    // Of waiting messages, only the newest one stays.
    let limits = QueueLimits {
        max_queued: 1,
        ..Listener::LIMITS
    };
    for count in sizes_around("backplane::listener::PREFETCH", prefetch) {
        let newest = (count > prefetch).then(|| count - 1);
        let expected: Vec<usize> = (0..count.min(prefetch)).chain(newest).collect();
        let Some(is_right) = receives_while_busy(limits, count, &expected).await else {
            return;
        };
        assert!(is_right, "{count} come");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_messages_of_a_listener_are_limited_and_the_oldest_are_dropped() {
    // Ten thousand messages take longer than a test may.
    const LIMIT: usize = 20;
    let limits = QueueLimits {
        prefetch: 1,
        max_queued: i32::try_from(LIMIT).unwrap(),
    };
    for n_waiting in sizes_around("backplane::listener::MAX_QUEUED", LIMIT) {
        // The message with which the listener is busy comes before them.
        let newest = 1 + n_waiting.saturating_sub(LIMIT)..1 + n_waiting;
        let expected: Vec<usize> = std::iter::once(0).chain(newest).collect();
        let Some(is_right) = receives_while_busy(limits, 1 + n_waiting, &expected).await else {
            return;
        };
        assert!(is_right, "{n_waiting} wait");
    }
}
