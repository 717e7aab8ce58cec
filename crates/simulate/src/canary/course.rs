//! One simulated canary: its machines, and its verdicts as they become known.

use domain::image::{
    CanaryGroup, CanarySettings, CanaryVerdict, RunTrial, StartOutcome, Trial, judge,
};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

use super::catalog::{CanaryScenario, CanaryWorld};
use crate::draws::Draws;

/// A canary without a verdict after this many starts is left undecided.
const MAX_STARTS: u32 = 300;
/// Beyond this many decided starts, only every tenth is judged.
const JUDGED_EACH: u32 = 100;
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

pub(super) struct Course {
    world: CanaryWorld,
    /// All machines with everything that will happen to them, in the order of creation.
    machines: Vec<Machine>,
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
        let mut fates = draws("canary machines");
        let outage = world.has_outage.then(|| {
            #[expect(clippy::cast_possible_truncation, reason = "a number of hours")]
            let begin = (arrivals.fraction() * OUTAGE_WITHIN_MS) as i64;
            (START + begin)..(START + begin + HOUR_MS)
        });
        let mut machines = Vec::new();
        let (mut created, mut n_canary) = (START as f64, 0);
        while n_canary < MAX_STARTS {
            created += arrivals.exponential(1.0 / LAUNCH_GAP_MS);
            let group = if arrivals.fraction() < world.share {
                n_canary += 1;
                CanaryGroup::Canary
            } else {
                CanaryGroup::Control
            };
            #[expect(clippy::cast_possible_truncation, reason = "a moment in this century")]
            let created = created as i64;
            let id = format!("m{}", machines.len());
            let is_outage = |at: i64| outage.as_ref().is_some_and(|outage| outage.contains(&at));
            machines.push(world.machine(id, group, created, &mut fates, is_outage));
        }
        Self { world, machines }
    }

    /// Judges when a machine of the canary failed to start or ended its first run, until the image is
    /// promoted or rolled back.
    pub(super) fn judge(&self) -> Ending {
        let settings = CanarySettings {
            share: self.world.share,
            max_seconds: u32::MAX,
            ..CanarySettings::default()
        };
        let since = Timestamp::from_millis(START);
        let canary = self.machines.iter();
        let canary = canary.filter(|it| it.trial.group == CanaryGroup::Canary);
        let moments = canary.map(|it| it.trial.runs.first().map_or(it.decided, |run| run.resolved));
        let mut moments: Vec<Timestamp> = moments.collect();
        moments.sort_unstable();
        let mut ending = Ending {
            is_promoted: None,
            starts: 0,
            runs: 0,
            minutes: 0,
        };
        for (place, now) in moments.into_iter().enumerate() {
            if ending.starts > JUDGED_EACH && place % 10 != 0 {
                continue;
            }
            let trials = self.visible(now);
            let judgement = judge(&settings, since, &trials, now);
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

    /// The machines as they are known at this moment.
    fn visible(&self, now: Timestamp) -> Vec<Trial> {
        let n = self.machines.partition_point(|it| it.trial.created <= now);
        let machines = self.machines.iter().take(n);
        machines.map(|machine| machine.visible(now)).collect()
    }
}

impl Machine {
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
    #[expect(clippy::cast_possible_truncation, reason = "limited to days")]
    let ms = ms.round().clamp(0.0, (100 * DAY_MS) as f64) as i64;
    ms
}
