//! EC2 instances as machines: launch, look, list and end.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use domain::id::{WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::spot_prices::{self, PricePoint, PriceTable};
use domain::plan::{Bid, BidRequest, Bids};
use domain::time::Timestamp;
use domain::worker::Worker;
use serde::de::DeserializeOwned;

use super::AwsProvider;
use super::client::LAUNCH_LIMIT;
use super::error::Ec2Error;
use super::parameters::Parameters;
use super::responses::{
    DescribeAvailabilityZones, DescribeInstances, DescribeSpotPriceHistory, EmptyResponse,
    Instance, Reservation, SpotPrice,
};
use super::row;
use super::tags;
use super::{instance_types, launch};
use crate::several_calls::{run_together, successes};
use crate::{
    CloudError, LaunchError, LaunchOrder, LaunchedMachine, Leftover, MachineEnd, Machines,
    OwnedPage, Region, Sighting, WorkerLog,
};

/// Prices are asked for this product only: a launch config does not say which system its image
/// contains, and most images contain Linux.
const PRODUCT: &str = "Linux/UNIX";
/// EC2's limit for the values of one filter.
pub(super) const LOOK_BATCH: usize = 200;
/// Instances that one call terminates at most. EC2 accepts 1,000 and recommends fewer.
pub(super) const END_BATCH: usize = 100;
/// EC2's limit for a page.
pub(super) const PAGE: u32 = 1_000;
/// Pages of a list at most: a longer list is treated as endless.
pub(super) const MAX_PAGES: usize = 1_000;

#[async_trait]
impl Machines for AwsProvider {
    fn bids(&self, config: &LaunchConfig, _request: Option<&BidRequest>, now: Timestamp) -> Bids {
        let region = launch::region(config).ok_or("the launch config has no region")?;
        let parameters =
            launch::run_parameters(config).ok_or("the launch config has no launchConfig")?;
        if !self.serves(region) {
            return Err(not_served(region));
        }
        let types = instance_types::of(config);
        if types.is_empty() {
            return Ok(vec![self.prices.bid(region, parameters, None, now)?]);
        }
        // All types are asked about, also if the price of the first is awaited.
        let bids: Vec<Result<Bid, String>> = types
            .iter()
            .map(|kind| {
                let bid = self.prices.bid(region, parameters, Some(kind.name), now)?;
                Ok(kind.complete(bid))
            })
            .collect();
        bids.into_iter().collect()
    }

    fn wants_refresh(&self) -> bool {
        self.prices.lacks_some(self.clock.now())
    }

    async fn reread_files(&self) {
        self.prices.configured().reread(&self.id).await;
    }

    fn warning(&self) -> Option<String> {
        self.prices.configured().error()
    }

