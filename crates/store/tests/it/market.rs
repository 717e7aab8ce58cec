//! The memory of strategies: news that are added once, records that are written by one at a time.

use domain::Version;
use domain::id::ProviderId;
use domain::launch::{Launch, LaunchState, StoredLaunch};
use domain::market::{ObservedTime, OfferingId, OfferingNews, PoolRecord, PoolSample, Trouble};
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::worker::{StoredWorker, Worker, WorkerState};
use store::launches::LaunchOrigin;
use store::offering_memories::{self, OfferingRecord};
use store::offering_news::{self, NewsRow};
use store::{Store, StoreError, launches, pool_memories, pool_news, pools, run_outcomes, workers};

use crate::launches::{launch, token, unknown};
use crate::samples::{at, pool, pool_id, worker, worker_key};
use crate::world::{Database, on_both, read, write};

fn provider() -> ProviderId {
    "cloud".parse().unwrap()
}

fn offering(place: &str) -> OfferingId {
    OfferingId::new(&provider(), place)
}

const CAPACITY: OfferingNews = OfferingNews::Failed {
    trouble: Trouble::Capacity,
};
const VANISHED: OfferingNews = OfferingNews::Failed {
    trouble: Trouble::Vanished,
};

/// Adds a row of news at this moment, in a transaction of its own.
async fn insert(store: &Store, place: &'static str, news: OfferingNews, millis: i64) {
    write(store, move |tx| {
        offering_news::insert(tx, &offering(place), &provider(), news, at(millis))
    })
    .await;
}

async fn oldest(store: &Store, limit: u32) -> Vec<NewsRow> {
    read(store, move |tx| offering_news::oldest(tx, limit)).await
}

fn times(rows: &[NewsRow]) -> Vec<i64> {
    rows.iter().map(|row| row.observed.as_millis()).collect()
}

on_both!(news_are_read_in_the_order_of_their_writing, |database| {
    let store = database.migrated().await;
    for (place, news, millis) in [
        ("east", OfferingNews::Asked, 30),
        (
            "west m5.large",
            OfferingNews::Registered { after_ms: 7 },
            20,
        ),
        ("east", CAPACITY, 10),
        ("it's \"odd\" – größe", OfferingNews::Ran { hours: 0.1 }, 40),
    ] {
        insert(&store, place, news, millis).await;
    }
    let all = oldest(&store, 9).await;
    assert_eq!(times(&all), [30, 20, 10, 40]);
    assert_eq!(all[1].offering, offering("west m5.large"));
    assert_eq!(all[1].provider_id, provider());
    assert_eq!(all[3].news, Some(OfferingNews::Ran { hours: 0.1 }));
    assert_eq!(times(&oldest(&store, 2).await), [30, 20]);

    let of = |places: &'static [&'static str], limit| {
        let ids: Vec<OfferingId> = places.iter().map(|place| offering(place)).collect();
        read(&store, move |tx| offering_news::newest_of(tx, &ids, limit))
    };
    assert_eq!(times(&of(&["east"], 9).await), [30, 10]);
    assert_eq!(
        times(&of(&["east", "it's \"odd\" – größe", "no"], 9).await),
        [30, 10, 40]
    );
    // Of too many, the newest.
    assert_eq!(
        times(&of(&["east", "it's \"odd\" – größe"], 2).await),
        [10, 40]
    );
    assert_eq!(times(&of(&[], 9).await), [0_i64; 0]);

    let read_rows = all[..2].to_vec();
    write(&store, move |tx| offering_news::delete(tx, &read_rows)).await;
    write(&store, |tx| offering_news::delete(tx, &[])).await;
    assert_eq!(times(&oldest(&store, 9).await), [10, 40]);
    let deleted = write(&store, |tx| offering_news::delete_before(tx, at(40), 5)).await;
    assert_eq!((deleted, times(&oldest(&store, 9).await)), (1, vec![40]));
});

fn record(place: &str) -> OfferingRecord {
    OfferingRecord::new(offering(place), provider(), at(5))
}

async fn memory_of(store: &Store, place: &'static str) -> Option<OfferingRecord> {
    let found = read(store, move |tx| {
        offering_memories::of(tx, &[offering(place)])
    });
    found.await.pop()
}

