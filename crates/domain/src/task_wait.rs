//! The answer to "why does this task still wait?": one cause, and what changes it, by when.

mod text;

use std::collections::BTreeMap;

use crate::budgets::{BudgetRoom, BudgetStep};
use crate::id::{LaunchConfigId, PoolId, ProviderId, TaskId};
use crate::plan::{LOST_ANSWER_MS, OVER_SHARE, PoolWait, START_UP_MS, Snapshot};
use crate::supply::STARTING_MS;
use crate::task::TaskState;
use crate::time::{MINUTE_MS, Timestamp};
use crate::waits::{LATE_MS, WaitCause, length};
use text::{clock, listed, plural, quoted};

/// A provider that could not be set up is tried again this often.
pub const SET_UP_AGAIN_MS: i64 = MINUTE_MS;
/// At most this many launch configs, pools or tasks are named in an answer.
const MAX_NAMED: usize = 5;

/// Why a task waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAnswer {
    pub cause: WaitCause,
    /// Continues the sentence "It waits because …".
    pub reason: String,
    pub changes: Vec<WayOut>,
    /// At the latest then the wait ends, or its cause is decided anew. Never after the deadline.
    pub latest: Timestamp,
}

/// Something that would end the wait.
#[derive(Clone, Debug, PartialEq)]
pub struct WayOut {
    pub what: String,
    /// By then, at the latest; `None`: not known.
    pub by: Option<Timestamp>,
    /// Whether a person must do it.
    pub is_by_hand: bool,
}

/// A task that another one waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenDependency {
    pub id: TaskId,
    pub state: TaskState,
    pub deadline: Timestamp,
}

/// Machines that start, for this launch config.
#[derive(Clone, Debug, PartialEq)]
pub struct StartingMachines {
    pub since: Timestamp,
    pub machines: u32,
    /// The name of the launch config, for people.
    pub name: String,
    /// The usual time from the launch to the registration, if it is known.
    pub usual_ms: Option<i64>,
    /// Why it is not known whether the machines exist.
    pub failure: Option<String>,
}

/// The facts about the pool of a pending task that its plan does not contain.
#[derive(Clone, Debug)]
pub struct PendingFacts<'a> {
    pub now: Timestamp,
    pub deadline: Timestamp,
    /// How many tasks are claimed before it.
    pub n_ahead: u64,
    pub snapshot: &'a Snapshot,
    pub wait: &'a PoolWait,
    /// Since when the planner should have decided and has not.
    pub late_since: Option<Timestamp>,
    /// Oldest first.
    pub starting: Vec<StartingMachines>,
    /// At the latest then, one of the running tasks ends.
    pub free_at: Option<Timestamp>,
    /// When the first quarantine ends.
    pub quarantine_ends: Option<Timestamp>,
    /// When the first silent worker is ended.
    pub silence_ends: Option<Timestamp>,
    /// Other pools with machines of the providers whose quota is used up, with their units.
    pub sharers: Vec<(PoolId, u64)>,
    /// The words of the cloud in its last refusal of a launch config.
    pub refusals: BTreeMap<LaunchConfigId, String>,
    /// Why providers are out of service.
    pub setup_errors: BTreeMap<ProviderId, String>,
}

impl WayOut {
    fn by_itself(what: impl Into<String>, by: Option<Timestamp>) -> Self {
        Self {
            what: what.into(),
            by,
            is_by_hand: false,
        }
    }

    fn by_hand(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            by: None,
            is_by_hand: true,
        }
    }
}

impl WaitAnswer {
    fn new(
        cause: WaitCause,
        reason: String,
        changes: Vec<WayOut>,
        by: Option<Timestamp>,
        deadline: Timestamp,
    ) -> Self {
        Self {
            cause,
            reason,
            changes,
            latest: by.map_or(deadline, |by| by.min(deadline)),
        }
    }

    /// About a task whose dependencies have not all ended; `n_more` of them are not listed.
    pub fn of_dependencies(open: &[OpenDependency], n_more: usize, deadline: Timestamp) -> Self {
        let named = open.iter().take(MAX_NAMED);
        let named = named.map(|task| format!("{} ({})", task.id, task.state));
        let n_open = open.len() + n_more;
        let reason = format!(
            "{} it depends on {} not ended: {}",
            plural(n_open, "a task", "tasks"),
            if n_open == 1 { "has" } else { "have" },
            listed(named, n_open)
        );
        // A dependency that failed never releases a task that needs it completed.
        let is_stuck = open.iter().any(|task| task.state.is_resolved());
        let last = open.iter().map(|task| task.deadline).max();
        let last = last.filter(|_| n_more == 0 && !is_stuck);
        let changes = vec![
            WayOut::by_itself("they end", last),
            WayOut::by_hand("schedule it now: `task` API, scheduleTask"),
        ];
        Self::new(WaitCause::Dependencies, reason, changes, last, deadline)
    }

