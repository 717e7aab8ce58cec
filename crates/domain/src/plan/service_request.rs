//! The view of a pool that its strategy service gets (`strategy-request.json`).

use serde_json::{Map, Value, json};

use super::notes::Notes;
use super::spot_bids::Budget;
use super::strategy::balanced::Trials;
use super::strategy::usable_offers::UsableOffers;
use super::{Bid, Candidate, Offer, Settings, Snapshot};
use crate::time::SECOND_MS;

/// A request lists at most this many idle workers: those that have been idle longest.
pub const MAX_LISTED_WORKERS: usize = 2_000;

impl Snapshot {
    /// The request about this pool; the caller adds the version and the addressee.
    pub fn service_request(&self, seed: u64) -> Value {
        let settings = &self.settings;
        let (workers, n_omitted) = self.listed_workers();
        let room = settings.max_capacity.saturating_sub(self.capacity.all());
        let mut request = json!({
            "workerPoolId": self.pool_id.as_str(),
            "now": self.now.to_string(),
            "seed": seed.to_string(),
            "settings": settings_json(settings),
            "demand": {
                "pending": self.demand.pending,
                "claimed": self.demand.claimed,
                "pendingIsLowerBound": self.demand.pending >= settings.most_pending(),
            },
            "capacity": self.capacity,
            "room": room,
            "providers": self.sources.iter().map(|source| {
                let mut provider = json!({"providerId": source.provider_id.as_str()});
                if let Some(room) = source.room {
                    provider["room"] = json!(room);
                }
                provider
            }).collect::<Vec<_>>(),
            "offers": self.offers_json(),
            "workers": workers,
            "workersOmitted": n_omitted,
            "rivals": self.rivals,
            "notes": self.overrides,
        });
        if let Some(learned) = self.learned_json() {
            request["learned"] = learned;
        }
        request
    }

    fn offers_json(&self) -> Vec<Value> {
        let mut notes = Notes::default();
        let mut offers = UsableOffers::open(self, Budget::one_machine(self), &mut notes);
        let rooms = offers.budget.rooms.clone();
        Trials::limit(&mut offers);
        let mut states = vec![(0, None); self.offers.len()];
        for usable in &offers.usable {
            let room = rooms.get(usable.source).copied().unwrap_or(u64::MAX);
            let left = usable.left.min(room).min(super::MAX_MACHINES);
            let most = if usable.weight.is_some() {
                left
            } else {
                left.min(1)
            };
            states[usable.index] = (most, None);
        }
        for (index, skip) in &offers.skipped {
            states[*index] = (0, Some(skip.why.clone()));
        }
        let rows = self.offers.iter().zip(states);
        rows.map(|(offer, (most, why))| self.offer_json(offer, most, why))
            .collect()
    }

    fn offer_json(&self, offer: &Offer, most: u64, why: Option<String>) -> Value {
        let mut row = json!({
            "launchConfigId": offer.launch_config_id.as_str(),
            "providerId": offer.provider_id.as_str(),
            "capacityPerInstance": offer.capacity_each,
            "initialWeight": offer.initial_weight,
            "live": offer.live,
            "held": offer.held,
            "starting": offer.starting,
            "health": offer.health,
            "maxMachines": most,
        });
        let fields = [
            ("maxCapacity", offer.max_capacity.map(Value::from)),
            ("skipped", why.map(Value::from)),
            (
                "bidNumber",
                (offer.bid_number > 0).then(|| offer.bid_number.into()),
            ),
            ("bid", offer.bid.as_ref().ok().map(bid_json)),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                row[key] = value;
            }
        }
        row
    }

    /// The idle workers, and how many were left out.
    fn listed_workers(&self) -> (Vec<Value>, usize) {
        let idle = self.workers.iter().filter(|worker| !worker.is_busy());
        let mut idle: Vec<&Candidate> = idle.collect();
        idle.sort_by_key(|worker| (worker.idle_since, &worker.key));
        let n_omitted = idle.len().saturating_sub(MAX_LISTED_WORKERS);
        idle.truncate(MAX_LISTED_WORKERS);
        let listed = idle.iter().map(|worker| self.worker_json(worker));
        (listed.collect(), n_omitted)
    }

    fn worker_json(&self, worker: &Candidate) -> Value {
        let idle_ms = self.now.millis_since(worker.idle_since);
        let is_well = worker.quarantined_since.is_none() && !worker.silent;
        let mut row = json!({
            "workerGroup": worker.key.group.as_str(),
            "workerId": worker.key.id.as_str(),
            "capacity": worker.capacity,
            "created": worker.created.to_string(),
            "idleSince": worker.idle_since.to_string(),
            "canStop": is_well && !worker.archived && !worker.deprovisioned
                && idle_ms >= worker.idle_hold_ms,
            "askedToStop": worker.advice.as_ref().is_some_and(|advice| advice.terminate),
        });
        if let Some(price) = worker.price {
            row["price"] = json!(price);
        }
        row
    }
}

fn settings_json(settings: &Settings) -> Value {
    json!({
        "minCapacity": settings.min_capacity,
        "maxCapacity": settings.max_capacity,
        "scalingRatio": settings.scaling_ratio,
        "waitPrice": settings.wait_price,
        "minPrice": settings.min_price,
        "maxPrice": settings.max_price,
        "fallbackStrategy": settings.own_strategy_name().as_str(),
    })
}

/// Without the data of the provider, which is for the provider alone.
fn bid_json(bid: &Bid) -> Value {
    let mut row = Map::new();
    row.insert("utility".to_owned(), json!(bid.utility));
    row.insert("place".to_owned(), json!(bid.place));
    let fields = [
        ("price", bid.price.map(Value::from)),
        ("available", bid.available.map(Value::from)),
        ("reliability", bid.reliability.map(Value::from)),
        (
            "readySeconds",
            bid.ready_ms.map(|ms| json!(ms as f64 / SECOND_MS as f64)),
        ),
        ("expires", bid.expires.map(|at| json!(at.to_string()))),
    ];
    for (key, value) in fields {
        if let Some(value) = value {
            row.insert(key.to_owned(), value);
        }
    }
    Value::Object(row)
}
