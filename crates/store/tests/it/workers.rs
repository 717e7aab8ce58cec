//! Workers: rows, lists and counts.

use std::collections::BTreeSet;

use domain::worker::{Advice, Worker, WorkerState};
use store::StoreError;
use store::listed_workers::{self, WorkerCursor, WorkerFilter};
use store::worker_counts;
use store::workers;

use crate::samples::{at, edit, pool_id, worker, worker_key};
use crate::world::{on_both, read, write};

fn names(workers: &[Worker]) -> Vec<String> {
    workers.iter().map(|w| w.key.to_string()).collect()
}

fn worker_in(state: WorkerState, id: &str, launch_config: Option<&str>) -> Worker {
    let mut worker = worker("a/b", "g", id);
    edit(&mut worker, |it| {
        it.state = state;
        it.launch_config_id = launch_config.map(|id| id.parse().unwrap());
    });
    worker
}

on_both!(a_worker_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let mut bare = worker("a/b", "g", "bare");
    edit(&mut bare, |it| {
        it.launch_config_id = None;
        it.secret = None;
        it.previous_secret = None;
        it.provider_data = serde_json::Value::Null;
    });
    let expected = bare.clone();
    write(&store, move |tx| {
        assert!(workers::insert(tx, &worker("a/b", "g", "full"))?);
        assert!(!workers::insert(tx, &worker("a/b", "g", "full"))?);
        workers::insert(tx, &bare)
    })
    .await;
    let full = read(&store, |tx| {
        workers::get(tx, &worker_key("a/b", "g", "full"))
    })
    .await;
    assert_eq!(full, Some(worker("a/b", "g", "full")));
    let bare = read(&store, |tx| {
        workers::get(tx, &worker_key("a/b", "g", "bare"))
    })
    .await;
    assert_eq!(bare, Some(expected));
    assert_eq!(
        read(&store, |tx| workers::get(
            tx,
            &worker_key("a/c", "g", "full")
        ))
        .await,
        None
    );
});

on_both!(an_update_writes_every_field, |database| {
    let store = database.migrated().await;
    let changed = write(&store, |tx| {
        workers::insert(tx, &worker("a/b", "g", "w"))?;
        let mut changed = worker_in(WorkerState::Stopped, "w", None);
        edit(&mut changed, |it| {
            it.provider_id = "other".parse().unwrap();
            it.capacity = 7;
            it.expires = at(1);
            it.last_modified = at(2);
            it.last_checked = at(3);
            it.terms.registered_at = Some(4);
            it.provider_data = serde_json::json!([1, 2]);
            it.secret = None;
            it.previous_secret = None;
        });
        let version = workers::update(tx, &changed)?;
        Ok(changed.with_version(version))
    })
    .await;
    let found = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "w"))).await;
    assert_eq!(found, Some(changed));
});

on_both!(
    lists_are_filtered_and_ordered_from_newest_to_oldest,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (group, id, created) in [
                ("g1", "a", 1),
                ("g2", "b", 3),
                ("g1", "c", 2),
                ("g1", "d", 3),
            ] {
                let mut worker = worker("a/b", group, id);
                edit(&mut worker, |it| it.created = at(created));
                if id == "c" {
                    edit(&mut worker, |it| {
                        it.state = WorkerState::Stopped;
                        it.launch_config_id = None;
                    });
                }
                workers::insert(tx, &worker)?;
            }
            workers::insert(tx, &worker("a/c", "g1", "elsewhere"))
        })
        .await;
        let list = async |filter: WorkerFilter| {
            let listed = read(&store, move |tx| {
                listed_workers::list(tx, &pool_id("a/b"), &filter, None, 10)
            })
            .await;
            listed.iter().map(|w| w.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(list(WorkerFilter::default()).await, ["b", "d", "c", "a"]);
        let group = WorkerFilter {
            group: Some("g1".parse().unwrap()),
            ..WorkerFilter::default()
        };
        assert_eq!(list(group.clone()).await, ["d", "c", "a"]);
        let state = Some(WorkerState::Running);
        assert_eq!(list(WorkerFilter { state, ..group }).await, ["d", "a"]);
        let launch_config_id = Some("lc-1".parse().unwrap());
        let filter = WorkerFilter {
            launch_config_id,
            ..WorkerFilter::default()
        };
        assert_eq!(list(filter).await, ["b", "d", "a"]);
    }
);

