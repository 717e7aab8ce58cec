//! Why tasks of a pool wait, as its plan shows it.

use super::health::Condition;
use super::need::exact;
use super::notes::Notes;
use super::spot_bids::Budget;
use super::strategy::usable_offers::UsableOffers;
use super::{Capacity, Offer, PAUSED, Plan, Snapshot, is_out_of_service};
use crate::budgets::{BudgetRoom, micros_of};
use crate::demand::Demand;
use crate::id::{LaunchConfigId, ProviderId};
use crate::launch::Cause;
use crate::market::Trouble;
use crate::time::Timestamp;
use crate::waits::WaitCause;

/// Less than a thousandth of a unit is not missing.
const ROUNDING: f64 = 1e-3;

/// The supply for the tasks that wait, and the cause for which the others wait.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolWait {
    /// Units that are free: their workers only have to ask for work.
    pub idle: u64,
    /// Units of machines that start.
    pub booting: u64,
    /// Units that the clouds were asked for.
    pub asked: u64,
    /// Units that this plan starts.
    pub planned: u64,
    /// Whether tasks wait for more than the plan can start.
    pub is_short: bool,
    /// The cause for tasks beyond the supply.
    pub cause: WaitCause,
    /// If the plan is short: the launch configs that cannot be used.
    pub blocked: Vec<BlockedOffer>,
}

/// A launch config that cannot be used now.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedOffer {
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub cause: WaitCause,
    /// For people.
    pub name: String,
    pub why: String,
    /// When it is tried again, or its pause ends; `None`: that does not depend on the time.
    pub next_try: Option<Timestamp>,
}

impl PoolWait {
    /// The wait in a pool that needs no plan. All its waiting tasks count.
    pub fn of_supply(demand: Demand, capacity: &Capacity, max_capacity: u64) -> Self {
        Self::with_planned(demand, capacity, max_capacity, 0)
    }

    /// The wait in a pool in which a plan starts this many units.
    fn with_planned(demand: Demand, capacity: &Capacity, max_capacity: u64, planned: u64) -> Self {
        let idle = capacity.running.saturating_sub(demand.claimed);
        let supply = idle
            .saturating_add(capacity.coming())
            .saturating_add(planned);
        let is_full = capacity.all().saturating_add(planned) >= max_capacity;
        let is_short = demand.pending > supply && is_full;
        let cause = match (demand.pending > 0, capacity.running > 0) {
            (true, _) if is_short => capacity.full(),
            (true, _) => WaitCause::Busy,
            (false, true) => WaitCause::Claim,
            (false, false) => WaitCause::Deciding,
        };
        Self {
            idle,
            booting: capacity.requested,
            asked: capacity.intended,
            planned,
            is_short,
            cause,
            blocked: Vec::new(),
        }
    }

    /// The cause of the pool, for its timeline: why it lacks workers, or else the cause of the
    /// first task in line.
    pub fn of_pool(&self) -> WaitCause {
        let first = self.cause_for(0);
        if self.is_short {
            self.cause
        } else if first == WaitCause::Deciding && self.planned > 0 {
            WaitCause::Asked
        } else {
            first
        }
    }

    /// The cause for the task with this many tasks ahead of it.
    pub fn cause_for(&self, n_ahead: u64) -> WaitCause {
        let supply = [
            (self.idle, WaitCause::Claim),
            (self.booting, WaitCause::Booting),
            (self.asked, WaitCause::Asked),
            (self.planned, WaitCause::Deciding),
        ];
        let mut left = n_ahead;
        for (units, cause) in supply {
            if units > left {
                return cause;
            }
            left -= units;
        }
        self.cause
    }

    /// When the next launch config is tried again, or its pause ends.
    pub fn next_try(&self) -> Option<Timestamp> {
        self.blocked.iter().filter_map(|offer| offer.next_try).min()
    }
}

impl Capacity {
    /// Why the maximum of the pool leaves no room: workers that do not work may be the reason.
    fn full(&self) -> WaitCause {
        let useless = self.quarantined.saturating_add(self.silent);
        let useful = self.running.saturating_add(self.coming());
        match useless > useful {
            false => WaitCause::Maximum,
            true if self.quarantined >= self.silent => WaitCause::Quarantined,
            true => WaitCause::Silent,
        }
    }
}

