//! No input makes the crate panic, whether or not people could write it.

use fleetwright_rules::{Attributes, Evaluator, Pattern, Rule, RuleSet, Sets, lint};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{chance, naive};

/// Any JSON, with the keys of rules among its keys.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::String),
        "[*?{}!^,a\\\\\\[\\]-]{0,6}".prop_map(Value::String),
        "([$]{0,2}[{](a|/x|/x/0|/a)[}]?|\\x00|a){0,4}".prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let key = prop_oneof![
            4 => prop::sample::select(vec!["ruleId", "description", "conditions", "values", "references", "elements", "set", "not"]).prop_map(str::to_owned),
            1 => any::<String>(),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// A path of an element, or something like one.
fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "/x(/(x|a|0|1|-|[\\[](a|)=(a|x|)[\\]]|~1)){1,3}",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_references_and_elements_are_evaluated(
        many in prop::collection::vec(
            (anything(), prop::collection::vec((path(), anything()), 0..3), any::<bool>()),
            0..5,
        ),
        sets in prop_oneof![anything(), Just(json!({"a": ["a*"]}))],
        pairs in chance::attributes(),
        pointer in any::<String>(),
    ) {
        let rules = many.into_iter().enumerate().map(|(index, (values, elements, references))| {
            let values = if values.is_object() { values } else { json!({ "x": values }) };
            let elements: Map<String, Value> = elements.into_iter().collect();
            json!({
                "ruleId": index.to_string(), "values": values, "elements": elements,
                "references": references, "conditions": [{}, {"region": {"not": {"set": "a"}}}],
            })
        });
        let rules: Value = rules.collect();
        let Ok(sets) = Sets::parse(&sets) else {
            return Ok(());
        };
        prop_assert_eq!(&Sets::parse(&sets.to_value()).unwrap(), &sets);
        if let Ok(set) = RuleSet::parse_with(&rules, sets.clone()) {
            prop_assert_eq!(&RuleSet::parse_with(&set.to_value(), sets).unwrap(), &set);
            let evaluator = Evaluator::new(&set);
            let attributes: Attributes = pairs.into_iter().collect();
            let result = evaluator.evaluate(&attributes);
            let with_origins = evaluator.evaluate_with_origins(&attributes);
            prop_assert_eq!(&with_origins.values, &result.values);
            prop_assert_eq!(&with_origins.errors, &result.errors);
            let _ = evaluator.explain(&attributes, &pointer).to_string();
            let _ = lint(&set, &[attributes]);
        }
    }

    #[test]
    fn any_json_is_read_or_refused(value in anything()) {
        for list in [value.clone(), json!([value.clone()])] {
            if let Ok(set) = RuleSet::parse(&list) {
                prop_assert_eq!(RuleSet::parse(&set.to_value()).unwrap(), set);
            }
        }
        let in_places = json!({ "ruleId": "r", "conditions": value, "values": { "x": value } });
        if let Ok(rule) = Rule::parse(&in_places) {
            prop_assert_eq!(Rule::parse(&rule.to_value()).unwrap(), rule);
        }
    }

    #[test]
    fn any_values_are_evaluated(
        many in prop::collection::vec((chance::conditions(), anything()), 0..5),
        attributes in prop::collection::vec((any::<String>(), any::<String>()), 0..3),
        pairs in chance::attributes(),
        pointer in any::<String>(),
    ) {
        let rules = many.into_iter().enumerate().map(|(index, (conditions, values))| {
            let values = if values.is_object() { values } else { json!({ "x": values }) };
            json!({ "ruleId": index.to_string(), "conditions": conditions, "values": values })
        });
        let rules: Value = rules.collect();
        let set = RuleSet::parse(&rules).unwrap();
        let evaluator = Evaluator::new(&set);
        let strange: Attributes = attributes.into_iter().chain(pairs.clone()).collect();
        let usual: Attributes = pairs.iter().cloned().collect();
        for attributes in [&strange, &usual] {
            let result = evaluator.evaluate(attributes);
            prop_assert_eq!(&evaluator.evaluate_with_origins(attributes).values, &result.values);
            let _ = evaluator.explain(attributes, &pointer).to_string();
        }
        prop_assert_eq!(Value::Object(evaluator.evaluate(&usual).values.clone()), naive::evaluate(&rules, &pairs));
        let _ = lint(&set, &[strange, usual]);
    }

    #[test]
    fn any_text_is_a_pattern_or_refused(
        pattern in prop_oneof![any::<String>(), "[*?{}!^,ab\\\\\\[\\]-]{0,12}"],
        value in prop_oneof![any::<String>(), "[ab*\\[{]{0,4}"],
    ) {
        if let Ok(pattern) = Pattern::parse(&pattern) {
            let _ = pattern.matches(&value);
        }
    }

    #[test]
    fn a_text_with_its_special_characters_escaped_matches_itself_alone(text in any::<String>(), other in any::<String>()) {
        let escaped: String = text.chars().flat_map(|character| ['\\', character]).take(256).collect();
        let pattern = Pattern::parse(&escaped).unwrap();
        let text: String = text.chars().take(128).collect();
        prop_assert!(pattern.matches(&text));
        prop_assert_eq!(pattern.matches(&other), text == other);
    }

    #[test]
    fn globs_of_plain_ascii_match_as_by_the_simplest_matcher(
        pattern in "([abc*?]|\\{[abc*?]{0,2}(,[abc*?]{0,2}){0,2}\\}){0,6}",
        value in "[abc]{0,8}",
    ) {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        let wanted = naive::glob(&characters(&pattern), &characters(&value));
        prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&value), wanted);
    }
}

#[test]
fn what_is_nested_very_deep_is_refused() {
    let mut deep = json!({});
    for _ in 0..20_000 {
        deep = Value::Object(Map::from_iter([(
            "conditions".to_owned(),
            Value::Array(vec![deep]),
        )]));
    }
    for value in [
        json!({ "ruleId": "r", "values": null }),
        json!({ "ruleId": "r", "values": {}, "conditions": null }),
        json!({ "ruleId": null, "values": {} }),
    ] {
        let mut rule = value;
        let place = rule
            .as_object_mut()
            .unwrap()
            .values_mut()
            .find(|value| value.is_null());
        *place.unwrap() = std::mem::take(&mut deep);
        assert!(Rule::parse(&rule).is_err());
        // The destructor of `Value` is recursive, so this deep value is taken apart by hand.
        let place = rule
            .as_object_mut()
            .unwrap()
            .values_mut()
            .find(|value| value.as_object().is_some_and(|object| !object.is_empty()));
        deep = std::mem::take(place.unwrap());
    }
    while let Value::Object(mut object) = deep {
        let Some(Value::Array(mut list)) = object.remove("conditions") else {
            break;
        };
        deep = list.pop().unwrap_or_default();
    }
}
