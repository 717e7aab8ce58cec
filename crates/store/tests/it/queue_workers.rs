//! The queue's records of workers, alone and joined with the table of workers.

use domain::time::{DAY_MS, HOUR_MS};
use domain::worker::WorkerState;
use store::worker_metadata::{self, MetadataFilter};
use store::{queue_workers, workers};

use crate::samples::{at, edit, pool_id, queue_worker, worker, worker_key};
use crate::world::{on_both, read, write};

on_both!(an_upsert_inserts_and_replaces_the_row, |database| {
    let store = database.migrated().await;
    let first = queue_worker("a/b", "g", "w");
    let mut second = first.clone();
    second.recent_tasks.clear();
    second.quarantine_until = Some(at(77));
    second.last_date_active = None;
    second.first_claim = at(9);
    for stored in [first, second] {
        let expected = stored.clone();
        write(&store, move |tx| queue_workers::upsert(tx, &stored)).await;
        let found = read(&store, |tx| {
            queue_workers::get(tx, &worker_key("a/b", "g", "w"))
        })
        .await;
        assert_eq!(found, Some(expected));
    }
});

on_both!(one_worker_id_in_two_pools_means_two_workers, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        workers::insert(tx, &worker("a/b", "g", "w"))?;
        queue_workers::upsert(tx, &queue_worker("a/b", "g", "w"))?;
        queue_workers::upsert(tx, &queue_worker("a/c", "g", "w"))
    })
    .await;
    let known = read(&store, |tx| {
        worker_metadata::get(tx, &worker_key("a/b", "g", "w"))
    })
    .await;
    assert_eq!(known.unwrap().worker, Some(worker("a/b", "g", "w")));
    let unknown = read(&store, |tx| {
        worker_metadata::get(tx, &worker_key("a/c", "g", "w"))
    })
    .await;
    assert_eq!(unknown.unwrap().worker, None);
});

on_both!(metadata_is_filtered_and_paged_by_group_and_id, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for (group, id) in [("g2", "a"), ("g1", "b"), ("g1", "a"), ("g1", "c")] {
            let mut known = queue_worker("a/b", group, id);
            if id == "b" {
                known.quarantine_until = Some(at(50));
            }
            queue_workers::upsert(tx, &known)?;
        }
        let mut stopped = worker("a/b", "g1", "a");
        edit(&mut stopped, |it| {
            it.state = WorkerState::Stopped;
            it.launch_config_id = None;
        });
        workers::insert(tx, &stopped)?;
        workers::insert(tx, &worker("a/b", "g1", "b"))
    })
    .await;
    let list = async |filter: MetadataFilter| {
        let found = read(&store, move |tx| {
            worker_metadata::list(tx, &pool_id("a/b"), &filter, None, 10)
        })
        .await;
        found
            .iter()
            .map(|m| format!("{}/{}", m.queue.key.group, m.queue.key.id))
            .collect::<Vec<_>>()
    };
    let all = MetadataFilter::default;
    assert_eq!(list(all()).await, ["g1/a", "g1/b", "g1/c", "g2/a"]);
    let state = Some(WorkerState::Stopped);
    assert_eq!(list(MetadataFilter { state, ..all() }).await, ["g1/a"]);
    let launch_config_id = Some("lc-1".parse().unwrap());
    assert_eq!(
        list(MetadataFilter {
            launch_config_id,
            ..all()
        })
        .await,
        ["g1/b"]
    );
    for (moment, expected) in [(50, 1), (51, 0)] {
        let quarantined_at = Some(at(moment));
        let found = list(MetadataFilter {
            quarantined_at,
            ..all()
        })
        .await;
        assert_eq!(found.len(), expected);
    }
    let after = worker_key("a/b", "g1", "b");
    let rest = read(&store, move |tx| {
        worker_metadata::list(
            tx,
            &pool_id("a/b"),
            &all(),
            Some((&after.group, &after.id)),
            1,
        )
    })
    .await;
    assert_eq!(rest[0].queue.key, worker_key("a/b", "g1", "c"));
});

on_both!(a_quarantine_outlives_the_expiry_of_its_worker, |database| {
    let store = database.migrated().await;
    let n_deleted = write(&store, |tx| {
        queue_workers::upsert(tx, &queue_worker("a/b", "g", "gone"))?;
        let mut held = queue_worker("a/b", "g", "held");
        held.quarantine_until = Some(at(9_000));
        queue_workers::upsert(tx, &held)?;
        queue_workers::delete_expired(tx, at(5_000), 10)
    })
    .await;
    assert_eq!(n_deleted, 1);
    let held = read(&store, |tx| {
        queue_workers::get(tx, &worker_key("a/b", "g", "held"))
    })
    .await;
    assert!(held.is_some());
});