on_both!(
    the_memory_of_an_offering_is_written_by_one_at_a_time,
    |database| {
        let store = database.migrated().await;
        assert_eq!(memory_of(&store, "east").await, None);
        write(&store, |tx| offering_memories::write(tx, &record("east"))).await;
        let first = memory_of(&store, "east").await.unwrap();
        let expected = OfferingRecord {
            version: Version(1),
            ..record("east")
        };
        assert_eq!(first, expected);

        let mut second = first.clone();
        let mut memory = second.memory();
        memory.observe(VANISHED, at(1_000));
        second.memory = Some(memory);
        second.last_modified = at(1_000);
        let written = second.clone();
        write(&store, move |tx| offering_memories::write(tx, &written)).await;
        let found = memory_of(&store, "east").await.unwrap();
        assert_eq!((found.memory, found.version), (second.memory, Version(2)));

        // Neither a new record nor an old one replaces it.
        for stale in [record("east"), first] {
            let failed: Result<(), StoreError> = store
                .write("stale", move |tx| offering_memories::write(tx, &stale))
                .await;
            assert!(failed.is_err());
        }
        let expired = write(&store, |tx| {
            offering_memories::delete_before(tx, at(1_000), 5)
        })
        .await;
        assert_eq!(expired, 0);
        let expired = write(&store, |tx| {
            offering_memories::delete_before(tx, at(1_001), 5)
        })
        .await;
        assert_eq!((expired, memory_of(&store, "east").await), (1, None));
    }
);

on_both!(memory_that_waits_for_survivors_is_found, |database| {
    let store = database.migrated().await;
    for (place, news) in [
        ("a", VANISHED),
        ("b", CAPACITY),
        ("c", VANISHED),
        ("d", OfferingNews::Asked),
    ] {
        write(&store, move |tx| {
            let mut record = record(place);
            let mut memory = record.memory();
            memory.observe(news, at(9));
            record.memory = Some(memory);
            offering_memories::write(tx, &record)
        })
        .await;
    }
    let page = |after: Option<&'static str>, limit| {
        read(&store, move |tx| {
            let after = after.map(offering);
            let page = offering_memories::list_awaiting_survival(tx, after.as_ref(), limit)?;
            Ok(page
                .into_iter()
                .map(|record| record.offering.to_string())
                .collect::<Vec<_>>())
        })
    };
    assert_eq!(page(None, 9).await, ["cloud a", "cloud c"]);
    assert_eq!(page(None, 1).await, ["cloud a"]);
    assert_eq!(page(Some("a"), 9).await, ["cloud c"]);
});

on_both!(what_another_version_wrote_is_learned_anew, |database| {
    let store = database.migrated().await;
    write(&store, |tx| offering_memories::write(tx, &record("east"))).await;
    insert(&store, "east", CAPACITY, 1).await;
    let time = ObservedTime::new(at(0));
    write(&store, move |tx| {
        let record = PoolRecord::new(pool_id("a/b"), 3, &time);
        pool_memories::write(tx, &record, &time)
    })
    .await;
    database.raw("UPDATE offering_memories SET memory = '{\"later\":1}'");
    database.raw("UPDATE offering_news SET news = '{\"kind\":\"later\"}'");
    database.raw("UPDATE pool_memories SET memory = '{\"later\":1}', learned = '[]'");
    let found = memory_of(&store, "east").await.unwrap();
    assert_eq!(
        (found.memory, found.memory()),
        (None, record("east").memory())
    );
    assert_eq!(oldest(&store, 9).await[0].news, None);
    let learned = read(&store, |tx| pool_memories::learned(tx, &pool_id("a/b"))).await;
    assert_eq!(learned, Default::default());
    let found = read(&store, |tx| pool_memories::of(tx, &[pool_id("a/b")])).await;
    assert_eq!((found[0].level, &found[0].memory), (3, &Default::default()));
});

/// A record of a pool that fell from level 5 to 2 and has this many units.
fn pool_record(id: &str, held: u64, quotas: &[&str], time: &ObservedTime) -> PoolRecord {
    let mut record = PoolRecord::new(pool_id(id), 5, time);
    let sample = PoolSample {
        level: 2,
        wanted: 2,
        held,
        n_ended: 1,
        durations_ms: vec![1_000],
        quotas: quotas
            .iter()
            .map(|place| (offering(place), held / 2))
            .collect(),
        foresight: true,
    };
    record.add(sample, time);
    record
}

