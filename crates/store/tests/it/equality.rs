//! Both databases behave the same: the same operations give the same answers.

use domain::id::ProviderId;
use domain::worker::WorkerState;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use store::listed_workers::{self, WorkerFilter};
use store::worker_metadata::{self, MetadataFilter};
use store::{
    Store, StoreError, Tx, clients, error_stats, launch_configs, outbox, pools, queue_workers,
    revisions, worker_counts, worker_errors, workers,
};

use crate::samples::{
    at, client, edit, error, event, launch_config, pool, pool_id, queue_worker, worker, worker_key,
};
use crate::world::Database;

#[derive(Clone, Debug)]
enum Operation {
    PoolInsert(u8),
    PoolDelete(u8),
    LaunchConfigInsert(u8, bool),
    LaunchConfigExpire,
    WorkerInsert { name: u8, created: u8, state: u8 },
    WorkerStop(u8),
    WorkerExpire(u8),
    QueueWorker(u8),
    Error { number: u8, reported: u8 },
    Client(u8),
    FailAfterInsert(u8),
    Look { state: u8, limit: u8 },
}

const NAMES: [&str; 6] = ["a", "A", "a-b", "aB", "ab", "a_b"];

fn name(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

fn state(number: u8) -> WorkerState {
    WorkerState::ALL[usize::from(number) % WorkerState::ALL.len()]
}

fn pool_name(number: u8) -> &'static str {
    ["x/a", "x/a-b", "x/ab"][usize::from(number) % 3]
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation as O;
    prop_oneof![
        any::<u8>().prop_map(O::PoolInsert),
        any::<u8>().prop_map(O::PoolDelete),
        any::<(u8, bool)>().prop_map(|(n, archived)| O::LaunchConfigInsert(n, archived)),
        Just(O::LaunchConfigExpire),
        any::<(u8, u8, u8)>().prop_map(|(name, created, state)| O::WorkerInsert {
            name,
            created: created % 4,
            state
        }),
        any::<u8>().prop_map(O::WorkerStop),
        any::<u8>().prop_map(O::WorkerExpire),
        any::<u8>().prop_map(O::QueueWorker),
        any::<(u8, u8)>().prop_map(|(number, reported)| O::Error {
            number: number % 20,
            reported
        }),
        any::<u8>().prop_map(O::Client),
        any::<u8>().prop_map(O::FailAfterInsert),
        any::<(u8, u8)>().prop_map(|(state, limit)| O::Look {
            state,
            limit: limit % 5 + 1
        }),
    ]
}

/// Runs one operation and returns a description of its result.
fn perform(tx: &mut Tx<'_>, operation: &Operation) -> Result<String, StoreError> {
    Ok(match operation {
        Operation::PoolInsert(n) => {
            outbox::push(tx, &event("e", pool_name(*n)))?;
            match pools::get(tx, &pool_id(pool_name(*n)))? {
                Some(known) => format!("{known:?}"),
                None => format!("{:?}", pools::insert(tx, &pool(pool_name(*n), "one"))?),
            }
        }
        Operation::PoolDelete(n) => format!("{:?}", pools::delete(tx, &pool_id(pool_name(*n)))?),
        Operation::LaunchConfigInsert(n, archived) => {
            let mut config = launch_config("x/a", ["lc-1", "lc-2"][usize::from(*n) % 2]);
            config.archived = *archived;
            // The second insertion of a launch config is a lost race, which is tried many times.
            match launch_configs::get(tx, &config.pool_id, &config.id)? {
                Some(known) => format!("{known:?}"),
                None => format!("{:?}", launch_configs::insert(tx, &config)?),
            }
        }
        Operation::LaunchConfigExpire => {
            let found = launch_configs::list_expirable(tx, 1)?;
            format!("{}", launch_configs::delete_expirable(tx, &found)?)
        }
        Operation::WorkerInsert {
            name: n,
            created,
            state: s,
        } => {
            let mut worker = worker("x/a", name(n / 8), name(*n));
            edit(&mut worker, |it| {
                (it.created, it.expires) = (at((*created).into()), at((*created).into()));
                it.state = state(*s);
                it.launch_config_id = (s % 3 > 0).then(|| "lc-1".parse().unwrap());
            });
            format!("{:?}", workers::insert(tx, &worker)?)
        }
        Operation::WorkerStop(n) => {
            match workers::get(tx, &worker_key("x/a", name(n / 8), name(*n)))? {
                Some(worker) => {
                    let stopped = worker.mark_stopped("", at(9));
                    format!("{:?}", workers::update(tx, &stopped)?)
                }
                None => "none".to_owned(),
            }
        }
        Operation::WorkerExpire(n) => {
            format!("{}", workers::delete_expired(tx, at((n % 4).into()), 100)?)
        }
        Operation::QueueWorker(n) => {
            let mut known = queue_worker("x/a", name(n / 8), name(*n));
            known.quarantine_until = (n % 2 == 0).then(|| at((*n).into()));
            format!("{:?}", queue_workers::upsert(tx, &known)?)
        }
        Operation::Error { number, reported } => {
            let report = error(
                pool_name(*number),
                *number,
                i64::from(*reported) * 3_000_000,
            );
            format!("{:?}", worker_errors::insert(tx, &report)?)
        }
        Operation::Client(n) => format!("{:?}", clients::insert(tx, &client(name(*n)))?),
        Operation::FailAfterInsert(n) => {
            if pools::get(tx, &pool_id(pool_name(*n)))?.is_none() {
                pools::insert(tx, &pool(pool_name(*n), "two"))?;
            }
            return Err(StoreError::BadUrl("on purpose".to_owned()));
        }
        Operation::Look { state: s, limit } => look(tx, state(*s), u32::from(*limit))?,
    })
}

