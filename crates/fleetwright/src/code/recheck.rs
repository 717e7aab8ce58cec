//! Checks that an earlier plan is still valid.
//!
//! Reads all items and requests all previews again: providers may offer other places, and pools may
//! have been created by hand. Numbers and costs of workers change all the time and are ignored.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::change::{Action, Change, Plan};
use super::execute::{State, read_state};
use super::kind::Kind;
use super::preview::{Preview, PreviewRequest, changes_pools};
use super::semantic;
use super::style::Style;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::{Progress, printable};

/// Maximum number of lines of differences to print for one configuration.
const MAX_LINES: usize = 20;
const STYLE: Style = Style {
    in_colour: false,
    in_full: true,
};

pub(super) async fn conflicts(
    plan: &Plan,
    adopts: bool,
    client: &Client,
) -> Result<Vec<String>, Failure> {
    let mut conflicts = Vec::new();
    let earlier = plan.earlier();
    let mut freed = BTreeSet::new();
    let mut progress = Progress::start();
    for (position, change) in plan.changes.iter().enumerate() {
        progress.step("comparing", position, plan.changes.len(), change.title());
        let state = match read_state(change, &freed, client).await {
            Ok(state) => state,
            Err(failure) if failure.exit == Exit::Conflict => {
                conflicts.push(failure.message);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let is_done = state == State::Applied;
        if is_done {
            freed.extend(change.loses());
        }
        if change.kind != Kind::WorkerConfiguration || change.action == Action::Remove {
            continue;
        }
        let content = change.after.clone().unwrap_or_default();
        let request = PreviewRequest {
            id: &change.id,
            place: change.place.as_deref().unwrap_or_default(),
            content: &content,
        };
        match request.send(adopts, &earlier, client).await {
            Ok(answer) => conflicts.extend(compare(change, is_done, answer)),
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => conflicts.push(failure.message),
        }
    }
    Ok(conflicts)
}

fn compare(change: &Change, is_done: bool, now: Preview) -> Vec<String> {
    let mut conflicts = now.errors;
    conflicts.extend(now.conflicts);
    if is_done {
        if changes_pools(&now.effects) {
            conflicts.push(format!(
                "{} is as planned, but its effects changed: {}",
                change.title(),
                semantic::gist(&now.effects)
            ));
        }
        return conflicts;
    }
    let then = without_volatile(change.effects.as_ref().unwrap_or(&Value::Null));
    let effects = without_volatile(&now.effects);
    if then != effects {
        conflicts.push(format!(
            "{} would have other effects than planned:\n{}",
            change.title(),
            differing(&then, &effects).join("\n")
        ));
    }
    let normal = |pool: &str, content: &Value| Kind::WorkerPool.normal(pool, content);
    for (pool, content) in &now.adopted {
        let happened = match change.adopted.get(pool) {
            None => "was created by hand",
            Some(then) if normal(pool, then) != normal(pool, content) => "was changed",
            Some(_) => continue,
        };
        conflicts.push(format!(
            "pool {pool}, which {} takes over, {happened} by another client since the plan was \
             made",
            change.title()
        ));
    }
    for pool in change.adopted.keys() {
        if !now.adopted.contains_key(pool) {
            conflicts.push(format!(
                "pool {pool}, which {} takes over, was deleted or changed since the plan was made",
                change.title()
            ));
        }
    }
    conflicts
}

/// The effects without values that change all the time.
fn without_volatile(effects: &Value) -> Value {
    let mut lasting = effects.clone();
    drop_keys(
        &mut lasting,
        &["version", "outdatedWorkers", "costDifference"],
    );
    let pools = lasting["pools"].as_array_mut();
    for pool in pools.into_iter().flatten() {
        drop_keys(pool, &["outdatedWorkers", "costDifference"]);
        for list in ["created", "replaced", "updated", "archived"] {
            for way in pool[list].as_array_mut().into_iter().flatten() {
                drop_keys(way, &["workers", "price", "priceBefore", "priceAfter"]);
            }
        }
    }
    lasting
}

fn drop_keys(of: &mut Value, keys: &[&str]) {
    if let Some(fields) = of.as_object_mut() {
        fields.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// The lines that only one of the previews has; if their texts are equal, the values that differ.
fn differing(then: &Value, now: &Value) -> Vec<String> {
    let lines = |effects: &Value| {
        let mut listed = effects.clone();
        for pool in listed["pools"].as_array_mut().into_iter().flatten() {
            // Only changed pools list each launch config.
            pool["change"] = json!("changed");
        }
        semantic::lines(&listed, STYLE)
    };
    let (planned, effects) = (lines(then), lines(now));
    let only = |these: &[String], those: &[String], word: &str| -> Vec<String> {
        let these = these.iter().filter(|line| !those.contains(line));
        these
            .map(|line| format!("    {word}: {}", line.trim()))
            .collect()
    };
    let mut lines = only(&planned, &effects, "planned");
    lines.extend(only(&effects, &planned, "now"));
    if lines.is_empty() {
        let changes = domain::configuration::value_changes(then, now);
        let pointers = changes.iter().map(|change| &change.pointer);
        lines.extend(pointers.map(|at| format!("    {} differs", printable(at))));
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("    and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn effects(workers: u64, zones: &[&str]) -> Value {
        let created = zones.iter().map(|zone| {
            json!({"launchConfigId": format!("lc-{zone}"), "conditions": {"zone": zone}, "workers": workers, "price": 1})
        });
        json!({"version": 1, "outdatedWorkers": workers, "costDifference": null, "rules": [], "pools": [{
            "workerPoolId": "a/b", "change": "changed", "settings": [], "replaced": [], "archived": [],
            "created": created.collect::<Vec<_>>(), "outdatedWorkers": workers, "costDifference": 0.5}]})
    }

    fn change(effects: Value, adopted: &[(&str, &str)]) -> Change {
        Change {
            kind: Kind::WorkerConfiguration,
            id: "w".to_owned(),
            action: Action::Create,
            place: None,
            version: None,
            before: None,
            after: Some(json!({"workerTypes": [], "rules": []})),
            effects: Some(effects),
            adopted: pools(adopted),
        }
    }

    fn pools(adopted: &[(&str, &str)]) -> BTreeMap<String, Value> {
        let pools = adopted.iter().map(|(pool, owner)| {
            let content = json!({"providerId": "p", "owner": owner, "config": {}});
            ((*pool).to_owned(), content)
        });
        pools.collect()
    }

    fn answer(effects: Value, adopted: &[(&str, &str)]) -> Preview {
        Preview {
            effects,
            errors: Vec::new(),
            conflicts: Vec::new(),
            adopted: pools(adopted),
        }
    }

    #[test]
    fn changed_places_are_a_difference_and_changed_numbers_of_workers_are_not() {
        let planned = change(effects(1, &["z1"]), &[]);
        assert!(compare(&planned, false, answer(effects(5, &["z1"]), &[])).is_empty());
        let said = compare(&planned, false, answer(effects(1, &["z1", "z2"]), &[]));
        insta::assert_snapshot!(said.join("\n"), @r"
        worker configuration w would have other effects than planned:
            planned: ~ pool a/b: 1 new launch config
            now: ~ pool a/b: 2 new launch configs
            now: + zone=z2: lc-z2
        ");
    }

    #[test]
    fn changes_of_pools_to_take_over_are_conflicts() {
        let planned = change(
            effects(1, &[]),
            &[("a/same", "o"), ("a/other", "o"), ("a/gone", "o")],
        );
        let now = [("a/same", "o"), ("a/other", "x"), ("a/new", "o")];
        let said = compare(&planned, false, answer(effects(1, &[]), &now));
        insta::assert_snapshot!(said.join("\n"), @r"
        pool a/new, which worker configuration w takes over, was created by hand by another client since the plan was made
        pool a/other, which worker configuration w takes over, was changed by another client since the plan was made
        pool a/gone, which worker configuration w takes over, was deleted or changed since the plan was made
        ");
    }

    #[test]
    fn new_effects_of_an_applied_change_are_a_conflict() {
        let planned = change(effects(1, &["z1"]), &[]);
        let nothing = json!({"pools": []});
        assert!(compare(&planned, true, answer(nothing, &[])).is_empty());
        let said = compare(&planned, true, answer(effects(1, &["z2"]), &[]));
        assert!(said[0].contains("its effects changed"), "{}", said[0]);
    }
}
