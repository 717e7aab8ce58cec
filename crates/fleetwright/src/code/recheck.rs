//! Whether a plan that was made earlier still says what would happen.
//!
//! Everything is read again, and what would follow from worker configurations is asked again: providers may present
//! other places by now, and pools may have been made by hand. How many workers there are, and what they cost, changes
//! all the time and is left aside.

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

/// Of what differs in one configuration, so many lines are shown.
const MAX_LINES: usize = 20;
const STYLE: Style = Style {
    in_colour: false,
    in_full: true,
};

/// Everything that is not as the plan has it.
pub(super) async fn conflicts(
    plan: &Plan,
    adopts: bool,
    client: &Client,
) -> Result<Vec<String>, Failure> {
    let mut conflicts = Vec::new();
    let planned_to_be_freed = plan.freed();
    let mut freed = BTreeSet::new();
    let mut progress = Progress::start();
    for (position, change) in plan.changes.iter().enumerate() {
        progress.report(|| {
            format!(
                "comparing: {position} of {}, now {}",
                plan.changes.len(),
                change.title()
            )
        });
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
        match request.send(adopts, &planned_to_be_freed, client).await {
            Ok(answer) => conflicts.extend(compare(change, is_done, answer)),
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => conflicts.push(failure.message),
        }
    }
    Ok(conflicts)
}

/// What the server says now, against what it said then.
fn compare(change: &Change, is_done: bool, now: Preview) -> Vec<String> {
    let mut conflicts = now.conflicts;
    if is_done {
        if changes_pools(&now.effects) {
            conflicts.push(format!(
                "{} is as planned, and something else follows from it by now: {}",
                change.title(),
                semantic::gist(&now.effects)
            ));
        }
        return conflicts;
    }
    let then = lasting(change.effects.as_ref().unwrap_or(&Value::Null));
    let effects = lasting(&now.effects);
    if then != effects {
        conflicts.push(format!(
            "of {} something else would follow than was planned:\n{}",
            change.title(),
            differing(&then, &effects).join("\n")
        ));
    }
    let normal = |pool: &str, content: &Value| Kind::WorkerPool.normal(pool, content);
    for (pool, content) in &now.adopted {
        let happened = match change.adopted.get(pool) {
            None => "was made by hand",
            Some(then) if normal(pool, then) != normal(pool, content) => "was changed",
            Some(_) => continue,
        };
        conflicts.push(format!(
            "worker pool {pool}, which {} takes over, {happened} by somebody since the plan was made",
            change.title()
        ));
    }
    for pool in change.adopted.keys() {
        if !now.adopted.contains_key(pool) {
            conflicts.push(format!(
                "worker pool {pool}, which {} takes over, is not there any more as it was",
                change.title()
            ));
        }
    }
    conflicts
}

/// Without what changes from one moment to the next.
fn lasting(effects: &Value) -> Value {
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

/// What only one of them says, for people; if they say the same to people, the values that differ.
fn differing(then: &Value, now: &Value) -> Vec<String> {
    let lines = |effects: &Value| {
        let mut listed = effects.clone();
        for pool in listed["pools"].as_array_mut().into_iter().flatten() {
            // Of other pools, each launch config is listed.
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
            conflicts: Vec::new(),
            adopted: pools(adopted),
        }
    }

    #[test]
    fn how_many_workers_there_are_is_no_difference_and_which_places_is_one() {
        let planned = change(effects(1, &["z1"]), &[]);
        assert!(compare(&planned, false, answer(effects(5, &["z1"]), &[])).is_empty());
        let said = compare(&planned, false, answer(effects(1, &["z1", "z2"]), &[]));
        insta::assert_snapshot!(said.join("\n"), @r"
        of worker configuration w something else would follow than was planned:
            planned: ~ worker pool a/b: 1 new launch config
            now: ~ worker pool a/b: 2 new launch configs
            now: + zone=z2: lc-z2
        ");
    }

    #[test]
    fn pools_to_take_over_are_those_that_were_seen_and_as_they_were() {
        let planned = change(
            effects(1, &[]),
            &[("a/same", "o"), ("a/other", "o"), ("a/gone", "o")],
        );
        let now = [("a/same", "o"), ("a/other", "x"), ("a/new", "o")];
        let said = compare(&planned, false, answer(effects(1, &[]), &now));
        insta::assert_snapshot!(said.join("\n"), @r"
        worker pool a/new, which worker configuration w takes over, was made by hand by somebody since the plan was made
        worker pool a/other, which worker configuration w takes over, was changed by somebody since the plan was made
        worker pool a/gone, which worker configuration w takes over, is not there any more as it was
        ");
    }

    #[test]
    fn of_what_is_done_nothing_more_may_follow() {
        let planned = change(effects(1, &["z1"]), &[]);
        let nothing = json!({"pools": []});
        assert!(compare(&planned, true, answer(nothing, &[])).is_empty());
        let said = compare(&planned, true, answer(effects(1, &["z2"]), &[]));
        assert!(said[0].contains("something else follows"), "{}", said[0]);
    }
}