on_both!(
    the_memory_of_a_pool_is_written_by_one_at_a_time,
    |database| {
        let store = database.migrated().await;
        let time = ObservedTime::new(at(70_000));
        let expected = pool_record("a/b", 7, &["east"], &time);
        assert_eq!(expected.unexplained, 2);
        let first = expected.clone();
        write(&store, move |tx| pool_memories::write(tx, &first, &time)).await;
        let found = read(&store, |tx| {
            pool_memories::of(tx, &[pool_id("a/b"), pool_id("no/no")])
        });
        let found = found.await;
        let stored = PoolRecord {
            version: Version(1),
            ..expected.clone()
        };
        assert_eq!(found, [stored]);
        let learned = read(&store, |tx| pool_memories::learned(tx, &pool_id("a/b"))).await;
        assert_eq!(learned, expected.news(&time));
        assert_eq!(learned.retention.falls.len(), 1);

        let stale: Result<(), StoreError> = store
            .write("stale", move |tx| {
                pool_memories::write(tx, &expected, &time)
            })
            .await;
        assert!(stale.is_err(), "the version was that of a new record");

        assert_eq!(read(&store, pool_memories::time).await, None);
        write(&store, move |tx| pool_memories::write_time(tx, &time)).await;
        let stored = read(&store, pool_memories::time).await.unwrap();
        let counted = ObservedTime {
            version: Version(1),
            ..time
        };
        assert_eq!(stored, counted);
        let again: Result<(), StoreError> = store
            .write("again", move |tx| pool_memories::write_time(tx, &time))
            .await;
        assert!(again.is_err());
    }
);

on_both!(pools_that_compete_for_a_quota_are_found, |database| {
    let store = database.migrated().await;
    let time = ObservedTime::new(at(0));
    write(&store, move |tx| {
        for (id, held, quotas) in [
            ("a/a", 7, &["east", "west"][..]),
            ("a/b", 3, &[]),
            ("a/c", 4, &["east"]),
            ("a/d", 5, &["south", "it's \"odd\" – größe"]),
        ] {
            pool_memories::write(tx, &pool_record(id, held, quotas, &time), &time)?;
        }
        let resting = PoolRecord::new(pool_id("a/z"), 0, &time);
        pool_memories::write(tx, &resting, &time)
    })
    .await;
    let names = |ids: Vec<domain::id::PoolId>| -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    };
    let found = read(&store, |tx| {
        pool_memories::contending_between(tx, &pool_id("a/b"), &pool_id("a/d"))
    });
    assert_eq!(names(found.await), ["a/c", "a/d"]);
    let rivals = |places: &'static [&'static str], limit| {
        let quotas: Vec<OfferingId> = places.iter().map(|place| offering(place)).collect();
        read(&store, move |tx| {
            pool_memories::list_rivals(tx, &pool_id("a/c"), &quotas, limit)
        })
    };
    let named = async |places, limit| {
        let found = rivals(places, limit).await;
        names(found.into_iter().map(|rival| rival.pool_id).collect())
    };
    let first = &rivals(&["east"], 9).await[0];
    assert_eq!((first.wanted, first.held), (2, 7));
    let quotas = [(offering("east"), 3), (offering("west"), 3)];
    assert_eq!(first.quotas, quotas.into());
    assert_eq!(named(&["east"], 9).await, ["a/a"]);
    assert_eq!(named(&["west", "south"], 9).await, ["a/a", "a/d"]);
    // Others do not take the places of those that compete.
    assert_eq!(named(&["south"], 1).await, ["a/d"]);
    assert_eq!(named(&["it's \"odd\" – größe"], 9).await, ["a/d"]);
    for none in [&["sout"][..], &["outh"], &["odd"], &["%"], &[]] {
        assert_eq!(named(none, 9).await, [""; 0], "{none:?}");
    }

    let states = |after: Option<&'static str>, limit| {
        read(&store, move |tx| {
            let after = after.map(pool_id);
            pool_memories::list_states(tx, after.as_ref(), limit)
        })
    };
    let all: Vec<bool> = states(None, 9)
        .await
        .iter()
        .map(|(_, rests)| *rests)
        .collect();
    assert_eq!(all, [false, false, false, false, true]);
    assert_eq!(states(Some("a/c"), 9).await.len(), 2);
    assert_eq!(states(None, 2).await.len(), 2);
    let gone = [pool_id("a/a"), pool_id("a/z"), pool_id("no/no")];
    assert_eq!(
        write(&store, move |tx| pool_memories::delete(tx, &gone)).await,
        2
    );
    assert_eq!(states(None, 9).await.len(), 3);
});

