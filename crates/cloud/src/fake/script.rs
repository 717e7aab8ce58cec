//! Methods of the fake cloud for tests: scripts that set its behaviour, and queries of its state.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::plan::{Bid, BidRequest};
use domain::time::Timestamp;

use super::images::Images;
use super::inventory::{Inventory, Machine};
use super::outcome::{Call, Decider, LaunchOutcome};
use super::pools::Groups;
use super::{FakeCloud, Sighting};
use crate::{CloudError, LaunchOrder, Place, PlacesUnknown};

/// Launch calls are counted for this many tokens; then the counts are cleared.
const MAX_TOKENS_COUNTED: usize = 100_000;

#[derive(Default)]
pub(super) struct State {
    pub(super) inventory: Inventory,
    pub(super) images: Images,
    pub(super) groups: Groups,
    /// Machine limits, by launch config or region.
    pub(super) stock: HashMap<String, u64>,
    pub(super) prices: HashMap<String, f64>,
    /// Complete bids, by launch config.
    pub(super) bids: HashMap<String, Vec<Bid>>,
    /// The last need for which bids were asked, by launch config.
    pub(super) requests: HashMap<String, BidRequest>,
    /// Launch configs for which it refuses to bid, and why.
    pub(super) refused_bids: HashMap<String, String>,
    /// Its places, instead of those in its settings.
    pub(super) places: Option<Result<Vec<Place>, PlacesUnknown>>,
    pub(super) answer_delay_ms: i64,
    pub(super) stop_ms: i64,
    outcomes: VecDeque<LaunchOutcome>,
    decider: Option<Decider>,
    failures: HashMap<Call, VecDeque<CloudError>>,
    lag_ms: i64,
    lists_twice: bool,
    /// Groups whose lists fail, and how.
    pub(super) unlisted: BTreeMap<WorkerGroup, CloudError>,
    /// Groups that do not respond, and the calls that wait for them.
    hanging: BTreeMap<WorkerGroup, HashMap<Call, u64>>,
    /// Machines that it fails to end, and how.
    pub(super) end_failures: BTreeMap<WorkerKey, CloudError>,
    pub(super) look_batch: Option<usize>,
    pub(super) end_batch: Option<usize>,
    /// Machines on a page of a list; `None`: all.
    pub(super) page_size: Option<usize>,
    /// Whether lists lack sightings.
    pub(super) omits_sightings: bool,
    calls: HashMap<Call, u64>,
    launch_calls: HashMap<LaunchToken, u64>,
}

/// A machine of the fake cloud, as tests see it.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeMachine {
    pub key: WorkerKey,
    /// `None`: a machine that no launch of ours made.
    pub token: Option<LaunchToken>,
    pub launch_config_id: Option<LaunchConfigId>,
    /// The image that it boots, if its launch config names one.
    pub image: Option<String>,
    pub made: Timestamp,
    /// Whether its worker can register.
    pub is_up: bool,
    /// Whether it was asked to end.
    pub is_going: bool,
}

impl State {
    /// Counts a call, and fails it if that was scripted.
    pub(super) fn begin(&mut self, call: Call) -> Result<(), CloudError> {
        *self.calls.entry(call).or_default() += 1;
        let failure = self.failures.get_mut(&call).and_then(VecDeque::pop_front);
        failure.map_or(Ok(()), Err)
    }

    pub(super) fn next_outcome(&mut self, order: &LaunchOrder<'_>) -> LaunchOutcome {
        *self.calls.entry(Call::Launch).or_default() += 1;
        if self.launch_calls.len() >= MAX_TOKENS_COUNTED {
            self.launch_calls.clear();
        }
        *self.launch_calls.entry(order.token.clone()).or_default() += 1;
        let scripted = self.outcomes.pop_front();
        scripted
            .or_else(|| self.decider.as_mut().map(|decide| decide(order)))
            .unwrap_or(LaunchOutcome::Made)
    }

    /// The moment as of which it answers queries.
    pub(super) fn as_of(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(-self.lag_ms)
    }

    /// Duplicates the entries of an answer if that was scripted.
    pub(super) fn repeat_if_scripted<T: Clone>(&self, mut answer: Vec<T>) -> Vec<T> {
        if self.lists_twice {
            answer.extend_from_within(..);
        }
        answer
    }
}

/// Scripts.
impl FakeCloud {
    /// From now on, machines need a group of their pool.
    pub fn need_groups(&self) {
        self.state().groups.are_needed = true;
    }

    /// The pools with a group.
    pub fn groups(&self) -> Vec<PoolId> {
        self.state().groups.made.keys().cloned().collect()
    }

