//! Collects what happens to the machines of a canary, and to those of the launch configs beside it.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{ImageName, LaunchConfigId, PoolId, WorkerKey};
use domain::image::{CanaryRun, StoredTrial, TrialRecord, TrialRun, TrialStart};
use domain::image_reference::{ImageUse, canary_mark, image_uses};
use domain::launch_config::LaunchConfig;
use domain::plan::{FIRST_CLAIM_MS, START_UP_MS};
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::WorkerState;
use store::Tx;
use store::started_workers::{RefusedLaunch, StartedSince, StartedWorker};

/// Machines of one canary; later ones do not count.
pub(super) const MAX_TRIALS: u32 = 20_000;
/// Runs on these machines that are read together. The next round continues.
const MAX_RUNS: u32 = 50_000;
/// Launch configs of canaries that are read together, of all pools that use the image.
const MAX_CONFIGS: u32 = 100_000;
/// Runs of a machine that are kept. The verdict uses fewer.
const RUNS_OF_MACHINE: usize = 8;
/// A run may be known this much later than it ended.
const LATE_MS: i64 = 10 * MINUTE_MS;

/// The launch configs of pools that take part, each with whether it is the canary's.
type Groups = BTreeMap<(PoolId, LaunchConfigId), bool>;

/// All trials of a canary, as they are now.
pub(super) struct CollectedTrials {
    pub(super) all: Vec<StoredTrial>,
    /// Those that are not stored in this form.
    pub(super) changed: Vec<StoredTrial>,
}

/// Reads the trials of a canary, and what happened to its machines since. A few statements read all
/// pools together.
pub(super) fn collect(
    tx: &mut Tx<'_>,
    image: &ImageName,
    run: &CanaryRun,
    now: Timestamp,
    knows_claims: bool,
) -> store::Result<CollectedTrials> {
    let known = store::canary_trials::list(tx, image, MAX_TRIALS)?;
    let known = known.into_iter().map(|trial| (trial.worker.clone(), trial));
    let configs = store::launch_configs::of_canaries(tx, image, MAX_CONFIGS)?;
    let mut trials = Trials {
        image,
        run,
        groups: groups_of(configs, image, run),
        known: known.collect(),
        changed: BTreeSet::new(),
    };
    trials.note_starts(tx, now, knows_claims)?;
    trials.note_refusals(tx)?;
    trials.note_runs(tx)?;
    let changed = trials.changed.iter();
    let changed = changed.filter_map(|key| trials.known.get(key).cloned());
    Ok(CollectedTrials {
        changed: changed.collect(),
        all: trials.known.into_values().collect(),
    })
}

fn groups_of(configs: Vec<LaunchConfig>, image: &ImageName, run: &CanaryRun) -> Groups {
    let mut groups = Groups::new();
    for config in configs {
        let Some(mark) = canary_mark(&config.configuration) else {
            continue;
        };
        let is_of_run =
            |used: &ImageUse| used.reference.image == *image && used.build == run.build.0;
        if mark.image == *image && image_uses(&config.configuration).iter().any(is_of_run) {
            groups.insert((config.pool_id.clone(), mark.of), false);
            groups.insert((config.pool_id, config.id), true);
        }
    }
    groups
}

/// The machines of a canary, and of the launch configs beside it.
struct Trials<'a> {
    image: &'a ImageName,
    run: &'a CanaryRun,
    groups: Groups,
    known: BTreeMap<WorkerKey, StoredTrial>,
    changed: BTreeSet<WorkerKey>,
}

