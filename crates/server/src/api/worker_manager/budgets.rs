//! Budgets: what may be spent on machines in an hour, a day or a month.

use access::scope::Params;
use domain::Version;
use domain::audit::EntityType;
use domain::budgets::{
    BadBudget, BudgetScope, MoneyBudget, Spending, StepShares, dollars, micros_of,
};
use domain::id::BudgetId;
use domain::time::Timestamp;
use engine::budgets::{self, BudgetError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// The body of setBudget.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BudgetBody {
    worker_pools: Option<String>,
    owner: Option<String>,
    provider_id: Option<String>,
    per: String,
    limit: f64,
    currency: Option<String>,
    warn_at_percent: Option<u32>,
    lower_at_percent: Option<u32>,
    lower_to_percent: Option<u32>,
    #[serde(default)]
    description: String,
}

impl BudgetBody {
    fn scope(&self) -> Result<BudgetScope, ApiError> {
        Ok(match (&self.worker_pools, &self.owner, &self.provider_id) {
            (Some(pools), None, None) => BudgetScope::Pools(pools.parse()?),
            (None, Some(owner), None) => BudgetScope::Owner(owner.clone()),
            (None, None, Some(provider)) => BudgetScope::Provider(provider.parse()?),
            _ => {
                let text = "A budget has one scope: give `workerPools`, `owner` or `providerId`";
                return Err(ApiError::input(text));
            }
        })
    }

    fn budget(self, id: BudgetId, now: Timestamp) -> Result<MoneyBudget, ApiError> {
        let usual = StepShares::default();
        let budget = MoneyBudget {
            id,
            scope: self.scope()?,
            period: self.per.parse()?,
            amount: micros_of(self.limit),
            currency: self.currency.as_deref().unwrap_or("USD").parse()?,
            shares: StepShares {
                warn_at: self.warn_at_percent.unwrap_or(usual.warn_at),
                lower_at: self.lower_at_percent.unwrap_or(usual.lower_at),
                lower_to: self.lower_to_percent.unwrap_or(usual.lower_to),
            },
            description: self.description,
            created: now,
            last_modified: now,
            spending: Spending::none(now),
            version: Version::FIRST,
        };
        budget.check()?;
        Ok(budget)
    }
}

pub(super) async fn set(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.id("budgetId")?, call.body::<BudgetBody>()?);
    let asked = body.budget(id, call.now)?;
    call.authorize(params(&call, &asked)).await?;
    let known = match budgets::get(&call.app.engine, asked.id.clone()).await {
        Ok(known) => Some(known),
        Err(BudgetError::NotFound) => None,
        Err(failed) => return Err(failed.into()),
    };
    if let Some(known) = known.as_ref().filter(|known| known.scope != asked.scope) {
        // Whose money it was is left without a limit.
        call.authorize(params(&call, known)).await?;
    }
    let mut audit = call.audit(EntityType::Budget, asked.id.as_str(), "set");
    audit.detail = definition(&asked);
    let given = budgets::set(
        &call.app.engine,
        asked,
        known.map(|known| known.scope),
        audit,
    )
    .await?;
    Reply::json(&shown(&given, call.now))
}

pub(super) async fn remove(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.id("budgetId")?;
    let given = budgets::get(&call.app.engine, id).await?;
    call.authorize(params(&call, &given)).await?;
    let mut audit = call.audit(EntityType::Budget, given.id.as_str(), "removed");
    audit.detail = definition(&given);
    budgets::remove(&call.app.engine, given, audit).await?;
    Reply::done()
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let given = budgets::get(&call.app.engine, call.id("budgetId")?).await?;
    Reply::json(&shown(&given, call.now))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit, now) = (page.after_id()?, page.limit_and_one(), call.now);
    let read = call.read("budget_list", move |tx| {
        store::budgets::list(tx, after.as_ref(), limit)
    });
    let key = |given: &MoneyBudget| (given.id.to_string(),);
    page.reply("budgets", read.await?, key, |given| shown(given, now))
}

/// The parameters of a change's scopes.
fn params(call: &Call, budget: &MoneyBudget) -> Params {
    let params = call.url_params().text("budgetId", budget.id.as_str());
    let flags = |params: Params, of_pools, of_provider| {
        params
            .flag("ofWorkerPools", of_pools)
            .flag("ofProvider", of_provider)
    };
    match &budget.scope {
        BudgetScope::Pools(pattern) => {
            flags(params, true, false).text("workerPools", pattern.as_str())
        }
        BudgetScope::Provider(id) => flags(params, false, true).text("providerId", id.as_str()),
        BudgetScope::Owner(owner) => flags(params, false, false).text("owner", owner),
    }
}

fn definition(budget: &MoneyBudget) -> Value {
    let (pools, owner, provider) = match &budget.scope {
        BudgetScope::Pools(pattern) => (Some(pattern.as_str()), None, None),
        BudgetScope::Owner(owner) => (None, Some(owner.as_str()), None),
        BudgetScope::Provider(id) => (None, None, Some(id.as_str())),
    };
    without_nulls(json!({
        "budgetId": budget.id.as_str(),
        "workerPools": pools,
        "owner": owner,
        "providerId": provider,
        "per": budget.period.as_str(),
        "limit": dollars(budget.amount),
        "currency": budget.currency.as_str(),
        "warnAtPercent": budget.shares.warn_at,
        "lowerAtPercent": budget.shares.lower_at,
        "lowerToPercent": budget.shares.lower_to,
        "description": budget.description,
    }))
}

fn shown(budget: &MoneyBudget, now: Timestamp) -> Value {
    let state = budget.state(now);
    let mut reply = definition(budget);
    let fields = json!({
        "created": budget.created.to_string(),
        "lastModified": budget.last_modified.to_string(),
        "step": state.step.as_str(),
        "spent": dollars(state.spent),
        "reserved": dollars(state.reserved),
        "left": dollars(state.left(budget.amount)),
        "machines": budget.spending.machines,
        "periodBegins": state.span.start.to_string(),
        "periodEnds": state.span.end.to_string(),
        "text": budget.text(now),
    });
    if let (Some(reply), Value::Object(fields)) = (reply.as_object_mut(), fields) {
        reply.extend(fields);
    }
    reply
}

/// The budgets of a pool, as `explainPool` shows them.
pub(in crate::api) fn budgets_json(budgets: &[MoneyBudget], now: Timestamp) -> Vec<Value> {
    budgets.iter().map(|budget| shown(budget, now)).collect()
}

impl From<BadBudget> for ApiError {
    fn from(bad: BadBudget) -> Self {
        Self::input(bad.to_string())
    }
}