fn look(tx: &mut Tx<'_>, state: WorkerState, limit: u32) -> Result<String, StoreError> {
    let id = pool_id("x/a");
    let provider: ProviderId = "aws-1".parse().unwrap();
    let by_state = WorkerFilter {
        state: Some(state),
        ..WorkerFilter::default()
    };
    let quarantined = MetadataFilter {
        quarantined_at: Some(at(100)),
        ..MetadataFilter::default()
    };
    let workers = listed_workers::list(tx, &id, &by_state, None, limit)?;
    let next = match workers.last() {
        Some(last) => {
            listed_workers::list(tx, &id, &WorkerFilter::default(), Some(&last.into()), limit)?
        }
        None => Vec::new(),
    };
    let now = at(200 * 3_000_000);
    Ok(format!(
        "{workers:?} {next:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {}",
        workers::list_live(tx, &provider, &name(0).parse().unwrap(), None, limit)?,
        worker_counts::by_launch_config(tx, &id)?,
        worker_counts::by_state(tx)?,
        worker_metadata::list(tx, &id, &MetadataFilter::default(), None, limit)?,
        worker_metadata::list(tx, &id, &quarantined, None, limit)?,
        error_stats::count(tx, None, now)?,
        error_stats::count(tx, Some(&id), now)?,
        pools::list(tx, None, limit)?,
        (
            launch_configs::all(tx, &id)?,
            clients::list(tx, "a", None, limit)?
        ),
        outbox::depth(tx)?,
        revisions::current(tx)?.n_changes(),
    ))
}

async fn answers(store: &Store, operations: &[Operation]) -> Vec<String> {
    let mut answers = Vec::new();
    for operation in operations {
        let operation = operation.clone();
        let answer: Result<String, StoreError> =
            store.write("any", move |tx| perform(tx, &operation)).await;
        answers.push(answer.unwrap_or_else(|error| error.to_string()));
    }
    answers
}

const TABLES: &str = "DELETE FROM worker_pools; DELETE FROM launch_configs; DELETE FROM workers; \
    DELETE FROM queue_workers; DELETE FROM worker_errors; DELETE FROM clients; DELETE FROM outbox; \
    DELETE FROM revisions WHERE name <> 'access'; UPDATE revisions SET value = 1";

#[test]
fn the_same_operations_give_the_same_answers_on_both_databases() {
    let Some(postgres) = Database::postgres() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let sqlite = Database::sqlite();
    let (one, two) =
        runtime.block_on(async { (sqlite.migrated().await, postgres.migrated().await) });
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(24)
    });
    let operations = proptest::collection::vec(operation(), 1..60);
    let result = runner.run(&operations, |mut operations| {
        sqlite.raw(TABLES);
        postgres.raw(TABLES);
        operations.push(Operation::Look {
            state: 1,
            limit: 50,
        });
        let (left, right) = runtime.block_on(async {
            (
                answers(&one, &operations).await,
                answers(&two, &operations).await,
            )
        });
        prop_assert_eq!(left, right);
        Ok(())
    });
    result.unwrap();
}
