//! The event stream: every event gets a position, and readers never miss one.

use std::sync::mpsc;

use domain::event::{Event, EventBody};
use domain::task::{Task, TaskEvent};
use domain::time::Timestamp;
use store::event_readers::{self, EventReader};
use store::events::Expired;
use store::{Store, Tx, events, outbox};

use crate::samples::{at, event, pool_id};
use crate::tasks::{document, task_id};
use crate::world::{Database, on_both, read, write};

/// Later events are of a clock that was ahead.
const AHEAD: i64 = 1_000_000;

async fn push(store: &Store, ids: &'static [&'static str]) {
    write(store, move |tx| {
        for id in ids {
            outbox::push(tx, &event(id, "a/b"))?;
        }
        Ok(())
    })
    .await;
}

/// Like `push`, with these times.
async fn push_at(store: &Store, times: impl IntoIterator<Item = i64>) {
    let times: Vec<i64> = times.into_iter().collect();
    write(store, move |tx| {
        for time in &times {
            let mut event = event("e", "a/b");
            event.created = at(*time);
            outbox::push(tx, &event)?;
        }
        Ok(())
    })
    .await;
}

async fn assign(store: &Store, limit: u32) -> Vec<(i64, String)> {
    let placed = write(store, move |tx| events::assign_positions(tx, limit)).await;
    let placed = placed.items.into_iter();
    placed.map(|row| (row.position, row.event_id)).collect()
}

async fn delete(store: &Store, before: i64, up_to: i64, after: i64, limit: u32) -> (u64, i64) {
    let expired = Expired {
        before: at(before),
        ahead: at(AHEAD),
        up_to,
        after,
    };
    write(store, move |tx| events::delete_expired(tx, expired, limit)).await
}

async fn all(store: &Store) -> Vec<(i64, String)> {
    let rows = read(store, |tx| events::list_after(tx, 0, 1_000)).await;
    rows.items
        .into_iter()
        .map(|row| (row.position, row.event_id))
        .collect()
}

async fn take(store: &Store, holder: &'static str, now: i64) -> Option<EventReader> {
    write(store, move |tx| {
        event_readers::take(tx, "r", holder, at(now), 10)
    })
    .await
}

fn named(rows: &[(i64, &str)]) -> Vec<(i64, String)> {
    rows.iter()
        .map(|(position, id)| (*position, (*id).to_owned()))
        .collect()
}

/// An event of about 1 MB.
fn large_event(id: &str) -> Event {
    let mut document = document("a/b");
    document.tags.insert("t".to_owned(), "é".repeat(500_000));
    let task = Task::new(task_id(1), document.define(&task_id(1)).unwrap());
    let news = TaskEvent::Defined;
    let body = EventBody::Task {
        news,
        task: Box::new(task),
    };
    Event {
        id: id.to_owned(),
        created: at(7),
        body,
    }
}

on_both!(large_events_are_read_a_few_at_a_time, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        (0..20).try_for_each(|number| outbox::push(tx, &large_event(&number.to_string())))
    })
    .await;
    let mut placed = Vec::new();
    for expected in [8, 8, 4] {
        let part = write(&store, |tx| events::assign_positions(tx, 100)).await;
        assert_eq!(part.items.len(), expected);
        assert_eq!(part.is_cut, expected == 8);
        placed.extend(part.items.into_iter().map(|row| row.event_id));
    }
    let expected: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(placed, expected, "each event once, in order");
    let part = read(&store, |tx| events::list_after(tx, 10, 100)).await;
    assert_eq!((part.items.len(), part.is_cut), (8, true));
    assert_eq!(part.items[0].position, 11);
    let part = read(&store, |tx| events::list_after(tx, 10, 8)).await;
    assert_eq!((part.items.len(), part.is_cut), (8, false));
    assert!(part.may_have_more(8));
});

