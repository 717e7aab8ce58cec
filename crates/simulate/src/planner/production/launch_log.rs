//! The recent launches of a pool, from which the health of its launch configs is counted.
//!
//! The server counts the same in its store.

use std::collections::{BTreeMap, VecDeque};

use domain::facts::LaunchRecord;
use domain::id::LaunchConfigId;
use domain::launch::Cause;
use domain::plan::{Health, Refusals, START_UP_MS, Tries};
use domain::time::{HOUR_MS, Timestamp};

/// Launches with an event in this period count.
const WINDOW_MS: i64 = HOUR_MS;

/// The launches that may still count, in the order of their decisions.
#[derive(Default)]
pub(super) struct LaunchLog {
    launches: VecDeque<LoggedLaunch>,
    /// The number of the first of them.
    first: usize,
    n_plans: u64,
}

/// A launch that the cloud answered.
struct LoggedLaunch {
    config: usize,
    plan: u64,
    created: Timestamp,
    /// When the cloud answered.
    answered: Timestamp,
    machines: u64,
    made: u64,
    refusal: Option<Cause>,
    registered: u64,
    never_registered: u64,
    last_failure: Option<Timestamp>,
    last_event: Timestamp,
}

/// The sums about one launch config.
#[derive(Default)]
struct Sums {
    health: Health,
    last_tried: Option<Timestamp>,
    last_accepted: Option<Timestamp>,
    /// Refused launches: the time, the plan, the cause.
    refused: Vec<(Timestamp, u64, Cause)>,
    plans_without_workers: u64,
    last_plan_without_workers: Option<u64>,
}

/// The answer of the cloud to a launch.
pub(super) struct CloudAnswer {
    pub(super) config: usize,
    pub(super) decided: Timestamp,
    pub(super) answered: Timestamp,
    pub(super) machines: u64,
    pub(super) made: u64,
    pub(super) refusal: Option<Cause>,
}

impl LoggedLaunch {
    /// Machines that were not made, if that counts against the launch config.
    fn failed(&self) -> u64 {
        match self.refusal {
            _ if self.made > 0 => self.machines - self.made,
            Some(cause) if cause.is_ill_health() => self.machines,
            Some(_) | None => 0,
        }
    }

    fn is_accepted(&self) -> bool {
        self.made > 0
    }

    /// Machines whose result is not known.
    fn n_awaited(&self) -> u64 {
        self.made - self.registered - self.never_registered
    }

    /// Whether it will never count again.
    fn is_over(&self, now: Timestamp) -> bool {
        self.n_awaited() == 0 && now.millis_since(self.last_event) > WINDOW_MS
    }

    fn counts(&self, now: Timestamp) -> bool {
        self.n_awaited() > 0 || now.millis_since(self.last_event) <= WINDOW_MS
    }
}

impl LaunchLog {
    /// Begins a plan: all its refusals count once.
    pub(super) fn begin_plan(&mut self) {
        self.n_plans += 1;
    }

    /// Adds a launch of the current plan, and returns its number.
    pub(super) fn add(&mut self, answer: CloudAnswer) -> usize {
        let mut launch = LoggedLaunch {
            config: answer.config,
            plan: self.n_plans,
            created: answer.decided,
            answered: answer.answered,
            machines: answer.machines,
            made: answer.made,
            refusal: answer.refusal,
            registered: 0,
            never_registered: 0,
            last_failure: None,
            last_event: answer.answered,
        };
        launch.last_failure = (launch.failed() > 0).then_some(answer.answered);
        self.launches.push_back(launch);
        self.first + self.launches.len() - 1
    }

    pub(super) fn note_registered(&mut self, number: usize, now: Timestamp) {
        if let Some(launch) = self.launch(number) {
            launch.registered += 1;
            launch.last_event = now;
        }
    }

    pub(super) fn note_never_registered(&mut self, number: usize, now: Timestamp) {
        if let Some(launch) = self.launch(number) {
            launch.never_registered += 1;
            launch.last_failure = Some(now);
            launch.last_event = now;
        }
    }

