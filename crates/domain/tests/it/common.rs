//! Snapshots to start from, and random numbers that a test chooses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use domain::demand::Demand;
use domain::id::WorkerKey;
use domain::plan::{
    Bid, Candidate, Capacity, Health, Offer, Plan, Rival, Settings, Snapshot, Source, StrategyName,
    Tries, plan, weights,
};
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::Advice;
use rand::rngs::StdRng;
use rand::{SeedableRng, TryRng};

/// 2026-09-21T14:13:20Z
pub(crate) const NOW_MS: i64 = 1_790_000_000_000;

pub(crate) fn seconds_ago(seconds: i64) -> Timestamp {
    Timestamp::from_millis(NOW_MS - seconds * SECOND_MS)
}

/// An empty pool of strategy `weighted` with one launch config `a` and nothing to do.
pub(crate) fn pool(min_capacity: u64, max_capacity: u64) -> Snapshot {
    Snapshot {
        now: seconds_ago(0),
        pool_id: "proj/linux".parse().unwrap(),
        sources: vec![source("cloud", None)],
        settings: Settings {
            min_capacity,
            max_capacity,
            scaling_ratio: 1.0,
            learns_ratio: false,
            foresight: false,
            wait_price: 1.0,
            strategy: StrategyName::Weighted,
            min_price: 0.0,
            max_price: domain::plan::NO_MAX_PRICE,
            literal: false,
            external: None,
        },
        demand: Demand::default(),
        capacity: Capacity::default(),
        offers: vec![offer("a")],
        budgets: Vec::new(),
        lowered_from: None,
        overrides: Vec::new(),
        learned: None,
        announced: Vec::new(),
        ordinary_runs: None,
        rivals: Vec::new(),
        answer: None,
        workers: Vec::new(),
        shadow: None,
    }
}

pub(crate) fn source(id: &str, room: Option<u64>) -> Source {
    Source {
        provider_id: id.parse().unwrap(),
        room,
    }
}

/// The same, from another provider.
pub(crate) fn from(provider: &str, offer: Offer) -> Offer {
    Offer {
        provider_id: provider.parse().unwrap(),
        ..offer
    }
}

pub(crate) fn offer(id: &str) -> Offer {
    Offer {
        launch_config_id: id.parse().unwrap(),
        provider_id: "cloud".parse().unwrap(),
        bid_number: 0,
        capacity_each: 1,
        initial_weight: 1.0,
        max_capacity: None,
        live: 0,
        held: 0,
        starting: 0,
        late: 0,
        canary: None,
        memory: None,
        health: Health::default(),
        tries: Tries::default(),
        bid: Ok(Bid::plain(String::new())),
    }
}

/// For the strategy `aws-provisioner`, with a price for the offer.
pub(crate) fn priced(id: &str, price: f64) -> Offer {
    let bid = Bid {
        price: Some(price),
        ..Bid::plain(String::new())
    };
    Offer {
        bid: Ok(bid),
        ..offer(id)
    }
}

pub(crate) fn key(id: &str) -> WorkerKey {
    WorkerKey {
        pool_id: "proj/linux".parse().unwrap(),
        group: "g".parse().unwrap(),
        id: id.parse().unwrap(),
    }
}

/// A pool that competes for the quotas of these offers, with this many units of each.
pub(crate) fn rival(demand: u64, held: u64, quotas: &[(&Offer, u64)]) -> Rival {
    let quotas = quotas
        .iter()
        .map(|(offer, units)| (offer.offering().unwrap(), *units));
    Rival {
        demand,
        held,
        quotas: quotas.collect(),
    }
}

/// A healthy idle worker of one unit.
pub(crate) fn idle(id: &str, for_seconds: i64) -> Candidate {
    Candidate {
        key: key(id),
        launch_config_id: None,
        offering: None,
        capacity: 1,
        created: seconds_ago(for_seconds + 100),
        archived: false,
        deprovisioned: false,
        claimed: 0,
        silent: false,
        idle_since: seconds_ago(for_seconds),
        idle_hold_ms: 0,
        quarantined_since: None,
        advice: None,
        price: None,
    }
}

/// The same, launched from this launch config.
pub(crate) fn from_config(id: &str, candidate: Candidate) -> Candidate {
    Candidate {
        launch_config_id: Some(id.parse().unwrap()),
        ..candidate
    }
}

pub(crate) fn busy(id: &str) -> Candidate {
    Candidate {
        claimed: 1,
        ..idle(id, 50)
    }
}

