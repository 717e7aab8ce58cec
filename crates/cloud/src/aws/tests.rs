//! Tests of the `aws` provider.

mod chain;
mod console;
mod images;
mod images_on_moto;
mod launching;
mod looking;
mod moto;
mod proxy;
mod scripted;
mod zones;

use domain::Version;
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use serde_json::{Map, Value};

use super::launch::{self, RunInstancesCall};
use crate::tests::values::now;
use crate::{LaunchError, LaunchOrder};

/// An order for three machines of one launch config.
pub(crate) struct Ordering {
    pool: Pool,
    launch_config: LaunchConfig,
    max_price: Option<f64>,
    bid_data: Map<String, Value>,
}

impl Ordering {
    pub(crate) const TOKEN: &str = "AAAAAAAAQgGAAAAAAAAAAA";

    pub(crate) fn of(configuration: Value) -> Self {
        let definition = PoolDefinition {
            provider_id: "aws".parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: Map::new(),
            owner: "ops@example.com".to_owned(),
            email_on_error: false,
        };
        let pool = Pool::new("proj/ci".parse().unwrap(), definition, now());
        Self {
            launch_config: LaunchConfig {
                pool_id: pool.id.clone(),
                id: "lc-1".parse().unwrap(),
                archived: false,
                position: 0,
                configuration: configuration.as_object().unwrap().clone(),
                created: now(),
                last_modified: now(),
                version: Version::FIRST,
            },
            pool,
            max_price: None,
            bid_data: Map::new(),
        }
    }

    /// The data of the bid that won.
    pub(crate) fn won_by(mut self, data: Value) -> Self {
        self.bid_data = data.as_object().unwrap().clone();
        self
    }

    pub(crate) fn paying(mut self, max_price: Option<f64>) -> Self {
        self.max_price = max_price;
        self
    }

    /// The call that the provider `aws` of `https://fleet.example.com` makes for this order.
    pub(crate) fn call(&self) -> Result<RunInstancesCall, LaunchError> {
        let order = LaunchOrder {
            token: &Self::TOKEN.parse().unwrap(),
            pool: &self.pool,
            launch_config: &self.launch_config,
            machines: 3,
            capacity_each: 1,
            max_price: self.max_price,
            price: None,
            bid_data: &self.bid_data,
            pool_data: &Value::Null,
            root_url: "https://fleet.example.com",
            now: now(),
        };
        launch::build_call(&order, &"aws".parse().unwrap(), order.root_url)
    }
}
