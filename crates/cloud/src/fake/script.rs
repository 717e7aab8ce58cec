//! The strings by which tests pull the fake cloud, and the windows through which they look into it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use domain::id::{LaunchConfigId, LaunchToken, WorkerGroup, WorkerKey};
use domain::time::Timestamp;

use super::fate::{Call, Decider, Fate};
use super::inventory::{Inventory, Machine};
use super::{FakeCloud, Sighting};
use crate::{CloudError, LaunchOrder, Place, PlacesUnknown};

/// Calls to launch are counted for so many tokens; then counting starts anew.
const MAX_TOKENS_COUNTED: usize = 100_000;

pub(super) struct State {
    pub(super) inventory: Inventory,
    /// Machines at most, by launch config or region.
    pub(super) stock: HashMap<String, u64>,
    pub(super) prices: HashMap<String, f64>,
    /// Launch configs about which it has nothing to say, and why.
    pub(super) silent: HashMap<String, String>,
    /// What it presents instead of what its settings say.
    pub(super) places: Option<Result<Vec<Place>, PlacesUnknown>>,
    pub(super) answer_delay_ms: i64,
    pub(super) stop_ms: i64,
    fates: VecDeque<Fate>,
    decider: Option<Decider>,
    failures: HashMap<Call, VecDeque<CloudError>>,
    lag_ms: i64,
    repeats_itself: bool,
    /// Groups that it does not list, and why.
    pub(super) unlisted: BTreeMap<WorkerGroup, CloudError>,
    /// Groups that do not answer, and the calls that wait for them.
    hanging: BTreeMap<WorkerGroup, HashMap<Call, u64>>,
    /// Regions that exist even if nothing runs in them.
    pub(super) regions: BTreeSet<WorkerGroup>,
    /// Machines that it does not end, and why.
    pub(super) unendable: BTreeMap<WorkerKey, CloudError>,
    pub(super) look_batch: Option<usize>,
    pub(super) end_batch: Option<usize>,
    /// How many machines a page of a list holds; `None`: all.
    pub(super) page_size: Option<usize>,
    /// Whether lists say how machines are.
    pub(super) lists_sightings: bool,
    calls: HashMap<Call, u64>,
    launch_calls: HashMap<LaunchToken, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            inventory: Inventory::default(),
            stock: HashMap::new(),
            prices: HashMap::new(),
            silent: HashMap::new(),
            places: None,
            answer_delay_ms: 0,
            stop_ms: 0,
            fates: VecDeque::new(),
            decider: None,
            failures: HashMap::new(),
            lag_ms: 0,
            repeats_itself: false,
            unlisted: BTreeMap::new(),
            hanging: BTreeMap::new(),
            regions: BTreeSet::new(),
            unendable: BTreeMap::new(),
            look_batch: None,
            end_batch: None,
            page_size: None,
            lists_sightings: true,
            calls: HashMap::new(),
            launch_calls: HashMap::new(),
        }
    }
}

/// A machine of the fake cloud, as tests see it.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeMachine {
    pub key: WorkerKey,
    /// `None`: somebody else's.
    pub token: Option<LaunchToken>,
    pub launch_config_id: Option<LaunchConfigId>,
    pub made: Timestamp,
    /// Its worker can register.
    pub is_up: bool,
    /// It was told to end.
    pub is_going: bool,
}

impl State {
    /// Counts a call; fails it if that was scripted.
    pub(super) fn begin(&mut self, call: Call) -> Result<(), CloudError> {
        *self.calls.entry(call).or_default() += 1;
        let failure = self.failures.get_mut(&call).and_then(VecDeque::pop_front);
        failure.map_or(Ok(()), Err)
    }

    pub(super) fn next_fate(&mut self, order: &LaunchOrder<'_>) -> Fate {
        *self.calls.entry(Call::Launch).or_default() += 1;
        if self.launch_calls.len() >= MAX_TOKENS_COUNTED {
            self.launch_calls.clear();
        }
        *self.launch_calls.entry(order.token.clone()).or_default() += 1;
        let scripted = self.fates.pop_front();
        scripted
            .or_else(|| self.decider.as_mut().map(|decide| decide(order)))
            .unwrap_or(Fate::Made)
    }

