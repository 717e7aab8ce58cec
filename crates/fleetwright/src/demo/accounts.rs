//! Writes the simulated week into the accounts of the store.
//!
//! A week of tasks cannot run in seconds, so these rows are inserted, by the functions of the store
//! that the running server uses. The product's own rules split the time of machines by use and the
//! waits by cause.

use std::collections::BTreeMap;

use access::slugid;
use anyhow::Context as _;
use domain::cost::{Life, Meter, MeteredRun, Uses};
use domain::error_report::{ErrorReport, extra_of_worker};
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::recording::{RecordedRun, RecordedWorker};
use domain::run_outcome::RunOutcome;
use domain::task::Priority;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::waits::{Accounts, charge};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};
use store::{Store, StoreError};

use super::past_series::PastSeries;
use super::scene::{ErrorSeries, Hosts, Scene, before, whole};
use super::week::{PastMachine, PastPool, PastWeek, Place, simulate};

/// The simulated days.
const DAYS: i64 = 7;
/// The last minutes are recorded by the server itself.
const SERIES_END_MS: i64 = 3 * MINUTE_MS;
/// The kind of the errors of refused launches.
const REFUSAL: &str = "creation-error";
/// Costs of hours become costs of days after this time, as on a running server.
const HOURLY_MS: i64 = 2 * DAY_MS;

/// The rows of a pool.
#[derive(Clone, Default)]
struct Rows {
    outcomes: Vec<RunOutcome>,
    runs: Vec<RecordedRun>,
    workers: Vec<RecordedWorker>,
    waits: Accounts,
    costs: BTreeMap<(LaunchConfigId, ProviderId), BTreeMap<Timestamp, Uses>>,
    errors: Vec<ErrorReport>,
}

/// Simulates and writes the last days of all pools.
pub(super) async fn write(
    store: &Store,
    scene: &Scene,
    now: Timestamp,
    random: &mut StdRng,
) -> anyhow::Result<()> {
    let since = now.plus_millis(-DAYS * DAY_MS).start_of(HOUR_MS);
    let mut series_of_week = PastSeries::new(since, now.plus_millis(-SERIES_END_MS));
    for week in &scene.week {
        let id: PoolId = week.pool.parse().context("a pool of the week")?;
        let (pool, places) = read_pool(store, &id).await?;
        let hosts = scene.hosts.iter().filter(|hosts| hosts.pool == week.pool);
        let past_pool = PastPool {
            hosts: hosts.flat_map(host_keys).collect(),
            places,
            id,
        };
        let past = simulate(week, &past_pool, since, now, random);
        let mut rows = Rows::of(&past, &past_pool, &pool.definition.owner);
        let series = scene.errors.iter().filter(|it| it.pool == week.pool);
        for series in series {
            rows.add_errors(series, &past, &past_pool, now, random);
        }
        series_of_week.add_pool(week, &past_pool, &past);
        for (config, moments) in rows.refusals() {
            let name = (week.pool.clone(), config.to_string());
            series_of_week.add_refusals(&name, &moments);
        }
        let written = store.write("demo_week", move |tx| {
            let rows = rows.clone();
            store::run_outcomes::note(tx, &rows.outcomes)?;
            store::recorded_runs::insert(tx, &rows.runs)?;
            for worker in &rows.workers {
                store::recorded_workers::insert(tx, worker)?;
            }
            store::wait_accounts::add(tx, &rows.waits)?;
            for ((launch_config, provider), hours) in &rows.costs {
                let of = (&past_pool.id, launch_config, provider);
                store::cost_accounts::record(tx, of, hours)?;
            }
            for error in &rows.errors {
                store::worker_errors::insert(tx, error)?;
            }
            Ok::<_, StoreError>(())
        });
        written.await.context("cannot write the week of a pool")?;
    }
    let hourly = now.plus_millis(-HOURLY_MS).start_of(DAY_MS);
    let folded = store.write("demo_fold", move |tx| {
        while store::cost_accounts::fold_hour(tx, hourly)? {}
        Ok::<_, StoreError>(())
    });
    folded.await.context("cannot sum up the costs of days")?;
    series_of_week.write(store, now).await
}

/// The names of declared hosts.
pub(super) fn host_keys(hosts: &Hosts) -> Vec<WorkerKey> {
    let key = |number: u32| {
        let name = format!("{}{number}", hosts.name);
        WorkerKey::parse(hosts.pool.parse().ok()?, &hosts.group, &name).ok()
    };
    (1..=hosts.count).filter_map(key).collect()
}

async fn read_pool(store: &Store, id: &PoolId) -> anyhow::Result<(Pool, Vec<Place>)> {
    let asked = id.clone();
    let read = store.read("demo_pool", move |tx| {
        let configs = store::launch_configs::active_of(tx, std::slice::from_ref(&asked))?;
        Ok::<_, StoreError>((store::pools::get(tx, &asked)?, configs))
    });
    let (pool, configs) = read.await?;
    let pool = pool.with_context(|| format!("pool {id} of the week was not created"))?;
    let places = configs.iter().filter_map(|config| place(config, &pool));
    let places = places.collect();
    Ok((pool, places))
}

