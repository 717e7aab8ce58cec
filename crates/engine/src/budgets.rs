//! Sets and removes budgets, measures what is spent, and counts what plans launch.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::budgets::{BudgetPeriod, BudgetScope, BudgetStep, MoneyBudget, SpentBy, micros_of};
use domain::event::EventBody;
use domain::id::{BudgetId, ProviderId};
use domain::launch::Launch;
use domain::time::Timestamp;
use store::{StoreError, Tx};

use crate::Engine;
use crate::change::Change;

/// At most this many budgets: every plan looks at each of them.
pub const MAX_BUDGETS: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    #[error("Budget does not exist")]
    NotFound,
    #[error("Provider {0} does not exist")]
    NoProvider(ProviderId),
    #[error("Budget {0} has got another scope meanwhile: read it again, and repeat the change")]
    OtherScope(BudgetId),
    #[error("{MAX_BUDGETS} budgets exist: remove some, or let one limit several pools (`a/*`)")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates or changes the budget of this name, and measures what is spent of it. A repeated
/// request changes nothing. `seen` is the scope that the caller may take the budget from.
pub async fn set(
    engine: &Arc<Engine>,
    asked: MoneyBudget,
    seen: Option<BudgetScope>,
    audit: AuditEntry,
) -> Result<MoneyBudget, BudgetError> {
    if let BudgetScope::Provider(id) = &asked.scope
        && !engine.providers.listed().any(|(known, _)| known == id)
    {
        return Err(BudgetError::NoProvider(id.clone()));
    }
    let declaring = declaring_providers(engine);
    let written = engine.change("budget_set", audit.created, move |change| {
        let known = store::budgets::get(change.tx, &asked.id)?;
        let mut given = asked.clone();
        match known {
            Some(known) if known.has_same_effect(&asked) => return Ok(known),
            Some(known) if known.scope != asked.scope && seen.as_ref() != Some(&known.scope) => {
                return Err(BudgetError::OtherScope(known.id));
            }
            Some(known) => {
                (given.created, given.version) = (known.created, known.version);
                wake_pool(change, &known);
                given = measured(change, given, &declaring)?;
                given.version = store::budgets::update(change.tx, &given)?;
            }
            None => {
                if store::budgets::list_all(change.tx)?.len() >= MAX_BUDGETS {
                    return Err(BudgetError::TooMany);
                }
                given = measured(change, given, &declaring)?;
                if !store::budgets::insert(change.tx, &given)? {
                    return Err(change.tx.lost_race().into());
                }
            }
        }
        announce_steps(change, &given)?;
        wake_pool(change, &given);
        store::audit::insert(change.tx, &audit)?;
        Ok(given)
    });
    written.await
}

pub async fn remove(
    engine: &Arc<Engine>,
    seen: MoneyBudget,
    audit: AuditEntry,
) -> Result<(), BudgetError> {
    let written = engine.change("budget_remove", audit.created, move |change| {
        let known = store::budgets::get(change.tx, &seen.id)?;
        // The caller was authorised for this scope.
        let known = known.filter(|known| known.scope == seen.scope);
        let known = known.ok_or(BudgetError::NotFound)?;
        store::budgets::delete(change.tx, &known)?;
        wake_pool(change, &known);
        store::audit::insert(change.tx, &audit)?;
        Ok(())
    });
    written.await
}

/// Budgets of several pools take effect in the next round.
fn wake_pool(change: &mut Change<'_, '_>, budget: &MoneyBudget) {
    if let BudgetScope::Pools(pattern) = &budget.scope
        && let Some(id) = pattern.pool_id()
    {
        change.wake_pool(&id);
    }
}

/// The result of measuring all budgets.
#[derive(Debug, Default)]
pub struct Measured {
    pub budgets: Vec<MoneyBudget>,
    /// The number of budgets with news.
    pub n_changed: u64,
}