on_both!(events_wait_until_they_have_a_position, |database| {
    let store = database.migrated().await;
    push(&store, &["one", "two", "three"]).await;
    assert_eq!(read(&store, outbox::depth).await, 3);
    assert!(all(&store).await.is_empty());
    assert_eq!(assign(&store, 2).await, named(&[(1, "one"), (2, "two")]));
    assert!(read(&store, events::is_waiting).await);
    assert_eq!(assign(&store, 2).await, named(&[(3, "three")]));
    assert!(!read(&store, events::is_waiting).await);
    assert!(assign(&store, 2).await.is_empty());
    assert_eq!(read(&store, events::head).await, 3);

    let rest = read(&store, |tx| events::list_after(tx, 1, 9)).await.items;
    let body = event("two", "a/b").body;
    assert_eq!(rest.len(), 2);
    assert_eq!(rest[0].topic, body.exchange().topic());
    assert_eq!(rest[0].routing_key, body.routing_key());
    assert_eq!(rest[0].payload, body.payload(at(7)));
    assert_eq!(rest[0].pool_id, Some(pool_id("a/b")));
    assert_eq!(rest[0].created, at(7));
});

on_both!(unused_numbers_leave_no_gaps_in_positions, |database| {
    let store = database.migrated().await;
    push(&store, &["one"]).await;
    let failed = store.write("fails", |tx| {
        outbox::push(tx, &event("never", "a/b"))?;
        Err::<(), _>(store::StoreError::Closed)
    });
    assert!(failed.await.is_err());
    push(&store, &["two"]).await;
    assert_eq!(assign(&store, 9).await, named(&[(1, "one"), (2, "two")]));
});

/// PostgreSQL only: SQLite has one writer at a time.
#[tokio::test]
async fn an_event_that_is_committed_late_gets_a_late_position() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    let late = Held::start(&store, |tx| outbox::push(tx, &event("late", "a/b"))).await;
    push(&store, &["early"]).await;
    assert_eq!(assign(&store, 9).await, named(&[(1, "early")]));
    late.finish().await;
    assert_eq!(assign(&store, 9).await, named(&[(2, "late")]));
    assert_eq!(all(&store).await, named(&[(1, "early"), (2, "late")]));
}

/// PostgreSQL only: SQLite has one writer at a time.
#[tokio::test]
async fn two_processes_that_assign_positions_to_different_events_conflict_safely() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    let late = Held::start(&store, |tx| outbox::push(tx, &event("late", "a/b"))).await;
    push(&store, &["early"]).await;
    let first = Held::start(&store, |tx| events::assign_positions(tx, 9).map(drop)).await;
    late.finish().await;
    // The second transaction sees both events before the first has committed.
    let (has_looked, looked) = mpsc::channel();
    let second = store.clone();
    let second = tokio::spawn(async move {
        second
            .write("second", move |tx| {
                events::head(tx)?;
                let _nobody_waits_any_more = has_looked.send(());
                events::assign_positions(tx, 9)
            })
            .await
    });
    received(looked).await;
    first.finish().await;
    let placed = second.await.unwrap().unwrap();
    assert_eq!(placed.items[0].event_id, "late");
    assert_eq!(all(&store).await, named(&[(1, "early"), (2, "late")]));
}

/// A transaction that has run its statements and waits for its commit.
struct Held {
    go_on: mpsc::Sender<()>,
    running: tokio::task::JoinHandle<Result<(), store::StoreError>>,
}

