//! Inboxes: nothing is missed while nobody reads, and what is not done with comes again.

use std::time::Duration;

use backplane::{Binding, Broker, BrokerError, Inbox, Message, Publisher, Taken};

use crate::broker::{PATIENCE, broker, message, unique};

/// An exchange and the name of a queue that hears it.
struct Place {
    broker: Broker,
    exchange: String,
    queue: String,
    publisher: Publisher,
}

impl Place {
    async fn new() -> Option<Self> {
        let broker = broker()?;
        let exchange = unique("exchange/test/v1/inbox");
        let publisher = Publisher::connect(&broker, std::slice::from_ref(&exchange));
        Some(Self {
            publisher: publisher.await.unwrap(),
            queue: unique("queue/fleetwright/inbox"),
            exchange,
            broker,
        })
    }

    async fn open(&self) -> Inbox {
        let bindings = [Binding {
            exchange: self.exchange.clone(),
            pattern: "primary.#".to_owned(),
        }];
        Inbox::open(&self.broker, &self.queue, &bindings)
            .await
            .unwrap()
    }

    async fn publish(&self, numbers: std::ops::Range<usize>) {
        let messages: Vec<Message> = numbers.map(|n| message(&self.exchange, n)).collect();
        assert!(self.publisher.publish(&messages).await.problem.is_none());
    }
}

/// Takes until there are so many, within a limit of time.
async fn take(inbox: &mut Inbox, count: usize) -> Vec<Taken> {
    let taking = async {
        let mut taken: Vec<Taken> = Vec::new();
        while taken.iter().map(|part| part.bodies.len()).sum::<usize>() < count {
            let part = inbox.take(count).unwrap();
            if part.bodies.is_empty() {
                tokio::task::yield_now().await;
            } else {
                taken.push(part);
            }
        }
        taken
    };
    tokio::time::timeout(PATIENCE, taking).await.unwrap()
}

fn numbers(taken: &[Taken]) -> Vec<usize> {
    let bodies = taken.iter().flat_map(|part| &part.bodies);
    bodies
        .map(|body| String::from_utf8_lossy(body).parse().unwrap())
        .collect()
}

#[tokio::test]
async fn what_comes_while_nobody_reads_waits() {
    let Some(place) = Place::new().await else {
        return;
    };
    drop(place.open().await);
    place.publish(0..300).await;
    let mut inbox = place.open().await;
    let taken = take(&mut inbox, 300).await;
    assert_eq!(numbers(&taken), (0..300).collect::<Vec<_>>());
    assert!(inbox.take(9).unwrap().bodies.is_empty());
}

#[tokio::test]
async fn what_is_not_done_with_comes_again() {
    let Some(place) = Place::new().await else {
        return;
    };
    let mut inbox = place.open().await;
    place.publish(0..20).await;
    let mut first = take(&mut inbox, 10).await;
    let n_done = numbers(&first).len();
    // The last one stands for all before it.
    first.pop().unwrap().done().await.unwrap();
    let _never_done = take(&mut inbox, 20 - n_done).await;
    drop(inbox);
    let again = take(&mut place.open().await, 20 - n_done).await;
    assert_eq!(numbers(&again), (n_done..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_several_readers_each_gets_some() {
    let Some(place) = Place::new().await else {
        return;
    };
    let (mut one, mut other) = (place.open().await, place.open().await);
    place.publish(0..200).await;
    let mut seen = Vec::new();
    let reading = async {
        while seen.len() < 200 {
            for inbox in [&mut one, &mut other] {
                let taken = inbox.take(50).unwrap();
                seen.extend(numbers(&[taken]));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn nothing_is_asked_of_an_exchange_that_is_not_there() {
    let Some(broker) = broker() else { return };
    let bindings = [Binding {
        exchange: "exchange/test/v1/nosuch".to_owned(),
        pattern: "#".to_owned(),
    }];
    let queue = unique("queue/fleetwright/inbox");
    let problem = Inbox::open(&broker, &queue, &bindings).await.err().unwrap();
    assert!(
        matches!(problem, BrokerError::Refused { .. }),
        "{problem:?}"
    );
}

#[tokio::test]
async fn a_queue_that_somebody_deletes_is_noticed() {
    let Some(place) = Place::new().await else {
        return;
    };
    let mut inbox = place.open().await;
    crate::broker::delete_queue(&place.broker, &place.queue).await;
    let noticing = async {
        loop {
            match inbox.take(1) {
                Err(problem) => return problem,
                Ok(_) => tokio::task::yield_now().await,
            }
        }
    };
    let problem = tokio::time::timeout(Duration::from_secs(20), noticing).await;
    assert!(
        matches!(problem.unwrap(), BrokerError::Ended | BrokerError::Lost(_)),
        "it has ended"
    );
}
