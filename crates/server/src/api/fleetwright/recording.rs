//! The recorded history, for simulations: a list of entries of several kinds, page by page.
//!
//! First what is known about the recording and its providers, then pools, gaps, launches, workers
//! and runs. A continuation token names the kind and the last entry.

use domain::demand::Demand;
use domain::launch::{Launch, LaunchState};
use domain::plan::Bid;
use domain::recording::{RecordedGap, RecordedRun, RecordedWorker};
use domain::time::{DAY_MS, Timestamp};
use engine::configurations::provider_entry;
use engine::fleet::{OfferedPool, list_offered_pools};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simulate::recording::{Recording, RecordingError, RecordingReader};
use store::{StoreError, Tx};

use crate::api::paging::{MAX_PAGE_BYTES, Page};
use crate::api::reply::without_nulls;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::app::App;

/// The version of the entries. Readers refuse later ones.
const VERSION: u32 = 1;
/// How far back a recording goes if the request does not say.
const USUAL_MS: i64 = 7 * DAY_MS;
/// Pools that are read together, since they may be large.
const POOLS_AT_ONCE: u32 = 10;

/// Entries that are read together for a simulation.
const ENTRIES_AT_ONCE: usize = 1_000;

/// The kinds of entries, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    Recording,
    Pools,
    Gaps,
    Launches,
    /// That stop or have stopped.
    Workers,
    WorkingWorkers,
    Runs,
}

/// The last entry of a page, or the start of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Place {
    part: Part,
    at_ms: i64,
    sequence: i64,
    key: [String; 3],
}

/// The time that is asked for, and one page of it.
struct Reader<'a> {
    app: &'a App,
    now: Timestamp,
    since: Timestamp,
    until: Timestamp,
    entries: Vec<Value>,
    n_bytes: u64,
    limit: usize,
}

pub(super) async fn read(call: Call) -> Result<Reply, ApiError> {
    let page: Page<Place> = call.page()?;
    let until = moment(&call, "until")?.unwrap_or(call.now).min(call.now);
    let since = moment(&call, "since")?.unwrap_or(until.plus_millis(-USUAL_MS));
    if since >= until {
        return Err(ApiError::input(format!(
            "`since` ({since}) must be before `until` ({until})"
        )));
    }
    let mut reader = Reader::new(&call.app, call.now, (since, until), page.limit as usize);
    let after = page.after.clone();
    let place = reader.read_page(after.unwrap_or_else(Place::first)).await?;
    let token = place.map(|place| page.token(&place));
    Reply::list("entries", reader.entries, token)
}

