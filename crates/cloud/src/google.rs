//! The `google` provider.
//!
//! It calls the Compute Engine API. Launch configs have Taskcluster's form, and workers find in the
//! metadata of their machines what Taskcluster would put there. Each machine has a name and a
//! request id made from the launch token, so Google does not make it twice, and carries the token
//! as a label.

mod bucket;
mod certificates;
mod compute;
mod config;
mod credentials;
mod disk_archive;
mod error;
mod identity;
mod image_labels;
mod images;
mod labels;
mod launch;
mod leftovers;
mod listing;
mod machine_types;
mod machines;
mod responses;
mod row;
#[cfg(test)]
mod tests;
mod zones;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use contract::{Invalid, Problem, Schemas};
use domain::id::ProviderId;
use domain::time::Clock;
use serde_json::Value;

pub use config::{BadGoogleConfig, GoogleConfig};

use self::bucket::{Bucket, deployment_folder};
use self::certificates::Certificates;
use self::compute::Compute;
use self::credentials::GoogleTokens;
use self::error::GOOGLE;
use self::identity::Expected;
use self::images::GoogleImages;
use self::listing::Listing;
use self::responses::ServiceAccount;
use self::row::region_of;
use self::zones::Zones;
use crate::price_table::ConfiguredPrices;
use crate::provider::refuse_if_any;
use crate::signing::http::Http;
use crate::vendor::{Notes, Operations, Rest, Tokens};
use crate::{
    CloudError, Fills, IdentityClaim, ImageTarget, Machines, Place, PlacesUnknown, Provider,
    ProviderContext, SetupError, Verification, VerifyError,
};

const SCHEMA: &str = "worker-manager/v1/config-google.json";
/// Time limit of the set-up, in which two calls are made.
const SETUP_LIMIT: Duration = Duration::from_secs(20);

pub struct GoogleProvider {
    id: ProviderId,
    schemas: Schemas,
    root_url: String,
    clock: Arc<dyn Clock>,
    project: String,
    /// As configured: an e-mail address or a unique id.
    account_name: String,
    /// `None` before the set-up.
    account: RwLock<Option<Arc<ServiceAccount>>>,
    /// The only regions to use. Empty: all regions of the project.
    wanted_regions: Vec<String>,
    compute: Compute,
    certificates: Certificates,
    operations: Operations,
    listing: Listing,
    /// The machines that a Taskcluster made.
    inherited: Listing,
    /// Google has no call that tells the price of a machine type.
    prices: ConfiguredPrices,
    zones: Zones,
    /// `None`: no bucket is configured for images.
    images: Option<GoogleImages>,
}

impl GoogleProvider {
    pub fn new(config: &GoogleConfig, context: ProviderContext) -> Self {
        let GoogleConfig {
            project,
            source,
            worker_service_account,
            regions,
            prices,
            spot_prices,
            price_file,
            image_bucket,
            endpoints,
        } = config.clone();
        let http = Http::default();
        let source = GoogleTokens {
            source,
            token_endpoint: endpoints.token,
            metadata_endpoint: endpoints.metadata,
            http: http.clone(),
        };
        let tokens = Tokens::new(Box::new(source), Arc::clone(&context.clock));
        let rest = |url: &str| Rest::new(&GOOGLE, url, http.clone(), Some(tokens.clone()));
        let compute = Compute {
            rest: rest(&endpoints.compute),
            iam: rest(&endpoints.iam),
            project: project.clone(),
        };
        let images = image_bucket.map(|name| GoogleImages {
            compute: rest(&endpoints.compute).renewing_tokens(),
            bucket: Bucket {
                rest: rest(&endpoints.storage).renewing_tokens(),
                name,
                folder: deployment_folder(&context.root_url, &context.id),
            },
            project: project.clone(),
            provider_id: context.id.clone(),
            root_url: context.root_url.clone(),
            operations: Notes::default(),
        });
        let clock = Arc::clone(&context.clock);
        Self {
            certificates: Certificates::new(endpoints.certificates, http.clone(), clock),
            id: context.id,
            schemas: context.schemas,
            root_url: context.root_url,
            clock: context.clock,
            project,
            account_name: worker_service_account,
            account: RwLock::default(),
            wanted_regions: regions,
            compute,
            operations: Operations::default(),
            listing: Listing::default(),
            inherited: Listing::default(),
            prices: ConfiguredPrices::new(prices, spot_prices, price_file),
            zones: Zones::default(),
            images,
        }
    }

