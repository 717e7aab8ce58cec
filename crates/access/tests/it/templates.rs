//! Scope templates of endpoints.

use access::scope::{Expression, MissingParameter, Params, ScopeSet, Template};
use serde_json::json;

use super::common::texts;

const TEMPLATE: Template = Template::AllOf(&[
    Template::Scope("auth:create-client:<clientId>"),
    Template::For {
        variable: "scope",
        list: "scopes",
        each: "<scope>",
    },
    Template::For {
        variable: "route",
        list: "task.routes",
        each: "queue:<queueId>:<route>",
    },
    Template::If {
        condition: "quick",
        then: &Template::Scope("quick:<clientId>"),
        otherwise: &Template::AnyOf(&[Template::Scope("slow"), Template::Scope("a<b")]),
    },
]);

fn params() -> Params {
    Params::new()
        .text("clientId", "me/<queueId>")
        .text("queueId", "q")
        .list("scopes", texts(&["a", "b*"]))
        .list("task.routes", texts(&["r"]))
        .flag("quick", true)
}

#[test]
fn parameters_are_filled_once_and_lists_are_inserted() {
    let filled = TEMPLATE.fill(&params()).unwrap().to_json();
    let expected = [
        "auth:create-client:me/<queueId>",
        "a",
        "b*",
        "queue:q:r",
        "quick:me/<queueId>",
    ];
    assert_eq!(filled, json!({ "AllOf": expected }));
    let slow = TEMPLATE
        .fill(&params().flag("quick", false).list("scopes", vec![]))
        .unwrap();
    assert_eq!(
        slow.to_json()["AllOf"][2],
        json!({ "AnyOf": ["slow", "a<b"] })
    );
}

#[test]
fn the_names_of_gaps_are_known_without_loop_variables() {
    let expected = ["clientId", "scopes", "task.routes", "queueId", "quick"];
    assert_eq!(TEMPLATE.parameters(), expected);
}

#[test]
fn a_missing_parameter_or_one_of_another_kind_is_named() {
    let fill = |params: &Params| TEMPLATE.fill(params).unwrap_err();
    assert_eq!(
        fill(&Params::new()),
        MissingParameter {
            name: "clientId",
            kind: "text"
        }
    );
    let unfit = params().text("scopes", "a");
    assert_eq!(
        fill(&unfit),
        MissingParameter {
            name: "scopes",
            kind: "list"
        }
    );
    let unfit = params().list("quick", vec![]);
    assert_eq!(
        fill(&unfit),
        MissingParameter {
            name: "quick",
            kind: "flag"
        }
    );
    let text = fill(&unfit).to_string();
    assert_eq!(text, "the scope template needs the flag parameter `quick`");
}

#[test]
fn the_named_parameters_are_sufficient() {
    let filled = TEMPLATE.fill(&params());
    assert!(filled.is_ok());
    for name in TEMPLATE.parameters() {
        assert!(params().get(name).is_some(), "{name}");
    }
}

#[test]
fn a_loop_outside_of_a_list_needs_all_its_scopes() {
    let template = Template::For {
        variable: "x",
        list: "list",
        each: "s:<x>",
    };
    let filled = template
        .fill(&Params::new().list("list", texts(&["a"])))
        .unwrap();
    assert_eq!(
        filled,
        Expression::AllOf(vec![Expression::Scope("s:a".to_owned())])
    );
}

#[test]
fn a_template_is_published_as_written() {
    assert_eq!(
        TEMPLATE.to_json(),
        json!({ "AllOf": [
            "auth:create-client:<clientId>",
            { "for": "scope", "in": "scopes", "each": "<scope>" },
            { "for": "route", "in": "task.routes", "each": "queue:<queueId>:<route>" },
            { "if": "quick", "then": "quick:<clientId>", "else": { "AnyOf": ["slow", "a<b"] } },
        ] })
    );
}

#[test]
fn a_template_may_be_satisfied_by_scopes_for_some_values() {
    const ONE: Template = Template::Scope("manage:<pool>");
    let one = ONE;
    let both = Template::AllOf(&[ONE, Template::Scope("provider:<provider>")]);
    let of_list = Template::For {
        variable: "image",
        list: "images",
        each: "image:<image>",
    };
    let known = Params::new().text("pool", "a/b");
    let nothing = Params::new();
    for (template, params, held, expected) in [
        (one, &known, "manage:a/b", true),
        (one, &known, "manage:a/c", false),
        (one, &nothing, "manage:a/c", true),
        (one, &nothing, "manage:a/*", true),
        (one, &nothing, "man*", true),
        (one, &nothing, "*", true),
        (one, &nothing, "manager", false),
        (one, &nothing, "read:a/c", false),
        (both, &nothing, "manage:*", false),
        (both, &nothing, "*", true),
        (of_list, &nothing, "image:x", true),
        (of_list, &nothing, "images:x", false),
    ] {
        let scopes = ScopeSet::new([held.to_owned()]);
        let found = template.may_be_satisfied(params, &scopes);
        assert_eq!(found, expected, "{template:?} by {held}");
    }
}
