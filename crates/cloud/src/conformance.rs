//! Asks a provider the questions that every provider must answer well, for `fleetwright provider
//! test`. The contract suite of the providers' tests asks them, too.

mod finding;
mod machine;
mod standing;

use domain::id::{LaunchToken, ProviderId};
use domain::pool::Pool;
use serde_json::Value;

pub use finding::{ConformanceFinding, ConformanceHost, ConformanceResult, ProviderQuestion};

use crate::Provider;
use finding::{answer, limited, not_applicable};
use machine::MachineRun;

/// The subject of the questions.
pub struct ConformanceRun<'a> {
    pub provider_id: &'a ProviderId,
    pub provider: &'a dyn Provider,
    pub root_url: &'a str,
    /// A pool with its launch configs in its config.
    pub pool: Option<Pool>,
    /// Whether the pool has been made up for this run, so that it has resources only meanwhile.
    pub is_made_up: bool,
    /// The data of the resources of a pool that exists.
    pub pool_data: Value,
    /// The token of the one machine that is launched; `None`: nothing is launched.
    pub token: Option<LaunchToken>,
}

impl ConformanceRun<'_> {
    /// Asks all questions, and ends the machine that was made for them.
    pub async fn ask(mut self, host: &dyn ConformanceHost) {
        if !standing::ask(self.provider, host).await {
            return;
        }
        let Some(pool) = self.pool.take() else {
            let why = "no pool or launch config was named";
            not_applicable(host, ProviderQuestion::Config, why);
            return;
        };
        let Some((pool, offers)) = standing::ask_about_pool(self.provider, host, pool).await else {
            return;
        };
        let (Some(token), Some(machines)) = (self.token.take(), self.provider.machines()) else {
            return;
        };
        let Some((launch_config, bid)) = offers.first() else {
            let why = "no launch config has a bid";
            not_applicable(host, ProviderQuestion::Launch, why);
            return;
        };
        let Some(pool_data) = self.prepare(host, &pool).await else {
            return;
        };
        let run = MachineRun {
            machines,
            host,
            provider_id: self.provider_id,
            token: &token,
            pool: &pool,
            launch_config,
            bid,
            pool_data: &pool_data,
            root_url: self.root_url,
        };
        run.ask().await;
        self.release(host, &pool, &pool_data).await;
    }

    /// The data of the pool's resources. `None`: they cannot be made.
    async fn prepare(&self, host: &dyn ConformanceHost, pool: &Pool) -> Option<Value> {
        let Some(maker) = self.provider.pool_resources() else {
            return Some(Value::Null);
        };
        if !self.is_made_up {
            return Some(self.pool_data.clone());
        }
        match limited(maker.prepare_pool(pool, &Value::Null)).await {
            Ok(data) => {
                answer(host, ProviderQuestion::PoolResources, Ok("yes".to_owned()));
                Some(data)
            }
            Err(why) => {
                answer(host, ProviderQuestion::PoolResources, Err(why));
                self.release(host, pool, &Value::Null).await;
                None
            }
        }
    }

    async fn release(&self, host: &dyn ConformanceHost, pool: &Pool, data: &Value) {
        if let Some(maker) = self.provider.pool_resources()
            && self.is_made_up
        {
            let released = limited(maker.release_pool(&pool.id, data)).await;
            let released = released.map(|()| "yes".to_owned());
            answer(host, ProviderQuestion::Release, released);
        }
    }
}