/// Reads a recording of at most this many entries, as long as `goes_on` says so. `None`: it was
/// stopped.
pub(super) async fn load(
    app: &App,
    now: Timestamp,
    time: (Timestamp, Timestamp),
    max_entries: usize,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Recording>, ApiError> {
    let mut recording = RecordingReader::with_limit(max_entries);
    let mut place = Some(Place::first());
    while let Some(from) = place.take() {
        if !goes_on() {
            return Ok(None);
        }
        let mut reader = Reader::new(app, now, time, ENTRIES_AT_ONCE);
        place = reader.read_page(from).await?;
        add_all(&mut recording, reader.entries)?;
    }
    recording.finish().map(Some).map_err(unreadable)
}

fn add_all(recording: &mut RecordingReader, entries: Vec<Value>) -> Result<(), ApiError> {
    for entry in entries {
        let entry = serde_json::from_value(entry);
        let entry = entry.map_err(|error| ApiError::caused_by(error.into()))?;
        let number = recording.n_entries() + 1;
        recording.add(number, entry).map_err(unreadable)?;
    }
    Ok(())
}

fn unreadable(error: RecordingError) -> ApiError {
    match error {
        RecordingError::TooLong(most) => ApiError::input(format!(
            "more than {most} entries were recorded in this time: ask about a shorter time, or use \
             `fleetwright simulate recorded`"
        )),
        error @ (RecordingError::Empty
        | RecordingError::Entry { .. }
        | RecordingError::NoHeader
        | RecordingError::SecondHeader(_)
        | RecordingError::Version(_)
        | RecordingError::Length { .. }
        | RecordingError::SecondPool { .. }) => ApiError::caused_by(error.into()),
    }
}

fn moment(call: &Call, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let parsed = call.query(name).map(str::parse::<Timestamp>).transpose();
    parsed.map_err(|bad| ApiError::input(format!("`{name}`: {bad}")))
}

impl Part {
    fn next(self) -> Option<Self> {
        match self {
            Self::Recording => Some(Self::Pools),
            Self::Pools => Some(Self::Gaps),
            Self::Gaps => Some(Self::Launches),
            Self::Launches => Some(Self::Workers),
            Self::Workers => Some(Self::WorkingWorkers),
            Self::WorkingWorkers => Some(Self::Runs),
            Self::Runs => None,
        }
    }
}

impl Place {
    fn first() -> Self {
        Self::start(Part::Recording)
    }

    fn start(part: Part) -> Self {
        Self {
            part,
            at_ms: i64::MIN,
            sequence: 0,
            key: Default::default(),
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at_ms)
    }

    /// The later of the place and the start of the time that is asked for.
    fn since(&self, since: Timestamp) -> (Timestamp, i64) {
        if self.at() < since {
            (since, -1)
        } else {
            (self.at(), self.sequence)
        }
    }
}

impl<'a> Reader<'a> {
    fn new(
        app: &'a App,
        now: Timestamp,
        (since, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Self {
        Self {
            app,
            now,
            since,
            until,
            entries: Vec::new(),
            n_bytes: 0,
            limit,
        }
    }

    /// Reads as many entries as fit. Returns where the next ones are.
    async fn read_page(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let mut place = Some(from);
        while let Some(from) = place.take_if(|_| self.has_room()) {
            place = self.read(from).await?;
        }
        Ok(place)
    }

    /// A long read, never on this thread.
    async fn scan<T, F>(&self, name: &'static str, f: F) -> Result<T, ApiError>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.app.engine.store.scan(name, f).await?)
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.entries.len())
    }

    fn has_room(&self) -> bool {
        self.room() > 0 && self.n_bytes < MAX_PAGE_BYTES
    }

    /// One entry more than fits shows whether others follow.
    fn limit_and_one(&self) -> u32 {
        u32::try_from(self.room())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }

    fn add(&mut self, kind: &str, entry: Value) {
        self.entries.push(json!({ kind: entry }));
    }

    /// Adds entries of one kind. Returns where the next ones are.
    async fn read(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        match from.part {
            Part::Recording => self.read_recording().await,
            Part::Pools => self.read_pools(from).await,
            Part::Gaps => self.read_gaps(from).await,
            Part::Launches => self.read_launches(from).await,
            Part::Workers => self.read_workers(from).await,
            Part::WorkingWorkers => self.read_working(from).await,
            Part::Runs => self.read_runs(from).await,
        }
    }

    async fn read_recording(&mut self) -> Result<Option<Place>, ApiError> {
        let (app, now) = (self.app, self.now);
        let is_outside = app.engine.demand_source.is_outside();
        let read = self.scan("recording_start", move |tx| {
            let oldest = store::recorded_runs::oldest(tx)?;
            let demand = match is_outside {
                true => Demand::default(),
                false => store::demand::total(tx, now)?,
            };
            Ok::<_, StoreError>((oldest, demand))
        });
        let (oldest, demand) = read.await?;
        let fleet = &app.config.fleet;
        let entry = json!({
            "version": VERSION,
            "since": self.since.to_string(),
            "until": self.until.to_string(),
            "runsSince": oldest.map(|at| at.to_string()),
            "recordingDays": fleet.recording_days,
            "defaultStrategy": app.engine.strategies.strategy.as_str(),
            "roundSeconds": fleet.round_seconds,
            "scanSeconds": fleet.scan_seconds,
            "waiting": (!is_outside).then_some(demand.pending),
            "running": (!is_outside).then_some(demand.claimed),
        });
        self.add("recording", without_nulls(entry));
        for (id, _) in app.engine.providers.listed() {
            let mut entry = match provider_entry(&app.engine, id) {
                Ok(known) => json!({ "entry": known }),
                Err(problem) => json!({ "problem": problem }),
            };
            entry["providerId"] = json!(id.as_str());
            self.add("provider", entry);
        }
        Ok(Some(Place::start(Part::Pools)))
    }

    async fn read_pools(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let [after, ..] = &from.key;
        let after = (!after.is_empty()).then(|| after.parse()).transpose()?;
        let engine = &self.app.engine;
        let pools = list_offered_pools(engine, after, POOLS_AT_ONCE, self.now);
        let pools = pools.await.map_err(ApiError::from)?;
        let is_last = pools.len() < POOLS_AT_ONCE as usize;
        let n_pools = pools.len();
        for (number, offered) in pools.into_iter().enumerate() {
            let entry = pool_json(&offered);
            self.n_bytes += entry.to_string().len() as u64;
            self.add("pool", entry);
            let is_end = number + 1 == n_pools;
            let follow_others = !is_end || !is_last;
            if follow_others && (is_end || !self.has_room()) {
                return Ok(Some(after_pool(offered.pool.id.to_string())));
            }
        }
        Ok(Part::Pools.next().map(Place::start))
    }

    async fn read_gaps(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let (after, until, limit) = (from.since(self.since), self.until, self.limit_and_one());
        let read = self.scan("recording_gaps", move |tx| {
            store::recorded_gaps::list(tx, after, until, limit)
        });
        let rows = read.await?;
        Ok(self.take(from.part, rows, |((at, sequence), gap)| {
            let place = numbered(Part::Gaps, *at, *sequence);
            (place, "gap", gap_json(gap))
        }))
    }

    async fn read_launches(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let at = from.at().max(self.since);
        let [token, ..] = from.key.clone();
        let (until, limit) = (self.until, self.limit_and_one());
        let read = self.scan("recording_launches", move |tx| {
            store::launches::list_by_time(tx, (at, &token), until, limit)
        });
        let rows = read.await?;
        Ok(self.take(from.part, rows, |launch| {
            let mut place = numbered(Part::Launches, launch.created, 0);
            place.key[0] = launch.token.to_string();
            (place, "launch", launch_json(launch))
        }))
    }

    async fn read_workers(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let at = from.at();
        let [pool_id, group, id] = from.key.clone();
        let (since, until, limit) = (self.since, self.until, self.limit_and_one());
        let read = self.scan("recording_workers", move |tx| {
            store::recorded_workers::list(tx, &(at, pool_id, group, id), since, until, limit)
        });
        let rows = read.await?;
        Ok(self.take(from.part, rows, |worker| {
            let (at, pool_id, group, id) = store::recorded_workers::place(worker);
            let mut place = numbered(Part::Workers, at, 0);
            place.key = [pool_id, group, id];
            (place, "worker", worker_json(worker))
        }))
    }

    async fn read_working(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let key = from.key.clone();
        let (until, limit) = (self.until, self.limit_and_one());
        let read = self.scan("recording_working", move |tx| {
            let [pool_id, group, id] = &key;
            store::workers::list_working(tx, (pool_id, group, id), until, limit)
        });
        let rows = read.await?;
        Ok(self.take(from.part, rows, |worker| {
            let key = &worker.key;
            let mut place = numbered(Part::WorkingWorkers, worker.created, 0);
            place.key = [
                key.pool_id.to_string(),
                key.group.to_string(),
                key.id.to_string(),
            ];
            let recorded = RecordedWorker::of(worker, false);
            let entry = recorded.map_or(Value::Null, |recorded| worker_json(&recorded));
            (place, "worker", entry)
        }))
    }

    async fn read_runs(&mut self, from: Place) -> Result<Option<Place>, ApiError> {
        let (after, until, limit) = (from.since(self.since), self.until, self.limit_and_one());
        let read = self.scan("recording_runs", move |tx| {
            store::recorded_runs::list(tx, after, until, limit)
        });
        let rows = read.await?;
        Ok(self.take(from.part, rows, |((at, sequence), run)| {
            let place = numbered(Part::Runs, *at, *sequence);
            (place, "run", run_json(run))
        }))
    }

    /// Adds the entries that fit. Returns the place of the last one if others follow, or the next
    /// part. Entries that are null are left out.
    fn take<T>(
        &mut self,
        part: Part,
        rows: Vec<T>,
        show: impl Fn(&T) -> (Place, &'static str, Value),
    ) -> Option<Place> {
        let room = self.room();
        let mut last = None;
        for row in rows.iter().take(room) {
            let (place, kind, entry) = show(row);
            last = Some(place);
            if !entry.is_null() {
                self.add(kind, entry);
            }
        }
        if rows.len() > room {
            return last;
        }
        part.next().map(Place::start)
    }
}

fn numbered(part: Part, at: Timestamp, sequence: i64) -> Place {
    Place {
        at_ms: at.as_millis(),
        sequence,
        ..Place::start(part)
    }
}

fn after_pool(id: String) -> Place {
    let mut place = Place::start(Part::Pools);
    place.key[0] = id;
    place
}

fn text(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn pool_json(offered: &OfferedPool) -> Value {
    let (pool, offers) = (&offered.pool, &offered.offers);
    let offers = offers.iter().map(|(config, bid)| {
        let bid: Option<&Bid> = bid.as_ref().ok();
        without_nulls(json!({
            "launchConfigId": config.id.as_str(),
            "providerId": config.provider_id(pool).as_str(),
            "configuration": config.configuration,
            "place": bid.map(|bid| &bid.place),
            "price": bid.and_then(|bid| bid.price),
        }))
    });
    json!({
        "workerPoolId": pool.id.as_str(),
        "lastModified": pool.last_modified.to_string(),
        "config": pool.definition.config,
        "launchConfigs": offers.collect::<Vec<_>>(),
    })
}

fn gap_json(gap: &RecordedGap) -> Value {
    json!({"since": gap.since.to_string(), "until": gap.until.to_string()})
}

fn launch_json(launch: &Launch) -> Value {
    let cause = match &launch.state {
        LaunchState::Refused { cause, .. } => Some(cause.as_str()),
        LaunchState::Open
        | LaunchState::Accepted
        | LaunchState::Unknown { .. }
        | LaunchState::Withdrawn { .. } => None,
    };
    without_nulls(json!({
        "workerPoolId": launch.pool_id.as_str(),
        "providerId": launch.provider_id.as_str(),
        "launchConfigId": launch.launch_config_id.as_str(),
        "created": launch.created.to_string(),
        "machines": launch.machines,
        "made": launch.made,
        "state": launch.state.as_str(),
        "cause": cause,
    }))
}

fn worker_json(worker: &RecordedWorker) -> Value {
    let launch_config_id = worker.launch_config_id.as_ref();
    without_nulls(json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "launchConfigId": launch_config_id.map(|id| id.as_str()),
        "capacity": worker.capacity,
        "price": worker.price,
        "created": worker.created.to_string(),
        "registered": text(worker.registered),
        "stopping": text(worker.stopping),
        "stopped": text(worker.stopped),
        "interrupted": worker.is_interrupted,
    }))
}

fn run_json(run: &RecordedRun) -> Value {
    without_nulls(json!({
        "workerPoolId": run.pool_id.as_str(),
        "waitingSince": run.waiting_since.to_string(),
        "started": run.started.to_string(),
        "resolved": run.resolved.to_string(),
        "reason": run.reason.as_str(),
        "priority": run.priority.map(|priority| priority.as_str()),
    }))
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_recording_of_too_many_entries_is_refused_with_what_to_do() {
        for size in sizes_around("server::api::fleetwright::what_if::MAX_ENTRIES", 10) {
            let moment = |seconds: i64| Timestamp::from_millis(seconds * 1_000).to_string();
            let header = json!({"recording": {"version": 1, "since": moment(0),
                "until": moment(1_000), "recordingDays": 8, "roundSeconds": 10,
                "scanSeconds": 20}});
            let gap = json!({"gap": {"since": moment(1), "until": moment(2)}});
            let mut entries = vec![header];
            entries.resize(size.max(1), gap);
            let mut recording = RecordingReader::with_limit(10);
            let added = add_all(&mut recording, entries);
            assert_eq!(added.is_ok(), size <= 10);
            if let Err(refused) = added {
                assert!(refused.message.contains("ask about a shorter time"));
            }
        }
    }
}
