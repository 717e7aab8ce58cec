//! Launch configs of the fake cloud with several kinds of machines: one bid for each.

use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::SECOND_MS;
use serde_json::{Map, Value, json};

use crate::LaunchOrder;

/// The member of a bid's data that names the kind.
const KIND: &str = "kind";

/// A kind of machine.
pub(super) struct MachineKind {
    pub(super) name: String,
    capacity: Option<u32>,
    price: Option<f64>,
    stock: Option<u64>,
    pub(super) boot_ms: Option<i64>,
    reliability: Option<f64>,
}

impl MachineKind {
    /// Its content passed the schema.
    fn read(kind: &Value) -> Self {
        let number = |key: &str| kind.get(key).and_then(Value::as_u64);
        let decimal = |key: &str| kind.get(key).and_then(Value::as_f64);
        let boot_seconds = kind.get("bootSeconds").and_then(Value::as_i64);
        Self {
            name: kind
                .get(KIND)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            capacity: number("capacityPerInstance").and_then(|units| units.try_into().ok()),
            price: decimal("price"),
            stock: number("stock"),
            boot_ms: boot_seconds.map(|seconds| seconds.saturating_mul(SECOND_MS)),
            reliability: decimal("reliability"),
        }
    }

    /// How many more machines of this kind there can be beside these; `None`: no limit.
    pub(super) fn left(&self, n_live: u64) -> Option<u64> {
        Some(self.stock?.saturating_sub(n_live))
    }

    /// The bid for these machines, with the values of the launch config that it does not name.
    pub(super) fn bid(&self, of_config: &Bid, n_live: u64) -> Bid {
        let left = self.left(n_live).into_iter();
        let boot_ms = self.boot_ms.or(of_config.ready_ms);
        Bid {
            price: self.price.or(of_config.price),
            available: left.chain(of_config.available).min(),
            capacity_each: self.capacity,
            reliability: self.reliability.or(of_config.reliability),
            ready_ms: boot_ms.filter(|ms| *ms > 0),
            data: Map::from_iter([(KIND.to_owned(), json!(self.name))]),
            ..Bid::plain(format!("{} {}", of_config.place, self.name))
        }
    }
}

/// The kinds of machines of a launch config; `None`: it is of one kind, without a name.
pub(super) fn kinds(config: &LaunchConfig) -> Option<Vec<MachineKind>> {
    let kinds = config.configuration.get("machines")?.as_array()?;
    Some(kinds.iter().map(MachineKind::read).collect())
}

/// The kind of the bid that won.
pub(super) fn ordered_kind(order: &LaunchOrder<'_>) -> Option<MachineKind> {
    let name = order.bid_data.get(KIND)?.as_str()?;
    let kinds = kinds(order.launch_config)?;
    kinds.into_iter().find(|kind| kind.name == name)
}