    /// A region whose prices cannot be fetched keeps its old prices until they are stale.
    async fn refresh(&self) -> Result<(), CloudError> {
        self.learn_regions_again().await;
        self.learn_zones().await;
        let now = self.clock.now();
        let mut questions = Vec::new();
        for (region, kinds) in self.prices.due(now) {
            questions.push(async move {
                match self.spot_prices(&region, kinds.clone(), now).await {
                    Ok(highest) => self.prices.learn(&region, kinds, highest, now),
                    Err(error) => {
                        self.prices.note_failure(&region, &kinds);
                        return Err(error);
                    }
                }
                Ok::<_, Ec2Error>(())
            });
        }
        let results = run_together(questions).await;
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let call = launch::build_call(order, &self.id, &self.root_url)?;
        if !self.serves(&call.region) {
            // If the response were lost, the scan would not find a machine in that region.
            return Err(LaunchError::Refused {
                cause: Cause::Configuration,
                error: not_served(&call.region),
            });
        }
        let made: Reservation = self
            .ec2
            .call_within(LAUNCH_LIMIT, &call.region, "RunInstances", &call.parameters)
            .await?;
        let machines: Option<Vec<_>> = made
            .instances_set
            .items
            .iter()
            .map(|one| row::machine(&call.region, &made.owner_id, &made.group_set, one))
            .collect();
        match machines {
            Some(machines) if !machines.is_empty() => Ok(machines),
            Some(_) => Err(LaunchError::Unknown(
                "EC2 reported success without machines".to_owned(),
            )),
            None => Err(LaunchError::Unknown(
                "EC2's response has a machine whose id or region is not a valid name".to_owned(),
            )),
        }
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let by_region = by_region(workers);
        let mut looks = Vec::new();
        for (region, all) in &by_region {
            for batch in all.chunks(LOOK_BATCH) {
                looks.push(self.look_in(region, batch));
            }
        }
        let seen = successes(&self.id, run_together(looks).await)?;
        Ok(seen.into_iter().flatten().collect())
    }

    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        self.read_console(worker).await
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    /// Skips a region whose name is not a valid worker group: it cannot hold machines of ours.
    fn regions(&self) -> Vec<Region> {
        let regions = self.known_regions().unwrap_or_default();
        let groups = regions.iter().filter_map(|region| region.parse().ok());
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
            Region::Group(group) => Ok(self.page_in(group.as_str(), after).await?),
            Region::Everything => Ok(OwnedPage::default()),
        }
    }

    async fn remove_leftovers(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        self.remove_volumes(region).await
    }

    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        match region {
            Region::Group(group) => Ok(self.inherited_in(group.as_str(), after).await?),
            Region::Everything => Ok(OwnedPage::default()),
        }
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        launch::region(launch_config)?.parse().ok()
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    /// Looks before it ends: a row may be wrong, for example after a database was restored, and
    /// machines that are not ours must stay. A machine that EC2 does not show is ended all the
    /// same: a new machine may be known to one part of EC2 and not yet to another.
    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        let by_region = by_region(workers);
        let mut ends = Vec::new();
        for (region, all) in &by_region {
            for batch in all.chunks(END_BATCH) {
                ends.push(async move { (*region, self.end_in(region, batch).await) });
            }
        }
        let mut ended: BTreeMap<&str, EndResults> = BTreeMap::new();
        for (region, end_results) in run_together(ends).await {
            ended.entry(region).or_default().extend(end_results);
        }
        let result = |worker: &Worker| {
            let region = ended.get(worker.key.group.as_str());
            let result = region.and_then(|results| results.get(worker.key.id.as_str()));
            result.cloned().unwrap_or(Ok(()))
        };
        workers.iter().map(result).collect()
    }

    fn end_batch(&self) -> usize {
        END_BATCH
    }
}

/// A page of one of EC2's lists.
pub(super) trait Page: DeserializeOwned {
    const ACTION: &str;
    type Item;

    /// Returns the items, and the token of the next page.
    fn into_items(self) -> (Vec<Self::Item>, Option<String>);
}

impl Page for DescribeInstances {
    const ACTION: &str = "DescribeInstances";
    type Item = Reservation;

    fn into_items(self) -> (Vec<Reservation>, Option<String>) {
        (self.reservation_set.items, self.next_token)
    }
}

impl Page for DescribeSpotPriceHistory {
    const ACTION: &str = "DescribeSpotPriceHistory";
    type Item = SpotPrice;

    fn into_items(self) -> (Vec<SpotPrice>, Option<String>) {
        (self.spot_price_history_set.items, self.next_token)
    }
}

/// The result for each machine, by its id.
type EndResults = BTreeMap<String, Result<(), CloudError>>;

impl AwsProvider {
    async fn look_in(
        &self,
        region: &str,
        workers: &[&Worker],
    ) -> Result<Vec<(WorkerKey, Sighting)>, Ec2Error> {
        let ids: Vec<_> = workers.iter().map(|it| it.key.id.as_str()).collect();
        let reservations = self.find_known(region, &ids).await?;
        let found: BTreeMap<&str, &Instance> = instances(&reservations)
            .map(|instance| (instance.instance_id.as_str(), instance))
            .collect();
        self.end_stopped(region, found.values().copied()).await;
        Ok(workers
            .iter()
            .filter_map(|worker| {
                let sighting = match found.get(worker.key.id.as_str()) {
                    None => Sighting::NotFound,
                    Some(instance) => sighting(instance)?,
                };
                Some((worker.key.clone(), sighting))
            })
            .collect())
    }

