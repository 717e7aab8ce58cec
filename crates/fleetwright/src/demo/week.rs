//! Simulates the last days of a pool: its runs, its machines, and why runs waited.
//!
//! A run takes a free machine, or waits for the machine that is soonest: a busy one, or a new one.
//! Nothing here has I/O or a clock, so one seed gives one week.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::PI;

use access::slugid;
use domain::id::{LaunchConfigId, PoolId, ProviderId, TaskId, WorkerGroup, WorkerKey};
use domain::task::EndReason;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::waits::{WaitCause, WaitPart};
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::scene::{Incident, PoolWeek, before, whole};

const IDLE_MS: i64 = 4 * MINUTE_MS;
/// From the decision to the machine, and from the registration to the first claim.
const ANSWER_MS: i64 = 2 * SECOND_MS;
/// A machine that does not register ends after this time.
const GIVEN_UP_MS: i64 = 15 * MINUTE_MS;
/// The share of launches that go to the first place.
const FIRST_PLACE: f64 = 0.7;
/// A lost run is tried again this often.
const MAX_RETRIES: u32 = 5;
/// The hour of the day with most runs, UTC.
const NOON: f64 = 13.0;

/// A launch config.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) provider_id: ProviderId,
    pub(super) group: WorkerGroup,
    pub(super) launch_config_id: LaunchConfigId,
    /// Dollars an hour.
    pub(super) price: Option<f64>,
    pub(super) boot_ms: i64,
}

/// The pool, its launch configs, and the names of its hosts if it launches no machines.
pub(super) struct PastPool {
    pub(super) id: PoolId,
    pub(super) places: Vec<Place>,
    pub(super) hosts: Vec<WorkerKey>,
}

#[derive(Clone, Debug)]
pub(super) struct PastMachine {
    pub(super) key: WorkerKey,
    /// Which of the places of the pool.
    pub(super) place: usize,
    pub(super) made: Timestamp,
    pub(super) registered: Option<Timestamp>,
    pub(super) first_claim: Option<Timestamp>,
    pub(super) leaving: Option<Timestamp>,
    pub(super) ended: Timestamp,
    pub(super) is_interrupted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PastRun {
    pub(super) task_id: TaskId,
    pub(super) run_id: u32,
    /// Which of the machines.
    pub(super) machine: usize,
    pub(super) started: Timestamp,
    pub(super) resolved: Timestamp,
    pub(super) waiting_since: Timestamp,
    pub(super) reason: EndReason,
    pub(super) parts: Vec<WaitPart>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PastWeek {
    pub(super) machines: Vec<PastMachine>,
    pub(super) runs: Vec<PastRun>,
}

struct Simulation<'a> {
    week: &'a PoolWeek,
    pool: &'a PastPool,
    now: Timestamp,
    until: Timestamp,
    random: &'a mut StdRng,
    past: PastWeek,
    /// The machines that exist, and when each becomes free.
    alive: Vec<(usize, Timestamp)>,
}

/// A task that comes: when, and which run of it.
type Arrival = (Timestamp, String, u32);

/// The days from `since` up to shortly before `now`: all machines have ended by then.
pub(super) fn simulate(
    week: &PoolWeek,
    pool: &PastPool,
    since: Timestamp,
    now: Timestamp,
    random: &mut StdRng,
) -> PastWeek {
    let mut simulation = Simulation {
        week,
        pool,
        now,
        until: now.plus_millis(-MINUTE_MS),
        random,
        past: PastWeek::default(),
        alive: Vec::new(),
    };
    for host in &pool.hosts {
        simulation.add_machine(host.clone(), 0, since, Some(since), since);
    }
    let mut arrivals = simulation.arrivals(since);
    while let Some(Reverse((at, task, run_id))) = arrivals.pop() {
        simulation.retire(at);
        if let Some(again) = simulation.run(at, &task, run_id) {
            arrivals.push(Reverse((again, task, run_id + 1)));
        }
    }
    let until = simulation.until;
    simulation.retire(until.plus_millis(DAY_MS));
    simulation.past
}

impl Simulation<'_> {
    fn arrivals(&mut self, since: Timestamp) -> BinaryHeap<Reverse<Arrival>> {
        let mut arrivals = BinaryHeap::new();
        let mut at = since;
        loop {
            let gap = -self.random.random_range(f64::MIN_POSITIVE..1.0_f64).ln();
            at = at.plus_millis(whole(gap / self.week.per_hour * HOUR_MS as f64).max(1));
            if at >= self.until {
                return arrivals;
            }
            if self.random.random_bool(demand(at, self.week.steady)) {
                arrivals.push(Reverse((at, slugid::nice(self.random), 0)));
            }
        }
    }

