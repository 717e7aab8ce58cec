//! Prints a plan: items to create, change and remove.

use domain::configuration::{ValueChange, value_changes};
use serde_json::Value;

use super::change::{Action, Change, Plan};
use super::kind::Kind;
use super::style::{Style, indented};
use super::{effects, semantic, values};
use crate::output::{counted, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tense {
    Would,
    /// The number of changes that were already applied before.
    Past(usize),
}

/// More updates of one kind are grouped by their differences.
const MAX_SINGLE: usize = 6;
/// Maximum number of items to name for one group of updates.
const MAX_NAMED: usize = 3;
/// Maximum number of lines of values to print for one item that others follow.
const MAX_VALUE_LINES: usize = 12;

pub(super) fn lines(plan: &Plan, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let changes = plan.changes.iter();
    let is_grouped = |change: &&Change| {
        let is_update = change.action == Action::Update && change.effects.is_none();
        let same = plan.changes.iter().filter(|other| {
            other.kind == change.kind && other.action == Action::Update && other.effects.is_none()
        });
        is_update && !style.in_full && same.count() > MAX_SINGLE
    };
    let (grouped, single): (Vec<&Change>, Vec<&Change>) = changes.partition(is_grouped);
    lines.extend(group_lines(&grouped, style));
    let single = single.into_iter();
    lines.extend(single.flat_map(|change| change_lines(change, style)));
    lines
}

/// Whether more could be shown of the effects on pools.
pub(super) fn is_summed_up(plan: &Plan, style: Style) -> bool {
    let updated = plan
        .changes
        .iter()
        .filter(|change| change.action == Action::Update);
    let mut planned = updated.filter_map(|change| change.effects.as_ref());
    planned.any(|planned| effects::is_summed_up(planned, style))
}

/// Updates with equal differences once, with the names of the first.
fn group_lines(changes: &[&Change], style: Style) -> Vec<String> {
    let mut groups: Vec<(Kind, Vec<String>, Vec<String>)> = Vec::new();
    for change in changes {
        let values = semantic::cut(update_lines(change, style), MAX_VALUE_LINES, "line");
        let id = printable(&change.id);
        let known = groups.iter_mut();
        let mut known = known.filter(|(kind, lines, _)| *kind == change.kind && *lines == values);
        match known.next() {
            Some((_, _, ids)) => ids.push(id),
            None => groups.push((change.kind, values, vec![id])),
        }
    }
    let mut lines = Vec::new();
    for (kind, values, ids) in groups {
        let named: Vec<&str> = ids.iter().take(MAX_NAMED).map(String::as_str).collect();
        let named = named.join(", ");
        lines.push(style.changed(&match ids.len() {
            1 => format!("{} {named}", kind.noun()),
            several => match several.saturating_sub(MAX_NAMED) {
                0 => format!("{several} {}s: {named}", kind.noun()),
                more => format!("{several} {}s: {named} and {more} more", kind.noun()),
            },
        }));
        lines.extend(indented(values));
    }
    lines
}

fn change_lines(change: &Change, style: Style) -> Vec<String> {
    let mut title = printable(&change.title());
    let gist = gist(change);
    if !gist.is_empty() {
        title.push_str(&format!(" ({gist})"));
    }
    let mut lines = match change.action {
        Action::Create => vec![style.added(&title)],
        Action::Update => vec![style.changed(&title)],
        Action::Remove => return vec![style.removed(&title)],
    };
    if change.action == Action::Create && style.in_full {
        let empty = Value::Object(serde_json::Map::new());
        let after = change.after.clone().unwrap_or_default();
        let after = change.kind.normal(&change.id, &after);
        let changes = value_changes(&empty, &after);
        lines.extend(indented(values::lines(&changes, style)));
    }
    if change.action == Action::Update {
        lines.extend(indented(if style.in_full {
            update_lines(change, style)
        } else {
            semantic::cut(update_lines(change, style), MAX_VALUE_LINES, "line")
        }));
    }
    if let Some(planned) = &change.effects {
        // All pools of a new configuration are new, except those that it takes over.
        lines.extend(indented(
            if change.action != Action::Create || style.in_full {
                effects::lines(planned, style)
            } else {
                effects::adopted_lines(planned, style)
            },
        ));
    }
    lines
}

fn update_lines(change: &Change, style: Style) -> Vec<String> {
    let mut differing = change.values();
    if change.kind == Kind::WorkerConfiguration && change.effects.is_some() {
        // Rules are described one by one.
        differing.retain(|value| !value.pointer.starts_with("/rules"));
    }
    if change.kind == Kind::WorkerPool && !style.in_full {
        return launch_config_lines(values::leaves(differing), style);
    }
    values::lines(&differing, style)
}

/// The normal form of a pool has its launch configs by their ids, which depend on the content.
const LISTED: &str = "/config/launchConfigs/";
/// More removed or new launch configs of a pool are not compared with each other.
const MAX_COMPARED: usize = 100;

/// A difference that several launch configs of a pool have, once.
fn launch_config_lines(differing: Vec<ValueChange>, style: Style) -> Vec<String> {
    let mut shown: Vec<(Vec<String>, usize)> = Vec::new();
    for mut change in differences_of_similar(differing) {
        let below = change.pointer.strip_prefix(LISTED);
        if let Some((_, rest)) = below.and_then(|below| below.split_once('/')) {
            change.pointer = format!("{LISTED}*/{rest}");
        }
        // A changed text has several lines.
        let lines = values::lines(&[change], style);
        match shown.iter_mut().find(|(known, _)| *known == lines) {
            Some((_, times)) => *times += 1,
            None => shown.push((lines, 1)),
        }
    }
    let lines = shown.into_iter().flat_map(|(mut lines, times)| {
        if let Some(first) = lines.first_mut().filter(|_| times > 1) {
            first.push_str(&format!(" ({times} times)"));
        }
        lines
    });
    lines.collect()
}

/// In place of each new launch config, its differences from the most similar removed one.
fn differences_of_similar(differing: Vec<ValueChange>) -> Vec<ValueChange> {
    let is_launch_config = |change: &ValueChange| {
        let id = change.pointer.strip_prefix(LISTED);
        id.is_some_and(|id| !id.contains('/'))
    };
    let (listed, mut others): (Vec<_>, Vec<_>) = differing.into_iter().partition(is_launch_config);
    let (added, mut removed): (Vec<_>, Vec<_>) = listed
        .into_iter()
        .partition(|change| change.before.is_none());
    let is_small = added.len() <= MAX_COMPARED && removed.len() <= MAX_COMPARED;
    for added in added {
        let compared = removed.iter().enumerate().filter(|_| is_small);
        let compared = compared.filter_map(|(at, removed)| {
            let changes = value_changes(removed.before.as_ref()?, added.after.as_ref()?);
            Some((at, changes))
        });
        match compared.min_by_key(|(_, changes)| changes.len()) {
            Some((at, changes)) => {
                removed.remove(at);
                others.extend(
                    values::leaves(changes)
                        .into_iter()
                        .map(|change| ValueChange {
                            pointer: format!("{}{}", added.pointer, change.pointer),
                            ..change
                        }),
                );
            }
            None => others.push(added),
        }
    }
    others.extend(removed);
    others
}

fn gist(change: &Change) -> String {
    match (change.kind, change.action) {
        (Kind::WorkerConfiguration, Action::Remove) => {
            let pools: Vec<_> = change.loses().into_iter().collect();
            if pools.is_empty() {
                String::new()
            } else {
                format!(
                    "its pools are deleted after their last workers stop: {}",
                    pools.join(", ")
                )
            }
        }
        (Kind::WorkerConfiguration, Action::Create | Action::Update) => {
            let effects = change.effects.as_ref();
            effects.map(semantic::gist).unwrap_or_default()
        }
        (_, Action::Update | Action::Remove) => String::new(),
        (_, Action::Create) => {
            gist_of_new(change.kind, change.after.as_ref().unwrap_or(&Value::Null))
        }
    }
}

/// A summary of an item to create.
pub(crate) fn gist_of_new(kind: Kind, content: &Value) -> String {
    let text = |key: &str| content[key].as_str().unwrap_or_default();
    match kind {
        Kind::WorkerConfiguration => String::new(),
        Kind::Image => {
            let uploads = content["uploads"].as_array().map_or(0, Vec::len);
            format!("{} to upload to", counted(uploads, "target"))
        }
        Kind::Override => format!("until {}", text("until")),
        Kind::Budget => format!("${} per {}", content["limit"], text("per")),
        Kind::Role | Kind::Client => {
            counted(content["scopes"].as_array().map_or(0, Vec::len), "scope")
        }
        Kind::WorkerPool => match content["config"]["launchConfigs"].as_array() {
            None => text("providerId").to_owned(),
            Some(list) => {
                let launch_configs = counted(list.len(), "launch config");
                format!("{}, {launch_configs}", text("providerId"))
            }
        },
    }
}

/// A summary in one line. `done` are the applied changes, or all changes of a plan.
pub(super) fn summary(plan: &Plan, done: &[Change], tense: Tense) -> String {
    let (words, nothing) = match tense {
        Tense::Would => (["to create", "to change", "to remove"], "nothing to do"),
        Tense::Past(_) => (["created", "changed", "removed"], "nothing to do"),
    };
    let actions = [Action::Create, Action::Update, Action::Remove];
    let mut parts = Vec::new();
    for (action, word) in actions.into_iter().zip(words) {
        let counted = done.iter().filter(|change| change.action == action).count();
        if counted > 0 {
            parts.push(match tense {
                Tense::Would => format!("{counted} {word}"),
                Tense::Past(_) => format!("{word} {counted}"),
            });
        }
    }
    match (tense, parts.is_empty()) {
        (Tense::Would | Tense::Past(0), true) => parts.push(nothing.to_owned()),
        (Tense::Past(before), true) => {
            parts.push(format!("{nothing}: {before} already done"));
        }
        (Tense::Would | Tense::Past(0), false) => {}
        (Tense::Past(before), false) => parts.push(format!("{before} already done")),
    }
    let same = plan.n_same();
    if same > 0 {
        parts.push(format!("{same} unchanged"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    const STYLE: Style = Style {
        in_colour: false,
        in_full: false,
    };

    fn pool(id: usize, values: &Value) -> Change {
        let content = |value: Value| json!({"providerId": "p", "config": value});
        let before = values.as_object().into_iter().flatten();
        let before: Value = before
            .map(|(key, _)| (key.clone(), json!("old")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        Change {
            kind: Kind::WorkerPool,
            id: format!("demo/p{id}"),
            action: Action::Update,
            place: None,
            version: None,
            before: Some(content(before)),
            after: Some(content(values.clone())),
            effects: None,
            adopted: BTreeMap::new(),
        }
    }

    fn shown(changes: Vec<Change>) -> Vec<String> {
        let plan = Plan {
            changes,
            ..Plan::default()
        };
        lines(&plan, STYLE)
    }

    #[test]
    fn equal_updates_of_many_items_are_shown_once() {
        let update = |id: usize| pool(id, &json!({"a": if id == 3 { "x" } else { "new" }}));
        insta::assert_snapshot!(shown((0..9).map(update).collect()).join("\n"), @r#"
        ~ 8 pools: demo/p0, demo/p1, demo/p2 and 5 more
            /config/a: "old" → "new"
        ~ pool demo/p3
            /config/a: "old" → "x"
        "#);
    }

    #[test]
    fn a_difference_of_several_launch_configs_is_shown_once() {
        let listed = |size: u64| json!({"launchConfigs": [{"disk": size, "id": 1}, {"disk": size, "id": 2}]});
        let mut change = pool(0, &json!({}));
        change.before = Some(json!({"providerId": "p", "config": listed(1)}));
        change.after = Some(json!({"providerId": "p", "config": listed(2)}));
        insta::assert_snapshot!(shown(vec![change]).join("\n"), @r"
        ~ pool demo/p0
            /config/launchConfigs/*/disk: 1 → 2 (2 times)
        ");
    }

    #[test]
    fn lists_are_cut() {
        for count in sizes_around("fleetwright::code::show::MAX_SINGLE", MAX_SINGLE) {
            let lines = shown((0..count).map(|id| pool(id, &json!({"a": 1}))).collect());
            let expected = if count > MAX_SINGLE { 2 } else { 2 * count };
            assert_eq!(lines.len(), expected, "{lines:?}");
        }
        for extra in sizes_around("fleetwright::code::show::MAX_NAMED", MAX_NAMED) {
            let changes: Vec<Change> = (0..extra).map(|id| pool(id, &json!({"a": 1}))).collect();
            let lines = group_lines(&changes.iter().collect::<Vec<_>>(), STYLE).join("\n");
            assert_eq!(lines.matches("demo/p").count(), extra.min(MAX_NAMED));
            assert_eq!(lines.contains("more"), extra > MAX_NAMED);
        }
        for count in sizes_around("fleetwright::code::show::MAX_COMPARED", MAX_COMPARED) {
            let change = |at: usize, is_new: bool| ValueChange {
                pointer: format!("{LISTED}{at}"),
                before: (!is_new).then(|| json!({"a": at})),
                after: is_new.then(|| json!({"a": at, "b": 1})),
            };
            let changes = (0..count).flat_map(|at| [change(at, true), change(at, false)]);
            let n_changes = differences_of_similar(changes.collect()).len();
            assert_eq!(
                n_changes,
                if count > MAX_COMPARED {
                    2 * count
                } else {
                    count
                }
            );
        }
        for count in sizes_around("fleetwright::code::show::MAX_VALUE_LINES", MAX_VALUE_LINES) {
            let values = (0..count).map(|at| (format!("v{at}"), json!(1)));
            let values = Value::Object(values.collect());
            let lines = shown(vec![pool(0, &values)]);
            let n_shown = lines.iter().filter(|line| line.contains("/v")).count();
            assert_eq!(n_shown, count.min(MAX_VALUE_LINES));
        }
    }
}
