//! Inboxes: no message is lost without a reader, and unacknowledged messages come again.

use backplane::{
    Binding, Broker, BrokerError, Inbox, Message, Publisher, QueueLimits, ReceivedBatch,
};
use testing::sizes_around;

use crate::broker::{WAIT_LIMIT, broker, depth, has_room_for, message, unique};

/// An exchange, and the name of a queue that is bound to it.
struct TestQueue {
    broker: Broker,
    exchange: String,
    queue: String,
    publisher: Publisher,
}

impl TestQueue {
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
        let bindings = self.bindings();
        let inbox = Inbox::open(&self.broker, &self.queue, &bindings);
        inbox.await.unwrap()
    }

    async fn open_within(&self, limits: QueueLimits) -> Inbox {
        let bindings = self.bindings();
        let inbox = Inbox::open_within(limits, &self.broker, &self.queue, &bindings);
        inbox.await.unwrap()
    }

    fn bindings(&self) -> [Binding; 1] {
        [Binding {
            exchange: self.exchange.clone(),
            pattern: "primary.#".to_owned(),
        }]
    }

    /// Waits until the last reader is disconnected.
    async fn wait_until_disconnected(&self) {
        let going = async {
            while depth(&self.broker, &self.queue).await.1 > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WAIT_LIMIT, going).await.unwrap();
    }

    async fn publish(&self, numbers: std::ops::Range<usize>) {
        let messages: Vec<Message> = numbers.map(|n| message(&self.exchange, n)).collect();
        assert!(self.publisher.publish(&messages).await.error.is_none());
    }
}

/// Takes until this many have come, within a time limit.
async fn take(inbox: &mut Inbox, count: usize) -> Vec<ReceivedBatch> {
    let taking = async {
        let mut taken: Vec<ReceivedBatch> = Vec::new();
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
    tokio::time::timeout(WAIT_LIMIT, taking).await.unwrap()
}

fn numbers(taken: &[ReceivedBatch]) -> Vec<usize> {
    let bodies = taken.iter().flat_map(|part| &part.bodies);
    bodies
        .map(|body| String::from_utf8_lossy(body).parse().unwrap())
        .collect()
}

#[tokio::test]
async fn messages_wait_without_a_reader() {
    let Some(place) = TestQueue::new().await else {
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
async fn unacknowledged_messages_come_again() {
    let Some(place) = TestQueue::new().await else {
        return;
    };
    let mut inbox = place.open().await;
    place.publish(0..20).await;
    let mut first = take(&mut inbox, 10).await;
    let n_done = numbers(&first).len();
    // Acknowledging the last one acknowledges all before it.
    first.pop().unwrap().acknowledge().await.unwrap();
    let _never_done = take(&mut inbox, 20 - n_done).await;
    drop(inbox);
    let again = take(&mut place.open().await, 20 - n_done).await;
    assert_eq!(numbers(&again), (n_done..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn of_several_readers_each_gets_some() {
    let Some(place) = TestQueue::new().await else {
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
    tokio::time::timeout(WAIT_LIMIT, reading).await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_missing_exchange_is_an_error() {
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
async fn a_deleted_queue_is_an_error() {
    let Some(place) = TestQueue::new().await else {
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
    let problem = tokio::time::timeout(WAIT_LIMIT, noticing).await;
    assert!(
        matches!(problem.unwrap(), BrokerError::Ended | BrokerError::Lost(_)),
        "it has ended"
    );
}

#[tokio::test]
async fn unacknowledged_messages_of_a_reader_are_limited() {
    let Some(place) = TestQueue::new().await else {
        return;
    };
    let prefetch = usize::from(Inbox::LIMITS.prefetch);
    let sizes = sizes_around("backplane::inbox::PREFETCH", prefetch);
    // Ten times as many would test the same, and take seconds.
    for count in sizes.into_iter().filter(|count| *count <= prefetch + 1) {
        let mut inbox = place.open().await;
        place.publish(0..count).await;
        let n_first = count.min(prefetch);
        let mut first = take(&mut inbox, n_first).await;
        let mut taken = numbers(&first);
        assert_eq!(taken.len(), n_first);
        let (n_waiting, _) = depth(&place.broker, &place.queue).await;
        assert_eq!(n_waiting, count - n_first, "{count} came");
        if let Some(last) = first.pop() {
            last.acknowledge().await.unwrap();
        }
        for rest in take(&mut inbox, n_waiting).await {
            taken.extend(numbers(std::slice::from_ref(&rest)));
            rest.acknowledge().await.unwrap();
        }
        assert!(taken.into_iter().eq(0..count), "{count} came");
    }
}

#[tokio::test]
async fn waiting_messages_of_an_inbox_are_limited_and_the_oldest_are_dropped() {
    // A hundred thousand messages take longer than a test may.
    const LIMIT: usize = 20;
    let Some(place) = TestQueue::new().await else {
        return;
    };
    let limits = QueueLimits {
        max_queued: i32::try_from(LIMIT).unwrap(),
        ..Inbox::LIMITS
    };
    drop(place.open_within(limits).await);
    for count in sizes_around("backplane::inbox::MAX_QUEUED", LIMIT) {
        place.wait_until_disconnected().await;
        place.publish(0..count).await;
        let n_kept = count.min(LIMIT);
        let (n_waiting, _) = depth(&place.broker, &place.queue).await;
        assert_eq!(n_waiting, n_kept);
        let mut inbox = place.open_within(limits).await;
        let mut taken = take(&mut inbox, n_kept).await;
        assert!(numbers(&taken).into_iter().eq(count - n_kept..count));
        if let Some(last) = taken.pop() {
            last.acknowledge().await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_inbox_has_room_for_the_messages_of_hours() {
    let Some(place) = TestQueue::new().await else {
        return;
    };
    let _inbox = place.open().await;
    for (max_queued, is_its_limit) in [(99_999, false), (100_000, true), (100_001, false)] {
        let has_room = has_room_for(&place.broker, &place.queue, max_queued).await;
        assert_eq!(has_room, is_its_limit, "{max_queued}");
    }
}