    /// The moment as of which it answers questions.
    pub(super) fn as_of(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(-self.lag_ms)
    }

    /// The answer as it is given: twice over, if that was scripted.
    pub(super) fn told<T: Clone>(&self, mut answer: Vec<T>) -> Vec<T> {
        if self.repeats_itself {
            answer.extend_from_within(..);
        }
        answer
    }
}

/// Scripts.
impl FakeCloud {
    /// The next launches come to this, in order.
    pub fn next_launches(&self, fates: impl IntoIterator<Item = Fate>) {
        self.state().fates.extend(fates);
    }

    /// Decides on the launches that `next_launches` does not speak of. It must not ask the cloud itself.
    pub fn decide_with(&self, decider: impl FnMut(&LaunchOrder<'_>) -> Fate + Send + 'static) {
        self.state().decider = Some(Box::new(decider));
    }

    /// Launches do again what they do without a script.
    pub fn behave(&self) {
        let mut state = self.state();
        state.fates.clear();
        state.failures.clear();
        state.decider = None;
    }

    /// The next call of this kind (other than a launch) fails so.
    pub fn fail_next(&self, call: Call, failure: CloudError) {
        let mut state = self.state();
        state.failures.entry(call).or_default().push_back(failure);
    }

    /// How many machines there can be of a launch config or in a region.
    pub fn set_stock(&self, place: &str, machines: u64) {
        self.state().stock.insert(place.to_owned(), machines);
    }

    /// Dollars per hour and machine of a launch config.
    pub fn set_price(&self, config: &LaunchConfigId, price: f64) {
        self.state().prices.insert(config.to_string(), price);
    }

    /// It bids for this launch config no more, or again.
    pub fn set_silent(&self, config: &LaunchConfigId, why: Option<&str>) {
        let mut state = self.state();
        match why {
            Some(why) => state.silent.insert(config.to_string(), why.to_owned()),
            None => state.silent.remove(config.as_str()),
        };
    }

    /// Workers can be started here from now on, or nobody knows where.
    pub fn set_places(&self, places: Result<Vec<Place>, PlacesUnknown>) {
        self.state().places = Some(places);
    }

    /// What it says about machines is so old: fresh ones are not found yet, and gone ones still alive.
    pub fn set_lag_ms(&self, lag_ms: i64) {
        self.state().lag_ms = lag_ms;
    }

    /// A machine that was told to end takes so long about it.
    pub fn set_stop_ms(&self, stop_ms: i64) {
        self.state().stop_ms = stop_ms;
    }

    /// A launch is answered so late; whoever moves the clock calls `clock_moved`.
    pub fn set_answer_delay_ms(&self, delay_ms: i64) {
        self.state().answer_delay_ms = delay_ms;
    }

    /// It lists everything twice.
    pub fn set_repeats_itself(&self, repeats_itself: bool) {
        self.state().repeats_itself = repeats_itself;
    }

    /// Machines of this group are not listed any more, or are again.
    pub fn set_unlisted(&self, group: &WorkerGroup, why: Option<CloudError>) {
        let mut state = self.state();
        match why {
            Some(why) => state.unlisted.insert(group.clone(), why),
            None => state.unlisted.remove(group),
        };
    }

    /// Calls about this group wait from now on; or they go on.
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

    /// It has these regions, whether or not there is a machine in them.
    pub fn set_regions(&self, groups: impl IntoIterator<Item = WorkerGroup>) {
        self.state().regions = groups.into_iter().collect();
    }

    /// It does not end this machine.
    pub fn set_unendable(&self, worker: &WorkerKey, why: CloudError) {
        self.state().unendable.insert(worker.clone(), why);
    }

    /// How many workers it takes by a call that looks, and by one that ends.
    pub fn set_batches(&self, look: usize, end: usize) {
        let mut state = self.state();
        (state.look_batch, state.end_batch) = (Some(look), Some(end));
    }

    /// It lists this many machines a page.
    pub fn set_page_size(&self, size: usize) {
        self.state().page_size = Some(size);
    }

    /// Its lists say how the machines are, or only that they are.
    pub fn set_lists_sightings(&self, lists: bool) {
        self.state().lists_sightings = lists;
    }

    /// How many calls of this kind have met a group that hangs.
    pub fn n_hanging(&self, group: &WorkerGroup, call: Call) -> u64 {
        let state = self.state();
        let calls = state.hanging.get(group);
        calls
            .and_then(|calls| calls.get(&call).copied())
            .unwrap_or(0)
    }

    /// Waits while one of these groups hangs.
    pub(super) async fn until_it_answers(&self, groups: BTreeSet<WorkerGroup>, call: Call) {
        let mut is_counted = false;
        loop {
            // Made ready before the state is read, so that no change of it is missed.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            {
                let mut state = self.state();
                let hanging = state.hanging.iter_mut();
                let mut hanging = hanging.filter(|(group, _)| groups.contains(*group));
                let Some((_, calls)) = hanging.next() else {
                    return;
                };
                if !std::mem::replace(&mut is_counted, true) {
                    *calls.entry(call).or_default() += 1;
                }
            }
            moved.await;
        }
    }

