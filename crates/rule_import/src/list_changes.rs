//! Lists that differ in few values from the list before them become changes of its elements.

use std::collections::BTreeMap;

use domain::configuration::Compilation;
use serde_json::Value;

use super::leaves::{below, leaves_and_deletions};
use super::source::Sections;
use super::templates::{REFERENCE, REFERENCES};

/// Changes of elements that one list becomes at most; with more, a list is easier to read.
const MAX_CHANGES: usize = 4;
/// Characters of a change besides its path and value.
const MARGIN: usize = 6;

/// The rules with changes of elements in place of lists, if any list can be written so.
pub(super) fn shortened(
    rules: &[Value],
    compilation: &Compilation,
    sections: &Sections,
) -> Option<Vec<Value>> {
    let before = lists_before(rules, compilation, sections);
    let mut shorter = rules.to_vec();
    let mut has_changed = false;
    for ((number, pointer), old) in before {
        let rule = &mut shorter[number];
        let Some(new) = rule["values"].pointer(&pointer) else {
            continue;
        };
        let Some(changes) = changes(&pointer, &old, new) else {
            continue;
        };
        let n_before = new.to_string().len();
        let n_after: usize = changes
            .iter()
            .map(|(path, value)| path.len() + value.to_string().len() + MARGIN)
            .sum();
        if n_after < n_before {
            remove(&mut rule["values"], &pointer);
            for (path, value) in changes {
                rule["elements"][path] = value;
            }
            let is_template = |part: &str| rule[part].to_string().contains(REFERENCE);
            if !is_template("values") && !is_template("elements") {
                rule.as_object_mut().map(|rule| rule.remove(REFERENCES));
            }
            has_changed = true;
        }
    }
    has_changed.then_some(shorter)
}

/// By rule and pointer: the list that an earlier rule sets there, in all evaluations of the rule.
fn lists_before(
    rules: &[Value],
    compilation: &Compilation,
    sections: &Sections,
) -> BTreeMap<(usize, String), Value> {
    let numbers: BTreeMap<&str, usize> = (0..)
        .zip(rules)
        .filter_map(|(number, rule)| Some((rule["ruleId"].as_str()?, number)))
        .collect();
    let mut wanted: Vec<Vec<String>> = Vec::new();
    for rule in rules {
        let values = rule["values"].as_object();
        let leaves = values.map(leaves_and_deletions).unwrap_or_default();
        let lists = leaves.into_iter().filter(|(_, value)| value.is_array());
        wanted.push(lists.map(|(pointer, _)| pointer).collect());
    }
    let mut found: BTreeMap<(usize, String), Option<usize>> = BTreeMap::new();
    for attributes in compilation.evaluated_attributes() {
        let applying = compilation.evaluator().applying(&attributes);
        let applying: Vec<usize> = applying
            .iter()
            .filter_map(|rule| numbers.get(rule.id()).copied())
            .collect();
        let own = attributes.get("provider").and_then(|id| sections.get(id));
        // No launch config has the values of other sections, nor their errors.
        let is_used = |pointer: &&String| {
            let key = pointer.split('/').nth(1).unwrap_or_default();
            own.is_some_and(|own| own == key) || !sections.values().any(|section| section == key)
        };
        for (at, number) in applying.iter().enumerate() {
            for pointer in wanted[*number].iter().filter(is_used) {
                let mut earlier = applying[..at].iter().rev();
                let before = earlier
                    .find(|before| touches(&rules[**before], pointer))
                    .copied();
                found
                    .entry((*number, pointer.clone()))
                    .and_modify(|known| *known = known.filter(|_| *known == before))
                    .or_insert(before);
            }
        }
    }
    let lists = found.into_iter().filter_map(|((number, pointer), before)| {
        let rule = &rules[before?];
        let list = rule["values"].pointer(&pointer)?;
        let new = rules[number]["values"].pointer(&pointer)?;
        // Both are written in the same way.
        let has_references = |rule: &Value| rule.get(REFERENCES).is_some();
        let are_alike = has_references(rule) && has_references(&rules[number])
            || ![list, new]
                .iter()
                .any(|list| list.to_string().contains(REFERENCE));
        (list.is_array() && are_alike).then(|| ((number, pointer), list.clone()))
    });
    lists.collect()
}

/// Whether a rule sets or deletes the value at this pointer.
fn touches(rule: &Value, pointer: &str) -> bool {
    let mut value = &rule["values"];
    for key in pointer.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        match value.as_object().and_then(|object| object.get(&key)) {
            Some(next) => value = next,
            None => return !value.is_object(),
        }
    }
    true
}