    /// The machines with these ids that EC2 knows.
    pub(super) async fn find_known(
        &self,
        region: &str,
        ids: &[&str],
    ) -> Result<Vec<Reservation>, Ec2Error> {
        match self.find_all(region, ids).await {
            Err(error) if error.is_unknown_instance() && ids.len() == 1 => Ok(Vec::new()),
            // `InstanceId` with an unknown id fails the call; a filter ignores unknown ids.
            Err(error) if error.is_unknown_instance() => {
                let by_filter = Parameters::default().with_filter(1, "instance-id", ids);
                self.all_pages::<DescribeInstances>(region, by_filter).await
            }
            result => result,
        }
    }

    /// Makes two calls, unless EC2 refuses to end some of the machines.
    async fn end_in(&self, region: &str, workers: &[&Worker]) -> EndResults {
        let ids: Vec<&str> = workers.iter().map(|it| it.key.id.as_str()).collect();
        let inherited = workers.iter().filter(|it| it.terms.taken_over);
        let inherited: BTreeSet<&str> = inherited.map(|it| it.key.id.as_str()).collect();
        let all = |result: Result<(), CloudError>| {
            let results = ids.iter().map(|id| ((*id).to_owned(), result.clone()));
            results.collect::<EndResults>()
        };
        let found = match self.find_known(region, &ids).await {
            Ok(found) => found,
            Err(error) => return all(Err(error.into())),
        };
        let mut end_results = all(Ok(()));
        let mut to_end: BTreeSet<&str> = ids.iter().copied().collect();
        for instance in instances(&found) {
            let id = instance.instance_id.as_str();
            let is_inherited = inherited.contains(id)
                && tags::is_of_taskcluster(&instance.tag_set.items, &self.id);
            if !self.has_our_tags(instance) && !is_inherited {
                let refused = format!("instance {id} in {region} does not have our tags");
                end_results.insert(id.to_owned(), Err(CloudError::Refused(refused)));
                to_end.remove(id);
            } else if matches!(sighting(instance), Some(Sighting::Ended(_))) {
                to_end.remove(id);
            }
        }
        self.terminate_each(region, to_end.into_iter().collect(), &mut end_results)
            .await;
        end_results
    }

