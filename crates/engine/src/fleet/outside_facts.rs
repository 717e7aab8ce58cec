//! Facts for a decision from outside the store: bids of providers, and answers of an outside queue.
//! They are read before the transaction, which cannot wait for them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use domain::demand::Demand;
use domain::facts::{ClaimSource, Facts, MAX_CANDIDATES, Rooms, first_candidate, learns};
use domain::id::{LaunchConfigId, ProviderId};
use domain::overrides::Override;
use domain::plan::{Candidate, ServiceAnswer, Snapshot, StrategyDefaults};
use domain::pool::Pool;
use rand::RngExt;
use store::Tx;

use super::bids::{PoolBids, collect_bids};
use super::market_facts::{self, QueueKind};
use crate::Engine;

pub(super) struct OutsideFacts {
    /// The pool when the bids were collected.
    pub(super) pool: Pool,
    /// The launch configs and providers of the bids, in the order of the bids.
    places: Vec<(LaunchConfigId, ProviderId)>,
    bids: PoolBids,
    /// The overrides that were applied to the bids.
    overrides: Vec<Override>,
    /// The limits of the pool's providers; providers without a limit are absent.
    pub(super) max_machines: BTreeMap<ProviderId, u64>,
    /// The providers that make machines; only their workers get advice to stop.
    machine_providers: Vec<ProviderId>,
    /// The demand from an outside queue.
    pub(super) demand: Option<Demand>,
    claims: ClaimSource,
    /// The facts about a large pool when the bids were collected, and its workers that may leave.
    /// If no other plan was made since, the transaction that writes reads no worker again.
    pub(super) seen: Option<Facts>,
    candidates: OnceLock<Vec<Candidate>>,
    /// The answer of the pool's strategy service, once it was asked.
    answer: OnceLock<ServiceAnswer>,
    pub(super) seed: u64,
    pub(super) defaults: StrategyDefaults,
}

impl OutsideFacts {
    pub(super) async fn read(engine: &Arc<Engine>, facts: &Facts) -> Self {
        let is_outside = engine.demand_source.is_outside();
        let max_machines = facts.pool.provider_ids().filter_map(|id| {
            let machines = engine.providers.machines(id)?;
            Some((id.clone(), machines.max_machines()?))
        });
        let mut outside = Self {
            pool: facts.pool.clone(),
            places: facts.places(),
            bids: collect_bids(engine, facts),
            overrides: facts.overrides.clone(),
            max_machines: max_machines.collect(),
            machine_providers: machine_providers(engine),
            demand: is_outside.then_some(facts.demand),
            claims: ClaimSource::Store,
            seen: facts.is_large().then(|| facts.clone()),
            candidates: OnceLock::new(),
            answer: OnceLock::new(),
            seed: engine.random.with(|random| random.random()),
            defaults: engine.strategies,
        };
        if is_outside && outside.needs_candidates(facts) {
            outside.claims = read_claims(engine, facts).await;
        }
        outside
    }

    /// Whether these facts still have the launch configs and overrides of the bids.
    pub(super) fn is_about(&self, facts: &Facts) -> bool {
        facts.places() == self.places && facts.overrides == self.overrides
    }

    /// Whether a plan needs further queries.
    pub(super) fn needs_store(&self, facts: &Facts) -> bool {
        !self.max_machines.is_empty()
            || learns(&facts.pool, self.defaults)
            || self.needs_candidates(facts)
    }

    /// Asks the pool's strategy service, if it has one, and adds the answer to the snapshot.
    pub(super) async fn ask_service(&self, engine: &Engine, snapshot: &mut Snapshot) {
        let services = &engine.strategy_services;
        let asked = services.ask(snapshot, self.seed, engine.clock.as_ref());
        if let Some(answer) = asked.await {
            snapshot.answer = Some(self.answer.get_or_init(|| answer).clone());
        }
    }

    /// Whether the service of this snapshot, if it has one, is the one that was asked.
    pub(super) fn has_answer_for(&self, snapshot: &Snapshot) -> bool {
        let external = snapshot.settings.external.as_ref();
        let asked = self.answer.get().map(|answer| &answer.service);
        external.map(|external| &external.service) == asked
    }

    fn needs_candidates(&self, facts: &Facts) -> bool {
        let snapshot = self.snapshot(facts, &Rooms::new());
        snapshot.is_some_and(|snapshot| {
            facts.needs_candidates(&snapshot) || shadow_needs_candidates(facts, &snapshot)
        })
    }

