//! The `azure` provider.
//!
//! It calls Azure Resource Manager. Launch configs have Taskcluster's two forms: a machine with its
//! parts, and a template. Names follow from the launch token, so Azure makes nothing twice under
//! one token, and everything carries the token as a tag.

mod admin;
mod arm;
mod blobs;
mod bodies;
mod config;
mod document;
mod ending;
mod error;
mod groups;
mod identity;
mod images;
mod inherited;
mod issuers;
mod launch_config;
mod leftovers;
mod looking;
mod making;
mod names;
mod networks;
mod paths;
mod records;
mod row;
mod site;
mod status;
mod tags;
#[cfg(test)]
mod tests;
mod token;
mod vhd;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use contract::{Invalid, Schemas};
use domain::id::{PoolId, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, BidRequest, Bids};
use domain::pool::Pool;
use domain::time::{Clock, Timestamp};
use domain::worker::Worker;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

pub use config::{AzureConfig, BadAzureConfig};

use self::arm::Arm;
use self::error::AZURE;
use self::groups::ResourceGroups;
use self::identity::VmIds;
use self::images::AzureImages;
use self::issuers::Issuers;
use self::launch_config::AzureLaunch;
use self::site::Site;
use self::token::AzureTokens;
use crate::price_file::Market;
use crate::price_table::ConfiguredPrices;
use crate::provider::refuse_if_any;
use crate::signing::http::{Http, read_bounded};
use crate::vendor::{Rest, Tokens};
use crate::{
    CloudError, Fills, IdentityClaim, ImageTarget, LaunchError, LaunchOrder, LaunchedMachine,
    Leftover, Machines, OwnedPage, Place, PlacesUnknown, PoolResourceMaker, Provider,
    ProviderContext, Region, SetupError, Sighting, Verification, VerifyError,
};

const SCHEMA: &str = "worker-manager/v1/config-azure.json";
/// Longest file with further roots.
const MAX_ROOTS_BYTES: u64 = 1024 * 1024;
/// Workers that one look takes: more than a few cost one list.
const LOOK_BATCH: usize = 500;

pub struct AzureProvider {
    site: Site,
    schemas: Schemas,
    clock: Arc<dyn Clock>,
    locations: Vec<String>,
    prices: ConfiguredPrices,
    groups: ResourceGroups,
    roots_file: Option<PathBuf>,
    issuers: RwLock<Arc<Issuers>>,
    /// `None`: no storage is configured for images.
    images: Option<AzureImages>,
}

impl AzureProvider {
    pub fn new(config: &AzureConfig, context: ProviderContext) -> Self {
        let config = config.clone();
        let images = config.image_storage.clone();
        let images = images.map(|storage| AzureImages::new(&config, storage, &context));
        let http = Http::default();
        let source = AzureTokens {
            source: config.credentials,
            endpoint: config.endpoint.clone(),
            login_endpoint: config.login_endpoint,
            metadata_endpoint: config.metadata_endpoint,
            http: http.clone(),
        };
        let tokens = Tokens::new(Box::new(source), Arc::clone(&context.clock));
        let id = context.id.clone();
        let rest = Rest::new(&AZURE, &config.endpoint, http, Some(tokens)).telling_throttled(
            move |method, headers| records::throttled(&id, method, headers).write(),
        );
        Self {
            site: Site {
                arm: Arm::new(rest, config.subscription),
                id: context.id,
                root_url: context.root_url,
                resource_group: config.resource_group,
            },
            schemas: context.schemas,
            clock: context.clock,
            locations: config.locations,
            prices: ConfiguredPrices::new(config.prices, config.spot_prices, config.price_file),
            groups: ResourceGroups::default(),
            roots_file: config.identity_roots_file,
            issuers: RwLock::new(Arc::new(Issuers::new(&[]))),
            images,
        }
    }

    fn issuers(&self) -> Arc<Issuers> {
        let issuers = self.issuers.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&issuers)
    }

    fn set_issuers(&self, new: Issuers) {
        let issuers = self.issuers.write();
        *issuers.unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }

    async fn read_roots(&self) -> Result<(), SetupError> {
        let Some(path) = &self.roots_file else {
            return Ok(());
        };
        let failed =
            |error: String| SetupError(format!("identity_roots_file {}: {error}", path.display()));
        let text = read_bounded(path, MAX_ROOTS_BYTES).await;
        let text = text.map_err(|error| failed(error.to_string()))?;
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let roots = roots.map_err(|error| failed(error.to_string()))?;
        if roots.is_empty() {
            return Err(failed("it has no certificate in PEM".to_owned()));
        }
        self.set_issuers(Issuers::new(&roots));
        Ok(())
    }

    /// Asks for the resource group, which also shows whether our credentials work.
    async fn check_group(&self) -> Result<(), SetupError> {
        let group = &self.site.resource_group;
        let found = self.site.arm.get(&self.site.arm.paths.group(group)).await;
        match found.map_err(|error| SetupError(error.to_string()))? {
            Some(_) => Ok(()),
            None => Err(SetupError(format!(
                "the resource group {group} does not exist: make it, or change resource_group"
            ))),
        }
    }

    /// The bid for one machine. A spot machine without a known price costs at most its own limit.
    fn bid(&self, location: &str, launch: AzureLaunch<'_>) -> Bid {
        let market = Market::of(launch.is_spot());
        let size = launch.size();
        let price = size.and_then(|size| self.prices.price(location, None, size, market));
        let limit = || launch.max_price().filter(|_| launch.is_spot());
        let size = size.unwrap_or("of the template's size");
        Bid {
            price: price.or_else(limit),
            ..Bid::plain(format!("{location} {size} {}", market.as_str()))
        }
    }

    fn serves(&self, location: &str) -> bool {
        self.locations.iter().any(|one| one == location)
    }

    fn not_served(location: &str) -> String {
        format!("this provider does not use location {location:?}")
    }
}

