//! Documents: every problem is reported with its place, and valid documents survive a round trip.

use fleetwright_rules::{Rule, RuleSet, SCHEMA, format, limits};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::chance;

fn problems(rules: &Value) -> Vec<String> {
    let problems = RuleSet::parse(rules).unwrap_err();
    problems.list().iter().map(ToString::to_string).collect()
}

/// The only problem of a rule with these keys added or replaced.
fn problem(keys: &Value) -> String {
    let mut rule = json!({ "ruleId": "r", "values": {} });
    rule.as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    let problems = Rule::parse(&rule).unwrap_err();
    assert_eq!(problems.list().len(), 1, "{problems}");
    problems.to_string()
}

#[test]
fn every_problem_is_reported_with_its_place_and_rule() {
    let rules = json!([
        { "ruleId": "good", "values": {} },
        7,
        { "ruleId": "bad", "condition": null, "conditions": { "region": 5, "a/b": ["x", null, "[z"] }, "values": [] },
        { "ruleId": "good", "description": ["long"], "conditions": [{}, "x"] },
        { "values": {} },
    ]);
    assert_eq!(
        problems(&rules),
        [
            "/1: a rule is a mapping, found a number",
            r#"rule "bad": /2: unknown key "condition", a rule has ruleId, description, conditions, references, values, elements, did you mean "conditions"?"#,
            r#"rule "bad": /2/conditions/a~1b/1: expected a text, found null"#,
            r#"rule "bad": /2/conditions/a~1b/2: "[z" is not a valid glob: unclosed character class; missing ']' (write \ before a special character to match it literally)"#,
            r#"rule "bad": /2/conditions/region: expected a text or a list of texts, found a number"#,
            r#"rule "bad": /2/values: values are a mapping, found a list"#,
            r#"rule "good": /3/description: a description is a text, found a list"#,
            r#"rule "good": /3/conditions/1: expected a mapping from condition names to patterns, found a text"#,
            r#"rule "good": /3: values is missing: a mapping of the values that the rule assigns"#,
            r#"rule "good": /3/ruleId: the rule at /0 has the same ruleId: each must be unique in the set"#,
            "/4: ruleId is missing: a text that identifies the rule in its set",
        ]
    );
    assert_eq!(problems(&json!({})), ["rules are a list, found a mapping"]);
}

#[test]
fn a_document_above_a_limit_is_refused_with_the_limit() {
    let many = |n: usize, item: Value| Value::Array(vec![item; n]);
    let long = |n: usize| "a".repeat(n);
    let names = |n: usize| -> Value {
        let pairs = (0..n).map(|number| (number.to_string(), json!(0)));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let table = [
        (
            json!({ "ruleId": long(129) }),
            "1 to 128 characters, this one has 129",
        ),
        (
            json!({ "ruleId": "" }),
            "1 to 128 characters, this one has 0",
        ),
        (json!({ "ruleId": "a\u{7}" }), "no control characters"),
        (
            json!({ "description": long(2_049) }),
            "at most 2048 characters, this one has 2049",
        ),
        (
            json!({ "conditions": many(65, json!({})) }),
            "at most 64 mappings, these have 65",
        ),
        (
            json!({ "conditions": { "x": many(257, json!("")) } }),
            "at most 256 patterns, this one has 257",
        ),
        (
            json!({ "conditions": { "x": long(257) } }),
            "at most 256 characters, this one has 257",
        ),
        (
            json!({ "conditions": { long(65): "x" } }),
            "1 to 64 characters, this one has 65",
        ),
        (
            json!({ "conditions": { "": "x" } }),
            "1 to 64 characters, this one has 0",
        ),
        (json!({ "conditions": true }), "found a boolean"),
        (json!({ "values": names(10_001) }), "at most 10000 values"),
        (
            json!({ "values": { "x": nested(32) } }),
            "deeper than 32 objects and lists",
        ),
    ];
    for (keys, wanted) in table {
        let told = problem(&keys);
        assert!(told.contains(wanted), "{told}");
    }
    let at_the_limit = json!({
        "ruleId": long(128),
        "description": long(2_048),
        "conditions": many(64, json!({ long(64): [long(256)] })),
        "values": { "x": nested(31) },
    });
    Rule::parse(&at_the_limit).unwrap();
    Rule::parse(&json!({ "ruleId": "r", "values": names(10_000) })).unwrap();
}

/// Nested lists.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, level| match level % 2 {
        0 => json!([inner]),
        _ => json!({ "x": inner }),
    })
}

