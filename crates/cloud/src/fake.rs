//! A cloud in memory.
//!
//! It takes pool configs of its own, or those of a real cloud so that a copy of a real fleet can be tried here, and
//! proves its workers with tokens that it signs itself. Time is the given clock, so nothing here waits by itself. Tests
//! script it: see [`Fate`] for what a launch can come to, and the methods of [`FakeCloud`] for the rest.

mod fate;
mod inventory;
mod script;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use access::Secret;
use async_trait::async_trait;
use contract::{Invalid, Schemas};
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::{self, Cause};
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::Worker;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

pub use self::fate::{Call, Decider, Fate};
use self::inventory::Machine;
pub use self::script::FakeMachine;
use self::script::State;
use crate::identity::Tokens;
use crate::place::{self, Fills, Place, PlacesUnknown};
use crate::{
    BidRequest, CloudError, IdentityClaim, LaunchError, LaunchOrder, Launched, Machines,
    NotVerified, Owned, OwnedPage, Proof, Provider, ProviderContext, Region, Sighting, Verified,
};

/// How many workers `look` takes at a time.
const LOOK_BATCH: usize = 1_000;
/// Where machines are whose launch config does not say.
const NOWHERE: &str = "fake";

/// How the cloud is while nobody scripts it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FakeSettings {
    /// Whose pool configs it takes.
    pub accepts: AcceptedConfig,
    /// How many machines there can be at a time, in all; nothing: as many as anybody likes.
    pub stock: Option<u64>,
    /// How long a machine takes to come up.
    pub boot_seconds: u32,
    /// Dollars per hour and machine, where a launch config does not say.
    pub price: Option<f64>,
    /// Where workers can be started, for rules to ask about.
    #[serde(deserialize_with = "place::from_settings")]
    pub places: Vec<Place>,
}

/// A cloud whose pool configs the fake one takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptedConfig {
    Aws,
    Azure,
    /// Its own.
    #[default]
    Fake,
    Google,
}

pub struct FakeCloud {
    context: ProviderContext,
    settings: FakeSettings,
    tokens: Tokens,
    state: Mutex<State>,
    /// The clock may have moved.
    moved: Notify,
}

/// The keys that all kinds of launch configs may have here.
struct Wishes {
    group: WorkerGroup,
    price: Option<f64>,
    stock: Option<u64>,
    boot_ms: i64,
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

    /// Where its launch configs have room for what places usually say.
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

    /// What the metadata service of this cloud would give the worker to prove itself with.
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

    fn wishes(&self, config: &LaunchConfig) -> Wishes {
        let configuration = &config.configuration;
        let text = |key: &str| configuration.get(key).and_then(Value::as_str);
        let group = text("region").or_else(|| text("location"));
        let number = |key: &str| configuration.get(key).and_then(Value::as_i64);
        let boot_seconds = number("bootSeconds").unwrap_or(self.settings.boot_seconds.into());
        Wishes {
            group: group
                .and_then(|group| group.parse().ok())
                .unwrap_or_else(nowhere),
            price: configuration
                .get("price")
                .and_then(Value::as_f64)
                .or(self.settings.price),
            stock: configuration.get("stock").and_then(Value::as_u64),
            boot_ms: boot_seconds.saturating_mul(SECOND_MS),
        }
    }

    /// How many more machines there can be; `None`: as many as anybody likes.
    fn room(&self, state: &State, config: &LaunchConfig, wishes: &Wishes) -> Option<u64> {
        let (inventory, id) = (&state.inventory, config.id.as_str());
        let group = wishes.group.as_str();
        let of_config = state.stock.get(id).copied().or(wishes.stock);
        [
            (self.settings.stock, inventory.live()),
            (of_config, inventory.live_in(id)),
            (state.stock.get(group).copied(), inventory.live_in(group)),
        ]
        .into_iter()
        .filter_map(|(stock, live)| Some(stock?.saturating_sub(live)))
        .min()
    }