    /// Runs a task that came at this moment. Returns when it comes again, if the run is lost.
    fn run(&mut self, since: Timestamp, task: &str, run_id: u32) -> Option<Timestamp> {
        let (place, started, parts) = self.find_machine(since)?;
        let machine = self.alive.get(place)?.0;
        let mut resolved = started.plus_millis(self.week.seconds.draw_ms(self.random));
        let week = self.week;
        let lost = if run_id < MAX_RETRIES && self.pool.hosts.is_empty() {
            week.lost
        } else {
            0.0
        };
        let draw: f64 = self.random.random();
        let reason = match draw {
            draw if draw < lost => EndReason::WorkerShutdown,
            draw if draw < lost + week.broken => EndReason::InternalError,
            draw if draw < lost + week.broken + week.failed => EndReason::Failed,
            _ => EndReason::Completed,
        };
        if resolved > self.until {
            // It would still run, and the workers of now are others.
            return None;
        }
        let is_lost = reason == EndReason::WorkerShutdown;
        if is_lost {
            let part = self.random.random_range(0.1..0.9);
            let elapsed = resolved.millis_since(started) as f64 * part;
            resolved = started.plus_millis(whole(elapsed));
        }
        if let Some(entry) = self.alive.get_mut(place) {
            entry.1 = resolved;
        }
        self.past.runs.push(PastRun {
            task_id: task.parse().ok()?,
            run_id,
            machine,
            started,
            resolved,
            waiting_since: since,
            reason,
            parts,
        });
        if !is_lost {
            return None;
        }
        self.alive.swap_remove(place);
        let ended = &mut self.past.machines[machine];
        (ended.leaving, ended.ended, ended.is_interrupted) = (None, resolved, true);
        Some(resolved)
    }

    /// The machine that is soonest, by its place among those that exist, when it starts the run,
    /// and why the run waits. `None`: there is none in this week.
    fn find_machine(&mut self, since: Timestamp) -> Option<(usize, Timestamp, Vec<WaitPart>)> {
        let free = |(_, (_, free_at)): &(usize, &(usize, Timestamp))| *free_at <= since;
        let idle = self.alive.iter().enumerate().filter(free);
        if let Some((place, _)) = idle.max_by_key(|(_, (_, free_at))| *free_at) {
            return Some((place, since, Vec::new()));
        }
        let incident = self.incident(since).filter(|it| it.cause.is_some());
        let cause = incident.as_ref().and_then(|incident| incident.cause);
        let is_full = self.alive.len() >= self.week.limit || !self.pool.hosts.is_empty();
        let opens = incident.map_or(since, |incident| before(self.now, incident.to));
        let (to, boot_ms) = self.draw_place();
        let ready = opens.plus_millis(ANSWER_MS + boot_ms + ANSWER_MS);
        let busy = self.alive.iter().map(|(_, free_at)| *free_at).enumerate();
        let busy = busy.min_by_key(|(_, free_at)| *free_at);
        if let Some((place, free_at)) = busy.filter(|(_, free_at)| is_full || *free_at <= ready) {
            let usual = if is_full {
                WaitCause::Maximum
            } else {
                WaitCause::Busy
            };
            let part = part(cause.unwrap_or(usual), since, free_at);
            return Some((place, free_at, vec![part]));
        }
        if is_full || ready >= self.until {
            return None;
        }
        let made = opens.plus_millis(ANSWER_MS);
        let registered = made.plus_millis(boot_ms);
        let mut parts = vec![
            part(WaitCause::Asked, opens, made),
            part(WaitCause::Booting, made, registered),
            part(WaitCause::Claim, registered, ready),
        ];
        if let Some(cause) = cause.filter(|_| since < opens) {
            parts.insert(0, part(cause, since, opens));
        }
        self.launch(to, made, registered, ready);
        Some((self.alive.len() - 1, ready, parts))
    }

