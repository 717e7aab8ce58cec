//! Prints values that differ: position, old and new value.

use domain::configuration::{ValueChange, value_changes};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::style::Style;
use crate::output::printable;

/// Longer values are cut, except in full output.
const MAX_SHOWN: usize = 160;
const CONTEXT_LINES: usize = 1;

pub(crate) fn lines(changes: &[ValueChange], style: Style) -> Vec<String> {
    changes
        .iter()
        .flat_map(|change| line_of(change, style))
        .collect()
}

/// The changes with lists of mappings divided into their items, as they are printed.
pub(super) fn leaves(changes: Vec<ValueChange>) -> Vec<ValueChange> {
    let leaves = changes.into_iter().flat_map(|change| {
        let items = match (&change.before, &change.after) {
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                item_changes(&change.pointer, old, new)
            }
            (_, _) => None,
        };
        items.map_or_else(|| vec![change], leaves)
    });
    leaves.collect()
}

pub(crate) fn parse(values: &Value) -> Vec<ValueChange> {
    let values = values.as_array().into_iter().flatten();
    values
        .map(|value| ValueChange {
            pointer: value["pointer"].as_str().unwrap_or_default().to_owned(),
            before: value.get("before").cloned(),
            after: value.get("after").cloned(),
        })
        .collect()
}

fn line_of(change: &ValueChange, style: Style) -> Vec<String> {
    let at = printable(&change.pointer);
    match (&change.before, &change.after) {
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            lists(&change.pointer, old, new, style)
        }
        (Some(Value::String(old)), Some(Value::String(new)))
            if old.contains('\n') || new.contains('\n') =>
        {
            texts(&at, old, new, style)
        }
        (Some(old), Some(new)) => {
            let (old, new) = (short(old, style), short(new, style));
            vec![format!(
                "{at}: {} → {}",
                style.before(&old),
                style.after(&new)
            )]
        }
        (None, Some(new)) => vec![style.added(&format!("{at}: {}", short(new, style)))],
        (Some(old), None) => vec![style.removed(&format!("{at}: {}", short(old, style)))],
        (None, None) => Vec::new(),
    }
}

/// Compares lists of mappings with equal lengths item by item; for other lists, reports added and
/// removed items.
fn lists(pointer: &str, old: &[Value], new: &[Value], style: Style) -> Vec<String> {
    if let Some(changes) = item_changes(pointer, old, new) {
        return lines(&changes, style);
    }
    let at = printable(pointer);
    let (mut removed, mut added): (Vec<_>, Vec<_>) = (old.iter().collect(), Vec::new());
    for item in new {
        match removed.iter().position(|known| *known == item) {
            Some(position) => drop(removed.remove(position)),
            None => added.push(item),
        }
    }
    if removed.is_empty() && added.is_empty() {
        return vec![format!("{at}: the same in another order")];
    }
    let removed = removed
        .iter()
        .map(|item| style.removed(&format!("{at}: {}", short(item, style))));
    let added = added
        .iter()
        .map(|item| style.added(&format!("{at}: {}", short(item, style))));
    removed.chain(added).collect()
}

/// The changes of the items of lists of mappings with equal lengths.
fn item_changes(pointer: &str, old: &[Value], new: &[Value]) -> Option<Vec<ValueChange>> {
    let pairs = || old.iter().zip(new);
    let are_comparable =
        old.len() == new.len() && pairs().any(|(old, new)| old.is_object() && new.is_object());
    let changes = pairs().enumerate().flat_map(|(position, (old, new))| {
        let mut changes = value_changes(old, new);
        for change in &mut changes {
            change.pointer = format!("{pointer}/{position}{}", change.pointer);
        }
        changes
    });
    are_comparable.then(|| changes.collect())
}

fn texts(at: &str, old: &str, new: &str, style: Style) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = vec![format!("{at}:")];
    for group in diff.grouped_ops(CONTEXT_LINES) {
        for change in group
            .iter()
            .flat_map(|operation| diff.iter_changes(operation))
        {
            let line = printable(change.value().trim_end_matches('\n'));
            lines.push(match change.tag() {
                ChangeTag::Delete => format!("  {}", style.removed(&line)),
                ChangeTag::Insert => format!("  {}", style.added(&line)),
                ChangeTag::Equal => format!("    {line}"),
            });
        }
    }
    lines
}

pub(crate) fn short(value: &Value, style: Style) -> String {
    let text = printable(&value.to_string());
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) if !style.in_full => format!("{}…", &text[..end]),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STYLE: Style = Style {
        in_colour: false,
        in_full: false,
    };

    fn shown(before: &Value, after: &Value) -> String {
        lines(&value_changes(before, after), STYLE).join("\n")
    }

    #[test]
    fn each_difference_has_a_line() {
        let before = json!({"a": {"b": 1, "gone": true}, "same": 1, "list": ["x", "y"]});
        let after = json!({"a": {"b": 2, "new": "n"}, "same": 1, "list": ["y", "z"]});
        insta::assert_snapshot!(shown(&before, &after), @r#"
        /a/b: 1 → 2
        - /a/gone: true
        + /a/new: "n"
        - /list: "x"
        + /list: "z"
        "#);
    }

    #[test]
    fn lists_of_mappings_are_compared_item_by_item() {
        let disks = |size: u64| json!({"disks": [{"boot": true, "size": size}, {"size": 1}]});
        insta::assert_snapshot!(shown(&disks(5), &disks(9)), @"/disks/0/size: 5 → 9");
    }

    #[test]
    fn of_texts_with_lines_only_those_that_differ_are_shown() {
        let script = |line: &str| json!({"script": format!("#!/bin/sh\nset -e\n{line}\nexit\n")});
        insta::assert_snapshot!(shown(&script("one"), &script("two")), @r"
        /script:
            set -e
          - one
          + two
            exit
        ");
    }

    #[test]
    fn a_mere_change_of_order_is_called_so() {
        let shown = shown(&json!({"l": [1, 2]}), &json!({"l": [2, 1]}));
        assert_eq!(shown, "/l: the same in another order");
    }

    #[test]
    fn long_values_are_cut_unless_all_is_asked_for() {
        let long = json!("x".repeat(500));
        assert!(short(&long, STYLE).ends_with("x…"));
        let full = Style {
            in_full: true,
            ..STYLE
        };
        assert_eq!(short(&long, full).len(), 502);
    }

    #[test]
    fn colours_are_only_for_screens() {
        let change = value_changes(&json!({"a": 1}), &json!({"a": 2}));
        let coloured = Style {
            in_colour: true,
            ..STYLE
        };
        assert!(lines(&change, coloured)[0].contains('\x1b'));
        assert!(!lines(&change, STYLE)[0].contains('\x1b'));
    }
}
