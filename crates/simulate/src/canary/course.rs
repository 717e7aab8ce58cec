//! One simulated canary: its machines, and its verdicts as they become known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use domain::image::{
    CanaryGroup, CanarySettings, CanaryVerdict, RunTrial, StartOutcome, Trial, judge,
};
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

use super::catalog::{CanaryScenario, CanaryWorld};
use crate::draws::Draws;

/// A canary without a verdict after this many starts is left undecided.
const MAX_STARTS: u32 = 200;
const LAUNCH_GAP_MS: f64 = 60_000.0;
/// A machine that did not register or claim by then never does.
const TIME_OUT_MS: i64 = 30 * MINUTE_MS;
const MEAN_READY_MS: f64 = 70_000.0;
const READY_SPREAD: f64 = 0.15;
const CLAIM_MS: i64 = 5 * SECOND_MS;
const MEAN_RUN_MS: f64 = 600_000.0;
/// The pause between two runs of a machine.
const MEAN_IDLE_MS: f64 = 30_000.0;
/// The share of failed runs on bad machines.
const BAD_MACHINE_FAILURES: f64 = 0.8;
/// The outage begins at some moment within this time.
const OUTAGE_WITHIN_MS: f64 = 8.0 * 3_600_000.0;
const START: i64 = 1_700_000_000_000;

/// A canary while it runs.
pub(super) struct Course {
    world: CanaryWorld,
    outage: Option<Range<i64>>,
    arrivals: Draws,
    fates: Draws,
    /// When the next machine is created.
    next_created: f64,
    n_canary: u32,
    /// The machines that were created, with everything that will happen to them.
    machines: Vec<Machine>,
    /// When machines of the canary fail to start or end their first run.
    moments: BinaryHeap<Reverse<Timestamp>>,
    /// The facts about each machine.
    known: Vec<Trial>,
    /// The places of machines to which something can still happen.
    open: Vec<usize>,
}

/// How a canary ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// `None`: it was not decided.
    pub is_promoted: Option<bool>,
    pub starts: u32,
    pub runs: u32,
    pub minutes: i64,
}

struct Machine {
    decided: Timestamp,
    /// As it is in the end.
    trial: Trial,
}

