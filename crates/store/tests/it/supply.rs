//! Running workers: which count as supply, and the columns that planning reads.

use domain::facts::RunningWorker;
use domain::lifecycle::DEFAULT_IDLE_HOLD_MS;
use domain::supply::{ASKED_MS, FRESH_MS, Horizon, Presence, STARTING_MS, Signs};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::worker::{Advice, Worker, WorkerState};
use store::{queue_workers, running_workers, workers};

use crate::samples::{at, edit, pool_id, queue_worker, worker, worker_key};
use crate::world::{on_both, read, write};

const NOW: i64 = 100 * DAY_MS;

fn ago(ms: i64) -> Timestamp {
    at(NOW - ms)
}

/// Every moment at and around the bounds, and no moment.
fn moments() -> Vec<Option<i64>> {
    let bounds = [FRESH_MS, ASKED_MS, STARTING_MS, HOUR_MS, -FRESH_MS];
    let around = bounds.iter().flat_map(|ms| [ms - 1, *ms, ms + 1]);
    around.map(Some).chain([None]).collect()
}

fn all_signs() -> Vec<Signs> {
    let mut all = Vec::new();
    for registered in moments() {
        for asked in moments() {
            for ended in [None, Some(ASKED_MS), Some(ASKED_MS + 1), asked] {
                for has_task in [false, true] {
                    all.push(Signs {
                        registered: ago(registered.unwrap_or(DAY_MS)),
                        last_asked: asked.map(ago),
                        last_task_ended: ended.map(ago),
                        has_task,
                    });
                }
            }
        }
    }
    all
}

on_both!(
    the_database_and_the_domain_agree_on_silent_workers,
    |database| {
        let store = database.migrated().await;
        let signs = all_signs();
        let n_workers = signs.len();
        let rows = signs.clone();
        write(&store, move |tx| {
            for (number, signs) in rows.iter().enumerate() {
                let id = format!("w{number:05}");
                let mut worker = worker("a/b", "g", &id);
                edit(&mut worker, |it| {
                    it.capacity = 1;
                    it.created = ago(DAY_MS);
                });
                let declared = signs.registered == worker.created;
                edit(&mut worker, |it| {
                    it.terms.registered_at = (!declared).then_some(signs.registered.as_millis())
                });
                workers::insert(tx, &worker)?;
                if signs.last_asked.is_none() && signs.last_task_ended.is_none() {
                    continue;
                }
                let mut seen = queue_worker("a/b", "g", &id);
                seen.quarantine_until = None;
                seen.last_date_active = signs.last_asked;
                seen.last_task_ended = signs.last_task_ended;
                queue_workers::upsert(tx, &seen)?;
            }
            Ok(())
        })
        .await;
        let until = NOW + 1;
        let busy = signs.iter().enumerate().filter(|(_, signs)| signs.has_task);
        let values = busy
            .map(|(number, _)| format!("('t{number}', 0, 'a/b', 'g', 'w{number:05}', 1, {until})"));
        let values = values.collect::<Vec<_>>().join(",");
        database.raw(&format!("INSERT INTO claimed_tasks VALUES {values}"));
        for listening in [Some(ago(DAY_MS)), Some(ago(ASKED_MS)), None] {
            let horizon = Horizon::new(at(NOW), listening);
            let (silent, listed, fresh) = read(&store, move |tx| {
                let (first, last) = (pool_id("a/a"), pool_id("a/z"));
                let silent = running_workers::silent_between(tx, &horizon, &first, &last)?;
                let limit = u32::try_from(n_workers).unwrap();
                let listed = running_workers::list_silent(tx, &horizon, &pool_id("a/b"), limit)?;
                let fresh = running_workers::fresh_between(tx, &horizon, &first, &last)?;
                Ok((silent, listed, fresh))
            })
            .await;
            let expected: Vec<(String, Signs)> = signs
                .iter()
                .enumerate()
                .filter(|(_, signs)| horizon.presence(signs) == Presence::Silent)
                .map(|(number, signs)| (format!("w{number:05}"), *signs))
                .collect();
            let found: Vec<(String, Signs)> = listed
                .into_iter()
                .map(|worker| (worker.id.to_string(), worker.signs))
                .collect();
            assert_eq!(found, expected);
            let count = silent.iter().map(|group| group.count).sum::<u64>();
            assert_eq!(count, expected.len() as u64);
            let n_fresh = signs.iter().filter(|signs| horizon.is_fresh(signs)).count();
            let count = fresh.iter().map(|group| group.count).sum::<u64>();
            assert_eq!(count, n_fresh as u64);
        }
    }
);

