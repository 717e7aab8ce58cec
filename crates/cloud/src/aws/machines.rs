//! Machines on EC2: launched, looked at, found again, ended.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use domain::id::{WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::plan::spot_prices::{self, PricePoint, PriceTable};
use domain::time::Timestamp;
use domain::worker::Worker;
use futures_util::stream::{self, StreamExt as _};

use super::AwsProvider;
use super::answers::{
    DescribeAvailabilityZones, DescribeInstances, DescribeSpotPriceHistory, Done, Instance,
    Reservation, RunInstances, SpotPrice,
};
use super::client::LAUNCH_LIMIT;
use super::error::Ec2Error;
use super::launch;
use super::marks::{self, DEPLOYMENT, PROVIDER};
use super::parameters::Parameters;
use super::row;
use crate::{
    BidRequest, CloudError, LaunchError, LaunchOrder, Launched, Listing, Machines, Owned, Sighting,
};

/// Prices of these only: a launch config does not say which system its image holds, and most hold this.
const PRODUCT: &str = "Linux/UNIX";
/// EC2 takes no more values in one filter.
const LOOK_BATCH: usize = 200;
/// So many calls are under way at the same time for one question to all regions.
const MAX_CALLS_AT_ONCE: usize = 8;
/// The largest page that EC2 gives.
const PAGE: u32 = 1_000;
/// A list that goes on after so many pages has no end.
const MAX_PAGES: usize = 1_000;

#[async_trait]
impl Machines for AwsProvider {
    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        let bid = |config| {
            let region = launch::region(config).ok_or("the launch config has no region")?;
            let asked = launch::asked(config).ok_or("the launch config has no launchConfig")?;
            if !self.serves(region) {
                return Err(not_served(region));
            }
            Ok(self.prices.bid(region, asked, ask.now))
        };
        ask.launch_configs.iter().map(bid).collect()
    }

    /// Regions whose prices cannot be had keep their old ones until those are stale.
    async fn refresh(&self) -> Result<(), CloudError> {
        self.learn_zones().await;
        let now = self.clock.now();
        let mut questions = Vec::new();
        for (region, kinds) in self.prices.due(now) {
            questions.push(async move {
                let highest = self.spot_prices(&region, kinds, now).await?;
                self.prices.learn(&region, highest, now);
                Ok::<_, Ec2Error>(())
            });
        }
        let results = side_by_side(questions).await;
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        let call = launch::call(order, &self.id, &self.root_url)?;
        if !self.serves(&call.region) {
            // A machine there would not be found again, should the answer be lost.
            return Err(LaunchError::Refused {
                cause: Cause::Configuration,
                problem: not_served(&call.region),
            });
        }
        let made: RunInstances = self
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
                "EC2 made nothing and said nothing".to_owned(),
            )),
            None => Err(LaunchError::Unknown(
                "EC2's answer names machines in a way that we cannot keep".to_owned(),
            )),
        }
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let mut by_region: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
        for worker in workers {
            let region = worker.key.group.as_str();
            by_region.entry(region).or_default().push(worker);
        }
        let mut looks = Vec::new();
        for (region, all) in &by_region {
            for some in all.chunks(LOOK_BATCH) {
                looks.push(self.look_in(region, some));
            }
        }
        // One region out of order must not blind us to the others.
        let (mut seen, mut failed) = (Vec::new(), None);
        for result in side_by_side(looks).await {
            match result {
                Ok(some) => seen.extend(some),
                Err(problem) => failed = Some(problem),
            }
        }
        match failed {
            Some(problem) if seen.is_empty() => Err(problem.into()),
            Some(problem) => {
                tracing::warn!(provider.id = %self.id, "some machines could not be looked at: {problem}");
                Ok(seen)
            }
            None => Ok(seen),
        }
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    /// Region by region: one that is closed to us, or out of order, hides no other.
    async fn owned(&self) -> Result<Listing, CloudError> {
        let regions = self.regions().map_err(CloudError::Unavailable)?;
        let mut searches = Vec::new();
        for region in regions {
            searches.push(async move { (region, self.owned_in(region).await) });
        }
        let mut listing = Listing::default();
        for (region, result) in side_by_side(searches).await {
            match (result, region.parse()) {
                (Ok(some), _) => listing.machines.extend(some),
                (Err(problem), Ok(group)) => {
                    listing.missing.insert(group, problem.into());
                }
                // Not a group, so nothing of ours can be there.
                (Err(_), Err(_)) => {}
            }
        }
        match listing.missing.first_key_value() {
            Some((_, problem)) if listing.missing.len() == regions.len() => Err(problem.clone()),
            _ => Ok(listing),
        }
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        launch::region(launch_config)?.parse().ok()
    }

    /// Looks first, since a row may be wrong (a restored database, say) and what is not ours stays. A machine that
    /// cannot be seen is ended all the same: just made, it may be known to one part of EC2 and not to another.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let (region, id) = (worker.key.group.as_str(), worker.key.id.as_str());
        let found = match self.find(region, &[id]).await {
            Err(error) if error.is_unknown_instance() => Vec::new(),
            result => result?,
        };
        for instance in instances(&found) {
            if !self.is_ours(instance) {
                let refused = format!("instance {id} in {region} does not carry our tags");
                return Err(CloudError::Refused(refused));
            }
            if matches!(sighting(instance), Some(Sighting::Gone(_))) {
                return Ok(());
            }
        }
        match self.terminate(region, [id]).await {
            Err(error) if error.is_unknown_instance() => Ok(()),
            result => Ok(result?),
        }
    }
}