    fn launch(&mut self, number: usize) -> Option<&mut LoggedLaunch> {
        self.launches.get_mut(number.checked_sub(self.first)?)
    }

    /// The records of the launch configs that have recent launches. A worker asks for work as soon
    /// as it has registered.
    pub(super) fn records(
        &mut self,
        now: Timestamp,
        ids: &[LaunchConfigId],
    ) -> BTreeMap<LaunchConfigId, LaunchRecord> {
        while self
            .launches
            .front()
            .is_some_and(|launch| launch.is_over(now))
        {
            self.launches.pop_front();
            self.first += 1;
        }
        let mut sums: Vec<Option<Sums>> = ids.iter().map(|_| None).collect();
        for launch in self.launches.iter().filter(|launch| launch.counts(now)) {
            let sums = sums[launch.config].get_or_insert_default();
            sums.add(launch, now);
        }
        let records = ids.iter().zip(sums);
        records
            .filter_map(|(id, sums)| Some((id.clone(), sums?.record())))
            .collect()
    }
}

impl Sums {
    fn add(&mut self, launch: &LoggedLaunch, now: Timestamp) {
        let failed = launch.failed();
        let health = &mut self.health;
        if launch.is_accepted() {
            health.short += failed;
        } else {
            health.failed += failed;
        }
        if launch.is_accepted() || failed > 0 {
            health.attempted += launch.machines;
        }
        if !launch.is_accepted() && launch.refusal == Some(Cause::Quota) {
            health.quota += launch.machines;
        }
        health.created += launch.made;
        health.registered += launch.registered;
        health.never_registered += launch.never_registered;
        let is_late = now.millis_since(launch.created) > START_UP_MS;
        let overdue = if is_late { launch.n_awaited() } else { 0 };
        health.overdue += overdue;
        health.last_failure = health.last_failure.max(launch.last_failure);
        self.last_tried = self.last_tried.max(Some(launch.created));
        if launch.is_accepted() && failed == 0 {
            self.last_accepted = self.last_accepted.max(Some(launch.answered));
        } else {
            let cause = launch.refusal.filter(|_| !launch.is_accepted());
            let cause = cause.unwrap_or(Cause::Capacity);
            self.refused.push((launch.answered, launch.plan, cause));
        }
        let is_fruitless = launch.never_registered + overdue > 0;
        if is_fruitless && self.last_plan_without_workers != Some(launch.plan) {
            self.last_plan_without_workers = Some(launch.plan);
            self.plans_without_workers += 1;
        }
    }