on_both!(
    silent_workers_are_grouped_without_quarantined_ones,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut add = |pool, id, state, draining: bool| {
                let mut worker = worker(pool, "g", id);
                edit(&mut worker, |it| {
                    it.state = state;
                    it.terms.advice = draining.then(|| Advice {
                        terminate: true,
                        reason: "over capacity".to_owned(),
                        decided_at: 0,
                    });
                });
                workers::insert(tx, &worker)
            };
            add("a/b", "silent", WorkerState::Running, false)?;
            add("a/b", "too", WorkerState::Running, false)?;
            add("a/b", "leaving", WorkerState::Running, true)?;
            add("a/b", "ill", WorkerState::Running, false)?;
            add("a/b", "coming", WorkerState::Requested, false)?;
            add("a/b", "stopping", WorkerState::Stopping, false)?;
            add("a/c", "elsewhere", WorkerState::Running, false)?;
            let mut ill = queue_worker("a/b", "g", "ill");
            ill.quarantine_until = Some(at(NOW));
            ill.last_date_active = None;
            ill.last_task_ended = None;
            queue_workers::upsert(tx, &ill)
        })
        .await;
        let silent_at = |now: i64| {
            let horizon = Horizon::new(at(now), Some(at(0)));
            read(&store, move |tx| {
                let id = pool_id("a/b");
                let groups = running_workers::silent_between(tx, &horizon, &id, &id)?;
                let of =
                    |group: &domain::supply::Group| (group.draining, group.count, group.capacity);
                Ok(groups.iter().map(of).collect::<Vec<_>>())
            })
        };
        assert_eq!(silent_at(NOW).await, [(false, 2, 4), (true, 1, 2)]);
        assert_eq!(silent_at(NOW + 1).await, [(false, 3, 6), (true, 1, 2)]);
    }
);

/// A worker that the queue does not know.
fn without_records(worker: &Worker) -> RunningWorker {
    RunningWorker {
        key: worker.key.clone(),
        provider_id: worker.provider_id.clone(),
        launch_config_id: worker.launch_config_id.clone(),
        offering: worker.terms.offering.clone(),
        capacity: worker.capacity,
        created: worker.created,
        registered: worker.terms.registered_at.map(at),
        idle_hold_ms: worker.terms.idle_hold_ms,
        advice: worker.terms.advice.clone(),
        price: worker.price,
        last_asked: None,
        last_task_ended: None,
        quarantined_since: None,
        claimed: 0,
    }
}

