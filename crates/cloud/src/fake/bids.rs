//! Launch configs of the fake cloud with several kinds of machines: one bid for each.

use domain::id::LaunchConfigId;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::SECOND_MS;
use serde_json::{Map, Value, json};

use super::inventory::kind_of;
use super::script::State;
use super::{FakeCloud, FakeLaunchKeys};
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

    /// How many more machines of this kind there can be; `None`: no limit.
    pub(super) fn left(&self, state: &State, config: &LaunchConfigId) -> Option<u64> {
        let live = state.inventory.live_in(&kind_of(config, &self.name));
        Some(self.stock?.saturating_sub(live))
    }
}

/// The kinds of machines of a launch config; `None`: it has one that it does not name.
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

impl FakeCloud {
    pub(super) fn bids_for_kinds(
        &self,
        state: &State,
        config: &LaunchConfig,
        keys: &FakeLaunchKeys,
        kinds: &[MachineKind],
    ) -> Vec<Bid> {
        let room = self.room(state, config, keys);
        let bid = |kind: &MachineKind| {
            let left = kind.left(state, &config.id);
            let boot_ms = kind.boot_ms.unwrap_or(keys.boot_ms);
            Bid {
                price: kind.price.or(keys.price),
                available: room.into_iter().chain(left).min(),
                capacity_each: kind.capacity,
                reliability: kind.reliability.or(keys.reliability),
                ready_ms: (boot_ms > 0).then_some(boot_ms),
                data: Map::from_iter([(KIND.to_owned(), json!(kind.name))]),
                ..Bid::plain(format!("{} {}", keys.group, kind.name))
            }
        };
        kinds.iter().map(bid).collect()
    }
}