    fn record(self) -> LaunchRecord {
        let accepted = self.last_accepted;
        let refused = self.refused.iter();
        let refused = refused.filter(|(at, _, _)| accepted.is_none_or(|accepted| *at > accepted));
        let mut plans: Vec<u64> = refused.map(|(_, plan, _)| *plan).collect();
        plans.dedup();
        let refusals = self.refused.last().filter(|_| !plans.is_empty());
        let refusals = refusals.map(|(last, _, cause)| Refusals {
            in_a_row: plans.len() as u64,
            cause: *cause,
            last: *last,
        });
        LaunchRecord {
            claimed: self.health.registered,
            health: self.health,
            tries: Tries {
                refusals,
                plans_without_workers: self.plans_without_workers,
                last: self.last_tried,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::time::SECOND_MS;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    /// A launch of ten machines that is decided at this second and answered a second later.
    fn answer(seconds: i64, made: u64, refusal: Option<Cause>) -> CloudAnswer {
        CloudAnswer {
            config: 0,
            decided: at(seconds),
            answered: at(seconds + 1),
            machines: 10,
            made,
            refusal,
        }
    }

    fn record(log: &mut LaunchLog, seconds: i64) -> Option<LaunchRecord> {
        let id: LaunchConfigId = "lc".parse().unwrap();
        log.records(at(seconds), std::slice::from_ref(&id))
            .remove(&id)
    }

    fn refusals(log: &mut LaunchLog, seconds: i64) -> Option<(u64, Cause, Timestamp)> {
        let refusals = record(log, seconds)?.tries.refusals?;
        Some((refusals.in_a_row, refusals.cause, refusals.last))
    }

    #[test]
    fn machines_are_counted_by_what_happened_to_them() {
        let mut log = LaunchLog::default();
        log.begin_plan();
        let whole = log.add(answer(0, 10, None));
        let part = log.add(answer(30, 4, Some(Cause::Quota)));
        log.add(answer(60, 0, Some(Cause::Capacity)));
        log.add(answer(90, 0, Some(Cause::Quota)));
        log.note_registered(whole, at(100));
        log.note_registered(part, at(101));
        log.note_never_registered(part, at(102));
        let record = record(&mut log, 200).unwrap();
        let expected = Health {
            // A quota is not the fault of the launch config.
            attempted: 30,
            failed: 10,
            quota: 10,
            short: 6,
            created: 14,
            registered: 2,
            never_registered: 1,
            last_failure: Some(at(102)),
            ..Health::default()
        };
        assert_eq!(record.health, expected);
        assert_eq!((record.claimed, record.tries.last), (2, Some(at(90))));
        assert_eq!(record.tries.plans_without_workers, 1);
    }

    #[test]
    fn refusals_in_a_row_are_counted_by_plan_since_the_last_success() {
        let mut log = LaunchLog::default();
        let refused = || Some(Cause::Quota);
        log.begin_plan();
        log.add(answer(0, 0, refused()));
        log.begin_plan();
        log.add(answer(30, 0, refused()));
        log.add(answer(31, 0, Some(Cause::Capacity)));
        assert_eq!(refusals(&mut log, 40), Some((2, Cause::Capacity, at(32))));
        log.add(answer(40, 10, None));
        assert_eq!(refusals(&mut log, 50), None);
        log.begin_plan();
        // Machines that were not made are out of stock.
        log.add(answer(60, 9, Some(Cause::Quota)));
        assert_eq!(refusals(&mut log, 70), Some((1, Cause::Capacity, at(61))));
    }

    #[test]
    fn machines_are_overdue_after_half_an_hour() {
        let mut log = LaunchLog::default();
        log.begin_plan();
        let number = log.add(answer(0, 2, None));
        log.note_registered(number, at(60));
        let overdue = |log: &mut LaunchLog, seconds| record(log, seconds).unwrap().health.overdue;
        assert_eq!((overdue(&mut log, 1_800), overdue(&mut log, 1_801)), (0, 1));
        let tries = record(&mut log, 1_801).unwrap().tries;
        assert_eq!(tries.plans_without_workers, 1);
        // It counts for as long as a machine is missing.
        assert_eq!(overdue(&mut log, 100_000), 1);
    }

    #[test]
    fn launches_without_news_are_forgotten_after_an_hour() {
        let mut log = LaunchLog::default();
        log.begin_plan();
        let first = log.add(answer(0, 1, None));
        let second = log.add(answer(10, 1, None));
        log.note_registered(second, at(20));
        log.note_registered(first, at(100));
        assert_eq!(record(&mut log, 3_620).unwrap().health.registered, 2);
        assert_eq!(record(&mut log, 3_621).unwrap().health.registered, 1);
        assert_eq!(record(&mut log, 3_700).unwrap().health.registered, 1);
        assert_eq!(record(&mut log, 3_701), None);
        assert!(log.launches.is_empty());
        // News of a forgotten launch change nothing.
        log.note_registered(first, at(3_702));
        let third = log.add(answer(3_703, 1, None));
        log.note_never_registered(third, at(3_704));
        assert_eq!(record(&mut log, 3_705).unwrap().health.never_registered, 1);
    }

    #[test]
    fn launch_configs_have_records_of_their_own() {
        let mut log = LaunchLog::default();
        log.begin_plan();
        let other = CloudAnswer {
            config: 1,
            ..answer(0, 10, None)
        };
        log.add(other);
        let ids = ["a", "b"].map(|id| id.parse().unwrap());
        let records = log.records(at(1), &ids);
        assert_eq!(records.keys().collect::<Vec<_>>(), [&ids[1]]);
    }
}