    /// The snapshot without candidates. `None`: the config of the pool is invalid for planning.
    pub(super) fn snapshot(&self, facts: &Facts, rooms: &Rooms) -> Option<Snapshot> {
        let snapshot = facts.snapshot(&self.bids.usable, rooms, Vec::new());
        let id = facts.id();
        let mut snapshot = snapshot
            .inspect_err(|error| tracing::debug!(pool.id = %id, "{id} is not planned: {error}"))
            .ok()?;
        if snapshot.settings.external.is_some() {
            snapshot.answer = self.answer.get().cloned();
        }
        Some(snapshot)
    }

    /// The complete snapshot, with what the pool's strategy has learned. Candidates may be many:
    /// they are read only if advice may change.
    pub(super) fn read_snapshot(
        &self,
        tx: &mut Tx<'_>,
        facts: &mut Facts,
    ) -> store::Result<Option<Snapshot>> {
        let queue = match self.demand {
            Some(_) => QueueKind::Outside,
            None => QueueKind::Own,
        };
        facts.memory = market_facts::read(tx, facts, &self.bids.all, queue)?;
        let rooms = read_rooms(tx, &self.max_machines)?;
        let Some(mut snapshot) = self.snapshot(facts, &rooms) else {
            return Ok(None);
        };
        // As long as it is unknown which workers have tasks, no advice changes.
        if self.claims == ClaimSource::Unknown {
            return Ok(Some(snapshot));
        }
        if facts.needs_candidates(&snapshot) {
            snapshot.workers = self.read_candidates(tx, facts)?;
        } else if shadow_needs_candidates(facts, &snapshot) {
            let workers = self.read_candidates(tx, facts)?;
            if let Some(shadow) = &mut snapshot.shadow {
                shadow.workers = workers;
            }
        }
        Ok(Some(snapshot))
    }

    fn read_candidates(&self, tx: &mut Tx<'_>, facts: &Facts) -> store::Result<Vec<Candidate>> {
        let seen = self.seen.as_ref();
        let is_as_seen = seen.is_some_and(|seen| seen.turn == facts.turn);
        if is_as_seen && let Some(candidates) = self.candidates.get() {
            return Ok(candidates.clone());
        }
        let now = facts.horizon.now;
        let first = first_candidate(now, facts.inventory.n_running(), MAX_CANDIDATES);
        let running = store::running_workers::list(tx, facts.id(), now, first, MAX_CANDIDATES)?;
        let mut candidates = facts.candidates(running, &self.claims, &self.machine_providers);
        if !self.bids.has_several() {
            // Then it follows from the launch config.
            for candidate in &mut candidates {
                candidate.offering = None;
            }
        }
        if is_as_seen {
            let _ = self.candidates.set(candidates.clone());
        }
        Ok(candidates)
    }
}

/// Whether the shadow of the pool may change the advice to some worker.
fn shadow_needs_candidates(facts: &Facts, snapshot: &Snapshot) -> bool {
    let shadow = snapshot.for_shadow();
    shadow.is_some_and(|shadow| facts.needs_candidates(&shadow))
}

fn machine_providers(engine: &Engine) -> Vec<ProviderId> {
    let ids = engine.providers.listed().map(|(id, _)| id);
    let making = ids.filter(|id| engine.providers.machines(id).is_some());
    making.cloned().collect()
}

async fn read_claims(engine: &Engine, facts: &Facts) -> ClaimSource {
    match engine.demand_source.busy_workers(facts.id()).await {
        Ok(listed) => ClaimSource::Listed(listed),
        Err(error) => {
            let id = facts.id();
            tracing::warn!(pool.id = %id, error = %error,
                "the queue does not say which workers of {id} have tasks, so no advice changes: \
                {error}");
            ClaimSource::Unknown
        }
    }
}

/// How many more machines each of these providers accepts.
pub(super) fn read_rooms(
    tx: &mut Tx<'_>,
    max_machines: &BTreeMap<ProviderId, u64>,
) -> store::Result<Rooms> {
    let rooms = max_machines.iter().map(|(id, max)| {
        let existing = store::workers::live_machines(tx, id)?;
        let to_come = store::launches::pending_machines(tx, id)?;
        Ok((id.clone(), max.saturating_sub(existing + to_come)))
    });
    rooms.collect()
}