    /// Loses the next answer about a group.
    pub fn lose_group_answer(&self) {
        self.state().groups.loses_answer = true;
    }

    /// Sets the outcomes of the next launches, in order.
    pub fn next_launches(&self, outcomes: impl IntoIterator<Item = LaunchOutcome>) {
        self.state().outcomes.extend(outcomes);
    }

    /// Decides the launches for which `next_launches` set no outcome. The decider must not call the
    /// cloud itself.
    pub fn decide_with(
        &self,
        decider: impl FnMut(&LaunchOrder<'_>) -> LaunchOutcome + Send + 'static,
    ) {
        self.state().decider = Some(Box::new(decider));
    }

    /// Refuses the launches of one launch config; makes all others.
    pub fn refuse_launches_of(&self, launch_config_id: &'static str, cause: Cause) {
        self.decide_with(move |order| match order.launch_config.id.as_str() {
            id if id == launch_config_id => LaunchOutcome::Refused(cause),
            _ => LaunchOutcome::Made,
        });
    }

    /// Clears scripted outcomes and failures.
    pub fn behave(&self) {
        let mut state = self.state();
        state.outcomes.clear();
        state.failures.clear();
        state.decider = None;
        state.images.behave();
    }

    /// Fails the next call of this kind (other than a launch).
    pub fn fail_next(&self, call: Call, failure: CloudError) {
        let mut state = self.state();
        state.failures.entry(call).or_default().push_back(failure);
    }

    /// Sets the machine limit of a launch config or region.
    pub fn set_stock(&self, place: &str, machines: u64) {
        self.state().stock.insert(place.to_owned(), machines);
    }

    /// Sets the price of a launch config, in dollars per hour and machine.
    pub fn set_price(&self, config: &LaunchConfigId, price: f64) {
        self.state().prices.insert(config.to_string(), price);
    }

    /// Bids exactly this for a launch config, also if it is nonsense; `None`: as usual again.
    pub fn set_bid(&self, config: &LaunchConfigId, bid: Option<Bid>) {
        self.set_bids(config, bid.map(|bid| vec![bid]));
    }

    /// The same with several bids.
    pub fn set_bids(&self, config: &LaunchConfigId, bids: Option<Vec<Bid>>) {
        let mut state = self.state();
        match bids {
            Some(bids) => state.bids.insert(config.to_string(), bids),
            None => state.bids.remove(config.as_str()),
        };
    }

    /// The last need for which it was asked for bids.
    pub fn last_request(&self, config: &LaunchConfigId) -> Option<BidRequest> {
        self.state().requests.get(config.as_str()).copied()
    }

    /// Refuses to bid for a launch config, or stops refusing.
    pub fn set_silent(&self, config: &LaunchConfigId, why: Option<&str>) {
        let mut state = self.state();
        match why {
            Some(why) => state
                .refused_bids
                .insert(config.to_string(), why.to_owned()),
            None => state.refused_bids.remove(config.as_str()),
        };
    }

    /// Sets its places, or makes them unknown.
    pub fn set_places(&self, places: Result<Vec<Place>, PlacesUnknown>) {
        self.state().places = Some(places);
    }

    /// Sets the age of its answers about machines: new ones are not found yet, and ended ones are
    /// still alive.
    pub fn set_lag_ms(&self, lag_ms: i64) {
        self.state().lag_ms = lag_ms;
    }

    /// Sets how long a machine takes to end.
    pub fn set_stop_ms(&self, stop_ms: i64) {
        self.state().stop_ms = stop_ms;
    }

    /// Sets how late a launch is answered. Tests that move the clock call `clock_moved`.
    pub fn set_answer_delay_ms(&self, delay_ms: i64) {
        self.state().answer_delay_ms = delay_ms;
    }

    /// Makes it list everything twice.
    pub fn set_repeats_itself(&self, lists_twice: bool) {
        self.state().lists_twice = lists_twice;
    }

    /// Makes lists of this group fail, or work again.
    pub fn set_unlisted(&self, group: &WorkerGroup, why: Option<CloudError>) {
        let mut state = self.state();
        match why {
            Some(why) => state.unlisted.insert(group.clone(), why),
            None => state.unlisted.remove(group),
        };
    }

    /// Makes calls about this group wait, or releases them.
    pub fn set_hanging(&self, group: &WorkerGroup, hangs: bool) {
        let mut state = self.state();
        if hangs {
            state.hanging.entry(group.clone()).or_default();
        } else {
            state.hanging.remove(group);
        }
        drop(state);
        self.moved.notify_waiters();
    }

    /// Makes it fail to end this machine.
    pub fn set_unendable(&self, worker: &WorkerKey, why: CloudError) {
        self.state().end_failures.insert(worker.clone(), why);
    }

    /// Sets how many workers `look` and `end_many` take at a time.
    pub fn set_batches(&self, look: usize, end: usize) {
        let mut state = self.state();
        (state.look_batch, state.end_batch) = (Some(look), Some(end));
    }

    /// Sets the number of machines on a page of a list.
    pub fn set_page_size(&self, size: usize) {
        self.state().page_size = Some(size);
    }

    /// Sets whether its lists contain sightings.
    pub fn set_lists_sightings(&self, lists: bool) {
        self.state().omits_sightings = !lists;
    }

    /// How many calls of this kind have waited for a hanging group.
    pub fn n_hanging(&self, group: &WorkerGroup, call: Call) -> u64 {
        let state = self.state();
        let calls = state.hanging.get(group);
        calls
            .and_then(|calls| calls.get(&call).copied())
            .unwrap_or(0)
    }

    /// Waits while one of these groups hangs.
    pub(super) async fn wait_while_hanging(&self, groups: BTreeSet<WorkerGroup>, call: Call) {
        let mut is_counted = false;
        let is_over = || {
            let mut state = self.state();
            let hanging = state.hanging.iter_mut();
            let mut hanging = hanging.filter(|(group, _)| groups.contains(*group));
            let Some((_, calls)) = hanging.next() else {
                return true;
            };
            if !std::mem::replace(&mut is_counted, true) {
                *calls.entry(call).or_default() += 1;
            }
            false
        };
        self.wait_for(is_over).await;
    }

    /// Wakes calls whose answer may be due now.
    pub fn clock_moved(&self) {
        self.moved.notify_waiters();
    }

    /// Ends the machine as if it died.
    pub fn kill(&self, worker: &WorkerKey) {
        let now = self.now();
        let mut state = self.state();
        state.inventory.end_at(&worker.id, now, "it died by itself");
        state.inventory.settle(now);
    }

    /// Adds a machine that no launch of ours made.
    pub fn add_foreign(&self, worker: WorkerKey) {
        let machine = Machine::new(worker, self.now());
        self.state().inventory.add(machine);
    }

    pub(super) async fn wait_until(&self, due: Timestamp) {
        self.wait_for(|| self.now() >= due).await;
    }

    async fn wait_for(&self, mut is_over: impl FnMut() -> bool) {
        loop {
            // Registered before the state and the clock are read, so that no change is missed.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if is_over() {
                return;
            }
            moved.await;
        }
    }
}

