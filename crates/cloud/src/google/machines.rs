//! Instances of Compute Engine as machines: launch, look, list and end.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, BidRequest, Bids};
use domain::time::Timestamp;
use domain::worker::Worker;

use super::GoogleProvider;
use super::error::GOOGLE;
use super::labels::{self, Labels};
use super::launch::{self, InsertCall, Maker, invalid_config};
use super::listing::Listing;
use super::machine_types;
use super::responses::{Instance, Operation};
use super::row::{OperationName, Row, last_part, region_of};
use crate::price_file::Market;
use crate::several_calls::{run_together, successes};
use crate::vendor::{Progress, VendorError};
use crate::{
    CloudError, LaunchError, LaunchOrder, LaunchedMachine, Leftover, LogEnd, MachineEnd, Machines,
    OwnedMachine, OwnedPage, Region, Sighting, WorkerLog,
};

/// Workers that one look takes, each by one call or two.
pub(super) const LOOK_BATCH: usize = 50;

const PREEMPTED: &str = "Google has preempted it";

#[async_trait]
impl Machines for GoogleProvider {
    fn bids(&self, config: &LaunchConfig, _request: Option<&BidRequest>, _now: Timestamp) -> Bids {
        let zone = launch::zone(config).ok_or("the launch config has no zone")?;
        if !self.serves(zone) {
            return Err(not_served(zone));
        }
        let spot = launch::is_spot(&config.configuration);
        let types = machine_types::several(config);
        if types.is_empty() {
            let kind = machine_types::only(config);
            let kind = kind.ok_or("the launch config has no machineType")?;
            return Ok(vec![self.bid(zone, kind, spot)]);
        }
        let bids = types.iter();
        let bids = bids.map(|kind| kind.complete(self.bid(zone, kind.name, spot)));
        Ok(bids.collect())
    }

    async fn reread_files(&self) {
        self.prices.reread(&self.id).await;
    }

    fn warning(&self) -> Option<String> {
        self.prices.error()
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.learn_zones_again().await;
        Ok(())
    }