fn outcome(pool: &str, number: u32, reason: EndReason) -> RunOutcome {
    RunOutcome {
        worker: worker_key(pool, "g", "w"),
        task_id: format!("{number:08}QACAAAAAAAAAAA").parse().unwrap(),
        run_id: 0,
        reason,
        resolved: at(90_000),
        started: Some(at(i64::from(number) * 1_000)),
    }
}

/// Two pools, of which the first has a memory.
async fn with_one_that_learns(database: &Database) -> Store {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["p/one", "p/two"] {
            pools::insert(tx, &pool(id, "cloud"))?;
        }
        let time = ObservedTime::new(at(0));
        pool_memories::write(tx, &PoolRecord::new(pool_id("p/one"), 0, &time), &time)
    })
    .await;
    store
}

on_both!(
    runs_that_end_are_news_for_the_memory_of_their_pool_once,
    |database| {
        let store = with_one_that_learns(database).await;
        let outcomes = vec![
            outcome("p/one", 1, EndReason::Completed),
            outcome("p/one", 2, EndReason::WorkerShutdown),
            outcome("p/one", 3, EndReason::Canceled),
            outcome("p/two", 4, EndReason::Completed),
            outcome("no/no", 5, EndReason::Completed),
        ];
        for _ in 0..2 {
            let again = outcomes.clone();
            write(&store, move |tx| run_outcomes::note(tx, &again)).await;
        }
        let stored = read(&store, |tx| {
            run_outcomes::list_of_worker(tx, &worker_key("p/one", "g", "w"), None, 9)
        });
        assert_eq!(stored.await[0].started, Some(at(3_000)));
        let more = vec![outcome("p/one", 6, EndReason::Failed)];
        write(&store, move |tx| run_outcomes::note(tx, &more)).await;

        let list = |limit| {
            let ids = [pool_id("p/one"), pool_id("p/two")];
            read(&store, move |tx| pool_news::of(tx, &ids, limit))
        };
        let rows = list(9).await;
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.pool_id.as_str(), row.n_ended, row.durations_ms.clone()))
            .collect();
        assert_eq!(
            shown,
            [("p/one", 2, vec![89_000]), ("p/one", 1, vec![84_000])]
        );
        assert_eq!(list(1).await, rows[..1]);
        let first = rows[..1].to_vec();
        write(&store, move |tx| pool_news::delete(tx, &first)).await;
        assert_eq!(list(9).await, rows[1..]);

        assert_eq!(
            write(&store, |tx| pool_news::delete_orphans(tx, 9)).await,
            0
        );
        write(&store, |tx| pool_memories::delete(tx, &[pool_id("p/one")])).await;
        assert_eq!(
            write(&store, |tx| pool_news::delete_orphans(tx, 9)).await,
            1
        );
        assert_eq!(list(9).await, []);
    }
);

/// A launch with an offering that made all its machines.
fn made(number: u8, state: LaunchState) -> Launch {
    let stored = launch(number, "a/b", "lc", state).into_stored();
    Launch::from_stored(StoredLaunch {
        offering: Some(offering("east")),
        made: 3,
        ..stored
    })
}