impl WaitCause {
    /// With money, a pool with these units would have room, if budgets lowered its maximum from a
    /// higher one.
    pub(crate) fn of_budgets(self, lowered_from: Option<u64>, taken: u64) -> Self {
        let is_lowered = lowered_from.is_some_and(|max| taken < max);
        match self == Self::Maximum && is_lowered {
            true => Self::Budget,
            false => self,
        }
    }
}

impl Snapshot {
    /// The wait of the tasks of this pool. `plan` is the plan of this snapshot, which counts
    /// waiting tasks only as far as plans depend on them; `n_pending` is the number of all.
    pub fn wait(&self, plan: &Plan, n_pending: u64) -> PoolWait {
        let awards = plan.awards.iter();
        let planned = awards
            .map(|award| u64::from(award.machines) * u64::from(award.capacity_each))
            .fold(0, u64::saturating_add);
        let max = self.settings.max_capacity;
        let demand = Demand {
            pending: n_pending.max(self.demand.pending),
            ..self.demand
        };
        let mut wait = PoolWait::with_planned(demand, &self.capacity, max, planned);
        if wait.is_short {
            wait.cause = self.full(planned);
        }
        if plan.change > exact(planned) + ROUNDING {
            wait.is_short = true;
            wait.blocked = self.blocked(plan);
            wait.cause = self.shortage(plan, &wait);
        }
        wait
    }

    /// Why the maximum of the pool leaves no room beside these planned units.
    fn full(&self, planned: u64) -> WaitCause {
        let taken = self.capacity.all().saturating_add(planned);
        self.capacity.full().of_budgets(self.lowered_from, taken)
    }

    /// The money that budgets leave after the launches of the plan.
    fn rooms_after(&self, plan: &Plan) -> Vec<BudgetRoom> {
        let mut rooms = self.budgets.clone();
        for award in &plan.awards {
            let offer = self.offer_of(award);
            let limiting = |room: &&mut BudgetRoom| {
                offer.is_some_and(|(_, offer)| room.limits(&offer.provider_id))
            };
            for room in rooms.iter_mut().filter(limiting) {
                room.take(award.price.map(micros_of), u64::from(award.machines));
            }
        }
        rooms
    }

    fn shortage(&self, plan: &Plan, wait: &PoolWait) -> WaitCause {
        let capacity = &self.capacity;
        let taken = capacity.all().saturating_add(wait.planned);
        if taken >= self.settings.max_capacity {
            return self.full(wait.planned);
        }
        let mut usable = self.offers.iter().filter(|offer| is_normal(offer));
        if !usable.any(|offer| offer.initial_weight > 0.0) {
            return WaitCause::NoLaunchConfig;
        }
        if self.rooms().iter().all(|room| *room == 0) {
            return WaitCause::Maximum;
        }
        let mut causes = wait.blocked.iter().map(|offer| offer.cause);
        let Some(first) = causes.next() else {
            // The strategy takes none of the bids, or one plan starts no more machines.
            return match plan.awards.is_empty() {
                true => WaitCause::Price,
                false => WaitCause::Deciding,
            };
        };
        match causes.all(|cause| cause == first) {
            true => first,
            false => WaitCause::Refused,
        }
    }

