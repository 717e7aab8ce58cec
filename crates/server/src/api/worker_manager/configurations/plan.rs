//! Plans of edits, as the API shows them.

use domain::configuration::{
    CompletedLaunchConfig, PoolChange, PoolDifference, Replacement, RuleChange, ValueChange,
    VersionRecord,
};
use domain::id::ImageName;
use engine::configurations::{EditImpact, EditPlan, compare_versions};
use serde_json::{Map, Value, json};

use super::edit_scopes;
use super::edit_scopes::EditTargets;
use super::wire::ConfigurationBody;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::app::App;

/// Maximum number of entries shown of each list in a plan; the others are counted.
const MAX_SHOWN: usize = 500;

pub(super) async fn plan(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: ConfigurationBody = call.body()?;
    let wanted = super::parse(&call, &body)?;
    edit_scopes::authorize_edit(&mut call, &EditTargets::whole(&wanted, body.adopt_pools)).await?;
    let engine = &call.app.engine;
    let plan = engine::configurations::plan_edit(engine, call.now, &id, wanted, body.adopt_pools);
    let plan = plan.await?;
    let mut shown = plan_json(&plan);
    shown["workerConfigurationId"] = json!(id.as_str());
    shown["version"] = json!(plan.version.map(|version| version.0));
    shown["conflicts"] = json!(plan.conflicts);
    let missing = plan.missing_images.iter().map(ImageName::as_str);
    shown["missingImages"] = missing.collect();
    Reply::json(&shown)
}

/// The differences between two versions of a configuration.
pub(super) async fn versions(
    app: &App,
    from: VersionRecord,
    to: VersionRecord,
) -> Result<Value, ApiError> {
    let (from_version, to_version) = (from.version.0, to.version.0);
    let mut shown = plan_json(&compare_versions(&app.engine, from, to).await?);
    shown["from"] = json!(from_version);
    shown["to"] = json!(to_version);
    Ok(shown)
}

fn plan_json(plan: &EditPlan) -> Value {
    let mut totals = Totals::default();
    let shown: Vec<Value> = plan
        .pools
        .iter()
        .map(|pool| pool_json(&plan.impact, pool, &mut totals))
        .collect();
    let unchanged = plan.n_pools
        - plan
            .pools
            .iter()
            .filter(|pool| pool.change != PoolChange::Removed)
            .count()
            .min(plan.n_pools);
    json!({
        "pools": shown,
        "rules": rules_json(&plan.rules),
        "unchangedPools": unchanged,
        "launchConfigs": {
            "created": totals.created,
            "replaced": totals.replaced,
            "updated": totals.updated,
            "archived": totals.archived,
            "kept": totals.kept,
        },
        "outdatedWorkers": totals.outdated,
        "costDifference": totals.cost.map(rounded),
    })
}

fn pool_json(impact: &EditImpact, pool: &PoolDifference, totals: &mut Totals) -> Value {
    let mut outdated = 0;
    let mut cost: Option<f64> = None;
    let mut replaced = Vec::new();
    for change in &pool.replaced {
        let workers = impact.workers(pool, &change.before.id);
        let (old, new) = (
            impact.price(pool, &change.before.id),
            impact.price(pool, &change.after.id),
        );
        if let (Some(old), Some(new)) = (old, new) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "there are fewer than 2^53 workers"
            )]
            let difference = (new - old) * workers as f64;
            cost = Some(cost.unwrap_or(0.0) + difference);
        }
        outdated += workers;
        if replaced.len() < MAX_SHOWN {
            replaced.push(json!({
                "providerId": change.after.provider_id.as_str(),
                "conditions": conditions(&change.after),
                "before": change.before.id.as_str(),
                "after": change.after.id.as_str(),
                "values": values_json(&change.values),
                "workers": workers,
                "priceBefore": old,
                "priceAfter": new,
            }));
        }
    }
    outdated += pool
        .archived
        .iter()
        .map(|way| impact.workers(pool, &way.id))
        .sum::<u64>();
    totals.add(pool, outdated, cost);
    json!({
        "workerPoolId": pool.worker_type.pool_id().as_str(),
        "change": change_word(pool.change),
        "settings": values_json(&pool.settings),
        "created": ways_json(impact, pool, &pool.created),
        "replaced": replaced,
        "updated": updates_json(impact, &pool.updated, pool),
        "archived": ways_json(impact, pool, &pool.archived),
        "kept": pool.n_kept,
        "outdatedWorkers": outdated,
        "costDifference": cost.map(rounded),
    })
}