    fn make(&self, state: &mut State, order: &LaunchOrder<'_>, number: u32) -> Option<Machine> {
        let wishes = self.wishes(order.launch_config);
        if self.room(state, order.launch_config, &wishes) == Some(0) {
            return None;
        }
        let key = WorkerKey {
            pool_id: order.pool.id.clone(),
            group: wishes.group,
            id: launch::offered_id(order.token, number)?,
        };
        let now = self.now();
        let mut machine = Machine::new(key, now);
        machine.token = Some(order.token.clone());
        machine.launch_config_id = Some(order.launch_config.id.clone());
        machine.up = Some(now.plus_millis(wishes.boot_ms));
        Some(machine)
    }

    /// Makes what the fate of the call allows. `Err` is what the cloud says instead.
    fn fulfil(
        &self,
        state: &mut State,
        order: &LaunchOrder<'_>,
        fate: &Fate,
    ) -> Result<(), LaunchError> {
        let limit = match fate {
            Fate::Partial(limit) => *limit,
            Fate::Refused(cause) => return Err(refused(*cause, "the script says so")),
            Fate::CallLost => return Err(LaunchError::Unknown("the call was lost".to_owned())),
            Fate::Made | Fate::AnswerLost | Fate::NeverUp | Fate::Dying(_) => u32::MAX,
        };
        let mut n_made = 0;
        for number in 0..order.machines.min(limit) {
            let Some(mut machine) = self.make(state, order, number) else {
                break;
            };
            if *fate == Fate::NeverUp {
                machine.up = None;
            }
            if let Fate::Dying(after_ms) = fate {
                let dies = machine.made.plus_millis(*after_ms);
                machine.gone = Some((dies, "it died by itself"));
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

    /// As on a real cloud: a worker registers once, while it is still only requested.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
        Ok(self.tokens.verify(claim)?)
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
}

#[async_trait]
impl Machines for FakeCloud {
    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        let state = self.state();
        let bid = |config: &LaunchConfig| {
            let wishes = self.wishes(config);
            if let Some(silence) = state.silent.get(config.id.as_str()) {
                return Err(silence.clone());
            }
            let scripted = state.prices.get(config.id.as_str()).copied();
            let mut bid = Bid::plain(wishes.group.to_string());
            bid.available = self.room(&state, config, &wishes);
            bid.price = scripted.or(wishes.price);
            Ok(bid)
        };
        ask.configs().map(bid).collect()
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.state().begin(Call::Refresh)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        let group = self.wishes(order.launch_config).group;
        self.until_it_answers(BTreeSet::from([group]), Call::Launch)
            .await;
        let (answer, due) = {
            let mut state = self.state();
            let fate = state.next_fate(order);
            (
                self.answer(&mut state, order, &fate),
                self.now().plus_millis(state.answer_delay_ms),
            )
        };
        self.wait_until(due).await;
        answer
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        self.until_it_answers(groups_of(workers), Call::Look).await;
        let mut state = self.state();
        state.begin(Call::Look)?;
        let at = state.as_of(self.now());
        let seen = |worker: &Worker| {
            let known = state.inventory.get(&worker.key.id);
            let known =
                known.filter(|machine| machine.key == worker.key && machine.token.is_some());
            let sighting = known.map_or(Sighting::NotFound, |machine| machine.seen(at));
            (worker.key.clone(), sighting)
        };
        let answer = workers.iter().take(LOOK_BATCH).map(seen).collect();
        Ok(state.told(answer))
    }

    fn look_batch(&self) -> usize {
        self.state().look_batch.unwrap_or(LOOK_BATCH)
    }

    /// Where there is something, and where somebody said so.
    fn regions(&self) -> Vec<Region> {
        let state = self.state();
        let at = state.as_of(self.now());
        let is_there = |machine: &&Machine| !machine.is_gone(at);
        let machines = state.inventory.all().filter(is_there);
        let mut groups: BTreeSet<_> = machines.map(|machine| machine.key.group.clone()).collect();
        groups.extend(state.unlisted.keys().cloned());
        groups.extend(state.regions.iter().cloned());
        if groups.is_empty() {
            groups.insert(nowhere());
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
        let Region::Group(group) = region else {
            return Ok(OwnedPage::default());
        };
        self.until_it_answers(BTreeSet::from([group.clone()]), Call::Owned)
            .await;
        let mut state = self.state();
        state.begin(Call::Owned)?;
        if let Some(problem) = state.unlisted.get(group) {
            return Err(problem.clone());
        }
        let at = state.as_of(self.now());
        let owned = |machine: &Machine| {
            let sighting = machine.seen(at);
            let is_there = matches!(sighting, Sighting::Alive | Sighting::Going);
            let is_asked_for = machine.key.group == *group && machine.token.is_some();
            (is_there && is_asked_for).then(|| Owned {
                token: machine.token.clone(),
                pool_id: Some(machine.key.pool_id.clone()),
                machine: launched(machine),
                sighting: state.lists_sightings.then_some(sighting),
            })
        };
        let answer = state.inventory.all().filter_map(owned).collect();
        let mut answer = state.told(answer);
        let Some(size) = state.page_size else {
            return Ok(OwnedPage::only(answer));
        };
        answer.sort_by(|one: &Owned, other| one.machine.id.cmp(&other.machine.id));
        let begin = after.and_then(|after| after.parse().ok()).unwrap_or(0);
        let end = begin + size;
        Ok(OwnedPage {
            next: (answer.len() > end).then(|| end.to_string()),
            machines: answer.into_iter().skip(begin).take(size).collect(),
        })
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        Some(self.wishes(launch_config).group)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        self.until_it_answers(groups_of(workers), Call::End).await;
        let mut state = self.state();
        if let Err(problem) = state.begin(Call::End) {
            return vec![Err(problem); workers.len()];
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
        if let Some(problem) = state.unendable.get(&worker.key) {
            return Err(problem.clone());
        }
        let (now, stop_ms) = (self.now(), state.stop_ms);
        let id = &worker.key.id;
        let ours = state
            .inventory
            .get_mut(id)
            .filter(|machine| machine.key == worker.key && machine.token.is_some());
        if let Some(machine) = ours {
            machine.end_asked.get_or_insert(now);
            let gone = now.plus_millis(stop_ms);
            state.inventory.goes(id, gone, "it was ended");
            state.inventory.settle(now);
        }
        Ok(())
    }
}

impl FakeCloud {
    /// What the cloud does about the order, and what it says.
    fn answer(
        &self,
        state: &mut State,
        order: &LaunchOrder<'_>,
        fate: &Fate,
    ) -> Result<Vec<Launched>, LaunchError> {
        if let Fate::Refused(cause) = fate
            && is_said_at_the_door(*cause)
        {
            return Err(refused(*cause, "the script says so"));
        }
        if state.inventory.made_by(order.token).is_none() {
            self.fulfil(state, order, fate)?;
        }
        if matches!(fate, Fate::AnswerLost | Fate::CallLost) {
            return Err(LaunchError::Unknown("the answer was lost".to_owned()));
        }
        let made = state.inventory.made_by(order.token).unwrap_or_default();
        Ok(made.into_iter().map(launched).collect())
    }
}

fn groups_of(workers: &[Worker]) -> BTreeSet<WorkerGroup> {
    let groups = workers.iter().map(|worker| worker.key.group.clone());
    groups.collect()
}

fn nowhere() -> WorkerGroup {
    NOWHERE.parse().expect("it is a group")
}

/// Says the cloud this before it looks at what it is asked for?
fn is_said_at_the_door(cause: Cause) -> bool {
    match cause {
        Cause::Throttled | Cause::Credentials | Cause::Unavailable => true,
        Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => false,
    }
}

fn refused(cause: Cause, problem: &str) -> LaunchError {
    LaunchError::Refused {
        cause,
        problem: format!("{cause}: {problem}"),
    }
}

fn launched(machine: &Machine) -> Launched {
    Launched {
        group: machine.key.group.clone(),
        id: machine.key.id.clone(),
        provider_data: Value::Object(Map::from_iter([(
            "made".to_owned(),
            json!(machine.made.as_millis()),
        )])),
    }
}
