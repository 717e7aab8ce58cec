//! The `aws` provider.
//!
//! It calls the EC2 Query API in every region that the account may use. Launch configs have
//! Taskcluster's form, and workers find on their machines the user data that Taskcluster would put
//! there. EC2 gets the launch token as client token, so it does not act on one token twice, and
//! each machine carries the token as a tag.

mod client;
mod config;
mod console;
mod error;
mod identity;
mod identity_keys;
mod image_responses;
mod images;
mod instance_types;
mod launch;
mod leftovers;
mod list_prices;
mod lists;
mod machines;
mod parameters;
mod prices;
mod responses;
mod row;
mod tags;
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

use self::client::Ec2;
use self::identity_keys::IdentityKeys;
use self::parameters::Parameters;
use self::prices::Prices;
use self::responses::DescribeRegions;
pub(crate) use self::zones::fills;
use self::zones::{SETUP_LIMIT, Zones};
use crate::provider::refuse_if_any;
use crate::signing::credentials::Keys;
use crate::signing::http::Http;
use crate::{
    Fills, IdentityClaim, ImageTarget, Machines, Place, PlacesUnknown, Provider, ProviderContext,
    SetupError, Verification, VerifyError,
};

/// Ask again which regions the account may use after this time.
const REGIONS_FRESH_MS: i64 = HOUR_MS;
const SCHEMA: &str = "worker-manager/v1/config-aws.json";

pub struct AwsProvider {
    id: ProviderId,
    schemas: Schemas,
    root_url: String,
    clock: Arc<dyn Clock>,
    home_region: String,
    /// The only regions to use. Empty: all regions that the account may use.
    wanted_regions: Vec<String>,
    /// `None` before the set-up. Refreshed now and then, since an account opts in to and out of
    /// regions.
    regions: RwLock<Option<(Timestamp, Arc<BTreeSet<String>>)>>,
    ec2: Ec2,
    prices: Prices,
    zones: Zones,
    identity_keys: IdentityKeys,
}

impl AwsProvider {
    pub fn new(config: &AwsConfig, context: ProviderContext) -> Self {
        let config = config.clone();
        let http = Http::default();
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
            prices: Prices::new(config.on_demand_prices, config.price_file),
            zones: Zones::default(),
            identity_keys: IdentityKeys::new(config.identity_keys),
        }
    }

    fn serves(&self, region: &str) -> bool {
        self.known_regions()
            .is_ok_and(|regions| regions.contains(region))
    }

    /// The regions that this provider uses.
    fn known_regions(&self) -> Result<Arc<BTreeSet<String>>, String> {
        let regions = self.learnt_regions().map(|(_, regions)| regions);
        regions.ok_or_else(|| "the provider's regions are not known before its set-up".to_owned())
    }

    fn learnt_regions(&self) -> Option<(Timestamp, Arc<BTreeSet<String>>)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.clone()
    }

    /// Asks EC2 which regions the account may use. If this fails, the regions from the last answer
    /// stay.
    async fn learn_regions(&self) -> Result<(), SetupError> {
        let answer: DescribeRegions = self
            .ec2
            .call(&self.home_region, "DescribeRegions", &Parameters::default())
            .await
            .map_err(|error| SetupError(error.to_string()))?;
        let items = answer.region_info.items.into_iter();
        let allowed: BTreeSet<String> = items.map(|region| region.region_name).collect();
        let used = if self.wanted_regions.is_empty() {
            allowed
        } else {
            let wanted: BTreeSet<String> = self.wanted_regions.iter().cloned().collect();
            if let Some(missing) = wanted.difference(&allowed).next() {
                return Err(SetupError(format!(
                    "regions names {missing}, which the account may not use: enable it at AWS, or remove it from regions"
                )));
            }
            wanted
        };
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        *regions = Some((self.clock.now(), Arc::new(used)));
        Ok(())
    }

    /// Asks for the regions again when the last answer is old.
    async fn learn_regions_again(&self) {
        let now = self.clock.now();
        let learnt = self.learnt_regions();
        // A negative time: the clock was set back.
        let is_fresh = |at| (0..REGIONS_FRESH_MS).contains(&now.millis_since(at));
        if learnt.is_some_and(|(at, _)| is_fresh(at)) {
            return;
        }
        if let Err(error) = self.learn_regions().await {
            tracing::warn!(provider.id = %self.id, error = %error,
                "cannot ask which regions {} may use, goes on with the known ones: {error}", self.id);
        }
    }

    /// A pool that names a region outside the provider's regions would never get a worker.
    fn check_launch_configs(&self, config: &Value) -> Result<(), Invalid> {
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
            problems.extend(instance_types::problems(index, one));
        }
        refuse_if_any(SCHEMA, problems)
    }
}

#[async_trait]
impl Provider for AwsProvider {
    fn kind(&self) -> &'static str {
        "aws"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(SCHEMA, config)?;
        self.check_launch_configs(config)
    }

    /// Asks for the regions, which also shows whether our credentials work. Then asks for their
    /// zones, with a short limit: machines can be launched and ended without knowing the zones.
    async fn setup(&self) -> Result<(), SetupError> {
        self.reread_files().await;
        self.learn_regions().await?;
        // After a time-out, the zones of the regions that have answered are known.
        let _ = tokio::time::timeout(SETUP_LIMIT, self.learn_zones()).await;
        Ok(())
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
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

    fn images(&self) -> Option<&dyn ImageTarget> {
        Some(self)
    }
}
