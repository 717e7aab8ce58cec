//! The meaning of rules, by example.

use fleetwright_rules::{Attributes, Evaluator, RuleSet};
use serde_json::{Value, json};

/// The worker configuration "build" of RFC 124.
fn rfc() -> Evaluator {
    let rules = json!([
        {
            "ruleId": "basic-options",
            "conditions": null,
            "values": {
                "scalingRatio": 1,
                "owner": "build-team@my-open-source-project.com",
                "description": "configuration for builds",
            },
            "description": "Basic worker options",
        },
        {
            "ruleId": "ec2-ami",
            "conditions": [{ "provider": "ec2", "region": "us-east-1" }],
            "values": { "ec2": { "ImageId": "ami-12345abcdef" } },
            "description": "Configure EC2 AMI images to be used",
        },
        {
            "ruleId": "us-east-1a subnets",
            "conditions": [{ "provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a" }],
            "values": { "ec2": { "SubnetID": "sn-302433abcdef" } },
            "description": "us-east-1a needs own subnet for inter-vpc communication",
        },
    ]);
    Evaluator::new(&RuleSet::parse(&rules).unwrap())
}

#[test]
fn the_example_of_the_rfc_gives_its_result() {
    let attributes = Attributes::nothing()
        .with("provider", "ec2")
        .with("region", "us-east-1")
        .with("availabilityZone", "us-east-1a");
    let wanted = json!({
        "scalingRatio": 1,
        "owner": "build-team@my-open-source-project.com",
        "description": "configuration for builds",
        "ec2": { "ImageId": "ami-12345abcdef", "SubnetID": "sn-302433abcdef" },
    });
    for attributes in [
        attributes.clone(),
        attributes.with("workerType", "build-opt"),
    ] {
        let result = rfc().evaluate(&attributes);
        assert_eq!(Value::Object(result.values.clone()), wanted);
    }
}

#[test]
fn the_example_of_the_rfc_has_fewer_values_in_other_places() {
    let result = rfc().evaluate(&Attributes::nothing().with("workerType", "build-opt"));
    assert_eq!(
        Value::Object(result.values.clone()),
        json!({
            "scalingRatio": 1,
            "owner": "build-team@my-open-source-project.com",
            "description": "configuration for builds",
        })
    );
}

#[test]
fn values_are_deeply_assigned() {
    let table = [
        (
            json!({ "a": { "b": 1 } }),
            json!({ "a": { "c": 2 } }),
            json!({ "a": { "b": 1, "c": 2 } }),
        ),
        (
            json!({ "a": { "b": 1 } }),
            json!({ "a": 2 }),
            json!({ "a": 2 }),
        ),
        (
            json!({ "a": [1, 2] }),
            json!({ "a": { "b": 1 } }),
            json!({ "a": { "b": 1 } }),
        ),
        (
            json!({ "a": [1, 2] }),
            json!({ "a": [3, null] }),
            json!({ "a": [3, null] }),
        ),
        (
            json!({ "a": { "b": 1, "c": 2 } }),
            json!({ "a": { "b": null } }),
            json!({ "a": { "c": 2 } }),
        ),
        (
            json!({ "a": { "b": 1 } }),
            json!({ "a": { "b": null } }),
            json!({ "a": {} }),
        ),
        (json!({ "a": { "b": 1 } }), json!({ "a": null }), json!({})),
        (
            json!({ "a": { "b": 1 } }),
            json!({ "a": {} }),
            json!({ "a": { "b": 1 } }),
        ),
        (json!({}), json!({ "a": {} }), json!({ "a": {} })),
        (
            json!({}),
            json!({ "a": { "b": null, "c": { "d": null } } }),
            json!({ "a": { "c": {} } }),
        ),
        (
            json!({ "a": 1 }),
            json!({ "a": { "b": null } }),
            json!({ "a": {} }),
        ),
        (json!({ "a": 1 }), json!({ "b": null }), json!({ "a": 1 })),
    ];
    for (first, second, wanted) in table {
        let rules = json!([
            { "ruleId": "first", "values": first },
            { "ruleId": "second", "values": second },
        ]);
        let evaluator = Evaluator::new(&RuleSet::parse(&rules).unwrap());
        let result = evaluator.evaluate(&Attributes::nothing());
        assert_eq!(Value::Object(result.values.clone()), wanted, "{rules}");
    }
}

#[test]
fn conditions_hold_for_matching_attributes() {
    let attributes = || Attributes::nothing().with("a", "1").with("b", "2");
    let table = [
        (json!(null), true),
        (json!({}), true),
        (json!([]), false),
        (json!([{}]), true),
        (json!({ "a": "1" }), true),
        (json!({ "a": "1", "b": "3" }), false),
        (json!({ "a": ["0", "1"], "b": "*" }), true),
        (json!({ "a": [] }), false),
        (json!({ "c": "*" }), false),
        (json!([{ "a": "2" }, { "b": "2" }]), true),
        (json!([{ "a": "1", "c": "*" }, { "b": "1" }]), false),
    ];
    for (conditions, wanted) in table {
        let rule = json!({ "ruleId": "r", "conditions": conditions, "values": {} });
        let set = RuleSet::parse(&json!([rule])).unwrap();
        let applies = !Evaluator::new(&set).applying(&attributes()).is_empty();
        assert_eq!(applies, wanted, "{conditions}");
        assert_eq!(set.rules()[0].conditions().hold(&attributes()), wanted);
    }
}