    /// Answers that have become due are given.
    pub fn clock_moved(&self) {
        self.moved.notify_waiters();
    }

    /// The machine dies.
    pub fn kill(&self, worker: &WorkerKey) {
        let now = self.now();
        let mut state = self.state();
        state.inventory.goes(&worker.id, now, "it died by itself");
        state.inventory.settle(now);
    }

    /// A machine of somebody else, which happens to be there.
    pub fn add_foreign(&self, worker: WorkerKey) {
        let machine = Machine::new(worker, self.now());
        self.state().inventory.add(machine);
    }

    pub(super) async fn wait_until(&self, due: Timestamp) {
        loop {
            // Made ready before the clock is read, so that no move of it is missed.
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.now() >= due {
                return;
            }
            moved.await;
        }
    }
}

/// Windows.
impl FakeCloud {
    /// The machines that are there, whatever the cloud would say about them, in the order of their names.
    pub fn machines(&self) -> Vec<FakeMachine> {
        let (now, state) = (self.now(), self.state());
        let mut machines: Vec<_> = state
            .inventory
            .all()
            .filter_map(|machine| {
                let is_going = match machine.seen(now) {
                    Sighting::Alive => false,
                    Sighting::Going => true,
                    Sighting::Gone(_) | Sighting::NotFound => return None,
                };
                Some(FakeMachine {
                    key: machine.key.clone(),
                    token: machine.token.clone(),
                    launch_config_id: machine.launch_config_id.clone(),
                    made: machine.made,
                    is_up: machine.is_up(now),
                    is_going,
                })
            })
            .collect();
        machines.sort_by(|one, other| one.key.cmp(&other.key));
        machines
    }

    /// How many machines are there, without listing them.
    pub fn n_machines(&self) -> u64 {
        self.state().inventory.live()
    }

    /// Is the machine there, and can its worker register?
    pub fn is_up(&self, worker: &WorkerKey) -> bool {
        let (now, state) = (self.now(), self.state());
        let machine = state.inventory.get(&worker.id);
        machine.is_some_and(|machine| machine.key == *worker && machine.is_up(now))
    }

    /// How often this was called.
    pub fn n_calls(&self, call: Call) -> u64 {
        self.state().calls.get(&call).copied().unwrap_or_default()
    }

    /// How often a launch was called with this token.
    pub fn n_launch_calls(&self, token: &LaunchToken) -> u64 {
        let state = self.state();
        state.launch_calls.get(token).copied().unwrap_or_default()
    }

    /// How many machines a launch made, gone ones included.
    pub fn n_made_by(&self, token: &LaunchToken) -> usize {
        let state = self.state();
        state.inventory.made_by(token).map_or(0, |made| made.len())
    }
}