    /// One call for each machine. If some are made, the launch has succeeded; machines whose call
    /// has no answer are found by the scan.
    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let account = self.worker_account();
        let account = account.ok_or_else(|| LaunchError::Refused {
            cause: Cause::Unavailable,
            error: "the account of the workers is not known before the provider's set-up"
                .to_owned(),
        })?;
        let maker = Maker {
            provider_id: &self.id,
            root_url: &self.root_url,
            worker_email: &account.email,
        };
        let calls = launch::build_calls(order, &maker)?;
        if let Some(call) = calls.iter().find(|call| !self.serves(&call.zone)) {
            // If the response were lost, the scan would not find a machine in that zone.
            return Err(invalid_config(&not_served(&call.zone)));
        }
        let mut inserts = Vec::new();
        for call in calls {
            inserts.push(self.insert(call, order));
        }
        let results = run_together(inserts).await;
        self.listing.forget().await;
        let (mut made, mut worst) = (Vec::new(), None);
        for result in results {
            match (result, &worst) {
                (Ok(machine), _) => made.push(machine),
                // An unknown outcome says more than a refusal.
                (Err(_), Some(LaunchError::Unknown(_))) => {}
                (Err(error @ LaunchError::Unknown(_)), _) => worst = Some(error),
                (Err(error), None) => worst = Some(error),
                (Err(_), Some(LaunchError::Refused { .. })) => {}
            }
        }
        match worst {
            Some(error) if made.is_empty() => Err(error),
            _ => Ok(made),
        }
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let mut looks = Vec::new();
        for worker in workers {
            looks.push(self.look_at(worker));
        }
        let (mut results, mut missing) = (Vec::new(), Vec::new());
        for (worker, result) in workers.iter().zip(run_together(looks).await) {
            match result {
                Ok(Some(Sighting::NotFound)) => missing.push(worker),
                Ok(Some(sighting)) => results.push(Ok((worker.key.clone(), sighting))),
                Ok(None) => {}
                Err(error) => results.push(Err(error)),
            }
        }
        results.extend(self.explain_missing(&missing).await);
        successes(&self.id, results)
    }

    /// Looks before it reads: a row may be wrong, for example after a database was restored, and
    /// machines that are not ours may write secrets of others.
    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        let (zone, id) = (worker.key.group.as_str(), worker.key.id.as_str());
        let Some(instance) = self.compute.instance(zone, id).await? else {
            return Ok(WorkerLog::Missing);
        };
        if !self.is_of(worker, &instance) {
            return Err(not_ours(zone, id));
        }
        let console = self.compute.console(zone, id).await?;
        Ok(console.map_or(WorkerLog::Missing, |console| {
            WorkerLog::Kept(LogEnd::of(console.contents.into_bytes()))
        }))
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    fn regions(&self) -> Vec<Region> {
        let zones = self.zones.known().unwrap_or_default();
        let groups = zones.keys().filter_map(|region| region.parse().ok());
        groups.map(Region::Group).collect()
    }

    /// Groups are zones, which fail and are throttled by regions.
    fn region_of(&self, group: &WorkerGroup) -> Region {
        let region = region_of(group.as_str()).parse();
        region.map_or_else(|_| Region::Group(group.clone()), Region::Group)
    }

    async fn owned_page(
        &self,
        region: &Region,
        _after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let filter = labels::filter(&self.root_url, &self.id);
        let launch_of = |labels: &Labels| labels::launch_of(labels, &self.root_url, &self.id);
        self.page(&self.listing, &filter, region, launch_of).await
    }

    async fn remove_leftovers(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        self.remove_disks(region).await
    }

    async fn inherited_page(
        &self,
        region: &Region,
        _after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let filter = labels::filter_of_taskcluster(&self.id);
        let launch_of =
            |labels: &Labels| labels::are_of_taskcluster(labels, &self.id).then_some(None);
        self.page(&self.inherited, &filter, region, launch_of).await
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        launch::zone(launch_config)?.parse().ok()
    }

    /// Looks before it ends: a row may be wrong, for example after a database was restored, and
    /// machines that are not ours must stay.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let (zone, id) = (worker.key.group.as_str(), worker.key.id.as_str());
        let Some(instance) = self.compute.instance(zone, id).await? else {
            return Ok(());
        };
        if !self.is_of(worker, &instance) {
            return Err(not_ours(zone, id));
        }
        self.compute.delete_instance(zone, id).await?;
        self.listing.forget().await;
        Ok(())
    }
}

impl GoogleProvider {
    /// The bid for one machine of this type: its price, if it is known, and its place.
    fn bid(&self, zone: &str, kind: &str, is_spot: bool) -> Bid {
        let market = Market::of(is_spot);
        let price = self.prices.price(region_of(zone), Some(zone), kind, market);
        Bid {
            price,
            ..Bid::plain(format!("{zone} {kind} {}", market.as_str()))
        }
    }

    async fn insert(
        &self,
        call: InsertCall,
        order: &LaunchOrder<'_>,
    ) -> Result<LaunchedMachine, LaunchError> {
        let InsertCall {
            zone,
            name,
            machine_type,
            spot,
            request_id,
            instance,
        } = call;
        let inserted = self.compute.insert(&zone, &request_id, instance).await;
        let (id, operation) = match inserted {
            Ok(operation) => {
                if let Some((code, message)) = operation.failure() {
                    let status = operation.http_error_status_code.unwrap_or(400);
                    let error = VendorError::answered(&GOOGLE, status, code, message, None);
                    return Err(error.into());
                }
                (operation.target_id.clone(), Some(operation))
            }
            // Google has forgotten the request id, and an earlier call has made the machine.
            Err(error) if error.has_status(409) => {
                let found = self.compute.instance(&zone, &name).await;
                let found = found.ok().flatten();
                let of_this_launch = found.filter(|it| {
                    labels::launch_of(&it.labels, &self.root_url, &self.id)
                        .is_some_and(|token| token.as_ref() == Some(order.token))
                });
                match of_this_launch {
                    Some(instance) => (Some(instance.id), None),
                    None => return Err(LaunchError::Unknown(error.to_string())),
                }
            }
            Err(error) => return Err(error.into()),
        };
        let mut row = Row::new(&self.project, &zone, &name, &machine_type);
        row.spot = spot;
        row.operation = operation.map(|Operation { name, .. }| OperationName {
            name,
            zone: zone.clone(),
        });
        let unusable = || {
            let error = "Google's response has no id of the machine that is a valid name";
            LaunchError::Unknown(error.to_owned())
        };
        Ok(LaunchedMachine {
            group: zone.parse().map_err(|_| unusable())?,
            id: id.and_then(|id| id.parse().ok()).ok_or_else(unusable)?,
            made: None,
            provider_data: row.to_value(),
        })
    }

