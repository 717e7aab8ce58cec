//! Costs: charges machines to their accounts, and reports about accounts.

use std::sync::Arc;

use domain::cost::{CostGrouping, CostReport, CostScope, next_charge};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use store::{StoreError, Tx, cost_accounts, cost_reports, meters};

use crate::Engine;

/// Events of this time may not be known yet.
const LAG_MS: i64 = MINUTE_MS;
/// The same, for the messages of another deployment's queue.
const OUTSIDE_LAG_MS: i64 = 30 * MINUTE_MS;
/// Hours become days after this time.
const HOURS_KEPT_MS: i64 = 2 * DAY_MS;

/// Limits of one batch of charges.
#[derive(Clone, Copy, Debug)]
pub struct ChargeLimits {
    pub machines: u32,
    /// Runs on these machines. A machine with more runs is charged in parts.
    pub runs: u32,
}

/// The result of one batch of charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    pub machines: u64,
    /// Perhaps more machines are due, or one of these has more time to charge.
    pub has_more: bool,
}

/// Charges machines whose charge is due, and at least one of them.
pub async fn charge_machines(engine: &Arc<Engine>, limits: ChargeLimits) -> store::Result<Charged> {
    let now = engine.clock.now();
    let lag_ms = match engine.demand_source.is_outside() {
        true => OUTSIDE_LAG_MS,
        false => LAG_MS,
    };
    let look = engine
        .store
        .read("costs_look", move |tx| meters::is_due(tx, now));
    if !look.await? {
        return Ok(Charged::default());
    }
    let charged = engine.store.write("costs_charge", move |tx| {
        let known = now.plus_millis(-lag_ms);
        let due = meters::list_due(tx, now, limits.machines, limits.runs)?;
        let mut has_more = due.has_more;
        let charges = due.meters.into_iter().map(|due| {
            let charge = due.meter.charge(&due.life, known);
            has_more |= charge.has_more;
            let again = match due.meter.ended {
                // Behind all that are due.
                _ if charge.has_more => now,
                Some(ended) => ended.plus_millis(lag_ms).max(now.plus_millis(LAG_MS)),
                None => next_charge(&due.key, now),
            };
            (due, charge, again)
        });
        let charges: Vec<_> = charges.collect();
        meters::charge(tx, &charges)?;
        let machines = charges.len() as u64;
        Ok::<_, StoreError>(Charged { machines, has_more })
    });
    charged.await
}

/// Adds an old hour to its day. `false`: none is left.
pub async fn fold_hour(engine: &Arc<Engine>) -> store::Result<bool> {
    let before = engine
        .clock
        .now()
        .plus_millis(-HOURS_KEPT_MS)
        .start_of(DAY_MS);
    let look = engine
        .store
        .read("costs_look_old", cost_accounts::oldest_hour);
    if look.await?.is_none_or(|oldest| oldest >= before) {
        return Ok(false);
    }
    let folded = engine
        .store
        .write("costs_fold", move |tx| cost_accounts::fold_hour(tx, before));
    folded.await
}

/// The beginning of the hour of a moment, or of its day if hours of that time may be days already.
pub fn start_of_report(since: Timestamp, now: Timestamp) -> Timestamp {
    let hours_since = now.plus_millis(-HOURS_KEPT_MS).start_of(DAY_MS);
    match since >= hours_since {
        true => since.start_of(HOUR_MS),
        false => since.start_of(DAY_MS),
    }
}

/// Whether there is anything that may cost: a pool, an owner of one, or a provider.
pub fn exists(engine: &Engine, tx: &mut Tx<'_>, scope: &CostScope) -> store::Result<bool> {
    match scope {
        CostScope::All => Ok(true),
        CostScope::Pool(id) => Ok(store::pools::get(tx, id)?.is_some()),
        CostScope::Provider(id) => Ok(engine.providers.listed().any(|(known, _)| known == id)),
        CostScope::Owner(owner) => store::pools::has_owner(tx, owner),
    }
}

/// The cost of machines since a moment, with what machines that run have cost by now.
pub fn report(
    tx: &mut Tx<'_>,
    by: CostGrouping,
    scope: &CostScope,
    since: Timestamp,
    now: Timestamp,
) -> store::Result<CostReport> {
    let since = start_of_report(since, now);
    let lines = cost_reports::lines(tx, by, scope, since, now)?;
    let report = CostReport::new(since, now, lines);
    Ok(match by {
        CostGrouping::Kind => report.by_kind(),
        CostGrouping::Day => report,
        CostGrouping::Pool
        | CostGrouping::LaunchConfig
        | CostGrouping::Provider
        | CostGrouping::Owner => report.most_wasted_first(),
    })
}
