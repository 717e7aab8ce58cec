//! The planner with 91 hours of recorded load, a queue, and workers that boot for 20 seconds.
//!
//! The expected numbers are those of Taskcluster's own simulator for the same load: days 2 to 6,
//! idle time 900 s, one plan per second. There a worker stops at the millisecond at which its idle
//! time ends, here at the next plan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use domain::demand::Demand;
use domain::plan::{Candidate, Capacity, Snapshot, plan};
use domain::time::{DAY_MS, HOUR_MS, SECOND_MS, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::common::{beside, idle, pool};

const BOOT_MS: i64 = 20 * SECOND_MS;
const IDLE_MS: i64 = 900 * SECOND_MS;
/// Longer than the load lasts.
const END_MS: i64 = 6 * DAY_MS;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finished(u64),
    Booted(u64),
    Arrived { duration_ms: i64 },
}

struct Machine {
    requested_ms: i64,
    running: bool,
    idle_since_ms: i64,
    busy: bool,
    n_tasks: u64,
}

/// A queue and its workers; only the planner decides anything.
struct Fleet {
    now_ms: i64,
    events: BinaryHeap<Reverse<(i64, Event)>>,
    pending: VecDeque<(i64, i64)>,
    machines: BTreeMap<u64, Machine>,
    /// The running idle workers, longest idle first.
    ready: VecDeque<u64>,
    template: Snapshot,
    rng: StdRng,
    n_plans: u64,
    waits_ms: Vec<i64>,
    busy_ms: i64,
    running_ms: i64,
    n_requested: u64,
    n_never_worked: u64,
    peak: usize,
}

/// How much of a span lies in the days that count.
fn counted(from_ms: i64, to_ms: i64) -> i64 {
    (to_ms.min(END_MS) - from_ms.max(DAY_MS)).max(0)
}

impl Fleet {
    fn new(load: Vec<(i64, i64)>) -> Self {
        let arrivals = load
            .into_iter()
            .map(|(at, duration_ms)| Reverse((at, Event::Arrived { duration_ms })));
        Self {
            now_ms: 0,
            events: arrivals.collect(),
            pending: VecDeque::new(),
            machines: BTreeMap::new(),
            ready: VecDeque::new(),
            template: pool(0, 1_000),
            rng: StdRng::seed_from_u64(1),
            n_plans: 0,
            waits_ms: Vec::new(),
            busy_ms: 0,
            running_ms: 0,
            n_requested: 0,
            n_never_worked: 0,
            peak: 0,
        }
    }

    fn run(&mut self) {
        while !(self.events.is_empty() && self.machines.is_empty()) {
            self.now_ms += SECOND_MS;
            if self.machines.is_empty() && self.pending.is_empty() {
                // Nothing exists and nothing waits until the next arrival.
                let Reverse((at, _)) = self.events.peek().unwrap();
                self.now_ms = self
                    .now_ms
                    .max((at + SECOND_MS - 1) / SECOND_MS * SECOND_MS);
            }
            while self
                .events
                .peek()
                .is_some_and(|Reverse((at, _))| *at <= self.now_ms)
            {
                let Reverse((at, event)) = self.events.pop().unwrap();
                self.happen(at, event);
            }
            self.look();
        }
    }

    fn happen(&mut self, at_ms: i64, event: Event) {
        match event {
            Event::Arrived { duration_ms } => self.pending.push_back((at_ms, duration_ms)),
            Event::Booted(id) | Event::Finished(id) => {
                let machine = self.machines.get_mut(&id).unwrap();
                (machine.running, machine.busy, machine.idle_since_ms) = (true, false, at_ms);
                self.ready.push_back(id);
            }
        }
        while !self.pending.is_empty() && !self.ready.is_empty() {
            let (created_ms, duration_ms) = self.pending.pop_front().unwrap();
            let id = self.ready.pop_front().unwrap();
            let machine = self.machines.get_mut(&id).unwrap();
            machine.busy = true;
            machine.n_tasks += 1;
            if created_ms >= DAY_MS {
                self.waits_ms.push(at_ms - created_ms);
            }
            self.busy_ms += counted(at_ms, at_ms + duration_ms);
            self.events
                .push(Reverse((at_ms + duration_ms, Event::Finished(id))));
        }
    }

    fn look(&mut self) {
        let snapshot = self.snapshot();
        let plan = plan(&snapshot, &mut self.rng);
        self.n_plans += 1;
        assert!(plan.alarm.is_none());
        for award in &plan.awards {
            for _ in 0..award.machines {
                self.launch();
            }
        }
        for (key, advice) in &plan.advice {
            assert_eq!(
                (advice.terminate, advice.reason.as_str()),
                (true, "over capacity")
            );
            self.leave(key.id.as_str().parse().unwrap());
        }
        self.peak = self.peak.max(self.machines.len());
    }