    /// Whether the zone is in a region that the provider uses.
    fn serves(&self, zone: &str) -> bool {
        let known = self.zones.known();
        known.is_some_and(|known| {
            let zones = known.get(region_of(zone));
            zones.is_some_and(|zones| zones.contains(zone))
        })
    }

    /// The account of the workers; `None` before the set-up.
    fn worker_account(&self) -> Option<Arc<ServiceAccount>> {
        let account = self.account.read().unwrap_or_else(PoisonError::into_inner);
        account.clone()
    }

    async fn learn_account(&self) -> Result<(), CloudError> {
        let account = self.compute.service_account(&self.account_name).await?;
        let mut known = self.account.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::new(account));
        Ok(())
    }

    async fn learn_zones(&self) -> Result<bool, CloudError> {
        let listed = self.compute.zones().await?;
        let zones = zones::by_region(listed, &self.wanted_regions).map_err(CloudError::Refused)?;
        Ok(self.zones.learn(zones, self.clock.now()))
    }

    /// Asks for the zones again when the last answer is old. A failure is logged once.
    async fn learn_zones_again(&self) {
        if !self.zones.is_due(self.clock.now()) {
            return;
        }
        let id = &self.id;
        match self.learn_zones().await {
            Ok(true) => tracing::info!(provider.id = %id, "the zones of {id} are known again"),
            Ok(false) => {}
            Err(error) => {
                if self.zones.failed(error.clone()) {
                    tracing::warn!(provider.id = %id, error = %error,
                        "cannot ask for the zones of {id}, which keeps the known ones: {error}");
                }
            }
        }
    }

    /// A pool that names another zone would never get a worker.
    fn check_launch_configs(&self, config: &Value) -> Result<(), Invalid> {
        let launch_configs = config["launchConfigs"].as_array();
        let mut problems = Vec::new();
        for (index, one) in launch_configs.into_iter().flatten().enumerate() {
            let text = |key: &str| one[key].as_str().unwrap_or_default();
            let (region, zone) = (text("region"), text("zone"));
            let at = format!("/launchConfigs/{index}/zone");
            if region_of(zone) != region {
                let message = format!("must be a zone of region {region:?}, not {zone:?}");
                problems.push(Problem {
                    pointer: at,
                    message,
                });
            } else if !self.serves(zone) {
                let id = &self.id;
                let message = format!("must be a zone that provider {id} uses, not {zone:?}");
                problems.push(Problem {
                    pointer: at,
                    message,
                });
            }
            problems.extend(machine_types::problems(index, one));
        }
        refuse_if_any(SCHEMA, problems)
    }
}

#[async_trait]
impl Provider for GoogleProvider {
    fn kind(&self) -> &'static str {
        "google"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(SCHEMA, config)?;
        self.check_launch_configs(config)
    }

    /// Asks for the account of the workers and for the zones, which also shows whether our
    /// credentials work.
    async fn setup(&self) -> Result<(), SetupError> {
        self.reread_files().await;
        let both = async {
            self.learn_account().await?;
            self.learn_zones().await
        };
        match tokio::time::timeout(SETUP_LIMIT, both).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(SetupError(error.to_string())),
            Err(_) => {
                let seconds = SETUP_LIMIT.as_secs();
                Err(SetupError(format!("Google did not answer in {seconds} s")))
            }
        }
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let account = self.worker_account().ok_or_else(|| {
            let error = "the account of the workers is not known before the provider's set-up";
            CloudError::Unavailable(error.to_owned())
        })?;
        let expected = Expected {
            audience: &self.root_url,
            project: &self.project,
            account: &account.unique_id,
        };
        identity::verify(claim, expected, &self.certificates).await
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        self.zones.places()
    }

    fn fills(&self) -> Fills {
        zones::fills()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        self.images.as_ref().map(|it| it as &dyn ImageTarget)
    }

    fn images_need(&self) -> Option<&'static str> {
        let needs = self.images.is_none();
        needs.then_some("image_bucket is set in its section of the configuration")
    }
}