    /// The launch configs that give no further machine, if no other does.
    fn blocked(&self, plan: &Plan) -> Vec<BlockedOffer> {
        let mut notes = Notes::default();
        let mut budget = Budget::of(self, plan.change);
        // The maximum of the pool is no fault of a launch config.
        budget.units = u64::MAX;
        let offers = UsableOffers::open(self, budget, &mut notes);
        let mut blocked = Vec::new();
        for (index, skip) in &offers.skipped {
            let offer = &self.offers[*index];
            if !is_normal(offer) || offer.initial_weight <= 0.0 {
                continue;
            }
            let cause = match skip.is_left {
                true => WaitCause::Quota,
                false => self.cause_of(offer),
            };
            let next_try = skip.usability.next_try();
            let next_try = next_try.or_else(|| pause_end(&skip.why));
            blocked.push((*index, cause, skip.why.clone(), next_try));
        }
        let rooms = self.rooms_after(plan);
        for usable in &offers.usable {
            let bid = usable.offer.bid.as_ref();
            let price = bid.ok().and_then(|bid| bid.price).map(micros_of);
            let provider_id = &usable.offer.provider_id;
            let mut refusals = rooms.iter();
            let refusal_of_money = refusals.find_map(|room| room.refusal(provider_id, price));
            let mut awards = plan.awards.iter();
            let own = awards.find(|award| usable.offer.is_awarded(award));
            let taken = own.map_or(0, |award| u64::from(award.machines));
            if let Some(why) = refusal_of_money {
                blocked.push((usable.index, WaitCause::Budget, why, None));
            } else if usable.weight.is_none() {
                let why = usable.offer.failures_text().unwrap_or_default();
                blocked.push((usable.index, refusal(usable.offer), why, None));
            } else if taken >= usable.left {
                let why = "no further machine is available now".to_owned();
                blocked.push((usable.index, WaitCause::Refused, why, None));
            } else {
                return Vec::new();
            }
        }
        blocked.sort_by_key(|(index, ..)| *index);
        let blocked = blocked.into_iter();
        blocked
            .map(|(index, cause, why, next_try)| {
                let offer = &self.offers[index];
                BlockedOffer {
                    launch_config_id: offer.launch_config_id.clone(),
                    provider_id: offer.provider_id.clone(),
                    cause,
                    name: self.name_of(offer),
                    why,
                    next_try,
                }
            })
            .collect()
    }

    /// Why an offer that is skipped gives no machine.
    fn cause_of(&self, offer: &Offer) -> WaitCause {
        let bid = match &offer.bid {
            Err(why) if why.starts_with(PAUSED) => return WaitCause::Paused,
            Err(why) if is_out_of_service(why) => return WaitCause::OutOfService,
            Err(why) if self.budgets.iter().any(|room| room.has_said(why)) => {
                return WaitCause::Budget;
            }
            Err(_) => return WaitCause::Refused,
            Ok(bid) => bid,
        };
        if bid.check(self.now).is_err() || bid.available == Some(0) {
            return WaitCause::Refused;
        }
        let max = offer.max_capacity.unwrap_or(self.settings.max_capacity);
        let left = max.saturating_sub(offer.live);
        let mut sources = self.sources.iter();
        let source = sources.find(|source| source.provider_id == offer.provider_id);
        if left < u64::from(offer.capacity_each.max(1))
            || source.is_some_and(|source| source.room == Some(0))
        {
            return WaitCause::Maximum;
        }
        let strategy = self.settings.own_strategy();
        match strategy.condition(&self.settings, offer, self.now) {
            Condition::Usable(_) | Condition::Due => WaitCause::Price,
            Condition::Awaited | Condition::OnTrial { .. } => WaitCause::Booting,
            Condition::ShutOff {
                trouble: Trouble::Quota,
                ..
            } => WaitCause::Quota,
            Condition::Resting { .. } | Condition::ShutOff { .. } => refusal(offer),
        }
    }
}

/// Not a canary, which only gets a share of another launch config.
fn is_normal(offer: &Offer) -> bool {
    offer.canary.is_none()
}

fn refusal(offer: &Offer) -> WaitCause {
    let cause = offer.tries.refusals.map(|refusals| refusals.cause);
    match cause {
        Some(Cause::Quota) => WaitCause::Quota,
        Some(
            Cause::Capacity
            | Cause::Configuration
            | Cause::Throttled
            | Cause::Credentials
            | Cause::Unavailable
            | Cause::Lost,
        )
        | None => WaitCause::Refused,
    }
}

/// The end of a pause, from the text with which it refuses: `paused until … by …`.
fn pause_end(why: &str) -> Option<Timestamp> {
    let rest = why.strip_prefix(PAUSED)?.strip_prefix("until ")?;
    rest.split(' ').next()?.parse().ok()
}
