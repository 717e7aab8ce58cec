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
use serde::de::DeserializeOwned;

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
    BidRequest, CloudError, LaunchError, LaunchOrder, Launched, Machines, Owned, OwnedPage, Region,
    Sighting,
};

/// Prices of these only: a launch config does not say which system its image holds, and most hold this.
const PRODUCT: &str = "Linux/UNIX";
/// EC2 takes no more values in one filter.
pub(super) const LOOK_BATCH: usize = 200;
/// At most this many machines are ended by one call. EC2 accepts 1,000 and advises fewer.
pub(super) const END_BATCH: usize = 100;
/// So many calls are under way at the same time for one question to all regions.
pub(super) const MAX_CALLS_AT_ONCE: usize = 8;
/// The largest page that EC2 gives.
pub(super) const PAGE: u32 = 1_000;
/// A list that goes on after so many pages has no end.
pub(super) const MAX_PAGES: usize = 1_000;

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
        ask.configs().map(bid).collect()
    }

    fn wants_refresh(&self) -> bool {
        self.prices.lacks_some(self.clock.now())
    }

    /// Regions whose prices cannot be had keep their old ones until those are stale.
    async fn refresh(&self) -> Result<(), CloudError> {
        self.learn_regions_again().await;
        self.learn_zones().await;
        let now = self.clock.now();
        let mut questions = Vec::new();
        for (region, kinds) in self.prices.due(now) {
            questions.push(async move {
                let highest = self.spot_prices(&region, kinds.clone(), now).await?;
                self.prices.learn(&region, kinds, highest, now);
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
        let by_region = by_region(workers);
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

    /// A name that is no group is left out: nothing of ours can be there.
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

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        launch::region(launch_config)?.parse().ok()
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    /// Looks first, since a row may be wrong (a restored database, say) and what is not ours stays. A machine that
    /// cannot be seen is ended all the same: just made, it may be known to one part of EC2 and not to another.
    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        let by_region = by_region(workers);
        let mut ends = Vec::new();
        for (region, all) in &by_region {
            for some in all.chunks(END_BATCH) {
                let ids: Vec<&str> = some.iter().map(|worker| worker.key.id.as_str()).collect();
                ends.push(async move { (*region, self.end_in(region, &ids).await) });
            }
        }
        let mut ended: BTreeMap<&str, Endings> = BTreeMap::new();
        for (region, endings) in side_by_side(ends).await {
            ended.entry(region).or_default().extend(endings);
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

    /// What is on it, and what to ask for the next one with.
    fn open(self) -> (Vec<Self::Item>, Option<String>);
}

impl Page for DescribeInstances {
    const ACTION: &str = "DescribeInstances";
    type Item = Reservation;

    fn open(self) -> (Vec<Reservation>, Option<String>) {
        (self.reservation_set.items, self.next_token)
    }
}

impl Page for DescribeSpotPriceHistory {
    const ACTION: &str = "DescribeSpotPriceHistory";
    type Item = SpotPrice;

    fn open(self) -> (Vec<SpotPrice>, Option<String>) {
        (self.spot_price_history_set.items, self.next_token)
    }
}

/// What became of each machine, by its id.
type Endings = BTreeMap<String, Result<(), CloudError>>;

impl AwsProvider {
    async fn look_in(
        &self,
        region: &str,
        workers: &[&Worker],
    ) -> Result<Vec<(WorkerKey, Sighting)>, Ec2Error> {
        let ids: Vec<_> = workers.iter().map(|it| it.key.id.as_str()).collect();
        let reservations = self.find_some(region, &ids).await?;
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

    /// Those of the machines of these ids that EC2 knows.
    async fn find_some(&self, region: &str, ids: &[&str]) -> Result<Vec<Reservation>, Ec2Error> {
        match self.find(region, ids).await {
            Err(error) if error.is_unknown_instance() && ids.len() == 1 => Ok(Vec::new()),
            // One id that EC2 does not know spoils the question; a filter passes it over.
            Err(error) if error.is_unknown_instance() => {
                let by_filter = Parameters::default().with_filter(1, "instance-id", ids);
                self.all_pages::<DescribeInstances>(region, by_filter).await
            }
            result => result,
        }
    }

    /// Two calls, unless EC2 refuses to end some of them.
    async fn end_in(&self, region: &str, ids: &[&str]) -> Endings {
        let all = |result: Result<(), CloudError>| {
            let results = ids.iter().map(|id| ((*id).to_owned(), result.clone()));
            results.collect::<Endings>()
        };
        let found = match self.find_some(region, ids).await {
            Ok(found) => found,
            Err(problem) => return all(Err(problem.into())),
        };
        let mut endings = all(Ok(()));
        let mut to_end: BTreeSet<&str> = ids.iter().copied().collect();
        for instance in instances(&found) {
            let id = instance.instance_id.as_str();
            if !self.is_ours(instance) {
                let refused = format!("instance {id} in {region} does not carry our tags");
                endings.insert(id.to_owned(), Err(CloudError::Refused(refused)));
                to_end.remove(id);
            } else if matches!(sighting(instance), Some(Sighting::Gone(_))) {
                to_end.remove(id);
            }
        }
        self.terminate_each(region, to_end.into_iter().collect(), &mut endings)
            .await;
        endings
    }

    /// EC2 ends all of a call or none: where it refuses, halves are tried, down to the machine that it refuses to end.
    async fn terminate_each(&self, region: &str, ids: Vec<&str>, endings: &mut Endings) {
        let mut parts = vec![ids];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let problem = match self.terminate(region, part.iter().copied()).await {
                Ok(()) => continue,
                Err(problem) => problem,
            };
            let is_unknown = problem.is_unknown_instance();
            let problem = CloudError::from(problem);
            let concerns_some = is_unknown || matches!(problem, CloudError::Refused(_));
            if concerns_some && part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            } else if !is_unknown {
                let failed = part
                    .iter()
                    .map(|id| ((*id).to_owned(), Err(problem.clone())));
                endings.extend(failed);
            }
        }
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

    async fn page_in(&self, region: &str, after: Option<&str>) -> Result<OwnedPage, Ec2Error> {
        let question = Parameters::default()
            .with_filter(1, &format!("tag:{DEPLOYMENT}"), [&self.root_url])
            .with_filter(2, &format!("tag:{PROVIDER}"), [&self.id])
            // Not those that are going: nothing stops that any more.
            .with_filter(
                3,
                "instance-state-name",
                ["pending", "running", "stopping", "stopped"],
            );
        let answer: DescribeInstances = self
            .ec2
            .call(region, "DescribeInstances", &paged(question, after))
            .await?;
        let reservations = answer.reservation_set.items;
        let found: Vec<&Instance> = instances(&reservations).collect();
        self.end_stopped(region, found.iter().copied()).await;
        let mut owned = Vec::new();
        for reservation in &reservations {
            for instance in &reservation.instances_set.items {
                let tags = &instance.tag_set.items;
                let Some(token) = marks::launch_of(tags, &self.root_url, &self.id) else {
                    continue;
                };
                let groups = &reservation.group_set;
                let machine = row::machine(region, &reservation.owner_id, groups, instance);
                let sighting = sighting(instance);
                owned.extend(machine.map(|machine| Owned {
                    token,
                    pool_id: marks::pool_of(tags),
                    machine,
                    sighting,
                }));
            }
        }
        Ok(OwnedPage {
            machines: owned,
            next: answer.next_token.filter(|token| !token.is_empty()),
        })
    }

    /// What is on all pages of a list.
    async fn all_pages<P: Page>(
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
            let page = paged(question.clone(), next.as_deref());
            let answer: P = self.ec2.call(region, P::ACTION, &page).await?;
            let (items, token) = answer.open();
            all.extend(items);
            next = token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(all);
            }
        }
        let action = P::ACTION;
        let text = format!("{action} goes on after {limit} pages");
        Err(Ec2Error::Lost(text))
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
        let Done {} = self
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
