//! A simulated cloud in memory.
//!
//! It takes its own form of pool configs or that of a real cloud, so that a copy of a real fleet
//! can be rehearsed. It proves its workers with tokens that it signs itself. Time comes from the
//! given clock, so nothing here waits by itself. Tests script it with [`LaunchOutcome`], the
//! outcome of one launch call, and with methods of [`FakeCloud`].

mod bids;
mod bill;
mod images;
mod inventory;
mod lists;
mod outcome;
mod pools;
mod script;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use access::Secret;
use async_trait::async_trait;
use contract::{Invalid, Schemas};
use domain::id::{LaunchToken, PoolId, WorkerGroup, WorkerKey};
use domain::launch::{self, Cause};
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, BidRequest, Bids};
use domain::pool::Pool;
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::Worker;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use self::bids::MachineKind;
pub use self::bill::BilledMachine;
pub use self::images::{FakeImage, ImageDefect, UploadOutcome};
use self::inventory::{Machine, kind_of};
pub use self::outcome::{Call, Decider, LaunchOutcome};
pub use self::script::FakeMachine;
use self::script::State;
use crate::identity::Tokens;
use crate::place::{self, ConfiguredRegion, Fills, Place, PlacesUnknown};
use crate::{
    CloudError, IdentityClaim, ImageTarget, LaunchError, LaunchOrder, LaunchedMachine, Machines,
    OwnedPage, PoolResourceMaker, Proof, Provider, ProviderContext, Region, Sighting, Verification,
    VerifyError,
};

/// Workers that one `look` takes.
const LOOK_BATCH: usize = 1_000;
/// The group of machines whose launch config names no region.
const DEFAULT_GROUP: &str = "fake";

/// How the cloud behaves without a script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeSettings {
    /// The form of its pool configs.
    pub accepts: AcceptedConfig,
    /// Total number of machines that can exist at a time; `None`: no limit.
    pub stock: Option<u64>,
    /// Time from the launch of a machine until its worker can register.
    pub boot_seconds: u32,
    /// Dollars per hour and machine, where a launch config sets no price.
    pub price: Option<f64>,
    /// Its places, for rules.
    #[serde(deserialize_with = "place::from_settings")]
    pub places: Vec<Place>,
    /// The region of places that have none. Default: the id of the provider.
    pub region: Option<ConfiguredRegion>,
}

/// The form of pool configs that the fake cloud accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptedConfig {
    Aws,
    Azure,
    /// Its own form.
    #[default]
    Fake,
    Google,
}

pub struct FakeCloud {
    context: ProviderContext,
    settings: FakeSettings,
    tokens: Tokens,
    state: Mutex<State>,
    /// Wakes calls that wait for the clock.
    moved: Notify,
}

/// The keys that every kind of launch config may have for this cloud.
struct FakeLaunchKeys {
    group: WorkerGroup,
    price: Option<f64>,
    stock: Option<u64>,
    boot_ms: i64,
    reliability: Option<f64>,
    image: Option<String>,
}

impl AcceptedConfig {
    fn schema(self) -> &'static str {
        match self {
            Self::Aws => "worker-manager/v1/config-aws.json",
            Self::Azure => "worker-manager/v1/config-azure.json",
            Self::Fake => "fleetwright/v1/config-fake.json",
            Self::Google => "worker-manager/v1/config-google.json",
        }
    }

    /// Where its launch configs have the values of a place.
    fn fills(self) -> Fills {
        let of = |pairs: &[(&str, &str)]| {
            let owned = |(name, at): &(&str, &str)| ((*name).to_owned(), (*at).to_owned());
            pairs.iter().map(owned).collect()
        };
        match self {
            Self::Aws => crate::aws::fills(),
            Self::Azure => of(&[("region", "/location")]),
            Self::Fake | Self::Google => of(&[("region", "/region"), ("zone", "/zone")]),
        }
    }
}

impl FakeCloud {
    pub fn new(context: ProviderContext, settings: FakeSettings) -> Self {
        Self {
            tokens: Tokens::new(&context),
            context,
            settings,
            state: Mutex::default(),
            moved: Notify::new(),
        }
    }

    /// The token that a metadata service of this cloud would give to the worker.
    pub fn identity_token(&self, worker: &WorkerKey) -> Secret {
        self.tokens.token(worker)
    }

    fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// The state as of now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inventory.settle(self.now());
        state
    }

    fn keys(&self, config: &LaunchConfig) -> FakeLaunchKeys {
        let configuration = &config.configuration;
        let text = |key: &str| configuration.get(key).and_then(Value::as_str);
        let group = text("region").or_else(|| text("location"));
        let number = |key: &str| configuration.get(key).and_then(Value::as_i64);
        let boot_seconds = number("bootSeconds").unwrap_or(self.settings.boot_seconds.into());
        FakeLaunchKeys {
            group: group
                .and_then(|group| group.parse().ok())
                .unwrap_or_else(default_group),
            price: configuration
                .get("price")
                .and_then(Value::as_f64)
                .or(self.settings.price),
            stock: configuration.get("stock").and_then(Value::as_u64),
            boot_ms: boot_seconds.saturating_mul(SECOND_MS),
            reliability: configuration.get("reliability").and_then(Value::as_f64),
            image: image_of(configuration),
        }
    }

    /// How many more machines there can be; `None`: no limit.
    fn room(&self, state: &State, config: &LaunchConfig, keys: &FakeLaunchKeys) -> Option<u64> {
        let (inventory, id) = (&state.inventory, config.id.as_str());
        let group = keys.group.as_str();
        let of_config = state.stock.get(id).copied().or(keys.stock);
        [
            (self.settings.stock, inventory.live()),
            (of_config, inventory.live_in(id)),
            (state.stock.get(group).copied(), inventory.live_in(group)),
        ]
        .into_iter()
        .filter_map(|(stock, live)| Some(stock?.saturating_sub(live)))
        .min()
    }

    fn make_machine(
        &self,
        state: &mut State,
        order: &LaunchOrder<'_>,
        number: u32,
    ) -> Option<Machine> {
        let keys = self.keys(order.launch_config);
        let kind = bids::ordered_kind(order);
        let n_live = |name: &str| {
            state
                .inventory
                .live_in(&kind_of(&order.launch_config.id, name))
        };
        let left = kind.as_ref().and_then(|kind| kind.left(n_live(&kind.name)));
        if self.room(state, order.launch_config, &keys) == Some(0) || left == Some(0) {
            return None;
        }
        let key = WorkerKey {
            pool_id: order.pool.id.clone(),
            group: keys.group,
            id: launch::offered_id(order.token, number)?,
        };
        let now = self.now();
        let mut machine = Machine::new(key, now);
        machine.token = Some(order.token.clone());
        machine.price = order.price;
        machine.launch_config_id = Some(order.launch_config.id.clone());
        let image = keys.image.as_deref().and_then(|it| state.images.get(it));
        let defect = image.map(|image| image.defect).unwrap_or_default();
        let boot_ms = kind
            .as_ref()
            .and_then(|kind| kind.boot_ms)
            .unwrap_or(keys.boot_ms);
        let boot_ms = boot_ms.saturating_add(defect.slower_boot_ms);
        machine.kind = kind.map(|kind| kind.name);
        machine.up = (!defect.never_registers).then(|| now.plus_millis(boot_ms));
        machine.image = keys.image;
        Some(machine)
    }

    /// Refuses an image of ours that does not exist, or not yet.
    fn check_image(&self, state: &State, order: &LaunchOrder<'_>) -> Result<(), LaunchError> {
        let image = self.keys(order.launch_config).image;
        let Some(id) = image.filter(|id| id.starts_with(images::PREFIX)) else {
            return Ok(());
        };
        let ready = state.images.get(&id).and_then(|image| image.ready);
        if ready.is_some_and(|ready| ready <= self.now()) {
            return Ok(());
        }
        Err(refused(
            Cause::Configuration,
            &format!("image {id} does not exist"),
        ))
    }

    /// Makes the machines that this outcome allows, or fails like the cloud would.
    fn make_machines(
        &self,
        state: &mut State,
        order: &LaunchOrder<'_>,
        outcome: &LaunchOutcome,
    ) -> Result<(), LaunchError> {
        if let Some((cause, words)) = outcome.refusal() {
            return Err(refused(cause, words));
        }
        if *outcome == LaunchOutcome::CallLost {
            return Err(LaunchError::Unknown("the request was lost".to_owned()));
        }
        let mut limit = u32::MAX;
        if let LaunchOutcome::Partial(some) = outcome {
            limit = *some;
        }
        self.check_image(state, order)?;
        if let Some(why) = state.groups.refusal(&order.pool.id, order.pool_data) {
            return Err(refused(Cause::Configuration, &why));
        }
        let mut n_made = 0;
        for number in 0..order.machines.min(limit) {
            let Some(mut machine) = self.make_machine(state, order, number) else {
                break;
            };
            if *outcome == LaunchOutcome::NeverUp {
                machine.up = None;
            }
            if let LaunchOutcome::Dying(after_ms) = outcome {
                let dies = machine.made.plus_millis(*after_ms);
                machine.ends = Some((dies, "it died by itself"));
            }
            state.inventory.add(machine);
            n_made += 1;
        }
        if n_made == 0 {
            return Err(refused(Cause::Capacity, "there is no stock left"));
        }
        Ok(())
    }
}