pub(crate) fn asked_to_stop(candidate: Candidate, reason: &str) -> Candidate {
    let advice = Advice {
        terminate: reason != "needed",
        reason: reason.to_owned(),
        decided_at: NOW_MS - 5_000,
    };
    Candidate {
        advice: Some(advice),
        ..candidate
    }
}

pub(crate) fn decide(snapshot: &Snapshot) -> Plan {
    decide_with(snapshot, 1)
}

pub(crate) fn decide_with(snapshot: &Snapshot, seed: u64) -> Plan {
    plan(snapshot, &mut StdRng::seed_from_u64(seed))
}

/// How likely each launch config is to give the next machine.
pub(crate) fn chances(snapshot: &Snapshot) -> Vec<f64> {
    let weights = weights(snapshot).into_iter();
    weights
        .map(|weight| weight.chance.expect("the strategy draws by weights"))
        .collect()
}

/// Units that a plan launches.
pub(crate) fn launched(plan: &Plan) -> u64 {
    let units = |machines, each| u64::from(machines) * u64::from(each);
    let awards = plan.awards.iter();
    awards
        .map(|award| units(award.machines, award.capacity_each))
        .sum()
}

/// How many machines each launch config is to start, as `a:2 b:1`.
pub(crate) fn machines(plan: &Plan) -> String {
    let awards = plan.awards.iter();
    let texts = awards.map(|award| format!("{}:{}", award.launch_config_id, award.machines));
    texts.collect::<Vec<_>>().join(" ")
}

/// The advice of each worker, as `w1 stop over capacity`.
pub(crate) fn advised(plan: &Plan) -> Vec<String> {
    let lines = plan.advice.iter().map(|(key, advice)| {
        let what = if advice.terminate { "stop" } else { "stay" };
        format!("{} {what} {}", key.id, advice.reason)
    });
    lines.collect()
}

/// The snapshot after its plan was executed at once.
pub(crate) fn carried_out(mut snapshot: Snapshot, plan: &Plan) -> Snapshot {
    for award in &plan.awards {
        let units = u64::from(award.machines) * u64::from(award.capacity_each);
        snapshot.capacity.intended += units;
        let of = |offer: &&mut Offer| offer.launch_config_id == award.launch_config_id;
        if let Some(offer) = snapshot.offers.iter_mut().find(of) {
            offer.live += units;
            offer.tries.last = Some(snapshot.now);
            let of = |source: &&mut Source| source.provider_id == offer.provider_id;
            let source = snapshot.sources.iter_mut().find(of);
            if let Some(room) = source.and_then(|source| source.room.as_mut()) {
                *room -= u64::from(award.machines);
            }
        }
    }
    for (key, advice) in &plan.advice {
        let of = |worker: &&mut Candidate| worker.key == *key;
        let worker = snapshot.workers.iter_mut().find(of).unwrap();
        let before = worker.advice.replace(advice.clone());
        let was_draining = before.is_some_and(|before| before.terminate);
        if worker.quarantined_since.is_some() || was_draining == advice.terminate {
            continue;
        }
        let units = u64::from(worker.capacity);
        let capacity = &mut snapshot.capacity;
        let supply = match worker.silent {
            true => &mut capacity.silent,
            false => &mut capacity.running,
        };
        if advice.terminate {
            *supply -= units;
            capacity.draining += units;
        } else {
            capacity.draining -= units;
            *supply += units;
        }
    }
    snapshot
}

/// Returns the numbers that it was given, and then panics.
pub(crate) struct Script(VecDeque<u64>);

impl Script {
    /// Each pick is an index and the number of choices.
    pub(crate) fn picks(picks: &[(usize, usize)]) -> Self {
        let number = |(which, of): &(usize, usize)| {
            let number = ((*which as u128) << 64).div_ceil(*of as u128);
            u64::try_from(number).unwrap()
        };
        Self(picks.iter().map(number).collect())
    }

    /// A fraction from 0 to just below 1.
    pub(crate) fn fraction(fraction: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 2^53")]
        let high = (fraction * (1_u64 << 53) as f64) as u64;
        Self([high << 11].into())
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryRng for Script {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.try_next_u64()? >> 32).unwrap())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self
            .0
            .pop_front()
            .expect("the script has a number for each random choice"))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let number = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        Ok(())
    }
}

/// A file that lies next to the project in some checkouts.
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
pub(crate) fn beside(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let file = root.join(path);
    if file.is_file() {
        return Some(file);
    }
    eprintln!("skipped: ../shared/{path} is not there");
    None
}