    fn launch(&mut self, to: usize, made: Timestamp, registered: Timestamp, ready: Timestamp) {
        let never = self.incident(made).map_or(0.0, |it| it.never_registers);
        if self.random.random_bool(never) {
            let key = self.draw_key(0);
            let ended = made.plus_millis(GIVEN_UP_MS).min(self.until);
            self.past.machines.push(PastMachine {
                key,
                place: 0,
                made,
                registered: None,
                first_claim: None,
                leaving: None,
                ended,
                is_interrupted: false,
            });
        }
        let key = self.draw_key(to);
        self.add_machine(key, to, made, Some(registered), ready);
    }

    fn add_machine(
        &mut self,
        key: WorkerKey,
        place: usize,
        made: Timestamp,
        registered: Option<Timestamp>,
        ready: Timestamp,
    ) {
        self.alive.push((self.past.machines.len(), ready));
        self.past.machines.push(PastMachine {
            key,
            place,
            made,
            registered,
            first_claim: Some(ready),
            leaving: None,
            ended: self.until,
            is_interrupted: false,
        });
    }

    /// Machines that were idle for too long leave. Hosts stay.
    fn retire(&mut self, now: Timestamp) {
        if !self.pool.hosts.is_empty() {
            return;
        }
        let until = self.until;
        let (past, random) = (&mut self.past, &mut self.random);
        self.alive.retain(|(machine, free_at)| {
            let leaving = free_at.plus_millis(IDLE_MS);
            if leaving > now {
                return true;
            }
            let ended = leaving.plus_millis(random.random_range(15..60) * SECOND_MS);
            let machine = &mut past.machines[*machine];
            machine.leaving = Some(leaving.min(until));
            machine.ended = ended.min(until);
            false
        });
    }

    fn incident(&self, at: Timestamp) -> Option<Incident> {
        let mut incidents = self.week.incidents.iter();
        let holds =
            |it: &&Incident| before(self.now, it.from) <= at && at < before(self.now, it.to);
        incidents.find(holds).cloned()
    }

    /// A place for a machine, and how long it boots there.
    fn draw_place(&mut self) -> (usize, i64) {
        let n_places = self.pool.places.len();
        let place = if n_places < 2 || self.random.random_bool(FIRST_PLACE) {
            0
        } else {
            self.random.random_range(1..n_places)
        };
        let usual = self.pool.places.get(place).map_or(0, |place| place.boot_ms);
        (
            place,
            whole(usual as f64 * self.random.random_range(0.8..1.6)),
        )
    }

    fn draw_key(&mut self, place: usize) -> WorkerKey {
        let place = &self.pool.places[place];
        let number: u64 = self.random.random();
        let name = format!("i-{:012x}", number >> 16);
        WorkerKey {
            pool_id: self.pool.id.clone(),
            group: place.group.clone(),
            id: name.parse().expect("letters and digits are an id"),
        }
    }
}

fn part(cause: WaitCause, since: Timestamp, until: Timestamp) -> WaitPart {
    WaitPart {
        cause,
        since,
        until,
    }
}

