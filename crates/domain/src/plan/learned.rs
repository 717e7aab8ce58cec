//! The memory of the strategy `balanced` as text for people: of the pool's tasks and offerings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::notes::units;
use super::{Bid, Snapshot};
use crate::market::{BreakerState, OfferingId, OfferingMemory};
use crate::time::{SECOND_MS, Timestamp};

/// An offering of the snapshot with its memory.
struct Learned<'a> {
    id: OfferingId,
    memory: OfferingMemory,
    bid: &'a Bid,
}

impl Snapshot {
    /// `None`: the strategy learns nothing.
    pub fn learned_json(&self) -> Option<Value> {
        let learned = self.learned.as_ref()?;
        let offerings: Vec<Value> = self
            .learned_offerings()
            .iter()
            .map(|learned| learned.json(self.now))
            .collect();
        Some(json!({
            "taskSeconds": learned.task_ms.map(|ms| ms / SECOND_MS as f64),
            "arrivalsPerMinute": learned.arrivals * 60.0,
            "expectedPerMinute": learned.expected.map(|rate| rate * 60.0),
            "announcedTasks": self.announced_tasks(),
            "keptUnits": learned.retention.highest_kept(self.now),
            "rivals": self.rivals.len(),
            "offerings": offerings,
        }))
    }

    /// The same as lines; none if the strategy learns nothing.
    pub fn learned_text(&self) -> String {
        let Some(learned) = &self.learned else {
            return String::new();
        };
        let task = match learned.task_ms {
            Some(ms) => format!("a task takes about {} s", seconds(ms)),
            None => "too few tasks have ended to know how long they take".to_owned(),
        };
        let (arrivals, kept) = (
            units(learned.arrivals * 60.0),
            learned.retention.highest_kept(self.now),
        );
        let kept = match kept {
            0 => "no unit is kept idle for later tasks".to_owned(),
            1 => "1 unit is kept idle for later tasks".to_owned(),
            kept => format!("up to {kept} units are kept idle for later tasks"),
        };
        let arrive = if arrivals == "1" {
            "task arrives"
        } else {
            "tasks arrive"
        };
        let mut text = format!("learned: {task}; {arrivals} {arrive} a minute; {kept}\n");
        if let Some(expected) = learned.expected {
            let expected = units((expected * 600.0).round() / 10.0);
            let line = format!(
                "learned: on earlier days, {expected} tasks arrived a minute at this hour\n"
            );
            text.push_str(&line);
        }
        if !self.announced.is_empty() {
            let count = self.announced_tasks();
            let line = match count {
                1 => "announced: 1 task waits for tasks that run\n".to_owned(),
                count => format!("announced: {count} tasks wait for tasks that run\n"),
            };
            text.push_str(&line);
        }
        for learned in self.learned_offerings() {
            let line = learned.line(self.now);
            writeln!(text, "learned: {line}").expect("writing to a string cannot fail");
        }
        text
    }

    /// Tasks that wait for tasks that run, if the pool looks ahead.
    pub(in crate::plan) fn announced_tasks(&self) -> u64 {
        let counts = self.announced.iter().map(|announced| announced.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Each offering once, in the order of their names.
    fn learned_offerings(&self) -> Vec<Learned<'_>> {
        let mut all: BTreeMap<OfferingId, Learned<'_>> = BTreeMap::new();
        for offer in &self.offers {
            if let (Some(id), Some(memory), Ok(bid)) = (offer.offering(), offer.memory, &offer.bid)
            {
                let entry = all.entry(id.clone());
                entry.or_insert(Learned { id, memory, bid });
            }
        }
        all.into_values().collect()
    }
}

impl Learned<'_> {
    fn json(&self, now: Timestamp) -> Value {
        let (state, until) = state(&self.memory, now);
        let breaker = &self.memory.breaker;
        let failed = breaker.failures_in_a_row > 0;
        json!({
            "offering": self.id.as_str(),
            "bootSeconds": self.memory.boot_ms(self.bid.ready_ms) / SECOND_MS as f64,
            "reliability": self.memory.reliability(self.bid.reliability, now),
            "interruptionsPerHour": self.memory.hazard(now),
            "breaker": state,
            "trouble": breaker.trouble.filter(|_| failed).map(|trouble| trouble.as_str()),
            "nextTry": until.map(|until| until.to_string()),
            "failuresInARow": breaker.failures_in_a_row,
            "window": self.memory.window,
        })
    }

    fn line(&self, now: Timestamp) -> String {
        let memory = &self.memory;
        let boot = seconds(memory.boot_ms(self.bid.ready_ms));
        let share = units((memory.reliability(self.bid.reliability, now) * 1_000.0).round() / 10.0);
        let mut line = format!(
            "{}: a machine is ready after about {boot} s, {share} % of them register",
            self.id
        );
        // Without an observation, the rate is only an assumption.
        if memory.was_interrupted(now) {
            let hazard = units((memory.hazard(now) * 100.0).round() / 100.0);
            line.push_str(&format!(", {hazard} interruptions an hour"));
        }
        let breaker = &memory.breaker;
        if breaker.failures_in_a_row > 0 {
            let (count, trouble) = (breaker.failures_in_a_row, breaker.trouble);
            let trouble = trouble.map_or("unknown", |trouble| trouble.as_str());
            let failures = match count {
                1 => format!("a failure ({trouble})"),
                count => format!("{count} failures in a row, the last one: {trouble}"),
            };
            let state = match memory.state(now) {
                BreakerState::Open { .. } => "not used after",
                BreakerState::HalfOpen => "tried again after",
                BreakerState::OnTrial { .. } => "tried with one machine after",
                BreakerState::Closed => "used despite",
            };
            line.push_str(&format!("; {state} {failures}"));
        }
        if let (_, Some(until)) = state(memory, now) {
            line.push_str(&format!(", next try {until}"));
        }
        if let Some(window) = memory.window {
            line.push_str(&format!("; at most {window} may start at a time"));
        }
        line
    }
}

/// The state of the breaker, and when the offering is tried next.
fn state(memory: &OfferingMemory, now: Timestamp) -> (&'static str, Option<Timestamp>) {
    match memory.state(now) {
        BreakerState::Closed => ("closed", None),
        BreakerState::Open { until } => ("open", Some(until)),
        BreakerState::HalfOpen => ("half-open", Some(now)),
        BreakerState::OnTrial { until } => ("on trial", Some(until)),
    }
}

fn seconds(ms: f64) -> String {
    units((ms / SECOND_MS as f64).round())
}
