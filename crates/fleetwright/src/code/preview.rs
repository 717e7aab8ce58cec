//! The server's previews of worker configurations: effects on pools, launch configs and workers.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::Configuration;
use serde_json::{Value, json};

use super::change::{Change, Earlier, Plan};
use super::definitions::{Definitions, Item};
use super::kind::Kind;
use super::server::{ServerState, read_one};
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::launch_config_keys::{ProviderKinds, of_rules};
use crate::misspelt::misspelt_conditions;
use crate::output::Progress;
use crate::rule_lines::RuleLines;

/// Requests a preview of every defined configuration, even of unchanged ones: the places of
/// providers may have changed since the server compiled them.
pub(super) async fn add_previews(
    plan: &mut Plan,
    definitions: &Definitions,
    server_state: &ServerState,
    options: PreviewOptions<'_>,
    client: &Client,
) -> Result<(), Failure> {
    let PreviewOptions {
        adopts,
        is_full,
        kinds,
    } = options;
    let earlier = plan.earlier();
    let mut progress = Progress::start();
    for (key, item) in &definitions.items {
        let (kind, id) = (key.0, &key.1);
        if kind != Kind::WorkerConfiguration {
            continue;
        }
        progress.report(|| format!("planning {} {id}", kind.noun()));
        let request = PreviewRequest {
            id,
            place: &item.place,
            content: &item.content,
        };
        let answer = match request.send(adopts, &earlier, client).await {
            Ok(answer) => answer,
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                plan.errors
                    .extend(errors_of(item, &failure.message, is_full));
                continue;
            }
        };
        plan.warnings.extend(warnings_of(item, kinds));
        plan.errors.extend(answer.errors);
        plan.conflicts.extend(answer.conflicts);
        let known = |change: &&mut Change| change.kind == kind && change.id == *id;
        let change = match plan.changes.iter_mut().find(known) {
            Some(change) => change,
            None if !changes_pools(&answer.effects) => continue,
            // The rules are unchanged, but the pools compiled from them would change.
            None => {
                if let Some(same) = plan.same.get_mut(&kind) {
                    *same = same.saturating_sub(1);
                }
                plan.changes
                    .push(Change::from(key, server_state.items.get(key), Some(item)));
                let Some(change) = plan.changes.last_mut() else {
                    continue;
                };
                change
            }
        };
        change.effects = Some(answer.effects);
        change.adopted = answer.adopted;
    }
    plan.order();
    Ok(())
}

/// How previews are made and their errors are shown.
pub(super) struct PreviewOptions<'a> {
    pub(super) adopts: bool,
    pub(super) is_full: bool,
    pub(super) kinds: &'a ProviderKinds,
}

/// The errors of a worker configuration that the server cannot plan, with their lines in its file.
/// Misspelt conditions come alone, since the other errors probably follow from them.
fn errors_of(item: &Item, message: &str, is_full: bool) -> Vec<String> {
    let lines = item.rule_lines();
    let mut errors = misspelt_lines(item, lines.as_ref());
    if let (Some(last), false) = (errors.last_mut(), is_full) {
        last.push_str(" Other errors probably follow from this: --full shows them");
        return errors;
    }
    errors.push(match lines {
        Some(lines) => lines.annotate(message),
        None => message.to_owned(),
    });
    errors
}

fn warnings_of(item: &Item, kinds: &ProviderKinds) -> Vec<String> {
    let lines = item.rule_lines();
    let mut warnings = misspelt_lines(item, lines.as_ref());
    if let Ok(parsed) = Configuration::parse(&item.content) {
        warnings.extend(of_rules(&parsed.rules, kinds, lines.as_ref()));
    }
    warnings
}

