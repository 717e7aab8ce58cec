//! The names that can stand in rules: what the editor offers, and what it lists for everybody.

use std::collections::BTreeSet;

use api_client::{Call, WORKER_MANAGER};
use domain::configuration::value_keys;
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use crate::json::Json as _;
use crate::view::Visit;

/// Names of one kind that are listed.
const MAX_NAMES: usize = 300;
const CONFIGURATION_KEYS: [&str; 5] = [
    "description",
    "workerTypes",
    "sets",
    "rules",
    "launchConfigIds",
];
const RULE_KEYS: [&str; 4] = ["ruleId", "description", "conditions", "values"];
/// Launch configs that are read.
const PAGE: u32 = 200;

/// A kind of names.
struct Kind {
    title: &'static str,
    names: BTreeSet<String>,
}

/// The names that the server knows, beside those of the document.
pub(super) async fn list(visit: &Visit<'_>, document: &Value) -> Markup {
    let calls = [
        Call::get(WORKER_MANAGER, &["provider-places"]),
        Call::get(WORKER_MANAGER, &["launch-config-health"]).query("limit", Some(PAGE)),
    ];
    // People who may not read one of them get the other names.
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let mut replies = replies.into_iter().map(Result::unwrap_or_default);
    let (places, configs) = (replies.next(), replies.next());
    let kinds = kinds(
        document,
        &places.unwrap_or_default(),
        &configs.unwrap_or_default(),
    );
    shown(&kinds)
}

fn shown(kinds: &[Kind]) -> Markup {
    html! {
        details .names open {
            summary { "Names that can be used" }
            dl data-names {
                @for kind in kinds.iter().filter(|kind| !kind.names.is_empty()) {
                    dt { (kind.title) }
                    dd {
                        @for name in kind.names.iter().take(MAX_NAMES) { code { (name) } " " }
                        @if kind.names.len() > MAX_NAMES {
                            span .dim { "and " (kind.names.len() - MAX_NAMES) " more" }
                        }
                    }
                }
            }
        }
    }
}

fn kinds(document: &Value, places: &Value, configs: &Value) -> Vec<Kind> {
    let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    let providers = places.list("providers");
    let all_places = || providers.iter().flat_map(|it| it.list("places"));
    let conditions = all_places().filter_map(Value::as_object);
    let mut conditions: BTreeSet<String> = conditions.flat_map(|it| it.keys().cloned()).collect();
    conditions.extend(["workerType", "provider", "region"].map(str::to_owned));
    let values = all_places().filter_map(Value::as_object);
    let values = values.flat_map(|place| place.values().filter_map(Value::as_str));
    let types = document.list("workerTypes").iter();
    let types: BTreeSet<String> = owned(&mut types.filter_map(Value::as_str));
    let of_types = configs.list("launchConfigs").iter();
    let of_types = of_types.filter(|config| types.contains(config.text("workerPoolId")));
    let mut keys: BTreeSet<String> = value_keys().map(str::to_owned).collect();
    for rule in document.list("rules") {
        add_keys(&mut keys, rule.at("values"));
    }
    let kind = |title, names| Kind { title, names };
    vec![
        kind("Configuration", owned(&mut CONFIGURATION_KEYS.into_iter())),
        kind("Rule", owned(&mut RULE_KEYS.into_iter())),
        kind("Conditions", conditions),
        kind("Values", keys),
        kind(
            "Providers",
            owned(&mut providers.iter().map(|it| it.text("providerId"))),
        ),
        kind("Places", values.map(str::to_owned).collect()),
        kind("Worker types", types.clone()),
        kind(
            "Launch configs",
            owned(&mut of_types.map(|config| config.text("launchConfigId"))),
        ),
    ]
}

/// The keys at all depths.
fn add_keys(keys: &mut BTreeSet<String>, value: &Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                keys.insert(key.clone());
                add_keys(keys, member);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_keys(keys, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted() {
        for size in sizes_around("page::pictures::names::MAX_NAMES", 300) {
            let kind = Kind {
                title: "Places",
                names: (0..size).map(|number| format!("p{number}")).collect(),
            };
            let html = shown(&[kind]).into_string();
            assert_eq!(html.matches("<code>").count(), size.min(300));
            let more = format!("and {} more", size.saturating_sub(300));
            assert_eq!(html.contains(&more), size > 300, "{size}");
        }
    }

    #[test]
    fn names_come_from_the_document_and_from_the_server() {
        let document = json!({
            "workerTypes": ["a/b"],
            "rules": [{"values": {"aws": {"machines": [{"kind": "m5"}]}}}],
        });
        let places = json!({"providers": [
            {"providerId": "aws", "places": [{"region": "us-1", "availabilityZone": "us-1a"}]}]});
        let configs = json!({"launchConfigs": [
            {"workerPoolId": "a/b", "launchConfigId": "lc-1"},
            {"workerPoolId": "other/pool", "launchConfigId": "lc-2"},
        ]});
        let kinds = kinds(&document, &places, &configs);
        let names = |title: &str| -> Vec<&str> {
            let kind = kinds.iter().find(|kind| kind.title == title).unwrap();
            kind.names.iter().map(String::as_str).collect()
        };
        assert_eq!(
            names("Conditions"),
            ["availabilityZone", "provider", "region", "workerType"]
        );
        assert_eq!(names("Places"), ["us-1", "us-1a"]);
        assert_eq!(names("Launch configs"), ["lc-1"]);
        for key in ["maxCapacity", "disabled", "aws", "machines", "kind"] {
            assert!(names("Values").contains(&key), "{key}");
        }
    }
}
