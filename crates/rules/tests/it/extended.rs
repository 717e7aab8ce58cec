//! References, elements of lists and named sets, by example.

use fleetwright_rules::{Attributes, Evaluator, RuleSet, Sets, lint};
use serde_json::{Value, json};

fn evaluator(rules: &Value) -> Evaluator {
    Evaluator::new(&RuleSet::parse(rules).unwrap())
}

fn in_zone() -> Attributes {
    Attributes::nothing()
        .with("zone", "us-east1-b")
        .with("workerType", "linux")
}

/// The values of one rule with references after `before`.
fn referring(before: &Value, values: &Value) -> Result<Value, String> {
    let rules = json!([
        { "ruleId": "referring", "references": true, "values": values },
        { "ruleId": "before", "values": before },
    ]);
    let result = evaluator(&rules).evaluate(&in_zone());
    let errors: Vec<String> = result.errors.iter().map(ToString::to_string).collect();
    match errors.as_slice() {
        [] => Ok(Value::Object(result.values.clone())),
        errors => Err(errors.join("\n")),
    }
}

/// The list after this change.
fn changed(list: &Value, path: &str, value: &Value) -> Result<Value, String> {
    let rules = json!([
        { "ruleId": "list", "values": { "disks": list, "other": {} } },
        { "ruleId": "change", "values": {}, "elements": { path: value } },
    ]);
    let result = evaluator(&rules).evaluate(&Attributes::nothing());
    match result.errors.as_slice() {
        [] => Ok(result.values["disks"].clone()),
        [error] => Err(error.to_string()),
        errors => panic!("{errors:?}"),
    }
}

#[test]
fn a_text_may_refer_to_conditions_and_to_other_values() {
    let before = json!({ "region": "us-east1", "size": 7, "on": true, "list": [1, "a"] });
    let table = [
        ("zones/${zone}/n2", json!("zones/us-east1-b/n2")),
        ("${workerType}-${/region}", json!("linux-us-east1")),
        ("${/size}", json!(7)),
        ("${/on}", json!(true)),
        ("${/size} GiB, ${/on}", json!("7 GiB, true")),
        ("${/list}", json!([1, "a"])),
        ("${/list/1}", json!("a")),
        (
            "$${zone} $$${zone} $zone $",
            json!("${zone} $${zone} $zone $"),
        ),
    ];
    for (text, wanted) in table {
        let values = referring(&before, &json!({ "x": text, "in": [{ "a": text }] })).unwrap();
        assert_eq!(values["x"], wanted, "{text}");
        assert_eq!(values["in"][0]["a"], wanted, "{text}");
    }
}

#[test]
fn without_the_key_a_text_is_no_template() {
    let rules = json!([{ "ruleId": "script", "values": { "userData": "echo ${zone} $${x}" } }]);
    let result = evaluator(&rules).evaluate(&in_zone());
    assert_eq!(result["userData"], "echo ${zone} $${x}");
}

#[test]
fn a_reference_without_a_value_is_an_error_with_its_rule_and_place() {
    let before = json!({ "object": { "a": 1 }, "nothing": [null] });
    let table = [
        (
            "${zoen}",
            r#"${zoen} has no value: this evaluation has no condition "zoen" (write `$${` for a literal `${`)"#,
        ),
        (
            "a${/missing}",
            "${/missing} has no value: no rule that applies sets it",
        ),
        (
            "${/object}",
            "${/object} is an object: refer to a value inside it",
        ),
        ("${/nothing/0}", "${/nothing/0} is null"),
        (
            "-${/nothing}",
            r#""-${/nothing}" has a reference to a list, which is no text"#,
        ),
        ("${/x/0}", "the value refers to itself: /x/0 to /x/0"),
        ("${/x}", "the value refers to itself: /x/0 to /x to /x"),
    ];
    for (text, message) in table {
        let error = referring(&before, &json!({ "x": [text] })).unwrap_err();
        assert_eq!(error, format!("rule \"referring\": /x/0: {message}"));
    }
}

