//! Amazon EC2, spoken to directly: its Query API, signed, in every region that the account may use.
//!
//! Launch configs have the form that Taskcluster gave them, and workers find on their machines what they would find
//! there. A launch carries its token to EC2, which does not act on one token twice, and onto the machines.

mod answers;
mod client;
mod config;
mod credentials;
mod error;
mod http;
mod identity;
mod identity_keys;
mod launch;
mod list_prices;
mod machines;
mod marks;
mod parameters;
mod prices;
mod row;
mod sign;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use contract::{Invalid, Problem, Schemas};
use domain::id::ProviderId;
use domain::time::{Clock, HOUR_MS, Timestamp};
use serde_json::Value;

pub use config::{AwsConfig, BadAwsConfig};

use self::answers::DescribeRegions;
use self::client::Ec2;
use self::credentials::Keys;
use self::http::Http;
use self::identity_keys::IdentityKeys;
use self::parameters::Parameters;
use self::prices::Prices;
pub(crate) use self::zones::fills;
use self::zones::{SETUP_LIMIT, Zones};
use crate::{
    Fills, IdentityClaim, Machines, NotVerified, Place, PlacesUnknown, Provider, ProviderContext,
    SetupFailed, Verified,
};

/// The regions that an account may use are asked for again after this time.
const REGIONS_FRESH_MS: i64 = HOUR_MS;
const SCHEMA: &str = "worker-manager/v1/config-aws.json";

pub struct AwsProvider {
    id: ProviderId,
    schemas: Schemas,
    root_url: String,
    clock: Arc<dyn Clock>,
    home_region: String,
    /// The only regions to use; empty: all that the account may.
    wanted_regions: Vec<String>,
    /// Known after the set-up, and asked for again now and then: an account opts in and out of regions.
    regions: RwLock<Option<(Timestamp, Arc<BTreeSet<String>>)>>,
    ec2: Ec2,
    prices: Prices,
    zones: Zones,
    identity_keys: IdentityKeys,
}

impl AwsProvider {
    pub fn new(config: &AwsConfig, context: ProviderContext) -> Self {
        let config = config.clone();
        let http = Http::new();
        let keys = Keys::new(
            config.source,
            config.home_region.clone(),
            http.clone(),
            Arc::clone(&context.clock),
        );
        Self {
            id: context.id,
            schemas: context.schemas,
            root_url: context.root_url,
            ec2: Ec2::new(config.endpoint, http, keys, Arc::clone(&context.clock)),
            clock: context.clock,
            home_region: config.home_region,
            wanted_regions: config.regions,
            regions: RwLock::default(),
            prices: Prices::new(config.on_demand_prices),
            zones: Zones::default(),
            identity_keys: IdentityKeys::new(config.identity_keys),
        }
    }

    fn serves(&self, region: &str) -> bool {
        self.known_regions()
            .is_ok_and(|regions| regions.contains(region))
    }

    /// The regions that we use.
    fn known_regions(&self) -> Result<Arc<BTreeSet<String>>, String> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let regions = regions.as_ref().map(|(_, regions)| Arc::clone(regions));
        regions.ok_or_else(|| "its regions are not known before the set-up".to_owned())
    }

    fn regions_learnt(&self) -> Option<Timestamp> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.as_ref().map(|(at, _)| *at)
    }

    /// Asks which regions there are. What was known stays if this fails.
    async fn learn_regions(&self) -> Result<(), SetupFailed> {
        let answer: DescribeRegions = self
            .ec2
            .call(&self.home_region, "DescribeRegions", &Parameters::default())
            .await
            .map_err(|problem| SetupFailed(problem.to_string()))?;
        let items = answer.region_info.items.into_iter();
        let there: BTreeSet<String> = items.map(|region| region.region_name).collect();
        let used = if self.wanted_regions.is_empty() {
            there
        } else {
            let wanted: BTreeSet<String> = self.wanted_regions.iter().cloned().collect();
            if let Some(missing) = wanted.difference(&there).next() {
                return Err(SetupFailed(format!(
                    "the account may not use region {missing}, which its section names: enable it at AWS, or take it out of regions"
                )));
            }
            wanted
        };
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        *regions = Some((self.clock.now(), Arc::new(used)));
        Ok(())
    }

    /// The account may have opted in or out of some since.
    async fn learn_regions_again(&self) {
        let fresh_since = self.clock.now().plus_millis(-REGIONS_FRESH_MS);
        if self.regions_learnt().is_some_and(|at| at > fresh_since) {
            return;
        }
        if let Err(problem) = self.learn_regions().await {
            tracing::warn!(provider.id = %self.id, error = %problem,
                "cannot learn which regions {} may use; those it knew are used: {problem}", self.id);
        }
    }

    /// A pool that names a region which is not there would never get a worker.
    fn check_regions(&self, config: &Value) -> Result<(), Invalid> {
        let launch_configs = config["launchConfigs"].as_array();
        let mut problems = Vec::new();
        for (index, one) in launch_configs.into_iter().flatten().enumerate() {
            let region = one["region"].as_str().unwrap_or_default();
            if !self.serves(region) {
                problems.push(Problem {
                    pointer: format!("/launchConfigs/{index}/region"),
                    message: format!(
                        "must be a region that provider {} uses, not {region:?}",
                        self.id
                    ),
                });
            }
        }
        problems.truncate(contract::MAX_PROBLEMS);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Invalid {
            schema: SCHEMA.to_owned(),
            problems,
        })
    }
}

#[async_trait]
impl Provider for AwsProvider {
    fn kind(&self) -> &'static str {
        "aws"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(SCHEMA, config)?;
        self.check_regions(config)
    }

    /// Learns which regions there are, and so whether our credentials are good for anything; and their zones, as far as EC2
    /// tells them at once: machines can be launched and ended without.
    async fn setup(&self) -> Result<(), SetupFailed> {
        self.learn_regions().await?;
        // Those that answered in time are known.
        let _ = tokio::time::timeout(SETUP_LIMIT, self.learn_zones()).await;
        Ok(())
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
        Ok(identity::verify(claim, &self.identity_keys)?)
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        let regions = self.known_regions().map_err(PlacesUnknown)?;
        self.zones.places(&regions)
    }

    fn fills(&self) -> Fills {
        fills()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
}