    /// EC2 ends all machines of a call or none. When it refuses, the call is repeated with halves,
    /// down to the machine that causes the refusal.
    async fn terminate_each(&self, region: &str, ids: Vec<&str>, end_results: &mut EndResults) {
        let mut parts = vec![ids];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let error = match self.terminate(region, part.iter().copied()).await {
                Ok(()) => continue,
                Err(error) => error,
            };
            let is_unknown = error.is_unknown_instance();
            let error = CloudError::from(error);
            let concerns_some = is_unknown || matches!(error, CloudError::Refused(_));
            if concerns_some && part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            } else if !is_unknown {
                let failed = part.iter().map(|id| ((*id).to_owned(), Err(error.clone())));
                end_results.extend(failed);
            }
        }
    }

    /// The machines with these ids. Fails if EC2 does not know one of them.
    async fn find_all(&self, region: &str, ids: &[&str]) -> Result<Vec<Reservation>, Ec2Error> {
        let by_id = Parameters::default().with_list("InstanceId", ids);
        let answer: DescribeInstances = self.ec2.call(region, "DescribeInstances", &by_id).await?;
        Ok(answer.reservation_set.items)
    }

    /// Whether we made the machine, or took it over for this worker.
    pub(super) fn is_machine_of(&self, worker: &Worker, instance: &Instance) -> bool {
        let is_inherited = || {
            worker.terms.taken_over && tags::is_of_taskcluster(&instance.tag_set.items, &self.id)
        };
        self.has_our_tags(instance) || is_inherited()
    }

    pub(super) fn has_our_tags(&self, instance: &Instance) -> bool {
        tags::launch_of(&instance.tag_set.items, &self.root_url, &self.id).is_some()
    }

    /// Terminates our stopped machines: they are not started again, but their disks cost money.
    pub(super) async fn end_stopped<'a>(
        &self,
        region: &str,
        found: impl Iterator<Item = &'a Instance>,
    ) {
        let stopped: Vec<_> = found
            .filter(|instance| {
                instance.instance_state.name == "stopped" && self.has_our_tags(instance)
            })
            .map(|instance| instance.instance_id.as_str())
            .collect();
        if stopped.is_empty() {
            return;
        }
        if let Err(error) = self.terminate(region, stopped.iter().copied()).await {
            tracing::warn!(provider.id = %self.id,
                "cannot terminate stopped machines in {region}, the next look tries again: {error}");
        }
    }

    /// The items of all pages of a list.
    pub(super) async fn all_pages<P: Page>(
        &self,
        region: &str,
        question: Parameters,
    ) -> Result<Vec<P::Item>, Ec2Error> {
        self.pages_at_most::<P>(MAX_PAGES, region, question).await
    }

    pub(super) async fn pages_at_most<P: Page>(
        &self,
        limit: usize,
        region: &str,
        question: Parameters,
    ) -> Result<Vec<P::Item>, Ec2Error> {
        let mut all = Vec::new();
        let mut next = None;
        for _ in 0..limit {
            let page = page_parameters(question.clone(), next.as_deref());
            let answer: P = self.ec2.call(region, P::ACTION, &page).await?;
            let (items, token) = answer.into_items();
            all.extend(items);
            next = token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(all);
            }
        }
        let action = P::ACTION;
        let text = format!("the list of {action} has more than {limit} pages");
        Err(Ec2Error::Lost(text))
    }

    /// The highest prices of the last half hour, in the available zones.
    async fn spot_prices(
        &self,
        region: &str,
        kinds: BTreeSet<String>,
        now: Timestamp,
    ) -> Result<PriceTable, Ec2Error> {
        let question = Parameters::default().with_filter(1, "state", ["available"]);
        let answer: DescribeAvailabilityZones = self
            .ec2
            .call(region, "DescribeAvailabilityZones", &question)
            .await?;
        let zones = answer.availability_zone_info.items.into_iter();
        let zones = zones.map(|zone| zone.zone_name).collect();

        let question = Parameters::default()
            .with("StartTime", now.plus_millis(-spot_prices::WINDOW_MS))
            .with_list("ProductDescription", [PRODUCT])
            .with_list("InstanceType", kinds);
        let entries = self.all_pages::<DescribeSpotPriceHistory>(region, question);
        let entries = entries.await?.into_iter();
        let history: Vec<_> = entries.filter_map(price_point).collect();
        Ok(spot_prices::highest(&history, &zones, now))
    }

    async fn terminate<'a>(
        &self,
        region: &str,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Ec2Error> {
        let question = Parameters::default().with_list("InstanceId", ids);
        let EmptyResponse {} = self
            .ec2
            .call(region, "TerminateInstances", &question)
            .await?;
        Ok(())
    }
}

fn by_region(workers: &[Worker]) -> BTreeMap<&str, Vec<&Worker>> {
    let mut by_region: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
    for worker in workers {
        let region = worker.key.group.as_str();
        by_region.entry(region).or_default().push(worker);
    }
    by_region
}

pub(super) fn instances(reservations: &[Reservation]) -> impl Iterator<Item = &Instance> {
    reservations
        .iter()
        .flat_map(|reservation| &reservation.instances_set.items)
}

fn not_served(region: &str) -> String {
    format!("this provider does not use region {region}")
}

pub(super) fn page_parameters(question: Parameters, next: Option<&str>) -> Parameters {
    let question = question.with("MaxResults", PAGE);
    match next {
        Some(token) => question.with("NextToken", token),
        None => question,
    }
}

/// `None`: the entry is for another product, or its time is not a time.
fn price_point(entry: SpotPrice) -> Option<PricePoint> {
    let at = entry.timestamp.parse().ok()?;
    (entry.product_description == PRODUCT).then_some(PricePoint {
        instance_type: entry.instance_type,
        zone: entry.availability_zone,
        price: entry.spot_price,
        at,
    })
}

/// `None`: EC2 reports a state that we do not know, so we conclude nothing.
pub(super) fn sighting(instance: &Instance) -> Option<Sighting> {
    match instance.instance_state.name.as_str() {
        "pending" | "running" => Some(Sighting::Alive),
        // Stopped machines are terminated when they are seen.
        "shutting-down" | "stopping" | "stopped" => Some(Sighting::Ending),
        "terminated" => Some(Sighting::Ended(MachineEnd::because(row::reason(instance)))),
        other => {
            tracing::warn!(
                "instance {} is in the unknown state {other:?}",
                instance.instance_id
            );
            None
        }
    }
}