/// The demand of this hour, compared with noon of a working day.
fn demand(at: Timestamp, is_steady: bool) -> f64 {
    if is_steady {
        return 1.0;
    }
    let hour = at.as_millis().rem_euclid(DAY_MS) as f64 / HOUR_MS as f64;
    let of_hour = 0.1 + 0.9 * (0.5 + 0.5 * ((hour - NOON) / 12.0 * PI).cos()).powi(2);
    // The first day of the count was a Thursday.
    let weekday = (at.as_millis().div_euclid(DAY_MS) + 4).rem_euclid(7);
    let of_day = if matches!(weekday, 0 | 6) { 0.3 } else { 1.0 };
    of_hour * of_day
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn pool() -> PastPool {
        let place = |name: &str| Place {
            provider_id: "aws".parse().unwrap(),
            group: "east".parse().unwrap(),
            launch_config_id: name.parse().unwrap(),
            price: Some(0.5),
            boot_ms: 30 * SECOND_MS,
        };
        PastPool {
            id: "a/b".parse().unwrap(),
            places: vec![place("one"), place("two")],
            hosts: Vec::new(),
        }
    }

    fn simulated(more: &str, hosts: Vec<WorkerKey>) -> (PastWeek, Timestamp) {
        let text = format!(
            r#"{{"pool": "a/b", "perHour": 40, "seconds": [100, 900], "failed": 0.1, "broken": 0.05,
                "lost": 0.05, "limit": 4{more}}}"#
        );
        let week: PoolWeek = serde_json::from_str(&text).unwrap();
        let now = Timestamp::from_millis(20_000 * DAY_MS);
        let pool = PastPool { hosts, ..pool() };
        let mut random = StdRng::seed_from_u64(1);
        let since = now.plus_millis(-7 * DAY_MS);
        (simulate(&week, &pool, since, now, &mut random), now)
    }

    #[test]
    fn each_machine_runs_one_task_at_a_time_within_its_life() {
        let (past, now) = simulated("", Vec::new());
        assert!(past.runs.len() > 1_000, "{}", past.runs.len());
        let mut runs: Vec<&PastRun> = past.runs.iter().collect();
        runs.sort_by_key(|run| (run.machine, run.started));
        for pair in runs
            .windows(2)
            .filter(|pair| pair[0].machine == pair[1].machine)
        {
            assert!(pair[0].resolved <= pair[1].started);
        }
        for run in &runs {
            let machine = &past.machines[run.machine];
            assert!(machine.first_claim.unwrap() <= run.started);
            assert!(run.resolved <= machine.ended && machine.ended < now);
            let waited: i64 = run.parts.iter().map(WaitPart::millis).sum();
            assert_eq!(waited, run.started.millis_since(run.waiting_since));
        }
    }

    #[test]
    fn there_are_never_more_machines_than_the_limit() {
        let (past, _) = simulated("", Vec::new());
        let machines = past.machines.iter();
        let mut turns: Vec<(Timestamp, i32)> = machines
            .flat_map(|it| [(it.made, 1), (it.leaving.unwrap_or(it.ended), -1)])
            .collect();
        turns.sort_unstable();
        let mut n_alive = 0;
        for (_, change) in turns {
            n_alive += change;
            assert!(n_alive <= 4, "{n_alive}");
        }
        let causes = past.runs.iter().flat_map(|run| &run.parts);
        let causes: std::collections::BTreeSet<&str> =
            causes.map(|part| part.cause.as_str()).collect();
        assert!(
            causes.contains("maximum") && causes.contains("booting"),
            "{causes:?}"
        );
    }

    #[test]
    fn an_incident_is_the_cause_of_the_waits_in_it() {
        let incident = r#", "incidents": [{"from": 40, "to": 30, "cause": "quota"}]"#;
        let (past, now) = simulated(incident, Vec::new());
        let (since, until) = (before(now, 40.0), before(now, 30.0));
        assert!(
            past.machines
                .iter()
                .all(|it| it.made < since || it.made >= until)
        );
        let parts = past.runs.iter().flat_map(|run| &run.parts);
        let mut of_quota = parts
            .filter(|part| part.cause == WaitCause::Quota)
            .peekable();
        assert!(of_quota.peek().is_some());
        assert!(of_quota.all(|part| since <= part.since && part.since < until));
    }

    #[test]
    fn hosts_are_never_launched_and_never_leave() {
        let host = |name: &str| WorkerKey::parse("a/b".parse().unwrap(), "mdc1", name).unwrap();
        let (past, now) = simulated("", vec![host("m1"), host("m2")]);
        assert_eq!(past.machines.len(), 2);
        assert!(
            past.machines
                .iter()
                .all(|it| it.ended == now.plus_millis(-MINUTE_MS))
        );
        assert!(
            past.runs
                .iter()
                .all(|run| run.reason != EndReason::WorkerShutdown)
        );
    }

    #[test]
    fn one_seed_gives_one_week() {
        let runs = |_| format!("{:?}", simulated("", Vec::new()).0.runs);
        assert_eq!(runs(1), runs(2));
    }
}