    async fn look_at(&self, worker: &Worker) -> Result<Option<Sighting>, VendorError> {
        let (zone, id) = (worker.key.group.as_str(), worker.key.id.as_str());
        let Some(instance) = self.compute.instance(zone, id).await? else {
            return Ok(Some(Sighting::NotFound));
        };
        let found = sighting(&instance);
        if !matches!(found, Some(Sighting::Ended(_))) || !self.is_of(worker, &instance) {
            return Ok(found);
        }
        // It is not started again, but its disk costs money.
        if let Err(error) = self.compute.delete_instance(zone, id).await {
            tracing::warn!(provider.id = %self.id,
                "cannot delete the stopped machine {id} in {zone}, the next scan tries again: {error}");
        }
        if launch::is_spot_machine(&instance) && self.compute.was_preempted(zone, id).await? {
            return Ok(Some(ended(PREEMPTED)));
        }
        Ok(found)
    }

    /// Why machines do not exist: their operation failed, has not ended, or they were taken away.
    async fn explain_missing(
        &self,
        workers: &[&Worker],
    ) -> Vec<Result<(WorkerKey, Sighting), VendorError>> {
        let rows: BTreeMap<&WorkerKey, Option<Row>> = workers
            .iter()
            .map(|worker| (&worker.key, Row::read(&worker.provider_data)))
            .collect();
        let names = rows.values().flatten().filter_map(operation_of);
        let names: Vec<String> = names.collect();
        let now = self.clock.now();
        let mut progress = self.operations.follow(&self.compute, &names, now).await;
        let mut explained = Vec::new();
        for (key, row) in rows {
            let operation = row.as_ref().and_then(operation_of);
            let progress = operation.and_then(|name| progress.remove(&name));
            let sighting = match progress {
                // Nothing is known about the machine.
                Some(Ok(Progress::Running)) => continue,
                Some(Ok(Progress::Failed { code, message })) => {
                    let (why, cause) = (format!("{code}: {message}"), GOOGLE.known_cause(&code));
                    Sighting::Ended(MachineEnd::not_made(why, cause))
                }
                Some(Err(error)) => {
                    explained.push(Err(error));
                    continue;
                }
                Some(Ok(Progress::Succeeded | Progress::Unknown)) | None => {
                    let spot = row.is_some_and(|row| row.spot);
                    match spot && self.was_preempted(key).await {
                        true => ended(PREEMPTED),
                        false => Sighting::NotFound,
                    }
                }
            };
            explained.push(Ok((key.clone(), sighting)));
        }
        explained
    }

    /// If Google cannot be asked, the reason stays unknown.
    async fn was_preempted(&self, key: &WorkerKey) -> bool {
        let asked = self
            .compute
            .was_preempted(key.group.as_str(), key.id.as_str());
        asked.await.unwrap_or(false)
    }

    /// Whether we made the machine, or took it over for this worker.
    fn is_of(&self, worker: &Worker, instance: &Instance) -> bool {
        let is_ours = labels::launch_of(&instance.labels, &self.root_url, &self.id).is_some();
        let is_inherited =
            || worker.terms.taken_over && labels::are_of_taskcluster(&instance.labels, &self.id);
        is_ours || is_inherited()
    }

