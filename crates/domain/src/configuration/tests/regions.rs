//! The regions of providers that have no places.

use super::*;

#[test]
fn every_provider_has_a_region_for_conditions() {
    let rules = [
        basics(json!({"providers": {"ec2": {}, "other": {}, "datacentre": {}}})),
        rule(
            "all",
            Value::Null,
            json!({"ec2": {"a": 1}, "other": {"a": 1}, "datacentre": {"a": 1}}),
        ),
        rule(
            "east",
            json!({"region": "us-east-1"}),
            json!({"ec2": {"at": "east"}}),
        ),
        rule(
            "other",
            json!({"region": "other"}),
            json!({"other": {"at": "other"}}),
        ),
        rule(
            "declared",
            json!({"provider": "datacentre", "region": "data*"}),
            json!({"datacentre": {"at": "rack"}}),
        ),
    ];
    let compilation = compile(&["build"], &rules).unwrap();
    let configs = launch_configs(&compilation);
    let at: Vec<_> = configs
        .iter()
        .map(|(_, config)| config["at"].clone())
        .collect();
    assert_eq!(json!(at), json!(["east", "east", null, "other"]));
    let pool = &compilation.pools[0];
    let declared = pool
        .providers
        .iter()
        .find(|it| !it.declared.is_empty())
        .unwrap();
    assert_eq!(json!(declared.declared), json!({"a": 1, "at": "rack"}));
    // The region for conditions is no part of a launch config.
    let other = configs
        .iter()
        .find(|(name, _)| name.contains("provider=other"));
    assert_eq!(json!(other.unwrap().1), json!({"a": 1, "at": "other"}));
}

#[test]
fn a_setting_of_the_pool_does_not_depend_on_where_declared_workers_are() {
    let rules = [
        basics(json!({"maxCapacity": null, "providers": {"datacentre": {}}})),
        rule(
            "owner",
            json!({"region": "datacentre"}),
            json!({"owner": "x@example.com"}),
        ),
    ];
    let text = wrong(&rules);
    assert!(
        text.contains("/owner: belongs to the pool and not to a place"),
        "{text}"
    );
}