#[test]
fn a_text_that_is_no_template_is_refused_with_its_rule() {
    let refused = |text: &str| {
        let rules = json!([{ "ruleId": "r", "references": true, "values": { "a": text } }]);
        RuleSet::parse(&rules).unwrap_err().to_string()
    };
    assert_eq!(
        refused("ab ${zone"),
        r#"rule "r": /0: the text "ab ${zone" is no template: `${` at character 4 has no `}`: write `$${` for a literal `${`"#
    );
    assert!(refused("${}").contains("this one has 0 characters"));
    let rules = json!([{ "ruleId": "r", "references": "yes", "values": {} }]);
    let error = RuleSet::parse(&rules).unwrap_err().to_string();
    assert!(
        error.contains("references are true or false, found a text"),
        "{error}"
    );
}

#[test]
fn values_that_refer_to_each_other_have_limits() {
    let chain = |length: usize| {
        let mut values = serde_json::Map::new();
        for number in 0..length {
            values.insert(
                format!("v{number}"),
                json!(format!("${{/v{}}}", number + 1)),
            );
        }
        values.insert(format!("v{length}"), json!("end"));
        referring(&json!({}), &Value::Object(values))
    };
    assert_eq!(chain(16).unwrap()["v0"], "end");
    assert!(
        chain(17)
            .unwrap_err()
            .contains("at most 16 values can refer to each other")
    );
    let doubling: serde_json::Map<String, Value> = (0..14)
        .map(|number| {
            (
                format!("v{number}"),
                json!(format!("${{/v{0}}}${{/v{0}}}", number + 1)),
            )
        })
        .collect();
    let error = referring(&json!({ "v14": "x" }), &Value::Object(doubling)).unwrap_err();
    assert!(error.contains("at most 10000 references"), "{error}");
}

#[test]
fn an_element_is_chosen_by_key_or_position() {
    let disks = json!([{ "name": "boot", "size": 10 }, { "name": "data" }, { "name": "boot" }]);
    let table = [
        (
            "/disks/[name=data]/size",
            json!(5),
            json!([{ "name": "boot", "size": 10 }, { "name": "data", "size": 5 }, { "name": "boot" }]),
        ),
        (
            "/disks/[name=boot]/size",
            json!(5),
            json!([{ "name": "boot", "size": 5 }, { "name": "data" }, { "name": "boot", "size": 5 }]),
        ),
        (
            "/disks/[name=boot]",
            json!(null),
            json!([{ "name": "data" }]),
        ),
        (
            "/disks/[size=10]/a/b",
            json!(1),
            json!([{ "name": "boot", "size": 10, "a": { "b": 1 } }, { "name": "data" }, { "name": "boot" }]),
        ),
        (
            "/disks/0/size",
            json!(null),
            json!([{ "name": "boot" }, { "name": "data" }, { "name": "boot" }]),
        ),
        (
            "/disks/1",
            json!({ "size": 1, "name": null }),
            json!([{ "name": "boot", "size": 10 }, { "size": 1 }, { "name": "boot" }]),
        ),
        (
            "/disks/1",
            json!(null),
            json!([{ "name": "boot", "size": 10 }, { "name": "boot" }]),
        ),
        (
            "/disks/1",
            json!(7),
            json!([{ "name": "boot", "size": 10 }, 7, { "name": "boot" }]),
        ),
        ("/disks/-", json!({ "name": "data" }), disks.clone()),
        (
            "/disks/2/tags/-",
            json!("t"),
            json!([{ "name": "boot", "size": 10 }, { "name": "data" }, { "name": "boot", "tags": ["t"] }]),
        ),
    ];
    for (path, value, wanted) in table {
        assert_eq!(
            changed(&disks, path, &value).unwrap(),
            wanted,
            "{path} {value}"
        );
    }
    assert_eq!(
        changed(&json!(["a", "b"]), "/disks/[=a]", &json!("c")).unwrap(),
        json!(["c", "b"])
    );
    assert_eq!(
        changed(&json!(["a"]), "/disks/-", &json!("b")).unwrap(),
        json!(["a", "b"])
    );
    assert_eq!(
        changed(&json!(null), "/disks/-", &json!("b")).unwrap(),
        json!(["b"])
    );
}

