//! Makes machines: address, interface and machine one after the other, or by a template.
//!
//! Each step can be repeated, because all names follow from the token. A machine that is refused
//! half-way loses its parts again; if that fails, the scan finds them by their tags.

use aws_lc_rs::rand::SystemRandom;
use domain::launch::Cause;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;

use super::admin::Admin;
use super::bodies::{MachineOrder, custom_data};
use super::ending::remove_parts;
use super::groups::ResourceGroups;
use super::launch_config::AzureLaunch;
use super::names::MachineNames;
use super::networks::{self, OF_POOL};
use super::paths::{ADDRESSES, INTERFACES, NETWORK};
use super::row::Row;
use super::site::Site;
use super::tags::{FoundTags, LaunchTags};
use crate::vendor::VendorError;
use crate::{LaunchError, LaunchOrder, LaunchedMachine};

/// Machines that are made at the same time at most.
pub(super) const MAX_AT_ONCE: usize = 8;

/// Makes the ordered machines. Fails if none is made: with an unknown outcome, if one may have
/// been made.
pub(super) async fn make_machines(
    site: &Site,
    groups: &ResourceGroups,
    order: &LaunchOrder<'_>,
) -> Result<Vec<LaunchedMachine>, LaunchError> {
    let launch = AzureLaunch::of(order.launch_config);
    let location = launch.location();
    let location = location.ok_or_else(|| invalid_config("the launch config has no location"))?;
    let group = launch.resource_group().unwrap_or(&site.resource_group);
    if launch.resource_group().is_some() {
        groups
            .ensure(site, &order.pool.id, group, &location)
            .await?;
    }
    let own = launch.get("subnetId").and_then(Value::as_str);
    let subnet = match own {
        Some(OF_POOL) => Some(networks::subnet(site, order, &location).await?),
        own => own.map(str::to_owned),
    };
    let data = custom_data(
        order.pool.id.as_str(),
        &location,
        site.id.as_str(),
        order.root_url,
    );
    let tags = LaunchTags {
        root_url: &site.root_url,
        provider_id: &site.id,
        token: order.token,
        pool_id: &order.pool.id,
        owner: &order.pool.definition.owner,
        group: &location,
        launch_config_id: order.launch_config.id.as_str(),
    };
    let mut orders = Vec::new();
    for number in 0..order.machines {
        let names = MachineNames::of_launch(order.token, number);
        orders.push(MachineOrder {
            launch,
            location: &location,
            subnet: subnet.as_deref(),
            tags: tags.merge_into(launch.get("tags"), &names.vm()),
            names,
            custom_data: &data,
            max_price: order.max_price,
        });
    }
    let mut calls = Vec::new();
    for machine in &orders {
        calls.push(make(site, group, machine, order));
    }
    let results = stream::iter(calls).buffered(MAX_AT_ONCE);
    let results: Vec<_> = results.collect().await;
    if results.iter().any(is_lost_group) {
        groups.forget(group);
    }
    settle(site, results)
}

/// The machines that were made, or the error that says most.
fn settle(
    site: &Site,
    results: Vec<Result<LaunchedMachine, LaunchError>>,
) -> Result<Vec<LaunchedMachine>, LaunchError> {
    let (mut made, mut refused, mut unknown) = (Vec::new(), None, None);
    for result in results {
        match result {
            Ok(machine) => made.push(machine),
            Err(error @ LaunchError::Refused { .. }) => refused = refused.or(Some(error)),
            Err(error @ LaunchError::Unknown(_)) => unknown = unknown.or(Some(error)),
        }
    }
    // An unknown outcome must not be reported as a refusal.
    let Some(error) = unknown.or(refused) else {
        return Ok(made);
    };
    if made.is_empty() {
        return Err(error);
    }
    tracing::warn!(provider.id = %site.id, error = %error,
        "only {} machines of a launch were made: {error}", made.len());
    Ok(made)
}