impl AwsProvider {
    async fn look_in(
        &self,
        region: &str,
        workers: &[&Worker],
    ) -> Result<Vec<(WorkerKey, Sighting)>, Ec2Error> {
        let ids: Vec<_> = workers.iter().map(|it| it.key.id.as_str()).collect();
        let reservations = match self.find(region, &ids).await {
            // One id that EC2 does not know spoils the whole question; a filter passes it over.
            Err(error) if error.is_unknown_instance() => {
                let by_filter = Parameters::default().with_filter(1, "instance-id", ids);
                self.describe(region, by_filter).await?
            }
            result => result?,
        };
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

    /// The machines of these ids; an error if EC2 does not know one of them.
    async fn find(&self, region: &str, ids: &[&str]) -> Result<Vec<Reservation>, Ec2Error> {
        let by_id = Parameters::default().with_list("InstanceId", ids);
        let answer: DescribeInstances = self.ec2.call(region, "DescribeInstances", &by_id).await?;
        Ok(answer.reservation_set.items)
    }

    fn is_ours(&self, instance: &Instance) -> bool {
        marks::launch_of(&instance.tag_set.items, &self.root_url, &self.id).is_some()
    }

    /// Nobody starts a stopped machine again, but its disks cost money.
    async fn end_stopped<'a>(&self, region: &str, found: impl Iterator<Item = &'a Instance>) {
        let stopped: Vec<_> = found
            .filter(|instance| instance.instance_state.name == "stopped" && self.is_ours(instance))
            .map(|instance| instance.instance_id.as_str())
            .collect();
        if stopped.is_empty() {
            return;
        }
        if let Err(problem) = self.terminate(region, stopped.iter().copied()).await {
            tracing::warn!(provider.id = %self.id,
                "stopped machines in {region} could not be ended; the next look tries again: {problem}");
        }
    }