fn place(config: &LaunchConfig, pool: &Pool) -> Option<Place> {
    let content = &config.configuration;
    let own = content.get("workerManager");
    let text = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
    let provider = text(own.and_then(|own| own.get("providerId")));
    let of_kind = content.get("machines").and_then(|kinds| kinds.get(0));
    let of_own = own.and_then(|own| own.get("costPerHour"));
    let of_pool = pool.definition.config.get("costPerHour");
    let of_kind = of_kind.and_then(|kind| kind.get("price"));
    let price = content.get("price").or(of_kind).or(of_own).or(of_pool);
    let boot_seconds = content.get("bootSeconds").and_then(Value::as_i64);
    let group = text(content.get("region")).unwrap_or_else(|| "mdc1".to_owned());
    Some(Place {
        provider_id: match provider {
            Some(id) => id.parse().ok()?,
            None => pool.definition.provider_id.clone(),
        },
        group: group.parse().ok()?,
        launch_config_id: config.id.clone(),
        price: price.and_then(Value::as_f64),
        boot_ms: boot_seconds.unwrap_or(0) * SECOND_MS,
    })
}

impl Rows {
    /// When launches of each launch config were refused.
    fn refusals(&self) -> BTreeMap<&LaunchConfigId, Vec<Timestamp>> {
        let mut refusals: BTreeMap<&LaunchConfigId, Vec<Timestamp>> = BTreeMap::new();
        let refused = self.errors.iter().filter(|error| error.kind == REFUSAL);
        for error in refused {
            if let Some(config) = &error.launch_config_id {
                refusals.entry(config).or_default().push(error.reported);
            }
        }
        refusals
    }

    fn of(past: &PastWeek, pool: &PastPool, owner: &str) -> Self {
        let mut rows = Self::default();
        let mut lives: Vec<Vec<MeteredRun>> = vec![Vec::new(); past.machines.len()];
        for run in &past.runs {
            lives[run.machine].push(MeteredRun {
                started: run.started,
                resolved: run.resolved,
                reason: run.reason,
            });
            rows.outcomes.push(RunOutcome {
                task_id: run.task_id.clone(),
                run_id: run.run_id,
                worker: past.machines[run.machine].key.clone(),
                reason: run.reason,
                resolved: run.resolved,
                started: Some(run.started),
            });
            rows.runs.push(RecordedRun {
                pool_id: pool.id.clone(),
                waiting_since: run.waiting_since,
                started: run.started,
                resolved: run.resolved,
                reason: run.reason,
                priority: Some(Priority::Medium),
            });
            charge(&mut rows.waits, &pool.id, owner, &run.parts);
        }
        for (machine, runs) in past.machines.iter().zip(lives) {
            let Some(place) = pool.places.get(machine.place) else {
                continue;
            };
            rows.charge_machine(machine, runs, place);
            if pool.hosts.is_empty() {
                rows.workers.push(recorded(machine, place));
            }
        }
        rows
    }

    fn charge_machine(&mut self, machine: &PastMachine, runs: Vec<MeteredRun>, place: &Place) {
        let meter = Meter {
            price: place.price.map(|price| whole(price * 1e6)),
            started: machine.made,
            charged: machine.made,
            ended: Some(machine.ended),
        };
        let life = Life {
            first_claim: machine.first_claim,
            leaving: machine.leaving,
            runs,
            ..Life::default()
        };
        let account = (place.launch_config_id.clone(), place.provider_id.clone());
        let hours = self.costs.entry(account).or_default();
        // Once the runs of a machine are known, all of its time is.
        let known = machine.ended.plus_millis(DAY_MS);
        for (hour, uses) in meter.charge(&life, known).hours {
            *hours.entry(hour).or_default() += uses;
        }
    }

    fn add_errors(
        &mut self,
        series: &ErrorSeries,
        past: &PastWeek,
        pool: &PastPool,
        now: Timestamp,
        random: &mut StdRng,
    ) {
        let (since, until) = (before(now, series.from), before(now, series.to));
        let days = until.millis_since(since) as f64 / DAY_MS as f64;
        for _ in 0..whole(days * series.per_day) {
            let reported = random.random_range(since.as_millis()..until.as_millis());
            let reported = Timestamp::from_millis(reported);
            let lives = |it: &&PastMachine| it.made <= reported && reported <= it.ended;
            let machine = past.machines.iter().find(lives);
            let place = machine.map_or(0, |machine| machine.place);
            let mut extra = Map::from_iter([("code".to_owned(), json!(series.code))]);
            if let Some(machine) = machine.filter(|_| series.by_worker) {
                extra = extra_of_worker(&machine.key, extra);
            }
            let Ok(error_id) = slugid::nice(random).parse() else {
                continue;
            };
            let place = pool.places.get(place);
            self.errors.push(ErrorReport {
                pool_id: pool.id.clone(),
                error_id,
                reported,
                kind: series.kind.clone(),
                title: series.title.clone(),
                description: series.text.clone(),
                extra,
                launch_config_id: place.map(|place| place.launch_config_id.clone()),
            });
        }
    }
}

fn recorded(machine: &PastMachine, place: &Place) -> RecordedWorker {
    RecordedWorker {
        key: machine.key.clone(),
        provider_id: place.provider_id.clone(),
        launch_config_id: Some(place.launch_config_id.clone()),
        capacity: 1,
        price: place.price,
        created: machine.made,
        registered: machine.registered,
        stopping: machine.leaving,
        stopped: Some(machine.ended),
        is_interrupted: machine.is_interrupted,
    }
}
