//! Collects what happens to the machines of a canary, and to those of the launch configs beside it.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{ImageName, LaunchConfigId, PoolId, WorkerKey};
use domain::image::{CanaryRun, StoredTrial, TrialRecord, TrialRun, TrialStart};
use domain::image_reference::{canary_mark, image_uses};
use domain::launch_config::LaunchConfig;
use domain::plan::{FIRST_CLAIM_MS, START_UP_MS};
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::WorkerState;
use store::Tx;
use store::started_workers::{RefusedLaunch, StartedWorker};

/// Machines of one canary; later ones do not count.
pub(super) const MAX_TRIALS: u32 = 20_000;
/// Machines of a canary in a pool that are read together: all that count.
const MAX_WORKERS: u32 = MAX_TRIALS;
/// Runs on these machines that are read together. The next round continues.
const MAX_RUNS: u32 = 50_000;
/// Pools of a canary.
const MAX_POOLS: u32 = 20_000;
/// Runs of a machine that are kept. The verdict uses fewer.
const RUNS_OF_MACHINE: usize = 8;
/// A run may be known this much later than it ended.
const LATE_MS: i64 = 10 * MINUTE_MS;

/// The launch configs of a pool that take part.
struct Groups {
    canary: BTreeSet<LaunchConfigId>,
    control: BTreeSet<LaunchConfigId>,
}

impl Groups {
    fn of(configs: &[LaunchConfig], image: &ImageName, run: &CanaryRun) -> Self {
        let mut groups = Self {
            canary: BTreeSet::new(),
            control: BTreeSet::new(),
        };
        for config in configs {
            let Some(mark) = canary_mark(&config.configuration) else {
                continue;
            };
            let uses = image_uses(&config.configuration);
            let is_of_run = |used: &domain::image_reference::ImageUse| {
                used.reference.image == *image && used.build == run.build.0
            };
            if mark.image == *image && uses.iter().any(is_of_run) {
                groups.canary.insert(config.id.clone());
                groups.control.insert(mark.of);
            }
        }
        groups
    }

    fn all(&self) -> Vec<&LaunchConfigId> {
        self.canary.union(&self.control).collect()
    }

    /// `None`: the launch config takes no part.
    fn is_canary(&self, id: &LaunchConfigId) -> Option<bool> {
        if self.canary.contains(id) {
            return Some(true);
        }
        self.control.contains(id).then_some(false)
    }
}

/// Brings the trials of a canary up to date, and returns all of them.
pub(super) fn collect(
    tx: &mut Tx<'_>,
    image: &ImageName,
    run: &CanaryRun,
    now: Timestamp,
    knows_claims: bool,
) -> store::Result<Vec<StoredTrial>> {
    let known = store::canary_trials::list(tx, image, MAX_TRIALS)?;
    let mut known: BTreeMap<WorkerKey, StoredTrial> = known
        .into_iter()
        .map(|trial| (trial.worker.clone(), trial))
        .collect();
    let mut changed = BTreeSet::new();
    for pool in store::image_users::list_pools(tx, image, None, MAX_POOLS)? {
        let groups = Groups::of(&store::launch_configs::all(tx, &pool)?, image, run);
        let mut of_pool = PoolTrials {
            image,
            pool: &pool,
            run,
            groups,
            known: &mut known,
            changed: &mut changed,
        };
        of_pool.note_starts(tx, now, knows_claims)?;
        of_pool.note_refusals(tx)?;
        of_pool.note_runs(tx)?;
    }
    for key in &changed {
        if let Some(trial) = known.get(key) {
            store::canary_trials::write(tx, trial)?;
        }
    }
    Ok(known.into_values().collect())
}

/// The trials of one pool.
struct PoolTrials<'a> {
    image: &'a ImageName,
    pool: &'a PoolId,
    run: &'a CanaryRun,
    groups: Groups,
    known: &'a mut BTreeMap<WorkerKey, StoredTrial>,
    changed: &'a mut BTreeSet<WorkerKey>,
}