fn updates_json(impact: &EditImpact, updated: &[Replacement], pool: &PoolDifference) -> Vec<Value> {
    let shown = updated.iter().take(MAX_SHOWN).map(|update| {
        json!({
            "providerId": update.after.provider_id.as_str(),
            "launchConfigId": update.after.id.as_str(),
            "conditions": conditions(&update.after),
            "values": values_json(&update.values),
            "workers": impact.workers(pool, &update.after.id),
        })
    });
    shown.collect()
}

fn ways_json(
    impact: &EditImpact,
    pool: &PoolDifference,
    ways: &[CompletedLaunchConfig],
) -> Vec<Value> {
    let shown = ways.iter().take(MAX_SHOWN).map(|way| {
        json!({
            "providerId": way.provider_id.as_str(),
            "launchConfigId": way.id.as_str(),
            "conditions": conditions(way),
            "workers": impact.workers(pool, &way.id),
            "price": impact.price(pool, &way.id),
        })
    });
    shown.collect()
}

/// Sums over all pools of a plan.
#[derive(Default)]
struct Totals {
    created: usize,
    replaced: usize,
    updated: usize,
    archived: usize,
    kept: usize,
    outdated: u64,
    /// Additional dollars per hour for the running workers, as far as prices are known.
    cost: Option<f64>,
}

impl Totals {
    fn add(&mut self, pool: &PoolDifference, outdated: u64, cost: Option<f64>) {
        self.created += pool.created.len();
        self.replaced += pool.replaced.len();
        self.updated += pool.updated.len();
        self.archived += pool.archived.len();
        self.kept += pool.n_kept;
        self.outdated += outdated;
        if let Some(cost) = cost {
            self.cost = Some(self.cost.unwrap_or(0.0) + cost);
        }
    }
}

/// To a ten-thousandth of a dollar.
fn rounded(dollars: f64) -> f64 {
    (dollars * 10_000.0).round() / 10_000.0
}

fn change_word(change: PoolChange) -> &'static str {
    match change {
        PoolChange::Created => "created",
        PoolChange::Changed => "changed",
        PoolChange::Removed => "removed",
        PoolChange::Adopted => "adopted",
    }
}

fn conditions(way: &CompletedLaunchConfig) -> Map<String, Value> {
    let presented = way.attributes.iter();
    presented
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}

fn values_json(changes: &[ValueChange]) -> Vec<Value> {
    let shown = changes.iter().take(MAX_SHOWN).map(|change| {
        let mut shown = json!({"pointer": change.pointer});
        if let Some(before) = &change.before {
            shown["before"] = before.clone();
        }
        if let Some(after) = &change.after {
            shown["after"] = after.clone();
        }
        shown
    });
    shown.collect()
}

fn rules_json(changes: &[(String, RuleChange)]) -> Value {
    let shown = changes
        .iter()
        .take(MAX_SHOWN)
        .map(|(id, change)| match change {
            RuleChange::Added => json!({"ruleId": id, "change": "added"}),
            RuleChange::Removed => json!({"ruleId": id, "change": "removed"}),
            RuleChange::Moved => json!({"ruleId": id, "change": "moved"}),
            RuleChange::Changed(values) => {
                json!({"ruleId": id, "change": "changed", "values": values_json(values)})
            }
        });
    shown.collect()
}