    /// The machines of a region whose labels `launch_of` knows, with the launch that it returns.
    async fn page(
        &self,
        listing: &Listing,
        filter: &str,
        region: &Region,
        launch_of: impl Fn(&Labels) -> Option<Option<LaunchToken>> + Sync,
    ) -> Result<OwnedPage, CloudError> {
        let Region::Group(region) = region else {
            return Ok(OwnedPage::default());
        };
        let snapshot = listing.get(&self.compute, filter, &self.clock).await?;
        if let Some(zone) = snapshot.unreachable_in(region.as_str()) {
            let error = format!("Google cannot list the machines of {zone} now");
            return Err(CloudError::Unavailable(error));
        }
        let machines = snapshot.machines.iter();
        let here = machines.filter(|it| region_of(last_part(&it.zone)) == region.as_str());
        // A substitute for Google may ignore the filter.
        let wanted = here.filter_map(|it| self.listed_machine(it, launch_of(&it.labels)?));
        Ok(OwnedPage::only(wanted.collect()))
    }

    /// `None`: its names are not names of ours.
    fn listed_machine(
        &self,
        instance: &Instance,
        token: Option<LaunchToken>,
    ) -> Option<OwnedMachine> {
        let zone = last_part(&instance.zone);
        let mut row = Row::new(&self.project, zone, &instance.name, &instance.machine_type);
        row.spot = launch::is_spot_machine(instance);
        let made = instance.creation_timestamp.as_ref();
        Some(OwnedMachine {
            token,
            pool_id: labels::pool_of(&instance.labels),
            machine: LaunchedMachine {
                group: zone.parse().ok()?,
                id: instance.id.parse().ok()?,
                made: made.and_then(|text| text.parse().ok()),
                provider_data: row.to_value(),
            },
            sighting: sighting(instance),
        })
    }
}

fn operation_of(row: &Row) -> Option<String> {
    let operation = row.operation.as_ref()?;
    Some(format!("{}/{}", operation.zone, operation.name))
}

fn ended(why: &str) -> Sighting {
    Sighting::Ended(MachineEnd::because(Some(why.to_owned())))
}

fn not_ours(zone: &str, id: &str) -> CloudError {
    CloudError::Refused(format!("instance {id} in {zone} does not have our labels"))
}

fn not_served(zone: &str) -> String {
    format!("this provider does not use zone {zone}")
}

/// `None`: Google reports a state that we do not know, so we conclude nothing.
fn sighting(instance: &Instance) -> Option<Sighting> {
    match instance.status.as_str() {
        "PENDING" | "PROVISIONING" | "STAGING" | "RUNNING" | "REPAIRING" => Some(Sighting::Alive),
        "PENDING_STOP" | "STOPPING" | "SUSPENDING" | "DEPROVISIONING" => Some(Sighting::Ending),
        status @ ("STOPPED" | "SUSPENDED" | "TERMINATED") => {
            let message = instance.status_message.as_deref();
            let message = message.filter(|message| !message.is_empty());
            Some(ended(message.unwrap_or(status)))
        }
        other => {
            tracing::warn!("instance {} is in the unknown state {other:?}", instance.id);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_state_of_a_machine_has_its_meaning() {
        for (status, expected) in [
            ("PENDING", Some(Sighting::Alive)),
            ("PROVISIONING", Some(Sighting::Alive)),
            ("STAGING", Some(Sighting::Alive)),
            ("RUNNING", Some(Sighting::Alive)),
            ("REPAIRING", Some(Sighting::Alive)),
            ("PENDING_STOP", Some(Sighting::Ending)),
            ("STOPPING", Some(Sighting::Ending)),
            ("SUSPENDING", Some(Sighting::Ending)),
            ("DEPROVISIONING", Some(Sighting::Ending)),
            ("TERMINATED", Some(ended("TERMINATED"))),
            ("STOPPED", Some(ended("STOPPED"))),
            ("SUSPENDED", Some(ended("SUSPENDED"))),
            ("LEVITATING", None),
        ] {
            let instance = json!({"id": "1", "name": "n", "zone": "z", "status": status});
            let instance: Instance = serde_json::from_value(instance).unwrap();
            assert_eq!(sighting(&instance), expected, "{status}");
        }
    }
}