impl PoolTrials<'_> {
    fn of_pool(&self) -> impl Iterator<Item = &StoredTrial> {
        let trials = self.known.values();
        trials.filter(|trial| trial.worker.pool_id == *self.pool)
    }

    /// From where on machines are read: those before it are known and have shown what they can.
    fn first_open(&self) -> Timestamp {
        let is_open = |trial: &&StoredTrial| trial.trial.start == TrialStart::Pending;
        let open = self.of_pool().filter(is_open).map(|trial| trial.created);
        let last = self.of_pool().map(|trial| trial.created).max();
        open.min().or(last).unwrap_or(self.run.since)
    }

    fn note_starts(
        &mut self,
        tx: &mut Tx<'_>,
        now: Timestamp,
        knows_claims: bool,
    ) -> store::Result<()> {
        let since = self.first_open();
        let configs = self.groups.all();
        for worker in store::started_workers::list(tx, self.pool, &configs, since, MAX_WORKERS)? {
            let key = WorkerKey {
                pool_id: self.pool.clone(),
                group: worker.group.clone(),
                id: worker.id.clone(),
            };
            let start = start_of(&worker, now, knows_claims);
            let registered = worker.registered;
            let ready_ms = registered.map(|at| at.millis_since(worker.created));
            if let Some(trial) = self.known.get_mut(&key) {
                let is_news = trial.trial.start != start || trial.trial.ready_ms != ready_ms;
                if trial.trial.start == TrialStart::Pending && is_news {
                    (trial.trial.start, trial.trial.ready_ms) = (start, ready_ms);
                    self.changed.insert(key);
                }
                continue;
            }
            let is_canary = self.groups.is_canary(&worker.launch_config_id);
            if let Some(is_canary) = is_canary {
                self.add(key, worker.created, is_canary, start, ready_ms);
            }
        }
        Ok(())
    }

    fn note_refusals(&mut self, tx: &mut Tx<'_>) -> store::Result<()> {
        let since = self.run.since;
        let configs = self.groups.all();
        let refused =
            store::started_workers::list_refused(tx, self.pool, &configs, since, MAX_WORKERS)?;
        for launch in refused {
            let RefusedLaunch {
                token,
                launch_config_id,
                machines,
                created,
            } = launch;
            let Some(is_canary) = self.groups.is_canary(&launch_config_id) else {
                continue;
            };
            for number in 0..machines {
                let names = ("refused", format!("{token}-{number}"));
                let key = WorkerKey::parse(self.pool.clone(), names.0, &names.1);
                let Some(key) = key.ok().filter(|key| !self.known.contains_key(key)) else {
                    continue;
                };
                self.add(key, created, is_canary, TrialStart::Refused, None);
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        worker: WorkerKey,
        created: Timestamp,
        is_canary: bool,
        start: TrialStart,
        ready_ms: Option<i64>,
    ) {
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
        let runs = self.of_pool().flat_map(|trial| &trial.trial.runs);
        let last = runs.map(|run| run.resolved).max();
        let since = last.map_or(self.run.since, |last| last.plus_millis(-LATE_MS));
        let since = since.max(self.run.since);
        // Runs on other machines of the pool could fill each page.
        let open = self
            .of_pool()
            .filter(|trial| trial.trial.runs.len() < RUNS_OF_MACHINE);
        let open: Vec<&WorkerKey> = open.map(|trial| &trial.worker).collect();
        for outcome in store::run_outcomes::list_since(tx, self.pool, &open, since, MAX_RUNS)? {
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
}

/// The outcome of the start of a worker, as far as it is known.
fn start_of(worker: &StartedWorker, now: Timestamp, knows_claims: bool) -> TrialStart {
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
    use super::*;

    fn worker(registered: Option<i64>, claimed: Option<i64>, state: WorkerState) -> StartedWorker {
        let at = Timestamp::from_millis;
        StartedWorker {
            group: "g".parse().unwrap(),
            id: "w".parse().unwrap(),
            launch_config_id: "lc".parse().unwrap(),
            created: at(0),
            registered: registered.map(at),
            first_claim: claimed.map(at),
            state,
            is_draining: false,
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
        let unneeded = StartedWorker {
            is_draining: true,
            ..worker(Some(5), None, Stopped)
        };
        assert_eq!(start(&unneeded, 6), TrialStart::Nothing);
    }
}