on_both!(
    running_workers_are_read_with_the_records_of_the_queue,
    |database| {
        let store = database.migrated().await;
        let mut told = worker("a/b", "g", "told");
        edit(&mut told, |it| {
            it.terms.registered_at = Some(150);
            it.terms.idle_hold_ms = Some(DEFAULT_IDLE_HOLD_MS);
            it.terms.advice = Some(Advice {
                terminate: true,
                reason: "over capacity".to_owned(),
                decided_at: 170,
            });
        });
        let plain = worker("a/b", "g", "plain");
        let stored = told.clone();
        write(&store, move |tx| {
            workers::insert(tx, &stored)?;
            workers::insert(tx, &plain)?;
            let seen = queue_worker("a/b", "g", "told");
            queue_workers::upsert(tx, &seen)
        })
        .await;
        database.raw("INSERT INTO claimed_tasks VALUES ('t', 0, 'a/b', 'g', 'told', 1, 500)");
        database.raw("INSERT INTO claimed_tasks VALUES ('u', 0, 'a/b', 'g', 'told', 1, 400)");
        let seen = queue_worker("a/b", "g", "told");
        let running = read(&store, |tx| {
            running_workers::list(tx, &pool_id("a/b"), at(400), 0, 9)
        })
        .await;
        let imposed = seen.quarantine_details.last();
        let imposed = imposed.and_then(|entry| entry.updated_at.parse().ok());
        let is_quarantined = seen.is_quarantined(at(400));
        let told_row = RunningWorker {
            last_asked: seen.last_date_active,
            last_task_ended: seen.last_task_ended,
            quarantined_since: is_quarantined.then(|| imposed.unwrap_or(at(400))),
            claimed: 1,
            ..without_records(&told)
        };
        assert_eq!(
            running,
            [without_records(&worker("a/b", "g", "plain")), told_row]
        );
        // Changes are visible in the next read.
        write(&store, |tx| {
            let mut worker = workers::get(tx, &worker_key("a/b", "g", "told"))?.unwrap();
            edit(&mut worker, |it| {
                it.terms.advice = None;
                it.terms.registered_at = Some(160);
            });
            workers::update(tx, &worker)
        })
        .await;
        let running = read(&store, |tx| {
            running_workers::list(tx, &pool_id("a/b"), at(400), 1, 9)
        })
        .await;
        assert_eq!(running.len(), 1);
        assert_eq!(
            (&running[0].advice, running[0].registered),
            (&None, Some(at(160)))
        );
    }
);

on_both!(
    the_price_of_a_worker_is_the_agreed_one_to_the_millionth,
    |database| {
        let store = database.migrated().await;
        let prices = [None, Some(0.0), Some(0.031_333), Some(1_000_000.0)];
        let workers = prices.map(|price| {
            let mut worker = worker(
                "a/b",
                "g",
                &format!("w{price:?}").replace(['(', ')', '.'], "-"),
            );
            edit(&mut worker, |it| it.price = price);
            worker
        });
        let stored = workers.clone();
        write(&store, move |tx| {
            let mut workers = stored.iter();
            workers.try_for_each(|worker| workers::insert(tx, worker).map(drop))
        })
        .await;
        let running = read(&store, |tx| {
            running_workers::list(tx, &pool_id("a/b"), at(400), 0, 9)
        })
        .await;
        assert_eq!(running.len(), workers.len());
        for worker in workers {
            let known = running.iter().find(|row| row.key == worker.key).unwrap();
            assert_eq!(known.price, worker.price);
            // That of a declared host changes with its launch config.
            let stored = worker.clone();
            write(&store, move |tx| {
                let mut cheaper = stored.clone();
                edit(&mut cheaper, |it| it.price = Some(9.0));
                workers::update(tx, &cheaper)
            })
            .await;
            let key = worker.key.clone();
            let found = read(&store, move |tx| workers::get(tx, &key))
                .await
                .unwrap();
            assert_eq!(found.price, Some(9.0));
        }
    }
);

on_both!(running_workers_are_read_in_parts_of_any_size, |database| {
    const LIMIT: u32 = 7;
    for count in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
        let another = database.another();
        let store = another.migrated().await;
        write(&store, move |tx| {
            for number in 0..count {
                workers::insert(tx, &worker("a/b", "g", &format!("w{number:03}")))?;
            }
            workers::insert(tx, &worker("a/c", "g", "elsewhere")).map(drop)
        })
        .await;
        let mut ids = Vec::new();
        for part in 0..=count / LIMIT {
            let skip = u64::from(part * LIMIT);
            let found = read(&store, move |tx| {
                running_workers::list(tx, &pool_id("a/b"), at(NOW), skip, LIMIT)
            })
            .await;
            let left = count - part * LIMIT;
            assert_eq!(found.len(), left.min(LIMIT) as usize);
            ids.extend(found.into_iter().map(|worker| worker.key.id.to_string()));
        }
        let all: Vec<String> = (0..count).map(|number| format!("w{number:03}")).collect();
        assert_eq!(ids, all);
        let silent = read(&store, move |tx| {
            let horizon = Horizon::new(at(NOW), Some(at(0)));
            running_workers::list_silent(tx, &horizon, &pool_id("a/b"), LIMIT)
        });
        assert_eq!(silent.await.len(), count.min(LIMIT) as usize);
        store.close().await;
    }
});
