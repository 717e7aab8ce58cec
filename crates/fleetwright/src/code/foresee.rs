//! What the server says would follow from worker configurations: their pools, launch configs and workers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::change::{Change, Plan};
use super::definitions::Wanted;
use super::kind::Kind;
use super::server::{Here, read_one};
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// Asks about every wanted configuration, also about those whose rules are as they should be: what providers
/// present may have changed since the server compiled them.
pub(super) async fn foresee(
    plan: &mut Plan,
    wanted: &Wanted,
    here: &Here,
    adopts: bool,
    client: &Client,
) -> Result<(), Failure> {
    let freed = plan.freed();
    let mut progress = Progress::start();
    for (key, item) in &wanted.items {
        let (kind, id) = (key.0, &key.1);
        if kind != Kind::WorkerConfiguration {
            continue;
        }
        progress.tell(|| format!("planning {} {id}", kind.noun()));
        let question = Question {
            id,
            place: &item.place,
            content: &item.content,
        };
        let answer = match question.ask(adopts, &freed, client).await {
            Ok(answer) => answer,
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                plan.errors.push(failure.message);
                continue;
            }
        };
        plan.conflicts.extend(answer.conflicts);
        let known = |change: &&mut Change| change.kind == kind && change.id == *id;
        let change = match plan.changes.iter_mut().find(known) {
            Some(change) => change,
            None if !changes_pools(&answer.foreseen) => continue,
            // The rules are as they should be, and what follows from them is not.
            None => {
                if let Some(same) = plan.same.get_mut(&kind) {
                    *same = same.saturating_sub(1);
                }
                plan.changes
                    .push(Change::from(key, here.items.get(key), Some(item)));
                let Some(change) = plan.changes.last_mut() else {
                    continue;
                };
                change
            }
        };
        change.foreseen = Some(answer.foreseen);
        change.adopted = answer.adopted;
    }
    plan.order();
    Ok(())
}

/// One worker configuration as it shall be.
pub(super) struct Question<'a> {
    pub(super) id: &'a str,
    /// Which file wants it.
    pub(super) place: &'a str,
    pub(super) content: &'a Value,
}

/// What would follow from it.
pub(super) struct Answer {
    pub(super) foreseen: Value,
    /// What stands in its way.
    pub(super) conflicts: Vec<String>,
    /// The worker pools made by hand that it takes over, as they are.
    pub(super) adopted: BTreeMap<String, Value>,
}

impl Question<'_> {
    /// `freed`: the pools that other changes of the same plan give up before.
    pub(super) async fn ask(
        &self,
        adopts: bool,
        freed: &BTreeSet<String>,
        client: &Client,
    ) -> Result<Answer, Failure> {
        let (noun, id) = (Kind::WorkerConfiguration.noun(), self.id);
        let mut body = self.content.clone();
        body["adoptPools"] = json!(adopts);
        let call = Call::post(WORKER_MANAGER, &["worker-configuration", id, "plan"], body)
            .to(format!("plan {noun} {id} of {}", self.place));
        let mut foreseen = client.call(&call).await?;
        let conflicts = take_conflicts(&mut foreseen, freed)
            .into_iter()
            .map(|conflict| {
                let conflict =
                    conflict.replace("(see adoptPools)", "(--adopt-pools takes it over)");
                format!("{noun} {id}: {conflict}")
            });
        let conflicts = conflicts.collect();
        let mut adopted = BTreeMap::new();
        for pool in adopted_pools(&foreseen) {
            if let Some(there) = read_one(client, Kind::WorkerPool, pool).await? {
                adopted.insert(pool.to_owned(), there.content);
            }
        }
        Ok(Answer {
            foreseen,
            conflicts,
            adopted,
        })
    }
}

/// Whether anything would become of pools.
pub(super) fn changes_pools(foreseen: &Value) -> bool {
    foreseen["pools"] != json!([])
}

/// Takes the conflicts out of a plan, and returns those that no other change solves.
fn take_conflicts(foreseen: &mut Value, freed: &BTreeSet<String>) -> Vec<String> {
    let conflicts = foreseen["conflicts"].take();
    if let Some(foreseen) = foreseen.as_object_mut() {
        foreseen.remove("conflicts");
    }
    let conflicts = conflicts
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    conflicts
        .filter(|conflict| !is_solved(conflict, freed))
        .map(str::to_owned)
        .collect()
}

/// Whether another change of this plan gives the worker type away before.
fn is_solved(conflict: &str, freed: &BTreeSet<String>) -> bool {
    let belongs = conflict.split_once(" belongs to the worker configuration ");
    belongs.is_some_and(|(pool, _)| freed.contains(pool))
}

/// The worker pools made by hand that a plan takes over.
fn adopted_pools(foreseen: &Value) -> impl Iterator<Item = &str> {
    let pools = foreseen["pools"].as_array().into_iter().flatten();
    let adopted = pools.filter(|pool| pool["change"] == "adopted");
    adopted.filter_map(|pool| pool["workerPoolId"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_that_the_plan_itself_solves_do_not_count() {
        let freed = BTreeSet::from(["a/b".to_owned()]);
        let mut foreseen = json!({"pools": [], "conflicts": [
            "a/b belongs to the worker configuration x", "a/c belongs to the worker configuration x"]});
        let conflicts = take_conflicts(&mut foreseen, &freed);
        assert_eq!(conflicts, ["a/c belongs to the worker configuration x"]);
        assert_eq!(foreseen, json!({"pools": []}));
    }
}