on_both!(
    pages_contain_every_worker_once_while_others_are_added,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for number in 0..20 {
                let mut worker = worker(
                    "a/b",
                    if number % 3 == 0 { "g1" } else { "g2" },
                    &format!("w{number}"),
                );
                // Several share a moment, so the rest of the key must decide.
                edit(&mut worker, |it| it.created = at(number / 4));
                workers::insert(tx, &worker)?;
            }
            Ok(())
        })
        .await;
        for group in [None, Some("g1".parse().unwrap())] {
            let filter = WorkerFilter {
                group,
                ..WorkerFilter::default()
            };
            let mut seen = Vec::new();
            let mut after: Option<WorkerCursor> = None;
            for added in 0.. {
                let (last, by) = (after.clone(), filter.clone());
                let page = read(&store, move |tx| {
                    listed_workers::list(tx, &pool_id("a/b"), &by, last.as_ref(), 3)
                })
                .await;
                let Some(last) = page.last() else { break };
                after = Some(last.into());
                seen.extend(page.iter().map(|w| format!("{}/{}", w.group, w.id)));
                let group = filter.group.as_ref().map_or("g2", |group| group.as_str());
                let mut newer = worker("a/b", group, &format!("new-{group}-{added}"));
                edit(&mut newer, |it| it.created = at(1_000 + added));
                write(&store, move |tx| workers::insert(tx, &newer)).await;
            }
            let old: BTreeSet<_> = seen.iter().filter(|name| !name.contains("/new-")).collect();
            assert_eq!(old.len(), if filter.group.is_some() { 7 } else { 20 });
            assert_eq!(
                seen.iter().collect::<BTreeSet<_>>().len(),
                seen.len(),
                "one came twice"
            );
        }
    }
);

on_both!(
    the_scan_reads_live_workers_of_one_provider_by_key,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            workers::insert(tx, &worker("a/c", "g", "1"))?;
            workers::insert(tx, &worker("a/b", "h", "2"))?;
            workers::insert(tx, &worker("a/b", "g", "3"))?;
            workers::insert(tx, &worker("a/b", "g", "6"))?;
            workers::insert(tx, &worker_in(WorkerState::Stopped, "4", None))?;
            let mut other = worker("a/b", "g", "5");
            edit(&mut other, |it| it.provider_id = "other".parse().unwrap());
            workers::insert(tx, &other)
        })
        .await;
        let provider: domain::id::ProviderId = "aws-1".parse().unwrap();
        let group: domain::id::WorkerGroup = "g".parse().unwrap();
        let page = {
            let (provider, group) = (provider.clone(), group.clone());
            read(&store, move |tx| {
                workers::list_live(tx, &provider, &group, None, 2)
            })
            .await
        };
        assert_eq!(names(&page), ["a/b/g/3", "a/b/g/6"]);
        let after = page[1].key.clone();
        let (of, in_group) = (provider.clone(), group.clone());
        let page = read(&store, move |tx| {
            workers::list_live(tx, &of, &in_group, Some(&after), 2)
        })
        .await;
        assert_eq!(names(&page), ["a/c/g/1"]);
        for (after, limit, expected) in [
            (None, 0, vec![]),
            (None, 1, vec!["g"]),
            (None, 2, vec!["g", "h"]),
            (None, 20, vec!["g", "h"]),
            (Some("g"), 0, vec![]),
            (Some("g"), 1, vec!["h"]),
            (Some("ga"), 20, vec!["h"]),
            (Some("h"), 20, vec![]),
        ] {
            let of = provider.clone();
            let after = after.map(|name| name.parse::<domain::id::WorkerGroup>().unwrap());
            let groups = read(&store, move |tx| {
                workers::live_groups(tx, &of, after.as_ref(), limit)
            });
            let groups = groups.await;
            let groups: Vec<_> = groups.iter().map(|group| group.as_str()).collect();
            assert_eq!(groups, expected);
        }
    }
);

on_both!(counts_add_up_by_state_and_by_launch_config, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        workers::insert(tx, &worker_in(WorkerState::Running, "1", Some("lc-1")))?;
        workers::insert(tx, &worker_in(WorkerState::Running, "2", None))?;
        workers::insert(tx, &worker_in(WorkerState::Requested, "3", Some("lc-2")))?;
        workers::insert(tx, &worker_in(WorkerState::Stopped, "4", Some("lc-1")))?;
        workers::insert(tx, &worker("a/c", "g", "5"))
    })
    .await;
    let counts = read(&store, |tx| worker_counts::of_pool(tx, &pool_id("a/b"))).await;
    assert_eq!((counts.running.count, counts.running.capacity), (2, 4));
    assert_eq!((counts.current_capacity(), counts.stopped.count), (6, 1));
    let none = read(&store, |tx| worker_counts::of_pool(tx, &pool_id("a/none"))).await;
    assert_eq!(none, domain::counts::Counts::default());
    let between = read(&store, |tx| {
        worker_counts::between(tx, &pool_id("a/a"), &pool_id("a/d"))
    })
    .await;
    assert_eq!(between.len(), 2);
    assert_eq!(between[0], (pool_id("a/b"), counts));
    let between = write(&store, |tx| {
        let mut other = worker_in(WorkerState::Running, "6", None);
        edit(&mut other, |it| it.provider_id = "other".parse().unwrap());
        workers::insert(tx, &other)?;
        worker_counts::by_provider_between(tx, &pool_id("a/a"), &pool_id("a/d"))
    })
    .await;
    let by_provider = between.iter().map(|((pool, provider), counts)| {
        let (requested, running) = (counts.requested.count, counts.running.count);
        format!(
            "{pool} {provider} {requested} {running} {}",
            counts.stopped.count
        )
    });
    let expected = ["a/b aws-1 1 2 0", "a/b other 0 1 0", "a/c aws-1 0 1 0"];
    assert_eq!(by_provider.collect::<Vec<_>>(), expected);
    let by = read(&store, |tx| {
        worker_counts::by_launch_config(tx, &pool_id("a/b"))
    })
    .await;
    let by: Vec<_> = by
        .iter()
        .map(|(id, counts)| (id.as_ref().map(ToString::to_string), counts.running.count))
        .collect();
    assert_eq!(
        by,
        [
            (None, 2),
            (Some("lc-1".into()), 1),
            (Some("lc-2".into()), 0)
        ]
    );
    let all = read(&store, worker_counts::by_state).await;
    assert_eq!((all.running.count, all.requested.count), (4, 1));
});