#[test]
fn an_element_that_does_not_exist_can_be_removed_but_not_set() {
    let table = [
        (
            json!([{ "name": "a" }]),
            "/disks/[name=b]/size",
            "no element of the list is [name=b]",
        ),
        (json!([1]), "/disks/1", "the list has 1 elements"),
        (
            json!(null),
            "/disks/0",
            "no rule before sets a list at /disks",
        ),
        (json!({}), "/disks/0", "expected a list, found a mapping"),
        (
            json!([{}]),
            "/disks/0/tags/0",
            "the element has no list at \"tags\"",
        ),
        (
            json!([1]),
            "/disks/0/size",
            "\"size\" is a key, and there is a number",
        ),
        (
            json!([1]),
            "/missing/x/-",
            "no rule before sets a list at /missing/x",
        ),
    ];
    for (list, path, message) in table {
        let error = changed(&list, path, &json!(1)).unwrap_err();
        assert_eq!(error, format!("rule \"change\": {path}: {message}"));
        if !path.ends_with('-') {
            let rules = json!([
                { "ruleId": "list", "values": { "disks": list } },
                { "ruleId": "change", "values": {}, "elements": { path: null } },
            ]);
            let result = evaluator(&rules).evaluate(&Attributes::nothing());
            assert_eq!(result.errors, []);
        }
    }
}

#[test]
fn the_changes_of_a_rule_do_not_move_each_other() {
    let rules = json!([{ "ruleId": "r", "values": { "a": [0, 1, 2, 3] }, "elements": {
        "/a/-": "new", "/a/0": null, "/a/2": null, "/a/3": "three", "/a/[=1]": "one",
    } }]);
    let result = evaluator(&rules).evaluate(&Attributes::nothing());
    assert_eq!(result["a"], json!(["one", "three", "new"]));
}

#[test]
fn a_path_without_an_element_is_refused() {
    let refused = |path: &str, value: Value| {
        let rule = json!([{ "ruleId": "r", "values": {}, "elements": { path: value } }]);
        RuleSet::parse(&rule).unwrap_err().to_string()
    };
    let table = [
        ("a/0", json!(1), "the path of an element begins with /"),
        ("/a/b", json!(1), "the path names no element"),
        ("/0/a", json!(1), "the path begins with its key"),
        ("/a/-/b", json!(1), "the last step of a path"),
        (
            "/a/-",
            json!(null),
            "null removes an element, and - names none",
        ),
        ("/a/[b]", json!(1), "names no element: write [key=text]"),
        ("/a/00", json!(1), "is not a position"),
    ];
    for (path, value, message) in table {
        let error = refused(path, value);
        assert!(error.contains(message), "{path}: {error}");
    }
}

#[test]
fn origins_and_explanations_know_references_and_elements() {
    let rules = json!([
        { "ruleId": "disks", "values": { "disks": [{ "name": "boot", "size": 1 }] } },
        { "ruleId": "windows", "references": true, "values": {},
          "elements": { "/disks/[name=boot]/size": "${/size}" } },
        { "ruleId": "machine", "references": true, "values": { "machine": "${zone}/n2" } },
        { "ruleId": "size", "values": { "size": 60 } },
    ]);
    let evaluator = evaluator(&rules);
    let evaluation = evaluator.evaluate_with_origins(&in_zone());
    assert_eq!(
        serde_json::to_value(&evaluation.origins).unwrap(),
        json!({
            "/disks": { "ruleId": "disks", "changedBy": ["windows"], "references": ["/size"] },
            "/machine": { "ruleId": "machine", "references": ["zone"] },
            "/size": { "ruleId": "size" },
        })
    );
    assert_eq!(
        evaluator.explain(&in_zone(), "/disks/0/size").to_string(),
        "\
/disks/0/size with workerType=linux, zone=us-east1-b:
  \"disks\" sets 1
  \"windows\" changes elements: {\"/disks/[name=boot]/size\":\"${/size}\"}
  ${/size} is 60, set by \"size\"
result: 60"
    );
    assert_eq!(
        evaluator.explain(&in_zone(), "/machine").to_string(),
        "\
/machine with workerType=linux, zone=us-east1-b:
  \"machine\" sets \"${zone}/n2\"
  ${zone} is \"us-east1-b\"
result: \"us-east1-b/n2\""
    );
    let elsewhere = Attributes::nothing();
    let explained = evaluator.explain(&elsewhere, "/machine").to_string();
    assert!(
        explained.contains("${zone} has no value\n  error: rule \"machine\": /machine: "),
        "{explained}"
    );
}