/// Rules that set, replace, merge and delete.
fn eventful() -> Evaluator {
    let rules = json!([
        { "ruleId": "one", "values": { "a": { "b": 1, "c": 1 }, "e": {} } },
        { "ruleId": "two", "values": { "a": { "b": 2 }, "e": { "f": null } } },
        { "ruleId": "three", "values": { "a": null } },
        { "ruleId": "four", "values": { "a": "gone" } },
        { "ruleId": "five", "values": { "a": { "b": [5] } } },
        { "ruleId": "elsewhere", "conditions": { "x": "y" }, "values": { "a": 0 } },
    ]);
    Evaluator::new(&RuleSet::parse(&rules).unwrap())
}

#[test]
fn origins_name_the_rule_and_the_rules_that_it_overrode() {
    let evaluation = eventful().evaluate_with_origins(&Attributes::nothing());
    assert_eq!(
        serde_json::to_value(evaluation).unwrap(),
        json!({
            "values": { "a": { "b": [5] }, "e": {} },
            "origins": {
                "/a/b": {
                    "ruleId": "five",
                    "overrode": [
                        { "ruleId": "one" },
                        { "ruleId": "two" },
                        { "ruleId": "three", "deleted": true },
                    ],
                },
                "/e": { "ruleId": "two", "overrode": [{ "ruleId": "one" }] },
            },
        })
    );
}

#[test]
fn an_explanation_has_every_step() {
    let told = |pointer: &str| {
        eventful()
            .explain(&Attributes::nothing(), pointer)
            .to_string()
    };
    assert_eq!(
        told("/a"),
        r#"/a with nothing:
  "one" sets {"b":1,"c":1}
  "two" merges {"b":2} into the object of "one"
  "three" deletes {"b":2,"c":1} of "two"
  "four" sets "gone"
  "five" overrides "gone" of "four" with {"b":[5]}
result: {"b":[5]}"#
    );
    assert_eq!(
        told("/a/c"),
        r#"/a/c with nothing:
  "one" sets 1
  "three" deletes 1 of "one"
result: no value"#
    );
    assert_eq!(
        told("/a/b/0"),
        r#"/a/b/0 with nothing:
  "five" sets 5
result: 5"#
    );
    assert_eq!(told("/x"), "/x with nothing:\nno applying rule sets it");
    let whole = told("");
    let mut lines = whole.lines();
    assert_eq!(lines.next(), Some("the result with nothing:"));
    let first = lines.next().unwrap();
    assert!(first.starts_with(r#"  "one" sets {"#), "{first}");
    let second = lines.next().unwrap();
    assert!(second.ends_with(r#"into the object of "one""#), "{second}");
    let step =
        serde_json::to_value(&eventful().explain(&Attributes::nothing(), "/a/b").steps[1]).unwrap();
    assert_eq!(
        step,
        json!({ "ruleId": "two", "action": "override", "value": 2, "old": 1, "by": "one" })
    );
}

#[test]
fn presentations_to_which_the_same_rules_apply_share_a_result() {
    let evaluator = rfc();
    let build = |name: &str| Attributes::nothing().with("workerType", name);
    let one = evaluator.evaluate(&build("build-opt"));
    assert!(std::sync::Arc::ptr_eq(
        &one,
        &evaluator.evaluate(&build("build-dbg"))
    ));
    let (next, change) = evaluator.succeed(&evaluator.set().remove("ec2-ami").unwrap());
    assert!(std::sync::Arc::ptr_eq(
        &one,
        &next.evaluate(&build("build-dbg"))
    ));
    assert!(!change.affects(&build("build-dbg")));
    assert!(
        change.affects(
            &build("build-dbg")
                .with("provider", "ec2")
                .with("region", "us-east-1")
        )
    );
}

#[test]
fn only_evaluations_in_which_a_moved_rule_passes_another_are_affected() {
    let rules = json!([
        { "ruleId": "everywhere", "values": { "x": 1 } },
        { "ruleId": "here", "conditions": { "place": "here" }, "values": { "x": 2 } },
        { "ruleId": "there", "conditions": { "place": "there" }, "values": { "x": 3 } },
    ]);
    let evaluator = Evaluator::new(&RuleSet::parse(&rules).unwrap());
    let moved = evaluator
        .set()
        .move_to(
            "everywhere",
            fleetwright_rules::Position::Before("there".to_owned()),
        )
        .unwrap();
    let change = evaluator.succeed(&moved).1;
    let at = |place: &str| Attributes::nothing().with("place", place);
    assert!(change.affects(&at("here")));
    assert!(!change.affects(&at("there")));
    assert!(!change.affects(&at("nowhere")));
}
