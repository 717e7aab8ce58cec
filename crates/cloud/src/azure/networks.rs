//! Networks of pools: for launch configs whose `subnetId` is `pool`, one in each location.
//!
//! They are made before the first launch of the pool there, are found again by their names, and are
//! removed when the pool has left the provider.

use aws_lc_rs::digest::{SHA256, digest};
use domain::id::PoolId;
use domain::pool::Pool;
use serde_json::{Value, json};

use super::config::normalized_location;
use super::error::AZURE;
use super::paths::{NETWORK, NETWORKS};
use super::site::{Site, provisioning_state};
use super::tags::{network_tags, pool_of};
use crate::vendor::VendorError;
use crate::{CloudError, LaunchOrder, hex};

/// The `subnetId` that stands for the network of the pool.
pub(super) const OF_POOL: &str = "pool";
const SUBNET: &str = "machines";
/// Private addresses for 65,531 machines. Networks of pools are not connected with each other.
const RANGE: &str = "10.0.0.0/16";
/// Characters of the digest that names the networks of a pool.
const DIGEST_CHARS: usize = 24;

/// The beginning of the names of the networks of a pool.
fn prefix(site: &Site, pool_id: &PoolId) -> String {
    let named = format!("{} {} {pool_id}", site.root_url, site.id);
    let mut digest = hex(digest(&SHA256, named.as_bytes()).as_ref());
    digest.truncate(DIGEST_CHARS);
    format!("net-{digest}-")
}

/// The id of the subnet for machines of an order. Makes the network, unless the data of the pool
/// shows that it was made.
pub(super) async fn subnet(
    site: &Site,
    order: &LaunchOrder<'_>,
    location: &str,
) -> Result<String, VendorError> {
    let made = order.pool_data["locations"].as_array();
    if !made.is_some_and(|made| made.iter().any(|one| one == location)) {
        ensure(site, &order.pool.id, location).await?;
    }
    let name = format!("{}{location}", prefix(site, &order.pool.id));
    let path = (site.arm.paths).resource(&site.resource_group, NETWORKS, &name, NETWORK);
    Ok(format!("{}/subnets/{SUBNET}", path.path))
}

/// Makes the network of a pool in a location, unless it exists.
async fn ensure(site: &Site, pool_id: &PoolId, location: &str) -> Result<(), VendorError> {
    let arm = &site.arm;
    let name = format!("{}{location}", prefix(site, pool_id));
    let path = (arm.paths).resource(&site.resource_group, NETWORKS, &name, NETWORK);
    let refused =
        |code: &str, message: String| Err(VendorError::answered(&AZURE, 409, code, &message, None));
    match arm.get(&path).await? {
        Some(found) if !site.owns(&found) || pool_of(&found).as_ref() != Some(pool_id) => refused(
            "NetworkNotOurs",
            format!("the network {name} does not have our tags"),
        ),
        Some(found) if provisioning_state(&found) == "Deleting" => refused(
            "RetryableError",
            format!("the network {name} is being deleted"),
        ),
        Some(_) => Ok(()),
        None => {
            let subnet = json!({"addressPrefix": RANGE, "defaultOutboundAccess": true});
            let body = json!({
                "location": location,
                "tags": network_tags(&site.root_url, &site.id, pool_id),
                "properties": {
                    "addressSpace": {"addressPrefixes": [RANGE]},
                    "subnets": [{"name": SUBNET, "properties": subnet}],
                },
            });
            let begun = arm.put(&path, body).await?;
            arm.wait_for(&begun).await?;
            tracing::info!(provider.id = %site.id, pool.id = %pool_id,
                "{} made the network {name} of {pool_id}", site.id);
            Ok(())
        }
    }
}

/// The locations in which a pool asks for a network of its own.
fn locations(pool: &Pool) -> Vec<String> {
    let launch_configs = pool.definition.config.get("launchConfigs");
    let launch_configs = launch_configs
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let own = launch_configs.filter(|one| one["subnetId"] == OF_POOL);
    let mut locations: Vec<String> = own
        .filter_map(|one| one["location"].as_str().map(normalized_location))
        .collect();
    locations.sort();
    locations.dedup();
    locations
}

/// Makes the networks for which the launch configs of a pool ask, in locations that the provider
/// uses. Returns the data of the pool.
pub(super) async fn prepare(
    site: &Site,
    pool: &Pool,
    served: &[String],
) -> Result<Value, CloudError> {
    let mut locations = locations(pool);
    locations.retain(|location| served.contains(location));
    for location in &locations {
        ensure(site, &pool.id, location).await?;
    }
    Ok(json!({ "locations": locations }))
}

/// Removes the networks of a pool. Finds them by their names: launches may have made some that the
/// data of the pool does not name.
pub(super) async fn release(site: &Site, pool_id: &PoolId) -> Result<(), CloudError> {
    let named = format!("substringof('{}', name)", prefix(site, pool_id));
    let expand = ("$expand", "provisioningState".to_owned());
    let list = site.arm.paths.resources_of(&site.resource_group);
    let found = site.arm.list(&list, &[("$filter", named), expand]).await?;
    let is_of_pool = |network: &&Value| {
        let kind = network["type"].as_str();
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(NETWORKS))
            && site.owns(network)
            && pool_of(network).as_ref() == Some(pool_id)
    };
    for network in found.iter().filter(is_of_pool) {
        let name = network["name"].as_str().unwrap_or_default();
        let path = (site.arm.paths).resource(&site.resource_group, NETWORKS, name, NETWORK);
        site.arm.remove(&path).await?;
        tracing::info!(provider.id = %site.id, pool.id = %pool_id,
            "{} removed the network {name} of {pool_id}", site.id);
    }
    Ok(())
}