impl Course {
    pub(super) fn new(scenario: CanaryScenario, seed: u64, number: u64) -> Self {
        let world = scenario.world();
        let draws = |purpose| Draws::new(seed, purpose, &[number]);
        let mut arrivals = draws("canary arrivals");
        let outage = world.has_outage.then(|| {
            #[expect(clippy::cast_possible_truncation, reason = "a number of hours")]
            let begin = START + (arrivals.fraction() * OUTAGE_WITHIN_MS) as i64;
            begin..begin + HOUR_MS
        });
        let next_created = START as f64 + arrivals.exponential(1.0 / LAUNCH_GAP_MS);
        Self {
            world,
            outage,
            arrivals,
            fates: draws("canary machines"),
            next_created,
            n_canary: 0,
            machines: Vec::new(),
            moments: BinaryHeap::new(),
            known: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Judges when a machine of the canary failed to start or ended its first run, until the image
    /// is promoted or rolled back. After the first starts, only every `each`-th is judged.
    pub(super) fn judge(mut self, first: u32, each: u32) -> Ending {
        let settings = CanarySettings {
            share: self.world.share,
            max_seconds: u32::MAX,
            ..CanarySettings::default()
        };
        let since = Timestamp::from_millis(START);
        let mut ending = Ending {
            is_promoted: None,
            starts: 0,
            runs: 0,
            minutes: 0,
        };
        let mut n_moments = 0;
        while let Some(now) = self.next_moment() {
            n_moments += 1;
            if n_moments > first && n_moments % each != 0 {
                continue;
            }
            self.learn(now);
            let judgement = judge(&settings, since, &self.known, now);
            let canary = judgement.evidence.canary;
            ending.starts = canary.decided();
            ending.runs = canary.runs;
            ending.minutes = now.millis_since(since) / MINUTE_MS;
            ending.is_promoted = match judgement.verdict {
                CanaryVerdict::Promote { .. } => Some(true),
                CanaryVerdict::RollBack { .. } => Some(false),
                CanaryVerdict::Undecided { .. } | CanaryVerdict::Expired { .. } => continue,
            };
            break;
        }
        ending
    }

    /// Creates the machines up to the next moment to judge at. `None`: there were enough starts.
    fn next_moment(&mut self) -> Option<Timestamp> {
        loop {
            let next_created = Timestamp::from_millis(millis(self.next_created));
            let is_next = |moment: &Reverse<Timestamp>| moment.0 < next_created;
            if self.moments.peek().is_some_and(is_next) || self.n_canary >= MAX_STARTS {
                return self.moments.pop().map(|moment| moment.0);
            }
            self.create_machine();
        }
    }

    fn create_machine(&mut self) {
        let group = if self.arrivals.fraction() < self.world.share {
            CanaryGroup::Canary
        } else {
            CanaryGroup::Control
        };
        let id = format!("m{}", self.machines.len());
        let created = millis(self.next_created);
        let outage = self.outage.clone();
        let is_outage = |at: i64| outage.as_ref().is_some_and(|outage| outage.contains(&at));
        let world = self.world;
        let machine = world.machine(id, group, created, &mut self.fates, is_outage);
        if group == CanaryGroup::Canary {
            self.n_canary += 1;
            let first_run = machine.trial.runs.first().map(|run| run.resolved);
            self.moments
                .push(Reverse(first_run.unwrap_or(machine.decided)));
        }
        self.machines.push(machine);
        self.next_created += self.arrivals.exponential(1.0 / LAUNCH_GAP_MS);
    }

    /// Brings what is known up to this moment.
    fn learn(&mut self, now: Timestamp) {
        let (machines, known) = (&self.machines, &mut self.known);
        self.open.retain(|place| {
            let machine = &machines[*place];
            known[*place] = machine.visible(now);
            machine.last_change() > now
        });
        for (place, machine) in machines.iter().enumerate().skip(known.len()) {
            if machine.trial.created > now {
                break;
            }
            known.push(machine.visible(now));
            if machine.last_change() > now {
                self.open.push(place);
            }
        }
    }
}

impl Machine {
    fn last_change(&self) -> Timestamp {
        let last_run = self.trial.runs.last().map(|run| run.resolved);
        last_run.map_or(self.decided, |run| run.max(self.decided))
    }

    fn visible(&self, now: Timestamp) -> Trial {
        let trial = &self.trial;
        let is_ready = |ms: &i64| trial.created.plus_millis(*ms) <= now;
        let runs = trial.runs.iter().filter(|run| run.resolved <= now);
        Trial {
            id: trial.id.clone(),
            group: trial.group,
            created: trial.created,
            start: if self.decided <= now {
                trial.start
            } else {
                StartOutcome::Pending
            },
            ready_ms: trial.ready_ms.filter(is_ready),
            runs: runs.cloned().collect(),
        }
    }
}

impl CanaryWorld {
    /// A machine with everything that will happen to it.
    fn machine(
        &self,
        id: String,
        group: CanaryGroup,
        created_ms: i64,
        draws: &mut Draws,
        is_outage: impl Fn(i64) -> bool,
    ) -> Machine {
        let of_image = |effect: f64, none: f64| match group {
            CanaryGroup::Canary => effect,
            CanaryGroup::Control => none,
        };
        let ready = MEAN_READY_MS * of_image(self.slower_boot, 1.0);
        let ready_ms = millis(ready * draws.log_normal(READY_SPREAD));
        let fails_start = draws.fraction() < self.failed_starts;
        let breaks_start = draws.fraction() < of_image(self.broken_starts, 0.0);
        let is_bad = draws.fraction() < self.bad_machines;
        let created = Timestamp::from_millis(created_ms);
        if fails_start || breaks_start || is_outage(created_ms) {
            return Machine {
                decided: created.plus_millis(TIME_OUT_MS),
                trial: Trial {
                    created,
                    id,
                    group,
                    start: StartOutcome::NeverRegistered,
                    ready_ms: None,
                    runs: Vec::new(),
                },
            };
        }
        let decided = created.plus_millis(ready_ms + CLAIM_MS);
        let mut runs = Vec::new();
        let mut claimed = decided;
        loop {
            let run_ms = MEAN_RUN_MS * of_image(self.slower_runs, 1.0);
            let run_ms = millis(run_ms * draws.log_normal(self.spread));
            let resolved = claimed.plus_millis(run_ms);
            let usual = if is_bad {
                BAD_MACHINE_FAILURES
            } else {
                self.failed_runs
            };
            let fails = draws.fraction() < usual;
            let breaks = draws.fraction() < of_image(self.broken_runs, 0.0);
            runs.push(RunTrial {
                resolved,
                is_good: !(fails || breaks || is_outage(resolved.as_millis())),
                duration_ms: Some(run_ms),
            });
            if draws.fraction() < 1.0 / self.tasks {
                break;
            }
            claimed = resolved.plus_millis(millis(draws.exponential(1.0 / MEAN_IDLE_MS)));
        }
        Machine {
            decided,
            trial: Trial {
                created,
                id,
                group,
                start: StartOutcome::Good,
                ready_ms: Some(ready_ms),
                runs,
            },
        }
    }
}

fn millis(ms: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    let ms = ms.round() as i64;
    ms
}