on_both!(
    expired_workers_in_any_state_are_deleted_in_batches,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for number in 0..5 {
                let mut worker = worker("a/b", "g", &format!("w{number}"));
                edit(&mut worker, |it| it.expires = at(number));
                workers::insert(tx, &worker)?;
            }
            Ok(())
        })
        .await;
        assert_eq!(
            write(&store, |tx| workers::delete_expired(tx, at(4), 3)).await,
            3
        );
        assert_eq!(
            write(&store, |tx| workers::delete_expired(tx, at(4), 3)).await,
            1
        );
        assert_eq!(
            write(&store, |tx| workers::delete_expired(tx, at(4), 3)).await,
            0
        );
        assert!(
            read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "w4")))
                .await
                .is_some()
        );
    }
);

fn advised(worker: Worker, reason: &str) -> Worker {
    worker.advise(Advice {
        terminate: reason.starts_with("idle"),
        reason: reason.to_owned(),
        decided_at: 5,
    })
}

on_both!(
    advice_to_many_workers_is_written_as_that_to_one,
    |database| {
        let store = database.migrated().await;
        // Long enough that two make a list, and one does not.
        let config = serde_json::json!("\"\u{e9}\n".repeat(100_000));
        for (count, n_statements) in [(0, 0), (1, 1), (2, 1), (3, 2), (20, 10)] {
            let pool = format!("a/b{count}");
            let made: Vec<Worker> = (0..count)
                .map(|number| {
                    let mut worker = worker(&pool, "g", &format!("w{number:02}"));
                    edit(&mut worker, |it| {
                        it.terms.worker_config = Some(config.clone());
                    });
                    worker
                })
                .collect();
            let inserted = made.clone();
            write(&store, move |tx| {
                for worker in &inserted {
                    workers::insert(tx, worker)?;
                }
                Ok(())
            })
            .await;
            let reasons = ["idle for an hour", "its launch config's \"price\" fell"];
            let reasons = reasons.into_iter().cycle();
            let expected: Vec<Worker> = made
                .into_iter()
                .zip(reasons)
                .map(|(worker, reason)| advised(worker, reason))
                .collect();
            store.take_counts();
            let (id, changed) = (pool_id(&pool), expected.clone());
            write(&store, move |tx| workers::advise(tx, &id, &changed)).await;
            let counts = store.take_counts();
            assert_eq!(counts.statements("worker_advise"), n_statements, "{count}");
            for worker in expected {
                let key = worker.key.clone();
                let read = read(&store, move |tx| workers::get(tx, &key)).await;
                let next = worker.version.next();
                assert_eq!(read, Some(worker.with_version(next)));
            }
        }
    }
);

on_both!(
    advice_is_not_written_if_one_of_the_workers_has_changed,
    |database| {
        let store = database.migrated().await;
        let workers = ["w1", "w2", "w3"].map(|id| worker("a/b", "g", id));
        let made = workers.clone();
        write(&store, move |tx| {
            for worker in &made {
                workers::insert(tx, worker)?;
            }
            workers::update(tx, &made[1])
        })
        .await;
        let changed = workers.clone().map(|worker| advised(worker, "idle"));
        let late = store
            .write("late", move |tx| {
                workers::advise(tx, &pool_id("a/b"), &changed)
            })
            .await;
        assert!(matches!(late, Err(StoreError::TooManyConflicts { .. })));
        let [first, ..] = workers;
        let key = first.key.clone();
        let read = read(&store, move |tx| workers::get(tx, &key)).await;
        assert_eq!(read, Some(first));
    }
);
