//! Listening: what is published is heard, and a lost connection is noticed.

use std::sync::Arc;
use std::time::Duration;

use backplane::{Binding, BrokerError, Listener, Message, Publisher, QueueLimits};
use testing::sizes_around;
use tokio::sync::{Semaphore, mpsc};

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

/// Sends `count` messages to a listener that is still busy with the first. Returns whether it hears exactly the expected
/// ones; `None`: there is no broker.
async fn hears_while_busy(limits: QueueLimits, count: usize, expected: &[usize]) -> Option<bool> {
    let broker = broker()?;
    let exchange = unique("exchange/test/v1/hints");
    let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange));
    let publisher = publisher.await.unwrap();
    let publish = async |messages: &[Message]| {
        let published = publisher.publish(messages).await;
        assert!(published.problem.is_none(), "{published:?}");
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
        let number = tokio::time::timeout(PATIENCE, hears.recv()).await;
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
    // There is room for it now, so it comes next, unless there is more than expected.
    let end = usize::MAX;
    publish(&[message(&exchange, end)]).await;
    Some(all == expected && next().await == end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_hints_are_under_way_to_a_listener() {
    let prefetch = usize::from(Listener::LIMITS.prefetch);
    // Of what is not under way, only the newest one stays.
    let limits = QueueLimits {
        max_queued: 1,
        ..Listener::LIMITS
    };
    for count in sizes_around("backplane::listener::PREFETCH", prefetch) {
        let newest = (count > prefetch).then(|| count - 1);
        let expected: Vec<usize> = (0..count.min(prefetch)).chain(newest).collect();
        let Some(is_right) = hears_while_busy(limits, count, &expected).await else {
            return;
        };
        assert!(is_right, "{count} come");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_hints_wait_for_a_listener_and_of_more_the_oldest_go() {
    // Ten thousand hints take longer than a test may.
    const LIMIT: usize = 20;
    let limits = QueueLimits {
        prefetch: 1,
        max_queued: i32::try_from(LIMIT).unwrap(),
    };
    for n_waiting in sizes_around("backplane::listener::MAX_QUEUED", LIMIT) {
        // Before them comes the one with which the listener is busy.
        let newest = 1 + n_waiting.saturating_sub(LIMIT)..1 + n_waiting;
        let expected: Vec<usize> = std::iter::once(0).chain(newest).collect();
        let Some(is_right) = hears_while_busy(limits, 1 + n_waiting, &expected).await else {
            return;
        };
        assert!(is_right, "{n_waiting} wait");
    }
}