/// Queries.
impl FakeCloud {
    /// The existing machines, ordered by name, whatever the cloud would report.
    pub fn machines(&self) -> Vec<FakeMachine> {
        let (now, state) = (self.now(), self.state());
        let mut machines: Vec<_> = state
            .inventory
            .all()
            .filter_map(|machine| {
                let is_going = match machine.seen(now) {
                    Sighting::Alive => false,
                    Sighting::Ending => true,
                    Sighting::Ended(_) | Sighting::NotFound => return None,
                };
                Some(FakeMachine {
                    key: machine.key.clone(),
                    token: machine.token.clone(),
                    launch_config_id: machine.launch_config_id.clone(),
                    image: machine.image.clone(),
                    made: machine.made,
                    is_up: machine.is_up(now),
                    is_going,
                })
            })
            .collect();
        machines.sort_by(|one, other| one.key.cmp(&other.key));
        machines
    }

    /// The number of existing machines.
    pub fn n_machines(&self) -> u64 {
        self.state().inventory.live()
    }

    /// Whether the machine exists and its worker can register.
    pub fn is_up(&self, worker: &WorkerKey) -> bool {
        let (now, state) = (self.now(), self.state());
        let machine = state.inventory.get(&worker.id);
        machine.is_some_and(|machine| machine.key == *worker && machine.is_up(now))
    }

    /// How often this call was made.
    pub fn n_calls(&self, call: Call) -> u64 {
        self.state().calls.get(&call).copied().unwrap_or_default()
    }

    /// How often a launch was called with this token.
    pub fn n_launch_calls(&self, token: &LaunchToken) -> u64 {
        let state = self.state();
        state.launch_calls.get(token).copied().unwrap_or_default()
    }

    /// How many machines a launch made, including ended ones.
    pub fn n_made_by(&self, token: &LaunchToken) -> usize {
        let state = self.state();
        state.inventory.made_by(token).map_or(0, |made| made.len())
    }
}