fn misspelt_lines(item: &Item, lines: Option<&RuleLines>) -> Vec<String> {
    let parsed = Configuration::parse(&item.content);
    let misspelt = parsed.map(|parsed| misspelt_conditions(&parsed.rules));
    let misspelt = misspelt.unwrap_or_default().into_iter();
    let misspelt = misspelt.map(|it| {
        let place = lines.and_then(|lines| lines.place(&it.rule, &it.pointer));
        format!("{}: {it}", place.as_ref().unwrap_or(&item.place))
    });
    misspelt.collect()
}

pub(super) struct PreviewRequest<'a> {
    pub(super) id: &'a str,
    /// The file that defines it.
    pub(super) place: &'a str,
    pub(super) content: &'a Value,
}

pub(super) struct Preview {
    pub(super) effects: Value,
    /// Errors in the definition.
    pub(super) errors: Vec<String>,
    /// Conflicts that would prevent the update.
    pub(super) conflicts: Vec<String>,
    /// The pools created by hand that it takes over, with their current content.
    pub(super) adopted: BTreeMap<String, Value>,
}

impl PreviewRequest<'_> {
    pub(super) async fn send(
        &self,
        adopts: bool,
        earlier: &Earlier,
        client: &Client,
    ) -> Result<Preview, Failure> {
        let (noun, id) = (Kind::WorkerConfiguration.noun(), self.id);
        let mut body = self.content.clone();
        body["adoptPools"] = json!(adopts);
        let call = Call::post(WORKER_MANAGER, &["worker-configuration", id, "plan"], body)
            .to(format!("plan {noun} {id} of {}", self.place));
        let mut effects = client.call(&call).await?;
        let errors = earlier.image_errors(&effects).into_iter();
        let errors = errors.map(|error| format!("{}: {noun} {id}: {error}", self.place));
        let errors = errors.collect();
        let conflicts = take_conflicts(&mut effects, &earlier.freed)
            .into_iter()
            .map(|conflict| {
                let conflict =
                    conflict.replace("(see adoptPools)", "(use --adopt-pools to take it over)");
                format!("{noun} {id}: {conflict}")
            });
        let conflicts = conflicts.collect();
        let mut adopted = BTreeMap::new();
        for pool in adopted_pools(&effects) {
            if let Some(stored) = read_one(client, Kind::WorkerPool, pool).await? {
                adopted.insert(pool.to_owned(), stored.content);
            }
        }
        Ok(Preview {
            effects,
            errors,
            conflicts,
            adopted,
        })
    }
}

pub(super) fn changes_pools(effects: &Value) -> bool {
    effects["pools"] != json!([])
}

/// Removes the obstacles from a preview, and returns the conflicts that no earlier
/// change resolves.
fn take_conflicts(effects: &mut Value, freed: &BTreeSet<String>) -> Vec<String> {
    let conflicts = effects["conflicts"].take();
    if let Some(effects) = effects.as_object_mut() {
        effects.remove("conflicts");
        effects.remove("missingImages");
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

/// Whether an earlier change of this plan gives up the worker type.
fn is_solved(conflict: &str, freed: &BTreeSet<String>) -> bool {
    let belongs = conflict.split_once(" belongs to the worker configuration ");
    belongs.is_some_and(|(pool, _)| freed.contains(pool))
}

/// The pools created by hand that a worker configuration takes over.
fn adopted_pools(effects: &Value) -> impl Iterator<Item = &str> {
    let pools = effects["pools"].as_array().into_iter().flatten();
    let adopted = pools.filter(|pool| pool["change"] == "adopted");
    adopted.filter_map(|pool| pool["workerPoolId"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_that_the_plan_itself_solves_do_not_count() {
        let freed = BTreeSet::from(["a/b".to_owned()]);
        let mut effects = json!({"pools": [], "conflicts": [
            "a/b belongs to the worker configuration x", "a/c belongs to the worker configuration x"]});
        let conflicts = take_conflicts(&mut effects, &freed);
        assert_eq!(conflicts, ["a/c belongs to the worker configuration x"]);
        assert_eq!(effects, json!({"pools": []}));
    }
}