impl Held {
    async fn start(
        store: &Store,
        work: impl Fn(&mut Tx<'_>) -> Result<(), store::StoreError> + Send + 'static,
    ) -> Self {
        let (is_done, done) = mpsc::channel();
        let (go_on, gone_on) = mpsc::channel::<()>();
        let store = store.clone();
        let running = tokio::spawn(async move {
            store
                .write("held", move |tx| {
                    work(tx)?;
                    is_done.send(()).unwrap();
                    gone_on.recv().unwrap();
                    Ok::<_, store::StoreError>(())
                })
                .await
        });
        received(done).await;
        Self { go_on, running }
    }

    async fn finish(self) {
        self.go_on.send(()).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

async fn received(channel: mpsc::Receiver<()>) {
    let received = tokio::task::spawn_blocking(move || channel.recv());
    received.await.unwrap().unwrap();
}

on_both!(concurrent_processes_assign_each_position_once, |database| {
    const N_EVENTS: usize = 300;
    let first = database.migrated().await;
    let stores = [first.clone(), database.open(), database.open()];
    let mut tasks = Vec::new();
    for store in stores {
        tasks.push(tokio::spawn(async move {
            let mut placed = Vec::new();
            for _ in 0..N_EVENTS / 3 {
                push(&store, &["e"]).await;
                placed.extend(assign(&store, 7).await);
            }
            placed
        }));
    }
    let mut placed = Vec::new();
    for task in tasks {
        let mine: Vec<i64> = task.await.unwrap().into_iter().map(|(n, _)| n).collect();
        assert!(mine.is_sorted());
        placed.extend(mine);
    }
    loop {
        match assign(&first, 100).await {
            rest if rest.is_empty() => break,
            rest => placed.extend(rest.into_iter().map(|(n, _)| n)),
        }
    }
    placed.sort_unstable();
    let expected: Vec<i64> = (1..=i64::try_from(N_EVENTS).unwrap()).collect();
    assert_eq!(placed, expected);
});

on_both!(
    old_events_are_deleted_unless_a_reader_needs_them,
    |database| {
        let store = database.migrated().await;
        push_at(&store, [10, 20, 30, 40]).await;
        assign(&store, 9).await;
        let forget = async |before: i64, up_to: i64, after: i64, limit: u32| {
            delete(&store, before, up_to, after, limit).await
        };
        assert_eq!(forget(10, i64::MAX, 0, 9).await, (0, 0));
        assert_eq!(forget(99, 1, 0, 9).await, (1, 1));
        assert_eq!(forget(99, 1, 1, 9).await, (0, 1));
        assert_eq!(forget(99, 1, 0, 9).await, (0, 0));
        assert_eq!(forget(40, i64::MAX, 1, 1).await, (1, 2));
        assert_eq!(forget(40, i64::MAX, 2, 9).await, (1, 3));
        assert_eq!(all(&store).await, named(&[(4, "e")]));
        assert_eq!(forget(99, i64::MAX, 0, 9).await, (1, 4));
        // Positions are never assigned twice, even if no event is left.
        push(&store, &["next"]).await;
        assert_eq!(assign(&store, 9).await, named(&[(5, "next")]));
    }
);

on_both!(
    a_deletion_neither_reads_nor_deletes_events_up_to_its_start,
    |database| {
        let store = database.migrated().await;
        push_at(&store, (1..=40).map(|n| n * 10)).await;
        assign(&store, 100).await;
        let mut after = 0;
        for (number, limit) in [(0, 1), (1, 9), (10, 10), (20, 11), (31, 9)] {
            assert_eq!(number, after);
            let (deleted, last) = delete(&store, 1_000, i64::MAX, after, limit).await;
            assert_eq!(deleted, u64::from(limit));
            assert_eq!(last, after + i64::from(limit));
            after = last;
        }
        assert_eq!(delete(&store, 1_000, i64::MAX, 0, 9).await, (0, 0));
        push_at(&store, [410, 420]).await;
        assign(&store, 100).await;
        assert_eq!(delete(&store, 1_000, i64::MAX, 41, 9).await, (1, 42));
        assert_eq!(all(&store).await, named(&[(41, "e")]));
    }
);

on_both!(an_event_without_a_position_is_never_deleted, |database| {
    let store = database.migrated().await;
    push_at(&store, [10]).await;
    assert_eq!(delete(&store, 99, i64::MAX, 0, 9).await, (0, 0));
    assert_eq!(assign(&store, 9).await.len(), 1);
});

on_both!(the_position_before_a_time_is_found, |database| {
    let store = database.migrated().await;
    let before =
        async |time: Timestamp| read(&store, move |tx| events::position_before(tx, time)).await;
    assert_eq!(before(at(5)).await, 0);
    push_at(&store, (1..=50).map(|n| n * 10)).await;
    assign(&store, 100).await;
    delete(&store, 101, i64::MAX, 0, 100).await;
    for (time, position) in [
        (0, 10),
        (110, 10),
        (111, 11),
        (255, 25),
        (500, 49),
        (501, 50),
    ] {
        assert_eq!(before(at(time)).await, position, "{time}");
    }
    let first = read(&store, |tx| events::time_after(tx, 0)).await;
    assert_eq!(first, Some((11, at(110))));
    assert_eq!(read(&store, |tx| events::time_after(tx, 50)).await, None);
});

on_both!(a_new_reader_begins_with_the_next_event, |database| {
    let store = database.migrated().await;
    assert_eq!(take(&store, "p1", 100).await, None);
    push(&store, &["past"]).await;
    assign(&store, 9).await;
    for _ in 0..2 {
        write(&store, |tx| event_readers::open(tx, "r")).await;
        push(&store, &["next"]).await;
        assign(&store, 9).await;
    }
    let reader = read(&store, |tx| event_readers::get(tx, "r"))
        .await
        .unwrap();
    assert_eq!(reader.position, 1);
});

on_both!(one_process_reads_at_a_time, |database| {
    let store = database.migrated().await;
    write(&store, |tx| event_readers::open(tx, "r")).await;
    let first = take(&store, "p1", 100).await.unwrap();
    assert_eq!(take(&store, "p2", 105).await, None);
    assert_eq!(take(&store, "p1", 105).await.unwrap().fence, first.fence);
    // p1 held it until 115.
    assert_eq!(take(&store, "p2", 114).await, None);
    let second = take(&store, "p2", 115).await.unwrap();
    assert!(second.fence > first.fence);

    let mover = async |fence: i64, position: i64| {
        write(&store, move |tx| {
            event_readers::advance(tx, "r", fence, position)
        })
        .await
    };
    assert!(
        !mover(first.fence, 7).await,
        "a process that lost the reader cannot move it"
    );
    assert!(mover(second.fence, 7).await);
    assert!(
        !mover(second.fence, 6).await,
        "the position never decreases"
    );
    for holder in ["p1", "p2"] {
        write(&store, move |tx| {
            event_readers::leave(tx, "r", holder, at(116))
        })
        .await;
    }
    let third = take(&store, "p1", 116).await.unwrap();
    assert_eq!((third.position, third.holder.as_str()), (7, "p1"));
});

on_both!(a_lease_far_in_the_future_holds_nobody_up, |database| {
    let store = database.migrated().await;
    write(&store, |tx| event_readers::open(tx, "r")).await;
    // Leases last 10; the clock was ahead by this much, and is set back.
    for (ahead, is_held) in [(0, true), (10, true), (11, false), (28_800_000, false)] {
        let held = take(&store, "before", 1_000 + ahead).await.unwrap();
        let taken = take(&store, "after", 1_000).await;
        assert_eq!(taken.is_none(), is_held, "{ahead}");
        // A holder that still runs has lost the reader, and cannot move it.
        let (fence, next) = (held.fence, held.position + 1);
        let move_it = move |tx: &mut Tx<'_>| event_readers::advance(tx, "r", fence, next);
        assert_eq!(write(&store, move_it).await, is_held, "{ahead}");
        for holder in ["before", "after"] {
            write(&store, move |tx| {
                event_readers::leave_all(tx, holder, at(0))
            })
            .await;
        }
    }
});

on_both!(of_many_processes_one_takes_the_reader, |database| {
    let store = database.migrated().await;
    write(&store, |tx| event_readers::open(tx, "r")).await;
    let tasks = ["a", "b", "c", "d", "e"].map(|holder| {
        let store = database.open();
        tokio::spawn(async move { take(&store, holder, 100).await })
    });
    let mut n_taken = 0;
    for task in tasks {
        n_taken += usize::from(task.await.unwrap().is_some());
    }
    assert_eq!(n_taken, 1);
});

on_both!(
    events_of_a_clock_that_was_ahead_are_as_old_as_the_next_one,
    |database| {
        let store = database.migrated().await;
        let ahead = AHEAD + 1;
        // The first two batches have only such events, and the last one is not followed by any.
        let times = [
            ahead, ahead, ahead, ahead, ahead, 10, ahead, 20, AHEAD, 30, ahead,
        ];
        push_at(&store, times).await;
        assign(&store, 100).await;
        // Nothing is old, or needed by no reader.
        assert_eq!(delete(&store, 10, 100, 0, 2).await, (0, 0));
        assert_eq!(delete(&store, 21, 5, 0, 2).await, (0, 0));
        assert_eq!(delete(&store, 21, 100, 0, 2).await, (2, 2));
        assert_eq!(delete(&store, 21, 100, 2, 2).await, (2, 4));
        assert_eq!(delete(&store, 21, 100, 4, 2).await, (2, 6));
        // A reader needs the eighth.
        assert_eq!(delete(&store, 21, 7, 6, 2).await, (0, 6));
        assert_eq!(delete(&store, 21, 100, 6, 2).await, (2, 8));
        // The ninth is young, and the last one is not followed by an old one.
        assert_eq!(delete(&store, 31, 100, 8, 9).await, (0, 8));
        assert_eq!(delete(&store, AHEAD + 1, 100, 8, 9).await, (2, 10));
        assert_eq!(delete(&store, AHEAD + 1, 100, 10, 9).await, (0, 10));
        assert_eq!(all(&store).await.len(), 1);
    }
);