#[test]
fn sets_are_lists_of_patterns_with_a_name() {
    let sets = json!({ "linux": ["ubuntu-*", "debian"] });
    let rules = json!([
        { "ruleId": "in", "conditions": { "workerType": { "set": "linux" } }, "values": { "in": 1 } },
        { "ruleId": "or", "conditions": { "workerType": [{ "set": "linux" }, "mac"] }, "values": { "or": 1 } },
        { "ruleId": "not", "conditions": { "workerType": { "not": [{ "set": "linux" }, "mac"] } }, "values": { "not": 1 } },
        { "ruleId": "not-mac", "conditions": { "workerType": { "not": "mac" } }, "values": { "not-mac": 1 } },
    ]);
    let set = RuleSet::parse_with(&rules, Sets::parse(&sets).unwrap()).unwrap();
    assert_eq!(
        serde_json::to_value(&set).unwrap()[2]["conditions"],
        rules[2]["conditions"]
    );
    let evaluator = Evaluator::new(&set);
    let keys = |worker_type: &str| {
        let result = evaluator.evaluate(&Attributes::nothing().with("workerType", worker_type));
        result.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys("ubuntu-1"), "in not-mac or");
    assert_eq!(keys("debian"), "in not-mac or");
    assert_eq!(keys("mac"), "or");
    assert_eq!(keys("windows"), "not not-mac");
    // Without a value, not even a negation matches.
    assert_eq!(evaluator.evaluate(&Attributes::nothing()).len(), 0);

    let changed = Sets::parse(&json!({ "linux": ["windows"] })).unwrap();
    let (next, diff) = evaluator.succeed(&RuleSet::parse_with(&rules, changed).unwrap());
    let on = |worker_type: &str| Attributes::nothing().with("workerType", worker_type);
    assert!(
        diff.affects(&on("windows")) && diff.affects(&on("debian")) && !diff.affects(&on("mac"))
    );
    assert_eq!(next.evaluate(&on("windows"))["in"], 1);
}

#[test]
fn sets_and_their_names_are_checked() {
    let with = |sets: Value, patterns: Value| {
        let rules =
            json!([{ "ruleId": "r", "conditions": { "workerType": patterns }, "values": {} }]);
        let set = Sets::parse(&sets).and_then(|sets| RuleSet::parse_with(&rules, sets));
        set.unwrap_err().to_string()
    };
    let table = [
        (
            json!({ "linux": [] }),
            json!({ "set": "lnux" }),
            r#"rule "r": /0/conditions/workerType: no set has the name "lnux", did you mean "linux"?"#,
        ),
        (
            json!({}),
            json!({ "sets": "a" }),
            r#"rule "r": /0/conditions/workerType: expected a text, {set: NAME}, or {not: …} for the complete condition; found another mapping"#,
        ),
        (
            json!({}),
            json!({ "not": "a", "set": "b" }),
            r#"rule "r": /0/conditions/workerType: beside "not", a condition has no other key"#,
        ),
        (
            json!({ "a": ["[b"] }),
            json!("x"),
            r#"/a/0: "[b" is not a valid glob: unclosed character class; missing ']' (write \ before a special character to match it literally)"#,
        ),
        (
            json!({ "a": "b" }),
            json!("x"),
            "/a: a set is a list of texts, found a text",
        ),
        (
            json!([]),
            json!("x"),
            "sets are a mapping from names to lists of texts, found a list",
        ),
    ];
    for (sets, patterns, message) in table {
        assert_eq!(with(sets, patterns), message);
    }
}

#[test]
fn lints_know_the_new_keys() {
    let sets = json!({ "unused": ["a"], "used": ["linux", "solaris"] });
    let rules = json!([
        { "ruleId": "a", "references": true, "conditions": { "workerType": { "set": "used" } }, "values": { "l": [1], "m": [1] } },
        { "ruleId": "b", "values": {}, "elements": { "/l/0": 2, "/m/0": 2, "/m/[=9]": null } },
        { "ruleId": "c", "values": { "l": [3] } },
    ]);
    let set = RuleSet::parse_with(&rules, Sets::parse(&sets).unwrap()).unwrap();
    let findings = lint(&set, &[in_zone()]);
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#""a": has no ${…} in its texts: remove `references`"#,
            r#""a": /l have no effect: "c" overrides or deletes them"#,
            r#""b": /l/0 have no effect: "c" overrides or deletes them"#,
            r#""b": null at /m/[=9] has nothing to delete"#,
            r#"sets: no condition names "unused""#,
            r#"sets: /used/1: "solaris" matches no value of the conditions with this set"#,
        ]
    );
}