    /// About a task in a queue without a pool.
    pub fn of_unknown_queue(queue: &PoolId, deadline: Timestamp) -> Self {
        let reason = format!("no worker pool has the name of its queue, {queue}");
        let changes = vec![WayOut::by_hand(format!(
            "create the pool {queue}, or create the task for another one"
        ))];
        Self::new(WaitCause::UnknownQueue, reason, changes, None, deadline)
    }

    /// About a task of a pool whose workers people declare, with this number of running ones.
    pub fn of_declared(pool_id: &PoolId, n_running: u64, deadline: Timestamp) -> Self {
        let reason = match n_running {
            0 => format!("the pool {pool_id} launches no workers, and none is declared"),
            1 => "the declared worker of its pool has not asked for it yet".to_owned(),
            n => format!("none of the {n} declared workers of its pool has asked for it yet"),
        };
        let changes = vec![
            WayOut::by_itself("a worker of the pool asks for work", None),
            WayOut::by_hand("declare another worker"),
        ];
        Self::new(WaitCause::Claim, reason, changes, None, deadline)
    }
}

impl PendingFacts<'_> {
    pub fn answer(&self) -> WaitAnswer {
        let cause = self.wait.cause_for(self.n_ahead);
        let is_planned_for = match cause {
            WaitCause::Claim | WaitCause::Booting | WaitCause::Asked => true,
            WaitCause::Dependencies
            | WaitCause::UnknownQueue
            | WaitCause::Deciding
            | WaitCause::PlannerLate
            | WaitCause::Busy
            | WaitCause::Maximum
            | WaitCause::Paused
            | WaitCause::Budget
            | WaitCause::Quota
            | WaitCause::Refused
            | WaitCause::Price
            | WaitCause::OutOfService
            | WaitCause::NoLaunchConfig
            | WaitCause::Silent
            | WaitCause::Quarantined
            | WaitCause::Unrecorded => false,
        };
        match self.late_since.filter(|_| !is_planned_for) {
            Some(since) => self.planner_late(since),
            None => self.about(cause),
        }
    }

    fn about(&self, cause: WaitCause) -> WaitAnswer {
        let (reason, changes, by) = match cause {
            WaitCause::Deciding => self.deciding(),
            WaitCause::Asked => self.asked(),
            WaitCause::Booting => self.booting(),
            WaitCause::Claim => self.claim(),
            WaitCause::Busy => self.busy(),
            WaitCause::Maximum => self.maximum(),
            WaitCause::Paused => self.paused(),
            WaitCause::Budget => self.budget(),
            WaitCause::Quota => self.quota(),
            WaitCause::Refused => self.refused(),
            WaitCause::Price => self.price(),
            WaitCause::OutOfService => self.out_of_service(),
            WaitCause::NoLaunchConfig => self.no_launch_config(),
            WaitCause::Silent => self.silent(),
            WaitCause::Quarantined => self.quarantined(),
            WaitCause::Dependencies
            | WaitCause::UnknownQueue
            | WaitCause::PlannerLate
            | WaitCause::Unrecorded => (cause.label().to_owned(), Vec::new(), None),
        };
        WaitAnswer::new(cause, reason, changes, by, self.deadline)
    }

    fn planner_late(&self, since: Timestamp) -> WaitAnswer {
        let reason = format!(
            "no server has decided about its pool since {}",
            clock(since)
        );
        let changes = vec![
            WayOut::by_itself("a server with the role provisioner decides", None),
            WayOut::by_hand("look at `fleetwright doctor` and at the log of the server"),
        ];
        WaitAnswer::new(WaitCause::PlannerLate, reason, changes, None, self.deadline)
    }

    fn deciding(&self) -> Found {
        let by = self.now.plus_millis(LATE_MS);
        let units = self.wait.planned;
        let reason = match units {
            0 => "the next decision about its pool is due".to_owned(),
            _ => format!("the next decision about its pool is due, and starts {units} units"),
        };
        let changes = vec![WayOut::by_itself("the planner decides", Some(by))];
        (reason, changes, Some(by))
    }

    fn asked(&self) -> Found {
        let first = self.starting.first();
        let by = first.map(|it| {
            let is_lost = it.failure.is_some();
            it.since
                .plus_millis(if is_lost { LOST_ANSWER_MS } else { START_UP_MS })
        });
        if let Some((it, failure)) = first.and_then(|it| Some((it, it.failure.as_ref()?))) {
            let reason = format!(
                "the cloud was asked for {} of {} at {}, and the answer leaves open whether it made \
                 any: {}",
                plural_u32(it.machines, "a machine", "machines"),
                it.name,
                clock(it.since),
                quoted(failure)
            );
            let changes = vec![
                WayOut::by_itself("its machine is found, or another one is launched", by),
                WayOut::by_hand("repair the provider: the log of the server has all that it wrote"),
            ];
            return (reason, changes, by);
        }
        let reason = match first {
            Some(it) => format!(
                "the cloud was asked for {} of {} at {} and has not answered",
                plural_u32(it.machines, "a machine", "machines"),
                it.name,
                clock(it.since)
            ),
            None => "the cloud was asked for a machine and has not answered".to_owned(),
        };
        let changes = vec![WayOut::by_itself("the cloud answers", by)];
        (reason, changes, by)
    }

    fn booting(&self) -> Found {
        let Some(own) = self.own_machine() else {
            let reason = "a machine for it is starting".to_owned();
            return (reason, vec![WayOut::by_itself("it registers", None)], None);
        };
        let by = own.since.plus_millis(START_UP_MS);
        let so_far = length(self.now.millis_since(own.since));
        let usual = match own.usual_ms {
            Some(ms) => format!("usually ready after {}", length(ms)),
            None => "the usual time is not known yet".to_owned(),
        };
        let reason = format!(
            "its machine of {} is booting: {so_far} since the launch, {usual}",
            own.name
        );
        let usual_end = own.usual_ms.map(|ms| own.since.plus_millis(ms));
        let usual_end = usual_end.filter(|end| *end > self.now);
        let mut changes = Vec::new();
        if let Some(end) = usual_end {
            let what = format!("it registers, usually by {}", clock(end));
            changes.push(WayOut::by_itself(what, Some(by)));
        } else {
            changes.push(WayOut::by_itself("it registers", Some(by)));
        }
        changes.push(WayOut::by_itself(
            "another one is launched, if this one does not register",
            Some(by),
        ));
        (reason, changes, Some(by))
    }

    /// The machine that starts for the task: by its place in line after workers that are free.
    fn own_machine(&self) -> Option<&StartingMachines> {
        let mut left = self.n_ahead.saturating_sub(self.wait.idle);
        for machines in &self.starting {
            let units = u64::from(machines.machines);
            if units > left {
                return Some(machines);
            }
            left -= units;
        }
        self.starting.last()
    }

    fn claim(&self) -> Found {
        let by = self.now.plus_millis(STARTING_MS);
        let idle = self.wait.idle;
        let reason = match idle {
            1 => "a free worker of its pool has not asked for it yet".to_owned(),
            n => format!("{n} free places of its pool have not asked for it yet"),
        };
        let changes = vec![
            WayOut::by_itself("the worker asks for work", Some(by)),
            WayOut::by_itself("others are launched, if it stays silent", Some(by)),
        ];
        (reason, changes, Some(by))
    }

    fn busy(&self) -> Found {
        let running = self.snapshot.capacity.running;
        let ratio = self.snapshot.settings.scaling_ratio;
        let reason = match running {
            0 => format!("the settings of its pool start no worker for it (scaling ratio {ratio})"),
            n => format!(
                "all {n} places of its pool are busy, and its settings start no further one \
                 (scaling ratio {ratio})"
            ),
        };
        let mut changes = self.end_of_a_task();
        changes.push(WayOut::by_hand("change the scaling ratio of the pool"));
        (reason, changes, self.free_at)
    }

    fn maximum(&self) -> Found {
        let capacity = &self.snapshot.capacity;
        let max = self.snapshot.settings.max_capacity;
        let mut reason = match capacity.all() >= max {
            true => format!(
                "its pool is at its maximum: {} of {max} units exist",
                capacity.all()
            ),
            false => "its launch configs or providers are at their maximum".to_owned(),
        };
        let lines = self.snapshot.overrides.iter();
        let mut lines = lines.filter(|line| line.starts_with("maxCapacity"));
        if let Some(line) = lines.next() {
            reason.push_str(&format!(" ({line})"));
        } else if capacity.all() < max {
            reason.push_str(&format!(": {}", self.blocked_list()));
        }
        let mut changes = self.end_of_a_task();
        changes.push(WayOut::by_hand("raise the maximum (`maxCapacity`)"));
        // A higher maximum alone would change nothing.
        let spent = self.snapshot.budgets.iter().filter(|room| room.is_spent());
        let spent: Vec<&str> = spent
            .take(MAX_NAMED)
            .map(|room| room.text.as_str())
            .collect();
        if !spent.is_empty() {
            reason.push_str(&format!(
                "; its pool may not spend more either: {}",
                spent.join("; ")
            ));
            changes.push(WayOut::by_hand(
                "raise the budget, too: `fleetwright budget set`",
            ));
        }
        (reason, changes, self.free_at)
    }

    fn end_of_a_task(&self) -> Vec<WayOut> {
        vec![WayOut::by_itself(
            "a task of the pool ends and frees its place, at its deadline at the latest",
            self.free_at,
        )]
    }

    fn paused(&self) -> Found {
        let by = self.wait.next_try();
        let lines = self.snapshot.overrides.iter();
        let paused: Vec<&str> = lines
            .filter(|line| line.contains(" is paused "))
            .map(String::as_str)
            .collect();
        let reason = match paused.is_empty() {
            true => self.blocked_list(),
            false => paused.join("; "),
        };
        let changes = vec![
            WayOut::by_itself("the pause ends", by),
            WayOut::by_hand("end it now: `fleetwright override remove`"),
        ];
        (reason, changes, by)
    }

    fn budget(&self) -> Found {
        let is_limiting = |room: &&BudgetRoom| {
            let mut blocked = self.wait.blocked.iter();
            room.is_lowering() || blocked.any(|offer| room.has_said(&offer.why))
        };
        let limiting = self.snapshot.budgets.iter().filter(is_limiting);
        let limiting: Vec<&BudgetRoom> = limiting.take(MAX_NAMED).collect();
        let texts: Vec<&str> = limiting.iter().map(|room| room.text.as_str()).collect();
        let reason = format!("its pool may not spend more now: {}", texts.join("; "));
        let by = limiting.iter().map(|room| room.until).min();
        let mut changes = vec![WayOut::by_itself(
            "the next period of the budget begins",
            by,
        )];
        // Money that is spent stays spent; money that is reserved comes back.
        let is_spent = |room: &&BudgetRoom| room.step == BudgetStep::Spent;
        let stops_all = |room: &&BudgetRoom| is_spent(room) && room.provider_id.is_none();
        let mut rooms = limiting.iter().copied();
        if !rooms.clone().any(|room| stops_all(&room)) && !rooms.all(|room| is_spent(&room)) {
            let what = "a machine ends and frees what is reserved for it";
            changes.push(WayOut::by_itself(what, None));
        }
        changes.push(WayOut::by_hand(
            "raise the budget: `fleetwright budget set`",
        ));
        (reason, changes, by)
    }

    fn quota(&self) -> Found {
        let by = self.wait.next_try();
        let providers: std::collections::BTreeSet<&str> = self
            .wait
            .blocked
            .iter()
            .map(|offer| offer.provider_id.as_str())
            .collect();
        let providers: Vec<&str> = providers.into_iter().collect();
        let mut reason = format!("the quota of {} is used up", providers.join(", "));
        let mut refusals = self.wait.blocked.iter();
        let refusal = refusals.find_map(|offer| self.refusals.get(&offer.launch_config_id));
        if let Some(words) = refusal {
            reason.push_str(&format!(" ({})", quoted(words)));
        }
        if !self.sharers.is_empty() {
            let named = self.sharers.iter().take(MAX_NAMED);
            let named = named.map(|(pool, units)| format!("{pool} ({units} units)"));
            let pools = listed(named, self.sharers.len());
            reason.push_str(&format!(", shared with {pools}"));
        }
        let mut blocked = self.wait.blocked.iter();
        let mut changes = match blocked.find(|offer| offer.why.contains(OVER_SHARE)) {
            Some(offer) => {
                reason.push_str(&format!("; {}: {}", offer.name, offer.why));
                Vec::new()
            }
            None => self.next_try_of("it is tried again"),
        };
        changes.push(WayOut::by_itself("a worker under the quota ends", None));
        changes.push(WayOut::by_hand("ask the provider for a higher quota"));
        (reason, changes, by)
    }

    fn refused(&self) -> Found {
        let reason = format!("every launch config is refused: {}", self.blocked_list());
        let mut changes = self.next_try_of("the next one is tried again");
        changes.push(WayOut::by_hand("add a launch config that can be used"));
        (reason, changes, self.wait.next_try())
    }

    fn next_try_of(&self, what: &str) -> Vec<WayOut> {
        vec![WayOut::by_itself(what, self.wait.next_try())]
    }

    /// `a: last launch was refused (capacity), tried again at 12:03:10; b: …`
    fn blocked_list(&self) -> String {
        let blocked = self.wait.blocked.iter().take(MAX_NAMED);
        let lines: Vec<String> = blocked
            .map(|offer| {
                let refusal = self.refusals.get(&offer.launch_config_id);
                let is_refused = matches!(offer.cause, WaitCause::Refused | WaitCause::Quota);
                match refusal.filter(|_| is_refused) {
                    Some(words) => format!("{}: {} ({})", offer.name, offer.why, quoted(words)),
                    None => format!("{}: {}", offer.name, offer.why),
                }
            })
            .collect();
        let mut text = lines.join("; ");
        let n_more = self.wait.blocked.len().saturating_sub(MAX_NAMED);
        if n_more > 0 {
            text.push_str(&format!("; and {n_more} more"));
        }
        text
    }

    fn price(&self) -> Found {
        let list = self.blocked_list();
        let reason = match list.is_empty() {
            true => "no bid is worth its price to the strategy of the pool".to_owned(),
            false => format!("no bid is under the maximum price: {list}"),
        };
        let changes = vec![
            WayOut::by_itself("a price falls", None),
            WayOut::by_hand("raise the maximum price (`maxPrice`), or add launch configs"),
        ];
        (reason, changes, None)
    }

    fn out_of_service(&self) -> Found {
        let by = self.now.plus_millis(SET_UP_AGAIN_MS);
        let errors = self.setup_errors.iter().take(MAX_NAMED);
        let errors = errors
            .map(|(id, error)| format!("the provider {id} is out of service: {}", quoted(error)));
        let errors: Vec<String> = errors.collect();
        let reason = match errors.is_empty() {
            true => self.blocked_list(),
            false => errors.join("; "),
        };
        let changes = vec![
            WayOut::by_itself("the server sets the provider up again", Some(by)),
            WayOut::by_hand("correct its settings: `fleetwright provider list` shows the error"),
        ];
        (reason, changes, Some(by))
    }

    fn no_launch_config(&self) -> Found {
        let reason = match self.snapshot.offers.is_empty() {
            true => "its pool has no active launch config".to_owned(),
            false => "each launch config of its pool has the initialWeight 0".to_owned(),
        };
        let changes = vec![WayOut::by_hand("give a launch config a weight, or add one")];
        (reason, changes, None)
    }

    fn silent(&self) -> Found {
        let n_silent = self.snapshot.capacity.silent;
        let max = self.snapshot.settings.max_capacity;
        let reason = format!(
            "{n_silent} of the {max} units that its pool may have are of workers that do not ask \
             for work"
        );
        let changes = vec![
            WayOut::by_itself("they ask for work, or are ended", self.silence_ends),
            WayOut::by_hand("look at these workers: `fleetwright explain pool` names them"),
        ];
        (reason, changes, self.silence_ends)
    }

    fn quarantined(&self) -> Found {
        let n_quarantined = self.snapshot.capacity.quarantined;
        let max = self.snapshot.settings.max_capacity;
        let reason = format!(
            "{n_quarantined} of the {max} units that its pool may have are of workers in \
             quarantine"
        );
        let changes = vec![
            WayOut::by_itself("the first quarantine ends", self.quarantine_ends),
            WayOut::by_hand("lift it, or remove the workers"),
        ];
        (reason, changes, self.quarantine_ends)
    }
}

/// The reason, what changes it, and by when at the latest.
type Found = (String, Vec<WayOut>, Option<Timestamp>);

fn plural_u32(count: u32, one: &str, many: &str) -> String {
    plural(usize::try_from(count).unwrap_or(usize::MAX), one, many)
}