on_both!(
    a_launch_names_its_offering_to_those_who_report_on_its_machines,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launches::insert(tx, &made(1, LaunchState::Accepted))?;
            launches::insert(tx, &launch(2, "a/b", "lc", LaunchState::Accepted))
        })
        .await;
        let stored = read(&store, |tx| launches::get(tx, &token(1))).await;
        assert_eq!(stored, Some(made(1, LaunchState::Accepted)));
        let origin = |number: i64, offering| {
            Some(LaunchOrigin {
                offering,
                provider_id: provider(),
                created: at(1_000 + number),
            })
        };
        let east = || origin(1, Some(offering("east")));
        let registered = write(&store, |tx| {
            launches::note_registered(tx, &token(1), at(2_000))
        });
        assert_eq!(registered.await, east());
        let lost = write(&store, |tx| {
            launches::note_never_registered(tx, &token(1), at(2_000))
        });
        assert_eq!(lost.await, east());
        assert_eq!(
            read(&store, |tx| launches::origin(tx, &token(1))).await,
            east()
        );
        let last = |config: &'static str| {
            read(&store, move |tx| {
                launches::last_with_offering(tx, &pool_id("a/b"), &config.parse().unwrap())
            })
        };
        assert_eq!((last("lc").await, last("other").await), (east(), None));
        let plain = write(&store, |tx| {
            launches::note_registered(tx, &token(2), at(2_000))
        });
        assert_eq!(plain.await, origin(2, None));
        let unknown = write(&store, |tx| {
            launches::note_registered(tx, &token(9), at(2_000))
        });
        assert_eq!(unknown.await, None);
    }
);

on_both!(
    machines_are_starting_until_they_register_or_are_lost,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launches::insert(tx, &made(1, LaunchState::Accepted))?;
            launches::insert(tx, &launch(2, "a/b", "lc", LaunchState::Open))?;
            launches::insert(tx, &launch(3, "a/b", "other", unknown()))?;
            launches::insert(tx, &launch(4, "a/c", "lc", LaunchState::Open))?;
            launches::insert(tx, &made(5, LaunchState::Accepted))?;
            for _ in 0..3 {
                launches::note_registered(tx, &token(5), at(2_000))?;
            }
            launches::note_registered(tx, &token(1), at(2_000))?;
            launches::note_never_registered(tx, &token(1), at(2_000))?;
            // The machine registered before its launch was answered.
            launches::note_registered(tx, &token(3), at(2_000)).map(drop)
        })
        .await;
        let starting = |since| {
            read(&store, move |tx| {
                let found = launches::starting(tx, &pool_id("a/b"), at(since), at(0))?;
                let shown = found.into_iter().map(|one| {
                    (
                        one.launch_config_id.to_string(),
                        one.since.as_millis(),
                        one.machines,
                    )
                });
                Ok(shown.collect::<Vec<_>>())
            })
        };
        let lc = "lc".to_owned();
        let expected = [
            (lc.clone(), 1_001, 1),
            (lc.clone(), 1_002, 3),
            ("other".to_owned(), 1_003, 2),
        ];
        assert_eq!(starting(0).await, expected);
        assert_eq!(starting(1_002).await, expected[1..]);

        let survivors = |after, until| {
            read(&store, move |tx| {
                launches::survivors(tx, &offering("east"), at(after), at(until))
            })
        };
        assert_eq!(survivors(0, 9_000).await, 1);
        assert_eq!(
            (survivors(1_001, 9_000).await, survivors(0, 1_000).await),
            (0, 0)
        );
    }
);

on_both!(
    requested_workers_of_a_launch_config_are_listed_from_the_oldest,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (name, config, state, created) in [
                ("w1", "lc-1", WorkerState::Requested, 300),
                ("w2", "lc-1", WorkerState::Requested, 100),
                ("w3", "lc-1", WorkerState::Running, 100),
                ("w4", "lc-1", WorkerState::Requested, 200),
                ("w5", "lc-2", WorkerState::Requested, 50),
            ] {
                let stored = worker("a/b", "g", name).into_stored();
                let row = Worker::from_stored(StoredWorker {
                    state,
                    launch_config_id: Some(config.parse().unwrap()),
                    created: at(created),
                    ..stored
                });
                workers::insert(tx, &row)?;
            }
            Ok(())
        })
        .await;
        let list_of = |config: &'static str, before, limit| {
            read(&store, move |tx| {
                let id = config.parse().unwrap();
                let found = workers::list_requested(tx, &pool_id("a/b"), &id, at(before), limit)?;
                Ok(found
                    .iter()
                    .map(|worker| worker.key.id.to_string())
                    .collect::<Vec<_>>())
            })
        };
        let list = |before, limit| list_of("lc-1", before, limit);
        assert_eq!(list_of("lc-2", 301, 9).await, ["w5"]);
        assert_eq!(list(301, 9).await, ["w2", "w4", "w1"]);
        assert_eq!(list(300, 9).await, ["w2", "w4"]);
        assert_eq!(list(301, 1).await, ["w2"]);
    }
);