#[async_trait]
impl Provider for FakeCloud {
    fn kind(&self) -> &'static str {
        "fake"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        let schemas: Schemas = self.context.schemas;
        schemas.validate(self.settings.accepts.schema(), config)
    }

    /// Like a real cloud: a worker registers once, while it is requested.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        Ok(self.tokens.verify(claim)?)
    }

    fn region(&self) -> Option<&ConfiguredRegion> {
        self.settings.region.as_ref()
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        let scripted = self.state().places.clone();
        scripted.unwrap_or_else(|| Ok(self.settings.places.clone()))
    }

    fn fills(&self) -> Fills {
        self.settings.accepts.fills()
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        self.tokens.offered_by(worker, proof)
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        Some(self)
    }

    async fn terminate(&self) -> Result<(), CloudError> {
        self.state().begin(Call::Terminate)
    }

    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        let needed = self.state().groups.are_needed;
        needed.then_some(self as &dyn PoolResourceMaker)
    }
}

#[async_trait]
impl PoolResourceMaker for FakeCloud {
    async fn prepare_pool(&self, pool: &Pool, _data: &Value) -> Result<Value, CloudError> {
        let mut state = self.state();
        state.begin(Call::PreparePool)?;
        state.groups.make(&pool.id)
    }

    async fn release_pool(&self, pool_id: &PoolId, _data: &Value) -> Result<(), CloudError> {
        let mut state = self.state();
        state.begin(Call::ReleasePool)?;
        let n_live = state.inventory.live_of_pool(pool_id);
        state.groups.remove(pool_id, n_live)
    }
}

#[async_trait]
impl Machines for FakeCloud {
    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, _now: Timestamp) -> Bids {
        let (mut state, keys) = (self.state(), self.keys(config));
        if let Some(request) = request {
            state.requests.insert(config.id.to_string(), *request);
        }
        if let Some(refusal) = state.refused_bids.get(config.id.as_str()) {
            return Err(refusal.clone());
        }
        if let Some(scripted) = state.bids.get(config.id.as_str()) {
            return Ok(scripted.clone());
        }
        let scripted = state.prices.get(config.id.as_str()).copied();
        let mut bid = Bid::plain(keys.group.to_string());
        bid.available = self.room(&state, config, &keys);
        bid.price = scripted.or(keys.price);
        bid.reliability = keys.reliability;
        bid.ready_ms = (keys.boot_ms > 0).then_some(keys.boot_ms);
        let Some(kinds) = bids::kinds(config) else {
            return Ok(vec![bid]);
        };
        let n_live = |name: &str| state.inventory.live_in(&kind_of(&config.id, name));
        let of_kind = |kind: &MachineKind| kind.bid(&bid, n_live(&kind.name));
        Ok(kinds.iter().map(of_kind).collect())
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.state().begin(Call::Refresh)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let group = self.keys(order.launch_config).group;
        self.wait_while_hanging(BTreeSet::from([group]), Call::Launch)
            .await;
        let (answer, due) = {
            let mut state = self.state();
            let outcome = state.next_outcome(order);
            (
                self.answer(&mut state, order, &outcome),
                self.now().plus_millis(state.answer_delay_ms),
            )
        };
        self.wait_until(due).await;
        answer
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        self.wait_while_hanging(groups_of(workers), Call::Look)
            .await;
        let mut state = self.state();
        state.begin(Call::Look)?;
        let at = state.as_of(self.now());
        let seen = |worker: &Worker| {
            let known = state.inventory.get(&worker.key.id);
            let known = known.filter(|machine| machine.is_of(worker));
            let sighting = known.map_or(Sighting::NotFound, |machine| machine.seen(at));
            (worker.key.clone(), sighting)
        };
        let answer = workers.iter().take(LOOK_BATCH).map(seen).collect();
        Ok(state.repeat_if_scripted(answer))
    }

    fn look_batch(&self) -> usize {
        self.state().look_batch.unwrap_or(LOOK_BATCH)
    }

    /// Regions with machines, and those whose lists fail.
    fn regions(&self) -> Vec<Region> {
        let state = self.state();
        let at = state.as_of(self.now());
        let exists = |machine: &&Machine| !machine.has_ended(at);
        let machines = state.inventory.all().filter(exists);
        let mut groups: BTreeSet<_> = machines.map(|machine| machine.key.group.clone()).collect();
        groups.extend(state.unlisted.keys().cloned());
        if groups.is_empty() {
            groups.insert(default_group());
        }
        groups.into_iter().map(Region::Group).collect()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        Region::Group(group.clone())
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.page(region, after, Call::Owned, |machine| {
            machine.token.is_some()
        })
        .await
    }

    /// Machines that no launch of ours made count as those of a Taskcluster.
    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.page(region, after, Call::Owned, |machine| {
            machine.token.is_none()
        })
        .await
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        Some(self.keys(launch_config).group)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        self.wait_while_hanging(groups_of(workers), Call::End).await;
        let mut state = self.state();
        if let Err(error) = state.begin(Call::End) {
            return vec![Err(error); workers.len()];
        }
        let ends = workers
            .iter()
            .map(|worker| self.end_one(&mut state, worker));
        ends.collect()
    }

    fn end_batch(&self) -> usize {
        self.state().end_batch.unwrap_or(1)
    }
}