    fn snapshot(&self) -> Snapshot {
        let running = self.machines.iter().filter(|(_, machine)| machine.running);
        let candidates = running.map(|(id, machine)| Candidate {
            claimed: u64::from(machine.busy),
            idle_since: Timestamp::from_millis(machine.idle_since_ms),
            idle_hold_ms: IDLE_MS,
            created: Timestamp::from_millis(machine.requested_ms),
            ..idle(&id.to_string(), 0)
        });
        let workers: Vec<_> = candidates.collect();
        let n_busy = workers.iter().filter(|worker| worker.is_busy()).count();
        let mut snapshot = Snapshot {
            now: Timestamp::from_millis(self.now_ms),
            demand: Demand {
                pending: self.pending.len() as u64,
                claimed: n_busy as u64,
            },
            capacity: Capacity {
                running: workers.len() as u64,
                requested: (self.machines.len() - workers.len()) as u64,
                ..Capacity::default()
            },
            workers,
            ..self.template.clone()
        };
        snapshot.offers[0].live = self.machines.len() as u64;
        snapshot
    }

    fn launch(&mut self) {
        let id = self.n_plans * 1_000 + self.machines.len() as u64;
        let machine = Machine {
            requested_ms: self.now_ms,
            running: false,
            idle_since_ms: self.now_ms,
            busy: false,
            n_tasks: 0,
        };
        self.n_requested += u64::from(self.now_ms >= DAY_MS);
        self.machines.insert(id, machine);
        self.events
            .push(Reverse((self.now_ms + BOOT_MS, Event::Booted(id))));
    }

    fn leave(&mut self, id: u64) {
        let machine = self.machines.remove(&id).unwrap();
        assert!(machine.running && !machine.busy);
        self.ready.retain(|ready| *ready != id);
        self.running_ms += counted(machine.requested_ms + BOOT_MS, self.now_ms);
        let counts = machine.requested_ms >= DAY_MS && machine.n_tasks == 0;
        self.n_never_worked += u64::from(counts);
    }

    fn wait_ms(&self, percent: usize) -> i64 {
        self.waits_ms[percent * self.waits_ms.len() / 100]
    }
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{found} instead of {expected}"
    );
}

#[test]
fn ninety_one_hours_pass_with_nothing_but_the_planner() {
    let Some(file) = beside("data/traces/mobile-3-decision.dat") else {
        return;
    };
    let bytes = std::fs::read(file).unwrap();
    let number = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()));
    let load: Vec<_> = bytes
        .chunks_exact(8)
        .map(|record| (number(&record[..4]), number(&record[4..])))
        .collect();
    assert_eq!((load.len(), load.last().unwrap().0 / HOUR_MS), (295, 91));
    let mut fleet = Fleet::new(load);
    fleet.run();
    fleet.waits_ms.sort_unstable();
    let seconds = |ms: i64| f64::from(u32::try_from(ms).unwrap()) / 1_000.0;
    let mean = seconds(fleet.waits_ms.iter().sum::<i64>()) / fleet.waits_ms.len() as f64;
    let (running_h, busy_h) = (
        seconds(fleet.running_ms) / 3_600.0,
        seconds(fleet.busy_ms) / 3_600.0,
    );
    eprintln!(
        "{} plans: {} tasks, wait mean {mean:.2} p50 {} p95 {} p99 {} ms; {} workers, {} never worked, \
         {running_h:.2} worker-h, {busy_h:.2} busy-h, peak {}",
        fleet.n_plans,
        fleet.waits_ms.len(),
        fleet.wait_ms(50),
        fleet.wait_ms(95),
        fleet.wait_ms(99),
        fleet.n_requested,
        fleet.n_never_worked,
        fleet.peak
    );
    assert_eq!(fleet.waits_ms.len(), 222);
    near(mean, 10.8, 0.1);
    near(seconds(fleet.wait_ms(50)), 16.2, 0.1);
    near(seconds(fleet.wait_ms(95)), 20.9, 0.1);
    near(seconds(fleet.wait_ms(99)), 21.0, 0.1);
    near(busy_h, 5.8, 0.05);
    near(running_h, 49.9, 0.1);
    near(fleet.n_requested as f64, 126.0, 0.0);
    near(fleet.n_never_worked as f64, 9.0, 0.0);
    assert_eq!(fleet.peak, 7);
}