on_both!(a_record_expires_to_the_millisecond, |database| {
    let store = database.migrated().await;
    let start = at(100 * DAY_MS);
    for (number, end) in (0..).zip([-1, 0, 1, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1]) {
        let mut row = queue_worker("a/b", "g", &format!("w{number}"));
        row.expires = start.plus_millis(end);
        write(&store, move |tx| queue_workers::upsert(tx, &row)).await;
    }
    for (now, left) in [
        (-1, 6),
        (0, 5),
        (1, 4),
        (2, 3),
        (HOUR_MS, 2),
        (HOUR_MS + 2, 0),
    ] {
        let now = start.plus_millis(now);
        write(&store, move |tx| queue_workers::delete_expired(tx, now, 9)).await;
        let rows = store.count_rows().await.unwrap();
        assert_eq!(rows["queue_workers"], left, "{now}");
    }
});

on_both!(
    workers_are_listed_until_they_expire_and_their_quarantine_ends,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (id, expires, quarantine_until) in [
                ("current", 100, None),
                ("held", 100, Some(60)),
                ("held-and-gone", 40, Some(60)),
                ("once-held", 100, Some(49)),
                ("gone", 49, Some(49)),
            ] {
                let mut seen = queue_worker("a/b", "g", id);
                seen.expires = at(expires);
                seen.quarantine_until = quarantine_until.map(at);
                queue_workers::upsert(tx, &seen)?;
            }
            queue_workers::upsert(tx, &queue_worker("a/c", "g", "elsewhere"))
        })
        .await;
        let list = async |quarantined: Option<bool>, after: Option<&'static str>, limit: u32| {
            let after = after.map(|id| worker_key("a/b", "g", id));
            let found = read(&store, move |tx| {
                let after = after.as_ref().map(|key| (&key.group, &key.id));
                queue_workers::list(tx, &pool_id("a/b"), quarantined, at(50), after, limit)
            });
            let ids = found
                .await
                .into_iter()
                .map(|worker| worker.key.id.to_string());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(
            list(None, None, 9).await,
            ["current", "held", "held-and-gone", "once-held"]
        );
        assert_eq!(list(Some(true), None, 9).await, ["held", "held-and-gone"]);
        assert_eq!(list(Some(false), None, 9).await, ["current", "once-held"]);
        assert_eq!(list(None, Some("current"), 1).await, ["held"]);
    }
);

on_both!(
    rows_of_other_pools_and_of_stopped_workers_do_not_use_up_the_limit_of_rows,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut ended = worker("a/a", "g", "ended");
            edit(&mut ended, |it| it.state = WorkerState::Stopped);
            let mut of_another = worker("a/a", "g", "of-another");
            edit(&mut of_another, |it| {
                it.provider_id = "other".parse().unwrap()
            });
            for worker in [
                worker("a/a", "g", "w"),
                worker("a/a", "h", "in-another-group"),
                worker("z/z", "g", "w"),
                ended,
                of_another,
            ] {
                queue_workers::upsert(tx, &{
                    let key = &worker.key;
                    queue_worker(key.pool_id.as_str(), key.group.as_str(), key.id.as_str())
                })?;
                workers::insert(tx, &worker)?;
            }
            Ok(())
        })
        .await;
        // Sizes around the limit of rows of one answer, all between the first worker and the last.
        let mut n_foreign = 0;
        for total in [0, 1, 99_999, 100_000, 100_001] {
            if total > n_foreign {
                database.raw(&format!(
                    "WITH RECURSIVE n(i) AS (SELECT {} UNION ALL SELECT i + 1 FROM n \
                     WHERE i < {total}) INSERT INTO queue_workers (task_queue_id, worker_group, \
                     worker_id, recent_tasks, quarantine_details, expires, first_claim) \
                     SELECT 'm/m', 'g', 'w' || i, '[]', '[]', 1000, 1 FROM n",
                    n_foreign + 1
                ));
                n_foreign = total;
            }
            let found = read(&store, |tx| {
                let provider = "aws-1".parse().unwrap();
                let (first, last) = (worker_key("a/a", "g", "w"), worker_key("z/z", "g", "w"));
                queue_workers::list_of_live(tx, &provider, &first, &last)
            })
            .await;
            let pools: Vec<_> = found.iter().map(|it| it.key.pool_id.as_str()).collect();
            assert_eq!(pools, ["a/a", "z/z"], "beside {n_foreign} rows");
            let mut expected = queue_worker("a/a", "g", "w");
            expected.recent_tasks.clear();
            expected.quarantine_details.clear();
            assert_eq!(found[0], expected);
        }
    }
);
