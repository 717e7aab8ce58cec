//! Notices: due ones are sent one at a time to each recipient, and never by two processes.

use domain::Version;
use domain::event::{Event, EventBody};
use serde_json::json;
use store::notice_causes::{self, NoticeCause};
use store::notices::{self, Notice};
use store::{StoreError, events, outbox, worker_errors};

use crate::samples::{at, error, pool_id};
use crate::world::{on_both, read, write};

fn notice(id: &str, recipient: &str, created: i64) -> Notice {
    Notice {
        id: id.to_owned(),
        channel: "email".to_owned(),
        recipient: recipient.to_owned(),
        content: json!({"a": ["ö", 1]}),
        created: at(created),
        due: at(created),
        refusals: 0,
        version: Version::FIRST,
    }
}

fn cause(pool: &str, name: &str, due: Option<i64>) -> NoticeCause {
    NoticeCause {
        channel: "email".to_owned(),
        pool_id: pool_id(pool),
        cause: name.to_owned(),
        error_id: error(pool, 1, 0).error_id,
        first_reported: at(1),
        last_reported: at(2),
        n_waiting: 3,
        first_waiting: Some(at(1)),
        n_notified: 4,
        last_notified: None,
        due: due.map(at),
        version: Version::FIRST,
    }
}

on_both!(one_notice_at_a_time_waits_for_each_recipient, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        assert!(notices::insert(tx, &notice("n1", "a@x", 10))?);
        assert!(!notices::insert(tx, &notice("n2", "a@x", 20))?, "n1 waits");
        assert!(notices::insert(tx, &notice("n3", "b@x", 5))?);
        let elsewhere = Notice {
            channel: "hook".to_owned(),
            ..notice("n4", "a@x", 1)
        };
        assert!(notices::insert(tx, &elsewhere)?);
        assert_eq!(notices::waiting(tx, "email", "a@x")?, Some(at(10)));
        let first = notices::next(tx, "email", at(9))?.unwrap();
        assert_eq!(first, notice("n3", "b@x", 5));
        assert!(notices::mark_sent(tx, &first, at(11))?);
        assert!(
            !notices::mark_sent(tx, &first, at(12))?,
            "it was sent already"
        );
        assert_eq!(notices::waiting(tx, "email", "b@x")?, None);
        assert!(notices::insert(tx, &notice("n5", "b@x", 20))?);
        assert_eq!(notices::next(tx, "email", at(9))?, None);
        assert_eq!(
            notices::recent(tx, "email", "b@x", at(4), 9)?,
            [at(20), at(5)]
        );
        assert_eq!(notices::recent(tx, "email", "b@x", at(5), 9)?, [at(20)]);
        assert_eq!(notices::recent(tx, "email", "b@x", at(4), 1)?, [at(20)]);
        Ok(())
    })
    .await;
});

on_both!(
    a_notice_changes_only_in_the_version_that_was_read,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| notices::insert(tx, &notice("n1", "a@x", 10))).await;
        let moved = write(&store, |tx| {
            let read = notices::next(tx, "email", at(10))?.unwrap();
            let later = Notice {
                due: at(99),
                refusals: 2,
                ..read
            };
            Ok(notices::update(tx, later)?.unwrap())
        })
        .await;
        assert_eq!((moved.due, moved.refusals), (at(99), 2));
        write(&store, |tx| {
            let stale = notice("n1", "a@x", 10);
            assert!(!notices::delete(tx, &stale)?);
            assert_eq!(notices::update(tx, stale)?, None);
            Ok(())
        })
        .await;
        let found = read(&store, |tx| notices::next(tx, "email", at(99))).await;
        assert_eq!(found, Some(moved.clone()));
        assert!(write(&store, move |tx| notices::delete(tx, &moved)).await);
        let found = read(&store, |tx| notices::waiting(tx, "email", "a@x")).await;
        assert_eq!(found, None);
    }
);

on_both!(old_notices_are_deleted_in_batches, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for (number, recipient) in ["a", "b", "c"].into_iter().enumerate() {
            let number = i64::try_from(number).unwrap();
            notices::insert(tx, &notice(recipient, recipient, number))?;
        }
        assert_eq!(notices::delete_older_than(tx, at(2), 1)?, 1);
        assert_eq!(notices::delete_older_than(tx, at(2), 9)?, 1);
        assert_eq!(notices::next(tx, "email", at(9))?.unwrap().id, "c");
        Ok(())
    })
    .await;
});