#[async_trait]
impl Provider for AzureProvider {
    fn kind(&self) -> &'static str {
        "azure"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(SCHEMA, config)?;
        let launch_configs = config["launchConfigs"].as_array();
        let mut problems = Vec::new();
        for (index, one) in launch_configs.into_iter().flatten().enumerate() {
            let id = self.site.id.as_str();
            problems.extend(launch_config::problems(index, one, &self.locations, id));
        }
        refuse_if_any(SCHEMA, problems)
    }

    async fn setup(&self) -> Result<(), SetupError> {
        self.reread_files().await;
        self.read_roots().await?;
        self.check_group().await
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let issuers = self.issuers();
        let verified = identity::verify(claim, &issuers, &KnownVms(&self.site)).await?;
        if let Err(error) = ending::remove_record(&self.site, claim.worker).await {
            tracing::warn!(provider.id = %self.site.id, error = %error,
                "cannot delete the record of the deployment of {}; it is deleted with the machine: \
                 {error}", claim.worker.key);
        }
        Ok(verified)
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        let place = |location: &String| Place::from([("region".to_owned(), location.clone())]);
        Ok(self.locations.iter().map(place).collect())
    }

    fn fills(&self) -> Fills {
        Fills::from([("region".to_owned(), "/location".to_owned())])
    }

    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        Some(self)
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        self.images.as_ref().map(|it| it as &dyn ImageTarget)
    }

    fn images_need(&self) -> Option<&'static str> {
        let needs = self.images.is_none();
        needs.then_some("image_storage is set in its section of the configuration")
    }
}

/// The ids of machines, from rows or from Azure.
struct KnownVms<'a>(&'a Site);

#[async_trait]
impl VmIds for KnownVms<'_> {
    async fn vm_id(&self, claim: &IdentityClaim<'_>) -> Result<Option<String>, CloudError> {
        Ok(looking::vm_id(self.0, claim.worker).await?)
    }
}

#[async_trait]
impl PoolResourceMaker for AzureProvider {
    async fn prepare_pool(&self, pool: &Pool, _data: &Value) -> Result<Value, CloudError> {
        networks::prepare(&self.site, pool, &self.locations).await
    }

    async fn release_pool(&self, pool_id: &PoolId, _data: &Value) -> Result<(), CloudError> {
        networks::release(&self.site, pool_id).await
    }
}

#[async_trait]
impl Machines for AzureProvider {
    fn bids(&self, config: &LaunchConfig, _request: Option<&BidRequest>, _now: Timestamp) -> Bids {
        let launch = AzureLaunch::of(config);
        let location = launch.location();
        let location = location.ok_or("the launch config has no location")?;
        if !self.serves(&location) {
            return Err(Self::not_served(&location));
        }
        Ok(vec![self.bid(&location, launch)])
    }

    async fn reread_files(&self) {
        self.prices.reread(&self.site.id).await;
    }

    fn warning(&self) -> Option<String> {
        self.prices.error()
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let location = AzureLaunch::of(order.launch_config).location();
        let location = location.unwrap_or_default();
        if !self.serves(&location) {
            // If the response were lost, the scan would not find a machine there.
            return Err(LaunchError::Refused {
                cause: Cause::Configuration,
                error: Self::not_served(&location),
            });
        }
        making::make_machines(&self.site, &self.groups, order).await
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let mut by_location: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
        for worker in workers {
            let location = worker.key.group.as_str();
            by_location.entry(location).or_default().push(worker);
        }
        let mut seen = Vec::new();
        for workers in by_location.values() {
            seen.extend(looking::look(&self.site, workers).await?);
        }
        Ok(seen)
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    fn regions(&self) -> Vec<Region> {
        let groups = self.locations.iter().filter_map(|it| it.parse().ok());
        groups.map(Region::Group).collect()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        Region::Group(group.clone())
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        match region {
            Region::Group(group) => looking::owned_page(&self.site, group.as_str(), after).await,
            Region::Everything => Ok(OwnedPage::default()),
        }
    }

    async fn remove_leftovers(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        let mut groups = self.groups.known();
        groups.insert(self.site.resource_group.clone());
        leftovers::remove(&self.site, groups, region, self.clock.now()).await
    }

    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        match region {
            Region::Group(group) => {
                looking::inherited_page(&self.site, group.as_str(), after).await
            }
            Region::Everything => Ok(OwnedPage::default()),
        }
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        AzureLaunch::of(launch_config).location()?.parse().ok()
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        ending::end(&self.site, worker).await
    }
}