impl Trials<'_> {
    /// From where on the machines of each launch config are read: those before are known, and have
    /// shown what they can.
    fn open_since(&self) -> Vec<StartedSince> {
        let mut open: BTreeMap<&PoolId, Timestamp> = BTreeMap::new();
        let mut last: BTreeMap<&PoolId, Timestamp> = BTreeMap::new();
        for trial in self.known.values() {
            let (pool, created) = (&trial.worker.pool_id, trial.created);
            if trial.trial.start == TrialStart::Pending {
                let first = open.entry(pool).or_insert(created);
                *first = created.min(*first);
            }
            let newest = last.entry(pool).or_insert(created);
            *newest = created.max(*newest);
        }
        self.groups_since(|pool| *open.get(pool).or(last.get(pool)).unwrap_or(&self.run.since))
    }

    fn groups_since(&self, since: impl Fn(&PoolId) -> Timestamp) -> Vec<StartedSince> {
        let of_group = |(pool, config): &(PoolId, LaunchConfigId)| StartedSince {
            since: since(pool),
            pool: pool.clone(),
            launch_config_id: config.clone(),
        };
        self.groups.keys().map(of_group).collect()
    }

    fn note_starts(
        &mut self,
        tx: &mut Tx<'_>,
        now: Timestamp,
        knows_claims: bool,
    ) -> store::Result<()> {
        for worker in store::started_workers::list(tx, &self.open_since(), MAX_TRIALS)? {
            let start = start_of(&worker, now, knows_claims);
            let registered = worker.registered;
            let ready_ms = registered.map(|at| at.millis_since(worker.created));
            if let Some(trial) = self.known.get_mut(&worker.key) {
                let is_news = trial.trial.start != start || trial.trial.ready_ms != ready_ms;
                if trial.trial.start == TrialStart::Pending && is_news {
                    (trial.trial.start, trial.trial.ready_ms) = (start, ready_ms);
                    self.changed.insert(worker.key);
                }
                continue;
            }
            let config = (worker.key.pool_id.clone(), worker.launch_config_id);
            self.add(worker.key, &config, worker.created, start, ready_ms);
        }
        Ok(())
    }

    fn note_refusals(&mut self, tx: &mut Tx<'_>) -> store::Result<()> {
        let groups = self.groups_since(|_| self.run.since);
        for launch in store::started_workers::list_refused(tx, &groups, MAX_TRIALS)? {
            let RefusedLaunch {
                pool,
                token,
                launch_config_id,
                machines,
                created,
            } = launch;
            let config = (pool, launch_config_id);
            for number in 0..machines {
                let name = format!("{token}-{number}");
                let key = WorkerKey::parse(config.0.clone(), "refused", &name);
                let Some(key) = key.ok().filter(|key| !self.known.contains_key(key)) else {
                    continue;
                };
                self.add(key, &config, created, TrialStart::Refused, None);
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        worker: WorkerKey,
        config: &(PoolId, LaunchConfigId),
        created: Timestamp,
        start: TrialStart,
        ready_ms: Option<i64>,
    ) {
        let Some(is_canary) = self.groups.get(config).copied() else {
            return;
        };
        if created < self.run.since || self.known.len() >= MAX_TRIALS as usize {
            return;
        }
        let trial = StoredTrial {
            image: self.image.clone(),
            worker: worker.clone(),
            created,
            trial: TrialRecord {
                is_canary,
                start,
                ready_ms,
                runs: Vec::new(),
            },
        };
        self.known.insert(worker.clone(), trial);
        self.changed.insert(worker);
    }

    fn note_runs(&mut self, tx: &mut Tx<'_>) -> store::Result<()> {
        for outcome in store::run_outcomes::list_since(tx, &self.runs_since(), MAX_RUNS)? {
            let Some(trial) = self.known.get_mut(&outcome.worker) else {
                continue;
            };
            let runs = &mut trial.trial.runs;
            let is_known =
                |run: &TrialRun| run.task_id == outcome.task_id && run.run_id == outcome.run_id;
            if runs.len() >= RUNS_OF_MACHINE || runs.iter().any(is_known) {
                continue;
            }
            if let Some(run) = TrialRun::of(&outcome) {
                runs.push(run);
                self.changed.insert(outcome.worker);
            }
        }
        Ok(())
    }

    /// The machines of which more runs count, and from when on. Others of their pools could fill
    /// each page.
    fn runs_since(&self) -> Vec<(&WorkerKey, Timestamp)> {
        let mut last: BTreeMap<&PoolId, Timestamp> = BTreeMap::new();
        for trial in self.known.values() {
            for run in &trial.trial.runs {
                let newest = last.entry(&trial.worker.pool_id).or_insert(run.resolved);
                *newest = run.resolved.max(*newest);
            }
        }
        let since = |pool: &PoolId| {
            let last = last.get(pool).map(|last| last.plus_millis(-LATE_MS));
            last.unwrap_or(self.run.since).max(self.run.since)
        };
        let trials = self.known.values();
        let open = trials.filter(|trial| {
            trial.trial.runs.len() < RUNS_OF_MACHINE && trial.trial.start != TrialStart::BesideImage
        });
        open.map(|trial| (&trial.worker, since(&trial.worker.pool_id)))
            .collect()
    }
}

/// The outcome of the start of a worker, as far as it is known.
fn start_of(worker: &StartedWorker, now: Timestamp, knows_claims: bool) -> TrialStart {
    // Providers that always start machines from their image do not say so.
    if worker.provider_data["inImage"] == false {
        return TrialStart::BesideImage;
    }
    let is_over = matches!(worker.state, WorkerState::Stopping | WorkerState::Stopped);
    let Some(registered) = worker.registered else {
        let is_late = now.millis_since(worker.created) > START_UP_MS;
        return match is_over || is_late {
            true => TrialStart::NeverRegistered,
            false => TrialStart::Pending,
        };
    };
    if worker.first_claim.is_some() || !knows_claims {
        return TrialStart::Good;
    }
    let is_late = now.millis_since(registered) > FIRST_CLAIM_MS;
    match (is_over, is_late, worker.is_draining) {
        // It was asked to stop before it could claim.
        (_, _, true) => TrialStart::Nothing,
        (true, _, false) | (false, true, false) => TrialStart::NeverClaimed,
        (false, false, false) => TrialStart::Pending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn worker(registered: Option<i64>, claimed: Option<i64>, state: WorkerState) -> StartedWorker {
        let at = Timestamp::from_millis;
        StartedWorker {
            key: WorkerKey::parse("p/p".parse().unwrap(), "g", "w").unwrap(),
            launch_config_id: "lc".parse().unwrap(),
            created: at(0),
            registered: registered.map(at),
            first_claim: claimed.map(at),
            state,
            is_draining: false,
            provider_data: Value::Null,
        }
    }

    #[test]
    fn a_start_is_good_with_its_first_claim_and_bad_when_it_is_late_or_over() {
        use WorkerState::{Requested, Running, Stopped};
        let start =
            |worker: &StartedWorker, now| start_of(worker, Timestamp::from_millis(now), true);
        let requested = worker(None, None, Requested);
        assert_eq!(start(&requested, START_UP_MS), TrialStart::Pending);
        assert_eq!(
            start(&requested, START_UP_MS + 1),
            TrialStart::NeverRegistered
        );
        assert_eq!(
            start(&worker(None, None, Stopped), 1),
            TrialStart::NeverRegistered
        );
        let silent = worker(Some(5), None, Running);
        assert_eq!(start(&silent, 5 + FIRST_CLAIM_MS), TrialStart::Pending);
        assert_eq!(start(&silent, 6 + FIRST_CLAIM_MS), TrialStart::NeverClaimed);
        assert_eq!(
            start(&worker(Some(5), None, Stopped), 6),
            TrialStart::NeverClaimed
        );
        assert_eq!(
            start(&worker(Some(5), Some(6), Stopped), 7),
            TrialStart::Good
        );
        // With the queue of another deployment, claims are not known.
        let known = start_of(&silent, Timestamp::from_millis(6), false);
        assert_eq!(known, TrialStart::Good);
        // Where a worker ran beside its image, nothing that it did says anything about the image.
        let states = [
            worker(None, None, Requested),
            silent,
            worker(Some(5), Some(6), Running),
        ];
        for known in states {
            let with = |provider_data| StartedWorker {
                provider_data,
                ..known.clone()
            };
            let beside = with(json!({"image": "small-1", "inImage": false}));
            assert_eq!(start(&beside, 7), TrialStart::BesideImage);
            let within = with(json!({"image": "small-1", "inImage": true}));
            assert_eq!(start(&within, 7), start(&known, 7));
        }
        let unneeded = StartedWorker {
            is_draining: true,
            ..worker(Some(5), None, Stopped)
        };
        assert_eq!(start(&unneeded, 6), TrialStart::Nothing);
    }
}