#[test]
fn a_set_above_a_total_limit_is_refused() {
    let rules = |n: usize, values: &Value, conditions: &Value| -> Value {
        let rule = |number| json!({ "ruleId": format!("r{number}"), "values": values, "conditions": conditions });
        (0..n).map(rule).collect()
    };
    let told = problems(&rules(limits::MAX_RULES + 1, &json!({}), &json!(null)));
    assert_eq!(told, ["a set has at most 2000 rules, this one has 2001"]);
    let told = |rules: Value| problems(&rules).join("\n");
    let large = json!({ "x": "x".repeat(1024 * 1024) });
    let few =
        |pattern: fn(usize) -> String| json!({ "x": (0..251).map(pattern).collect::<Vec<_>>() });
    for (set, wanted) in [
        (
            rules(5, &large, &json!(null)),
            "4194304 bytes as compact JSON",
        ),
        (
            rules(160, &json!({}), &Value::Array(vec![json!({}); 64])),
            "10000 mappings in its conditions",
        ),
        (
            rules(200, &json!({}), &few(|number| number.to_string())),
            "50000 patterns",
        ),
    ] {
        assert_eq!(
            told(set),
            format!("a set has at most {wanted}, and this one has more")
        );
    }
    let globs = rules(8, &json!({}), &few(|number| format!("?{number}")));
    let wanted =
        "a set has at most 2000 patterns with ?, [], {} or several *, and this one has more";
    assert_eq!(
        told(globs.clone()),
        format!("rule \"r7\": /7/conditions/x/243: {wanted}")
    );
    let each = globs.as_array().unwrap().iter();
    let each = each.map(|rule| Rule::parse(rule).unwrap()).collect();
    assert_eq!(RuleSet::from_rules(each).unwrap_err().to_string(), wanted);
    let most = rules(
        limits::MAX_RULES,
        &json!({ "x": 1 }),
        &json!({ "x": "a*b" }),
    );
    RuleSet::parse(&most).unwrap();
}

#[test]
fn at_most_fifty_problems_are_reported_and_the_rest_is_counted() {
    let problems = RuleSet::parse(&Value::Array(vec![json!(null); 60])).unwrap_err();
    assert_eq!(problems.list().len(), limits::MAX_PROBLEMS);
    assert_eq!(problems.more(), 10);
    assert!(problems.to_string().ends_with("\nand 10 more"));
}

#[test]
fn the_canonical_form_is_readable() {
    let rules = json!([
        { "values": { "b": 1, "a": { "d": [], "c": null } }, "conditions": { "region": "us-*", "provider": ["ec2"] }, "ruleId": "x" },
    ]);
    let wanted = r#"[
  {
    "ruleId": "x",
    "description": "",
    "conditions": {
      "provider": [
        "ec2"
      ],
      "region": "us-*"
    },
    "values": {
      "a": {
        "c": null,
        "d": []
      },
      "b": 1
    }
  }
]
"#;
    assert_eq!(format(&RuleSet::parse(&rules).unwrap()), wanted);
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[test]
fn the_schema_accepts_a_document_and_refuses_unknown_keys() {
    let schema = jsonschema::draft7::new(&schema()).unwrap();
    let good = json!({
        "workerConfigurationId": "build",
        "workerTypes": ["build-opt", "proj-x/ci"],
        "sets": { "s": ["us-*"] },
        "rules": [{
            "ruleId": "a", "references": true, "values": { "x": null }, "elements": { "/l/0": null },
            "conditions": [{ "region": ["us-*", { "set": "s" }], "zone": { "not": { "set": "s" } } }],
        }],
    });
    assert!(schema.is_valid(&good));
    for (pointer, key, value) in [
        ("", "extra", json!(1)),
        ("", "workerTypes", json!(["Build"])),
        ("/rules/0", "condition", json!(null)),
        ("/rules/0", "ruleId", json!("a\n")),
        ("/rules/0", "conditions", json!("x")),
        ("/rules/0/conditions/0", "region", json!(1)),
        ("/rules/0", "values", json!([])),
        ("/rules/0", "references", json!("yes")),
        ("/rules/0", "elements", json!({ "l": 1 })),
        (
            "/rules/0/conditions/0",
            "zone",
            json!({ "not": "a", "set": "s" }),
        ),
        (
            "/rules/0/conditions/0",
            "zone",
            json!({ "not": { "not": "a" } }),
        ),
        ("", "sets", json!({ "s": "a" })),
    ] {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).unwrap()[key] = value;
        assert!(!schema.is_valid(&bad), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_written_set_is_read_as_an_equal_one(rules in chance::rules()) {
        let set = RuleSet::parse(&rules).unwrap();
        for again in [set.to_value(), serde_json::from_str(&format(&set)).unwrap()] {
            let again = RuleSet::parse(&again).unwrap();
            prop_assert_eq!(&again, &set);
            prop_assert_eq!(format(&again), format(&set));
        }
        let document = json!({ "workerTypes": [], "rules": rules });
        prop_assert!(jsonschema::draft7::is_valid(&schema(), &document));
    }

    #[test]
    fn the_order_of_keys_does_not_matter(rules in chance::rules()) {
        let set = RuleSet::parse(&rules).unwrap();
        let turned: Value = serde_json::from_str(&backwards(&rules)).unwrap();
        let turned = RuleSet::parse(&turned).unwrap();
        prop_assert_eq!(&turned, &set);
        prop_assert_eq!(format(&turned), format(&set));
    }

    #[test]
    fn different_sets_are_written_differently(left in chance::rules(), right in chance::rules()) {
        let (left, right) = (RuleSet::parse(&left).unwrap(), RuleSet::parse(&right).unwrap());
        prop_assert_eq!(left == right, format(&left) == format(&right));
    }
}

/// JSON with the keys of all objects in reverse order.
fn backwards(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let pairs = object
                .iter()
                .rev()
                .map(|(key, value)| format!("{}:{}", json!(key), backwards(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(backwards).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}
