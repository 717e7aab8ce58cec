//! Merges rules with the same conditions, where no rule between them needs its place.

use serde_json::{Map, Value};

use super::applications::Applications;
use super::leaves::{leaves_and_deletions, put};
use super::templates::{ELEMENTS, REFERENCE, REFERENCES, VALUES};

/// The rules with their numbers before: one for the same conditions where the order of the others
/// allows it.
pub(super) fn merged(rules: &[Value], applications: &mut Applications) -> Vec<(usize, Value)> {
    let mut kept: Vec<(usize, Value)> = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        let equal = (0..kept.len()).rev().find_map(|place| {
            let (first, other) = &kept[place];
            if other["conditions"] != rule["conditions"] || applications.overlap(*first, number) {
                return None;
            }
            let rule = united(other, rule)?;
            let between = &kept[place + 1..];
            let is_free = |moved: usize| {
                let mut between = between.iter();
                between.all(|(other, _)| !applications.conflict(*other, moved))
            };
            let stays = is_free(number);
            (stays || is_free(*first)).then_some((place, rule, stays))
        });
        match equal {
            None => kept.push((number, rule.clone())),
            Some((place, rule, stays)) => {
                applications.unite(kept[place].0, number);
                kept[place].1 = rule;
                if !stays {
                    let moved = kept.remove(place);
                    kept.push(moved);
                }
            }
        }
    }
    kept
}

/// Both rules as one, or nothing if one has references and the other texts that look like some.
fn united(first: &Value, second: &Value) -> Option<Value> {
    let has_references = |rule: &Value| rule.get(REFERENCES).is_some();
    let is_plain = |rule: &Value| {
        let parts = [VALUES, ELEMENTS];
        !parts
            .iter()
            .any(|part| rule[*part].to_string().contains(REFERENCE))
    };
    let fits = |rule: &Value| has_references(rule) || is_plain(rule);
    let references = has_references(first) || has_references(second);
    if references && !(fits(first) && fits(second)) {
        return None;
    }
    let mut rule = first.clone();
    let Value::Object(values) = &mut rule[VALUES] else {
        return None;
    };
    let more = second[VALUES].as_object().map(leaves_and_deletions);
    for (pointer, value) in more.into_iter().flatten() {
        put(values, &pointer, value.clone());
    }
    if let Some(Value::Object(more)) = second.get(ELEMENTS) {
        let mut elements = rule[ELEMENTS].as_object().cloned().unwrap_or_else(Map::new);
        elements.extend(more.clone());
        rule[ELEMENTS] = Value::Object(elements);
    }
    if references {
        rule[REFERENCES] = Value::Bool(true);
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_with_references_take_only_texts_that_look_like_none() {
        let plain = json!({"values": {"a": 1}, "elements": {"/b/-": 1}});
        let script = json!({"values": {"s": "${HOME}"}});
        let template = json!({"values": {"z": "${zone}"}, "references": true});
        let both = json!({"values": {"a": 1, "z": "${zone}"}, "elements": {"/b/-": 1}, "references": true});
        assert_eq!(united(&plain, &template), Some(both.clone()));
        assert_eq!(united(&template, &plain), Some(both));
        assert_eq!(united(&script, &template), None);
        assert_eq!(united(&template, &script), None);
        let plain_script = json!({"values": {"a": 1, "s": "${HOME}"}, "elements": {"/b/-": 1}});
        assert_eq!(united(&plain, &script), Some(plain_script));
    }
}