on_both!(due_causes_are_listed_longest_due_first, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for one in [
            cause("a/b", "late", Some(30)),
            cause("a/b", "told", None),
            cause("a/c", "early", Some(10)),
            cause("a/b", "next", Some(20)),
        ] {
            notice_causes::insert(tx, &one)?;
        }
        let due = notice_causes::list_due(tx, "email", at(20), 9)?;
        assert_eq!(
            due,
            [
                cause("a/c", "early", Some(10)),
                cause("a/b", "next", Some(20))
            ]
        );
        assert_eq!(notice_causes::list_due(tx, "email", at(99), 1)?.len(), 1);
        assert_eq!(notice_causes::list_due(tx, "hook", at(99), 9)?, []);
        assert_eq!(notice_causes::count(tx, "email", &pool_id("a/b"))?, 3);
        notice_causes::delete(tx, &due[0])?;
        assert_eq!(
            notice_causes::get(tx, "email", &pool_id("a/c"), "early")?,
            None
        );
        Ok(())
    })
    .await;
});

on_both!(
    a_cause_changes_only_in_the_version_that_was_read,
    |database| {
        let store = database.migrated().await;
        let changed = NoticeCause {
            error_id: error("a/b", 2, 0).error_id,
            last_reported: at(50),
            n_waiting: 0,
            first_waiting: None,
            n_notified: 7,
            last_notified: Some(at(60)),
            due: None,
            ..cause("a/b", "x", Some(10))
        };
        let expected = NoticeCause {
            version: Version(Version::FIRST.0 + 1),
            ..changed.clone()
        };
        write(&store, |tx| {
            notice_causes::insert(tx, &cause("a/b", "x", Some(10)))
        })
        .await;
        let change = changed.clone();
        write(&store, move |tx| notice_causes::update(tx, &change)).await;
        let found = read(&store, |tx| {
            notice_causes::get(tx, "email", &pool_id("a/b"), "x")
        });
        assert_eq!(found.await, Some(expected));
        let stale = store.write("stale", move |tx| notice_causes::update(tx, &changed));
        assert!(matches!(
            stale.await,
            Err(StoreError::TooManyConflicts { .. })
        ));
        let twice = store.write("twice", |tx| {
            notice_causes::insert(tx, &cause("a/b", "x", None))
        });
        assert!(matches!(
            twice.await,
            Err(StoreError::TooManyConflicts { .. })
        ));
    }
);

on_both!(causes_are_deleted_once_reported_or_very_old, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        let settled = |name: &str, told: i64| NoticeCause {
            last_notified: Some(at(told)),
            last_reported: at(1_000),
            ..cause("a/b", name, None)
        };
        let old = NoticeCause {
            last_reported: at(5),
            ..cause("a/b", "old", Some(10))
        };
        let waiting = NoticeCause {
            last_notified: Some(at(1)),
            last_reported: at(1_000),
            ..cause("a/b", "waiting", Some(10))
        };
        for one in [settled("told", 50), settled("recent", 150), old, waiting] {
            notice_causes::insert(tx, &one)?;
        }
        assert_eq!(notice_causes::delete_settled(tx, at(100), at(10), 9)?, 2);
        for (name, is_there) in [
            ("told", false),
            ("old", false),
            ("recent", true),
            ("waiting", true),
        ] {
            let found = notice_causes::get(tx, "email", &pool_id("a/b"), name)?;
            assert_eq!(found.is_some(), is_there, "{name}");
        }
        Ok(())
    })
    .await;
});

on_both!(errors_are_read_in_the_order_of_their_events, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for (number, pool) in [(3, "a/b"), (1, "a/c"), (2, "a/b")] {
            let report = error(pool, number, 10);
            // The second error was deleted.
            if number != 1 {
                worker_errors::insert(tx, &report)?;
            }
            let body = EventBody::PoolError {
                provider_id: "p".parse().unwrap(),
                report: Box::new(report),
                worker: None,
            };
            let other = EventBody::PoolCreated {
                pool_id: pool_id(pool),
                provider_id: "p".parse().unwrap(),
            };
            for body in [other, body] {
                outbox::push(
                    tx,
                    &Event {
                        id: number.to_string(),
                        created: at(10),
                        body,
                    },
                )?;
            }
        }
        assert_eq!(
            notice_causes::list_errors_after(tx, 0, 99, 9)?,
            [],
            "they have no positions yet"
        );
        events::assign_positions(tx, 99)?;
        let head = events::head(tx)?;
        let all = notice_causes::list_errors_after(tx, 0, head, 9)?;
        let found: Vec<_> = all.iter().map(|(_, report)| report.clone()).collect();
        assert_eq!(
            found,
            [Some(error("a/b", 3, 10)), None, Some(error("a/b", 2, 10))]
        );
        assert_eq!(
            notice_causes::list_errors_after(tx, all[1].0, head, 9)?,
            all[2..]
        );
        assert_eq!(
            notice_causes::list_errors_after(tx, 0, all[1].0, 9)?,
            all[..2]
        );
        assert_eq!(notice_causes::list_errors_after(tx, 0, head, 1)?, all[..1]);
        let id = error("a/b", 2, 0).error_id;
        assert_eq!(
            worker_errors::get(tx, &pool_id("a/b"), &id)?,
            Some(error("a/b", 2, 10))
        );
        assert_eq!(worker_errors::get(tx, &pool_id("a/c"), &id)?, None);
        Ok(())
    })
    .await;
});
