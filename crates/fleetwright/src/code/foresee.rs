//! What the server says would follow from worker configurations: their pools, launch configs and workers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::change::{Action, Change, Plan};
use super::kind::Kind;
use super::read::Wanted;
use super::server::Here;
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
    let freed: BTreeSet<String> = plan.changes.iter().flat_map(Change::loses).collect();
    let mut progress = Progress::start();
    let configurations = wanted.items.iter();
    for ((kind, id), item) in
        configurations.filter(|((kind, _), _)| *kind == Kind::WorkerConfiguration)
    {
        progress.tell(|| format!("planning {} {id}", kind.noun()));
        let mut body = item.content.clone();
        body["adoptPools"] = json!(adopts);
        let call = Call::post(WORKER_MANAGER, &["worker-configuration", id, "plan"], body)
            .to(format!("plan {} {id} of {}", kind.noun(), item.place));
        let mut foreseen = match client.call(&call).await {
            Ok(foreseen) => foreseen,
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                plan.errors.push(failure.message);
                continue;
            }
        };
        let conflicts = take_conflicts(&mut foreseen, |conflict| is_solved(conflict, &freed));
        plan.conflicts.extend(conflicts.into_iter().map(|conflict| {
            let known = format!("{} {id}: {conflict}", kind.noun());
            known.replace("(see adoptPools)", "(--adopt-pools takes it over)")
        }));
        let planned = plan
            .changes
            .iter_mut()
            .find(|change| change.kind == *kind && change.id == *id);
        match planned {
            Some(change) => change.foreseen = Some(foreseen),
            None if foreseen["pools"] == json!([]) => {}
            None => recompile(
                plan,
                (*kind, id),
                here,
                &item.place,
                &item.content,
                foreseen,
            ),
        }
    }
    plan.order();
    Ok(())
}

/// The rules are as they should be, and what follows from them is not.
fn recompile(
    plan: &mut Plan,
    (kind, id): (Kind, &str),
    here: &Here,
    place: &str,
    content: &Value,
    foreseen: Value,
) {
    if let Some(same) = plan.same.get_mut(&kind) {
        *same = same.saturating_sub(1);
    }
    let there = here.items.get(&(kind, id.to_owned()));
    plan.changes.push(Change {
        kind,
        id: id.to_owned(),
        action: Action::Update,
        place: Some(place.to_owned()),
        version: there.and_then(|there| there.version),
        before: there.map(|there| there.content.clone()),
        after: Some(content.clone()),
        foreseen: Some(foreseen),
    });
}

/// Takes the conflicts out of a plan, and returns those that count.
fn take_conflicts(foreseen: &mut Value, is_solved: impl Fn(&str) -> bool) -> Vec<String> {
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
        .filter(|conflict| !is_solved(conflict))
        .map(str::to_owned)
        .collect()
}

/// Whether another change of this plan gives the worker type away before.
fn is_solved(conflict: &str, freed: &BTreeSet<String>) -> bool {
    let belongs = conflict.split_once(" belongs to the worker configuration ");
    belongs.is_some_and(|(pool, _)| freed.contains(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_that_the_plan_itself_solves_do_not_count() {
        let freed = BTreeSet::from(["a/b".to_owned()]);
        let mut foreseen = json!({"pools": [], "conflicts": [
            "a/b belongs to the worker configuration x", "a/c belongs to the worker configuration x"]});
        let conflicts = take_conflicts(&mut foreseen, |conflict| is_solved(conflict, &freed));
        assert_eq!(conflicts, ["a/c belongs to the worker configuration x"]);
        assert_eq!(foreseen, json!({"pools": []}));
    }
}