async fn make(
    site: &Site,
    group: &str,
    machine: &MachineOrder<'_>,
    order: &LaunchOrder<'_>,
) -> Result<LaunchedMachine, LaunchError> {
    let admin = Admin::new(&SystemRandom::new());
    let admin = admin.map_err(|error| LaunchError::Refused {
        cause: Cause::Unavailable,
        error,
    })?;
    let by_template = machine.launch.deployment().is_some();
    let made = if by_template {
        deploy(site, group, machine, &admin).await
    } else {
        make_parts(site, group, machine, &admin).await
    };
    let vm_id = match made {
        Ok(vm_id) => vm_id,
        Err(error) => {
            let error = LaunchError::from(error);
            if matches!(error, LaunchError::Refused { .. }) {
                clean_up(site, group, &machine.names).await;
            }
            return Err(error);
        }
    };
    let row = Row {
        vm_id,
        is_spot: machine.launch.is_spot(),
        has_deployment: Some(by_template),
        keeps_deployment: machine.launch.keeps_deployment(),
        ignored_failures: machine.launch.ignored_failures(),
        ..Row::new(group.to_owned())
    };
    let invalid = || invalid_config("the location is not a valid worker group");
    Ok(LaunchedMachine {
        group: machine.location.parse().map_err(|_| invalid())?,
        id: machine.names.worker_id().ok_or_else(invalid)?,
        made: Some(order.now),
        provider_data: row.to_value(),
    })
}

/// Makes address, interface and machine. Returns the id that Azure gave to the machine.
async fn make_parts(
    site: &Site,
    group: &str,
    machine: &MachineOrder<'_>,
    admin: &Admin,
) -> Result<Option<String>, VendorError> {
    let (arm, names) = (&site.arm, &machine.names);
    let mut address_id = None;
    if machine.launch.wants_address() {
        let path = arm
            .paths
            .resource(group, ADDRESSES, &names.address(), NETWORK);
        let begun = arm.put(&path, machine.address()).await?;
        arm.wait_for(&begun).await?;
        address_id = Some(path.path);
    }
    let path = arm
        .paths
        .resource(group, INTERFACES, &names.interface(), NETWORK);
    let body = machine.interface(address_id.as_deref());
    let begun = arm.put(&path, body).await?;
    arm.wait_for(&begun).await?;
    let body = machine.machine(&path.path, admin);
    let path = arm.paths.machine(group, &names.vm());
    let found = match arm.make(&path, body).await? {
        Some(begun) => Some(begun.body),
        // The launch was asked for before.
        None => arm.get(&path).await?,
    };
    let vm_id = found.and_then(|vm| vm["properties"]["vmId"].as_str().map(str::to_owned));
    Ok(vm_id)
}

/// Begins the deployment of a template, unless that was done before.
async fn deploy(
    site: &Site,
    group: &str,
    machine: &MachineOrder<'_>,
    admin: &Admin,
) -> Result<Option<String>, VendorError> {
    let path = site
        .arm
        .paths
        .deployment(group, &machine.names.deployment());
    if site.arm.get(&path).await?.is_some() {
        return Ok(None);
    }
    let made_before = site.arm.paths.machine(group, &machine.names.vm());
    let made_before = site.arm.get(&made_before).await?;
    if made_before.is_none_or(|vm| FoundTags::of(&vm).machine().is_none()) {
        site.arm.put(&path, machine.deployment(admin)).await?;
    }
    Ok(None)
}

/// Removes what a refused machine has left. The scan finds what stays.
async fn clean_up(site: &Site, group: &str, names: &MachineNames) {
    let ids: Vec<Value> = [
        (INTERFACES, names.interface()),
        (ADDRESSES, names.address()),
    ]
    .iter()
    .map(|(kind, name)| {
        let path = site.arm.paths.resource(group, kind, name, NETWORK);
        serde_json::json!({"id": path.path, "type": kind, "name": name})
    })
    .collect();
    if let Err(error) = remove_parts(site, &ids).await {
        tracing::warn!(provider.id = %site.id, error = %error,
            "cannot remove the parts of {}, which was refused; the scan does: {error}", names.vm());
    }
}

fn is_lost_group(result: &Result<LaunchedMachine, LaunchError>) -> bool {
    match result {
        Err(LaunchError::Refused { error, .. }) => error.contains("ResourceGroupNotFound"),
        Err(LaunchError::Unknown(_)) | Ok(_) => false,
    }
}

fn invalid_config(error: &str) -> LaunchError {
    LaunchError::Refused {
        cause: Cause::Configuration,
        error: error.to_owned(),
    }
}
