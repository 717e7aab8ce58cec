//! Reports about costs: lines with names, their order, and their sums.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Uses;
use crate::id::names;
use crate::time::Timestamp;

/// By what a report sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostGrouping {
    Kind,
    Pool,
    LaunchConfig,
    Provider,
    Owner,
    Day,
}

names! {
    CostGrouping, "not one of kind, pool, launch-config, provider, owner, day",
    Kind = "kind",
    Pool = "pool",
    LaunchConfig = "launch-config",
    Provider = "provider",
    Owner = "owner",
    Day = "day",
}

/// The cost of the machines with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostLine {
    /// The name, for a launch config that of its pool and its own, otherwise one.
    pub names: [String; 2],
    pub uses: Uses,
    /// The part of the time whose price is not known.
    pub unpriced_ms: i64,
}

/// Lines with different names, and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostReport {
    pub since: Timestamp,
    pub until: Timestamp,
    pub lines: Vec<CostLine>,
    pub total: CostLine,
}

impl CostLine {
    pub fn new(names: [String; 2], is_priced: bool, uses: Uses) -> Self {
        let unpriced_ms = if is_priced { 0 } else { uses.total().ms };
        Self {
            names,
            uses,
            unpriced_ms,
        }
    }

    fn add(&mut self, other: &Self) {
        self.uses += other.uses;
        self.unpriced_ms = self.unpriced_ms.saturating_add(other.unpriced_ms);
    }
}

impl CostReport {
    /// Adds up lines with the same names.
    pub fn new(since: Timestamp, until: Timestamp, lines: Vec<CostLine>) -> Self {
        let mut total = CostLine::default();
        let mut by_name: BTreeMap<[String; 2], CostLine> = BTreeMap::new();
        for line in lines {
            total.add(&line);
            let known = by_name.entry(line.names.clone()).or_default();
            known.names.clone_from(&line.names);
            known.add(&line);
        }
        Self {
            since,
            until,
            lines: by_name.into_values().collect(),
            total,
        }
    }

    /// One line for each use. Only the total tells for how much time the price is not known.
    #[must_use]
    pub fn by_kind(mut self) -> Self {
        let lines = self.total.uses.iter().map(|(kind, amount)| {
            let mut uses = Uses::default();
            uses.add(kind, amount);
            CostLine {
                names: [kind.to_string(), String::new()],
                uses,
                unpriced_ms: 0,
            }
        });
        self.lines = lines.collect();
        self
    }

    /// Orders lines by what they waste, the most first; equal lines by name.
    #[must_use]
    pub fn most_wasted_first(mut self) -> Self {
        let wasted = |line: &CostLine| {
            let wasted = line.uses.wasted();
            (wasted.micros, wasted.ms)
        };
        self.lines.sort_by_key(|line| Reverse(wasted(line)));
        self
    }

    /// Keeps this many lines. Returns the sum of the others, and their number.
    pub fn cut(&mut self, top: usize) -> Option<(CostLine, usize)> {
        let others = self.lines.split_off(top.min(self.lines.len()));
        let mut sum = CostLine::default();
        others.iter().for_each(|line| sum.add(line));
        (!others.is_empty()).then_some((sum, others.len()))
    }
}