impl FakeCloud {
    fn end_one(&self, state: &mut State, worker: &Worker) -> Result<(), CloudError> {
        if let Some(error) = state.end_failures.get(&worker.key) {
            return Err(error.clone());
        }
        let (now, stop_ms) = (self.now(), state.stop_ms);
        let id = &worker.key.id;
        let ours = state.inventory.get_mut(id);
        let ours = ours.filter(|machine| machine.is_of(worker));
        if let Some(machine) = ours {
            machine.end_asked.get_or_insert(now);
            let ends = now.plus_millis(stop_ms);
            state.inventory.end_at(id, ends, "it was ended");
            state.inventory.settle(now);
        }
        Ok(())
    }

    /// Applies the outcome of a launch call and returns the response.
    fn answer(
        &self,
        state: &mut State,
        order: &LaunchOrder<'_>,
        outcome: &LaunchOutcome,
    ) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let refusal = outcome.refusal();
        if let Some((cause, words)) = refusal.filter(|(cause, _)| is_reported_first(*cause)) {
            return Err(refused(cause, words));
        }
        if state.inventory.made_by(order.token).is_none() {
            self.make_machines(state, order, outcome)?;
        }
        if matches!(outcome, LaunchOutcome::AnswerLost | LaunchOutcome::CallLost) {
            return Err(LaunchError::Unknown("the response was lost".to_owned()));
        }
        let made = state.inventory.made_by(order.token).unwrap_or_default();
        Ok(made.into_iter().map(launched).collect())
    }
}

fn groups_of(workers: &[Worker]) -> BTreeSet<WorkerGroup> {
    let groups = workers.iter().map(|worker| worker.key.group.clone());
    groups.collect()
}

/// The image in a launch config of our form or of a real cloud's.
fn image_of(configuration: &Map<String, Value>) -> Option<String> {
    let own = configuration.get("image");
    let of_aws = || configuration.get("launchConfig")?.get("ImageId");
    own.or_else(of_aws)?.as_str().map(str::to_owned)
}

fn default_group() -> WorkerGroup {
    DEFAULT_GROUP.parse().expect("it is a group")
}

/// Whether the cloud reports this cause before it looks at the order.
fn is_reported_first(cause: Cause) -> bool {
    match cause {
        Cause::Throttled | Cause::Credentials | Cause::Unavailable => true,
        Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => false,
    }
}

fn refused(cause: Cause, error: &str) -> LaunchError {
    LaunchError::Refused {
        cause,
        error: format!("{cause}: {error}"),
    }
}

fn launched(machine: &Machine) -> LaunchedMachine {
    LaunchedMachine {
        group: machine.key.group.clone(),
        id: machine.key.id.clone(),
        made: Some(machine.made),
        provider_data: json!({"made": machine.made.as_millis()}),
    }
}