/// The changes that make the new list from the old one, by path.
fn changes(pointer: &str, old: &Value, new: &Value) -> Option<Vec<(String, Value)>> {
    let (old, new) = (old.as_array()?, new.as_array()?);
    if old.len() != new.len() {
        return None;
    }
    if let Some(change) = of_all_elements(pointer, old, new) {
        return Some(vec![change]);
    }
    let mut changes = Vec::new();
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        differences(&format!("{pointer}/{index}"), old, new, &mut changes)?;
    }
    (!changes.is_empty() && changes.len() <= MAX_CHANGES).then_some(changes)
}

/// `[machine=a]/machine: b`, if this is the only difference of all elements with `machine: a`.
fn of_all_elements(pointer: &str, old: &[Value], new: &[Value]) -> Option<(String, Value)> {
    let (first, other) = old.iter().zip(new).find(|(old, new)| old != new)?;
    let (first, other) = (first.as_object()?, other.as_object()?);
    let (key, before) = first
        .iter()
        .find(|(key, value)| other.get(*key) != Some(value))?;
    let after = other.get(key)?;
    let text = before.as_str()?;
    if after.is_null()
        || text.is_empty()
        || key.is_empty()
        || key.contains('=')
        || text.contains(']')
    {
        return None;
    }
    let made: Vec<Value> = old
        .iter()
        .map(|item| {
            let mut item = item.clone();
            if item.get(key) == Some(before) {
                item[key] = after.clone();
            }
            item
        })
        .collect();
    let path = below(&below(pointer, &format!("[{key}={text}]")), key);
    let is_simple = !after.is_object();
    (made == new && is_simple).then(|| (path, after.clone()))
}

/// The changes of one element; `None` if a list inside or the element itself would be replaced.
fn differences(
    pointer: &str,
    old: &Value,
    new: &Value,
    changes: &mut Vec<(String, Value)>,
) -> Option<()> {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(old), Value::Object(new)) => {
            for (key, old) in old {
                // Such a key would be read as a step into a list.
                let is_plain = key != "-"
                    && !key.starts_with('[')
                    && !key.bytes().all(|byte| byte.is_ascii_digit());
                let inner = below(pointer, key);
                match new.get(key) {
                    Some(new) if is_plain => differences(&inner, old, new, changes)?,
                    None if is_plain => changes.push((inner, Value::Null)),
                    Some(new) if new == old => {}
                    Some(_) | None => return None,
                }
            }
            for (key, new) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                if new.is_null() || new.is_object() {
                    return None;
                }
                changes.push((below(pointer, key), new.clone()));
            }
        }
        (_, Value::Null | Value::Object(_)) => return None,
        (_, new) => changes.push((pointer.to_owned(), new.clone())),
    }
    Some(())
}

/// Removes a value, and the objects around it that become empty.
fn remove(values: &mut Value, pointer: &str) {
    let (above, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    let key = key.replace("~1", "/").replace("~0", "~");
    let Some(object) = values.pointer_mut(above).and_then(Value::as_object_mut) else {
        return;
    };
    object.remove(&key);
    if object.is_empty() && !above.is_empty() {
        remove(values, above);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn changed(old: Value, new: Value) -> Option<Value> {
        let changes = changes("/disks", &old, &new)?;
        Some(Value::Object(changes.into_iter().collect::<Map<_, _>>()))
    }

    #[test]
    fn few_differences_become_changes() {
        let old = json!([{"m": "a", "z": [1]}, {"m": "a", "z": [2]}, {"m": "b"}]);
        assert_eq!(
            changed(
                old.clone(),
                json!([{"m": "c", "z": [1]}, {"m": "c", "z": [2]}, {"m": "b"}])
            ),
            Some(json!({"/disks/[m=a]/m": "c"}))
        );
        assert_eq!(
            changed(
                old.clone(),
                json!([{"m": "a", "z": [1, 3]}, {"m": "a"}, {"m": "b", "n": 1}])
            ),
            Some(json!({"/disks/0/z": [1, 3], "/disks/1/z": null, "/disks/2/n": 1}))
        );
        for new in [
            json!([]),
            json!([{"m": "a", "z": [1]}, {"m": "a", "z": [2]}, {"m": {}}]),
            old.clone(),
        ] {
            assert_eq!(changed(old.clone(), new), None);
        }
    }
}
