//! Edits of one rule have the same result as parsing the edited list.

use fleetwright_rules::{EditError, Position, Rule, RuleSet, format};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::chance;

fn set() -> RuleSet {
    let rule = |id: &str| json!({ "ruleId": id, "values": {} });
    let rules = ["one", "two", "three"].into_iter().map(rule).collect();
    RuleSet::parse(&rules).unwrap()
}

fn rule(id: &str) -> Rule {
    Rule::parse(&json!({ "ruleId": id, "values": { "new": true } })).unwrap()
}

fn ids(set: &RuleSet) -> Vec<&str> {
    set.rules().iter().map(Rule::id).collect()
}

#[test]
fn a_rule_is_added_at_its_position() {
    let add = |at: Position| {
        let set = set().add(rule("new"), at).unwrap();
        ids(&set).join(" ")
    };
    assert_eq!(add(Position::First), "new one two three");
    assert_eq!(add(Position::Last), "one two three new");
    assert_eq!(add(Position::Before("two".to_owned())), "one new two three");
    assert_eq!(add(Position::After("two".to_owned())), "one two new three");
}

#[test]
fn a_failed_edit_has_its_reason() {
    let two = || "two".to_owned();
    let problem = |edit: Result<RuleSet, EditError>| edit.unwrap_err().to_string();
    assert_eq!(
        problem(set().add(rule("two"), Position::Last)),
        r#"a rule "two" exists already: replace it, or give the new rule another ruleId"#
    );
    assert_eq!(
        problem(set().add(rule("new"), Position::After("thre".to_owned()))),
        r#"no rule has the ruleId "thre", did you mean "three"?"#
    );
    assert_eq!(
        problem(set().replace(rule("four"))),
        r#"no rule has the ruleId "four""#
    );
    assert_eq!(
        problem(set().remove("tw")),
        r#"no rule has the ruleId "tw", did you mean "two"?"#
    );
    assert_eq!(
        problem(set().move_to("two", Position::Before(two()))),
        r#"rule "two" cannot be moved next to itself"#
    );
    let large =
        Rule::parse(&json!({ "ruleId": "one", "values": { "x": "x".repeat(5 * 1024 * 1024) } }))
            .unwrap();
    assert!(matches!(set().replace(large), Err(EditError::Invalid(_))));
}

proptest! {
    #[test]
    fn edits_are_as_reading_the_edited_list(
        rules in chance::at_least(2),
        kind in 0..4_u8,
        (from, to) in any::<(Index, Index)>(),
        mut new in chance::rule(),
    ) {
        let set = RuleSet::parse(&rules).unwrap();
        let mut list = rules.as_array().unwrap().clone();
        let from = from.index(list.len());
        let to = to.index(list.len() - 1);
        let id = format!("r{from}");
        let edited = match kind {
            0 => {
                new["ruleId"] = json!("new");
                let at = Position::After(format!("r{to}"));
                list.insert(to + 1, new.clone());
                set.add(Rule::parse(&new).unwrap(), at)
            }
            1 => {
                new["ruleId"] = json!(id);
                list[from] = new.clone();
                set.replace(Rule::parse(&new).unwrap())
            }
            2 => {
                list.remove(from);
                set.remove(&id)
            }
            _ => {
                let moved = list.remove(from);
                let at = Position::Before(list[to]["ruleId"].as_str().unwrap().to_owned());
                list.insert(to, moved);
                set.move_to(&id, at)
            }
        };
        let edited = edited.unwrap();
        let read = RuleSet::parse(&Value::Array(list)).unwrap();
        prop_assert_eq!(&edited, &read);
        prop_assert_eq!(format(&edited), format(&read));
    }
}
