//! An owned launch order, for another thread.

use std::collections::BTreeMap;

use domain::id::{LaunchConfigId, LaunchToken, PoolId};
use serde_json::Value;

use crate::LaunchOrder;

/// Machines that one launch makes at most.
pub(super) const MAX_MACHINES: u32 = 1_000;

pub(super) struct Order {
    pub(super) token: LaunchToken,
    pub(super) pool_id: PoolId,
    pub(super) launch_config_id: LaunchConfigId,
    /// The variables that the launch config sets for tasks.
    pub(super) environment: BTreeMap<String, String>,
    /// The image in which the workers run.
    pub(super) image: Option<String>,
    pub(super) machines: u32,
    pub(super) capacity_each: u32,
    pub(super) root_url: String,
}

impl Order {
    pub(super) fn new(order: &LaunchOrder<'_>) -> Self {
        let configuration = &order.launch_config.configuration;
        let environment = configuration.get("env");
        let variables = environment.and_then(Value::as_object).into_iter().flatten();
        let image = configuration.get("image").and_then(Value::as_str);
        Self {
            token: order.token.clone(),
            pool_id: order.pool.id.clone(),
            launch_config_id: order.launch_config.id.clone(),
            environment: variables
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            image: image.map(str::to_owned),
            machines: order.machines.min(MAX_MACHINES),
            capacity_each: order.capacity_each,
            root_url: order.root_url.to_owned(),
        }
    }
}
