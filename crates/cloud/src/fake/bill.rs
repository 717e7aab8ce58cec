//! The bill of the fake cloud: what it would charge for its machines.
//!
//! It bills each machine for the milliseconds from its order to its end, at the price that was
//! agreed with the order, and rounds the sum of a machine down to a millionth of a dollar.

use domain::id::{LaunchConfigId, WorkerKey};
use domain::time::Timestamp;

use super::FakeCloud;
use super::inventory::Machine;

const MS_PER_HOUR: i128 = 3_600_000;

/// One machine on the bill.
#[derive(Clone, Debug, PartialEq)]
pub struct BilledMachine {
    pub key: WorkerKey,
    pub launch_config_id: Option<LaunchConfigId>,
    pub made: Timestamp,
    /// `None`: it still runs.
    pub ended: Option<Timestamp>,
    /// Millionths of a dollar per hour; `None`: no price was agreed.
    pub price: Option<i64>,
    /// Millionths of a dollar up to now.
    pub micros: Option<i64>,
}

impl FakeCloud {
    /// From now on ended machines stay known for ever, and so on the bill.
    pub fn keep_bill(&self) {
        self.state().inventory.keeps_ended = true;
    }

    /// The machines that were ordered, by key.
    pub fn bill(&self) -> Vec<BilledMachine> {
        let (now, state) = (self.now(), self.state());
        let machines = state.inventory.all();
        let ordered = machines.filter(|machine| machine.token.is_some());
        let mut bill: Vec<_> = ordered.map(|machine| billed(machine, now)).collect();
        bill.sort_by(|one, other| one.key.cmp(&other.key));
        bill
    }
}

fn billed(machine: &Machine, now: Timestamp) -> BilledMachine {
    let ended = machine.ends.map(|(at, _)| at).filter(|at| *at <= now);
    let ms = ended.unwrap_or(now).millis_since(machine.made).max(0);
    let price = machine.price.map(in_millionths);
    BilledMachine {
        key: machine.key.clone(),
        launch_config_id: machine.launch_config_id.clone(),
        made: machine.made,
        ended,
        price,
        micros: price.map(|price| {
            let micros = i128::from(price) * i128::from(ms) / MS_PER_HOUR;
            i64::try_from(micros).unwrap_or(i64::MAX)
        }),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a price above the maximum is billed as the maximum"
)]
fn in_millionths(price: f64) -> i64 {
    (price * 1e6).round() as i64
}