    async fn owned_in(&self, region: &str) -> Result<Vec<Owned>, Ec2Error> {
        let question = Parameters::default()
            .with_filter(1, &format!("tag:{DEPLOYMENT}"), [&self.root_url])
            .with_filter(2, &format!("tag:{PROVIDER}"), [&self.id])
            // Not those that are going: nothing stops that any more.
            .with_filter(
                3,
                "instance-state-name",
                ["pending", "running", "stopping", "stopped"],
            );
        let mut owned = Vec::new();
        for reservation in self.describe(region, question).await? {
            for instance in &reservation.instances_set.items {
                let tags = &instance.tag_set.items;
                let Some(token) = marks::launch_of(tags, &self.root_url, &self.id) else {
                    continue;
                };
                let groups = &reservation.group_set;
                let machine = row::machine(region, &reservation.owner_id, groups, instance);
                owned.extend(machine.map(|machine| Owned { token, machine }));
            }
        }
        Ok(owned)
    }

    /// All pages.
    async fn describe(
        &self,
        region: &str,
        question: Parameters,
    ) -> Result<Vec<Reservation>, Ec2Error> {
        let mut all = Vec::new();
        let mut next = None;
        for _ in 0..MAX_PAGES {
            let page = paged(question.clone(), next.as_deref());
            let answer: DescribeInstances =
                self.ec2.call(region, "DescribeInstances", &page).await?;
            all.extend(answer.reservation_set.items);
            next = answer.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(all);
            }
        }
        Err(endless("DescribeInstances"))
    }

    /// The highest prices of the last half hour, in the zones that work.
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
        let mut history = Vec::new();
        let mut next = None;
        for _ in 0..MAX_PAGES {
            let page = paged(question.clone(), next.as_deref());
            let answer: DescribeSpotPriceHistory = self
                .ec2
                .call(region, "DescribeSpotPriceHistory", &page)
                .await?;
            let entries = answer.spot_price_history_set.items;
            history.extend(entries.into_iter().filter_map(price_point));
            next = answer.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(spot_prices::highest(&history, &zones, now));
            }
        }
        Err(endless("DescribeSpotPriceHistory"))
    }

    async fn terminate<'a>(
        &self,
        region: &str,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Ec2Error> {
        let question = Parameters::default().with_list("InstanceId", ids);
        let Done {} = self
            .ec2
            .call(region, "TerminateInstances", &question)
            .await?;
        Ok(())
    }
}

/// All of them, so many at a time, in whatever order they end.
pub(super) async fn side_by_side<F: Future>(calls: Vec<F>) -> Vec<F::Output> {
    stream::iter(calls)
        .buffer_unordered(MAX_CALLS_AT_ONCE)
        .collect()
        .await
}

fn instances(reservations: &[Reservation]) -> impl Iterator<Item = &Instance> {
    reservations
        .iter()
        .flat_map(|reservation| &reservation.instances_set.items)
}

fn not_served(region: &str) -> String {
    format!("this provider does not use region {region}")
}

fn paged(question: Parameters, next: Option<&str>) -> Parameters {
    let question = question.with("MaxResults", PAGE);
    match next {
        Some(token) => question.with("NextToken", token),
        None => question,
    }
}

/// `None`: of another product, or from a time that is none.
fn price_point(entry: SpotPrice) -> Option<PricePoint> {
    let at = entry.timestamp.parse().ok()?;
    (entry.product_description == PRODUCT).then_some(PricePoint {
        instance_type: entry.instance_type,
        zone: entry.availability_zone,
        price: entry.spot_price,
        at,
    })
}

fn endless(action: &str) -> Ec2Error {
    Ec2Error::Lost(format!("{action} goes on after {MAX_PAGES} pages"))
}

/// `None`: EC2 has found a new word for how a machine is, and we had better not guess.
fn sighting(instance: &Instance) -> Option<Sighting> {
    match instance.instance_state.name.as_str() {
        "pending" | "running" => Some(Sighting::Alive),
        // A stopped one was told to end when it was seen.
        "shutting-down" | "stopping" | "stopped" => Some(Sighting::Going),
        "terminated" => Some(Sighting::Gone(row::reason(instance))),
        other => {
            tracing::warn!(
                "instance {} is {other:?}, which we do not know",
                instance.instance_id
            );
            None
        }
    }
}
