//! Prints a plan: items to create, change and remove.

use serde_json::Value;

use super::change::{Action, Change, Plan};
use super::kind::Kind;
use super::semantic;
use super::style::{Style, indented};
use super::values;
use crate::output::{counted, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tense {
    Would,
    /// The number of changes that were already applied before.
    Past(usize),
}

pub(super) fn lines(plan: &Plan, style: Style) -> Vec<String> {
    let changes = plan.changes.iter();
    changes
        .flat_map(|change| change_lines(change, style))
        .collect()
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
        let changes = domain::configuration::value_changes(&empty, &after);
        lines.extend(indented(values::lines(&changes, style)));
    }
    if change.action == Action::Update {
        lines.extend(indented(update_lines(change, style)));
    }
    if let Some(effects) = &change.effects {
        // All pools of a new configuration are new, except those that it takes over.
        lines.extend(indented(
            if change.action != Action::Create || style.in_full {
                semantic::lines(effects, style)
            } else {
                semantic::adopted_lines(effects, style)
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
    values::lines(&differing, style)
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