/// Measures all budgets, and announces the steps that are reached for the first time in their
/// period.
pub async fn measure(engine: &Arc<Engine>) -> store::Result<Measured> {
    let read = engine.store.read("budget_look", |tx| {
        store::budgets::list(tx, None, 1).map(|some| !some.is_empty())
    });
    if !read.await? {
        return Ok(Measured::default());
    }
    let now = engine.clock.now();
    let declaring = declaring_providers(engine);
    let of_sum = Arc::clone(&declaring);
    // The sums take long, so they are made before the transaction that writes them.
    let sum = engine.store.survey("budget_sum", move |tx| {
        let mut spending = SpendingReader::new(&of_sum);
        let budgets = store::budgets::list_all(tx)?.into_iter();
        let measured = budgets.map(|budget| {
            let rows = spending.rows(tx, budget.period, now)?;
            Ok((budget.id.clone(), budget.measured(rows, now)))
        });
        measured.collect::<store::Result<BTreeMap<BudgetId, MoneyBudget>>>()
    });
    let summed = sum.await?;
    let written = engine.change_alone("budget_measure", now, move |change| {
        let budgets = store::budgets::list_all(change.tx)?;
        let mut spending = SpendingReader::new(&declaring);
        let mut done = Measured::default();
        for budget in budgets {
            let known = summed.get(&budget.id);
            let measured = match known.filter(|known| known.version == budget.version) {
                Some(known) => known.clone(),
                // A plan has launched under this budget meanwhile, so the sum may lack the launch.
                None => {
                    let rows = spending.rows(change.tx, budget.period, change.now)?;
                    budget.clone().measured(rows, change.now)
                }
            };
            if measured.has_news_since(&budget) {
                store::budgets::update(change.tx, &measured)?;
                done.n_changed += 1;
            }
            announce_steps(change, &measured)?;
            done.budgets.push(measured);
        }
        Ok(done)
    });
    written.await
}

fn declaring_providers(engine: &Engine) -> Arc<BTreeSet<ProviderId>> {
    let providers = engine.providers.listed().map(|(id, _)| id);
    let declaring = providers.filter(|id| {
        let provider = engine.providers.get(id);
        provider.is_ok_and(|provider| provider.declarer().is_some())
    });
    Arc::new(declaring.cloned().collect())
}

fn measured(
    change: &mut Change<'_, '_>,
    budget: MoneyBudget,
    declaring: &Arc<BTreeSet<ProviderId>>,
) -> store::Result<MoneyBudget> {
    let mut spending = SpendingReader::new(declaring);
    let rows = spending.rows(change.tx, budget.period, change.now)?;
    Ok(budget.measured(rows, change.now))
}

/// Reads what was spent in the present periods, each once.
struct SpendingReader {
    /// The providers of hosts that people declare, which no plan launches.
    declaring: Arc<BTreeSet<ProviderId>>,
    by_period: BTreeMap<BudgetPeriod, Vec<SpentBy>>,
}

impl SpendingReader {
    fn new(declaring: &Arc<BTreeSet<ProviderId>>) -> Self {
        Self {
            declaring: Arc::clone(declaring),
            by_period: BTreeMap::new(),
        }
    }

    fn rows(
        &mut self,
        tx: &mut Tx<'_>,
        period: BudgetPeriod,
        now: Timestamp,
    ) -> store::Result<&[SpentBy]> {
        match self.by_period.entry(period) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let since = period.span(now).start;
                let mut rows = store::budgets::spent_by(tx, since, now)?;
                rows.extend(store::budgets::to_come(tx)?);
                let declared = rows.iter_mut();
                for row in declared.filter(|row| self.declaring.contains(&row.provider_id)) {
                    row.launched = 0;
                }
                Ok(place.insert(rows))
            }
        }
    }
}

fn announce_steps(change: &mut Change<'_, '_>, budget: &MoneyBudget) -> store::Result<()> {
    let (now, state) = (change.now, budget.state(change.now));
    let began = state.span.start;
    for step in BudgetStep::ALL {
        if step == BudgetStep::Within || step > state.step {
            continue;
        }
        let name = (&budget.id, budget.period);
        if store::budgets::note_step(change.tx, name, began, step, now)? {
            let budget = Box::new(budget.clone());
            change.announce([EventBody::Budget { step, budget }])?;
        }
    }
    Ok(())
}

/// Adds launched machines to the budgets that limit them. Of two plans under one budget that
/// launch at once, one decides again.
pub(crate) fn note_launches<'a>(
    change: &mut Change<'_, '_>,
    budgets: &[MoneyBudget],
    launches: impl Iterator<Item = &'a Launch> + Clone,
) -> store::Result<()> {
    for budget in budgets {
        let provider = budget.scope.provider_id();
        let limited = launches.clone();
        let limited = limited.filter(|launch| provider.is_none_or(|id| *id == launch.provider_id));
        let machines = limited.map(|launch| (launch.price.map(micros_of), launch.machines));
        let launched = budget.clone().launched(machines);
        if launched.spending != budget.spending {
            store::budgets::update(change.tx, &launched)?;
        }
    }
    Ok(())
}

/// The budget of this name, for the scopes of a request.
pub async fn get(engine: &Arc<Engine>, id: BudgetId) -> Result<MoneyBudget, BudgetError> {
    let read = engine
        .store
        .read("budget_get", move |tx| store::budgets::get(tx, &id));
    read.await?.ok_or(BudgetError::NotFound)
}
