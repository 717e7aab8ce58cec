//! Cost: the time and the money of machines, split by use.
//!
//! - Money is in millionths of a currency. A machine's cost up to a moment is one rounded number:
//!   its agreed price times the milliseconds since its start, rounded down once. A part of it is
//!   the difference of two such numbers, so parts never gain or lose a unit.
//! - A moment in which several tasks run counts once.
//! - Time is charged once its use is certain: not before the worker asked for work, and not while a
//!   run goes on.

mod meter;
mod report;

use std::ops::AddAssign;

use crate::id::{PoolId, ProviderId, names};

pub use meter::{CHARGED_EVERY_MS, Charge, Life, Meter, MeteredRun, cost_between, next_charge};
pub use report::{CostGrouping, CostLine, CostReport};

/// A use of the time of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostKind {
    /// A run that completed or failed by itself.
    Useful,
    /// Up to the first time at which the worker asked for work.
    Booting,
    /// It waited for work.
    Idle,
    /// The machine never asked for work, or the run ended as an exception.
    Failed,
    /// It was asked to stop, or was stopping.
    Leaving,
    /// A run that was lost together with its worker.
    Lost,
    /// It has ended, and its last runs are not known yet. No account has such time.
    Unknown,
}

names! {
    CostKind, "not a use of machines (useful, booting, idle, failed, leaving, lost, unknown)",
    Useful = "useful",
    Booting = "booting",
    Idle = "idle",
    Failed = "failed",
    Leaving = "leaving",
    Lost = "lost",
    Unknown = "unknown",
}

impl CostKind {
    /// The uses that accounts have.
    pub const CHARGED: [Self; 6] = [
        Self::Useful,
        Self::Booting,
        Self::Idle,
        Self::Failed,
        Self::Leaving,
        Self::Lost,
    ];
}

/// All prices are in this currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Currency {
    Usd,
}

names! {
    Currency, "not a currency (USD)",
    Usd = "USD",
}

/// Whose money is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostScope {
    All,
    Pool(PoolId),
    Provider(ProviderId),
    /// The owner of pools, when their machines were launched.
    Owner(String),
}

/// Money spent, in millionths of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub currency: Currency,
    pub micros: i64,
}

/// Time of machines, and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub ms: i64,
    /// In millionths; 0 if the price is not known.
    pub micros: i64,
}

/// An amount for each use, in the order of `CostKind::ALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses([Amount; CostKind::ALL.len()]);

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.ms = self.ms.saturating_add(other.ms);
        self.micros = self.micros.saturating_add(other.micros);
    }
}

impl AddAssign for Uses {
    fn add_assign(&mut self, other: Self) {
        for (kind, amount) in other.iter() {
            self.add(kind, amount);
        }
    }
}

impl Uses {
    /// Those of an account.
    pub fn new(amounts: [Amount; CostKind::CHARGED.len()]) -> Self {
        let mut uses = Self::default();
        for (kind, amount) in CostKind::CHARGED.into_iter().zip(amounts) {
            uses.add(kind, amount);
        }
        uses
    }

    pub fn add(&mut self, kind: CostKind, amount: Amount) {
        for (known, sum) in CostKind::ALL.into_iter().zip(&mut self.0) {
            if known == kind {
                *sum += amount;
            }
        }
    }

    pub fn get(&self, kind: CostKind) -> Amount {
        let mut pairs = self.iter();
        let found = pairs.find(|(known, _)| *known == kind);
        found.map(|(_, amount)| amount).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (CostKind, Amount)> {
        CostKind::ALL.into_iter().zip(self.0)
    }

    /// The sum of all uses.
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        for amount in self.0 {
            total += amount;
        }
        total
    }

    /// The sum of all known uses but the useful one.
    pub fn wasted(&self) -> Amount {
        let mut wasted = Amount::default();
        for (kind, amount) in self.iter() {
            if !matches!(kind, CostKind::Useful | CostKind::Unknown) {
                wasted += amount;
            }
        }
        wasted
    }
}
