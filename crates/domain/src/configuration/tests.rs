//! Compilations of worker configurations, by example.

use std::sync::Arc;

use rules::Attributes;
use serde_json::{Value, json};

use super::*;

mod bounds;
mod edges;
mod extended;
mod regions;

fn place(pairs: &[(&str, &str)]) -> Place {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// `ec2` with three zones in two regions, `datacentre` with declared workers.
fn catalog() -> Arc<ProviderCatalog> {
    let mut catalog = ProviderCatalog::default();
    let mut ec2 = ProviderEntry::launching(vec![
        place(&[("region", "us-east-1"), ("availabilityZone", "us-east-1a")]),
        place(&[("region", "us-east-1"), ("availabilityZone", "us-east-1b")]),
        place(&[("region", "us-west-2"), ("availabilityZone", "us-west-2a")]),
    ]);
    ec2.fills.insert("region".to_owned(), "/region".to_owned());
    ec2.fills.insert(
        "availabilityZone".to_owned(),
        "/launchConfig/Placement/AvailabilityZone".to_owned(),
    );
    catalog.providers.insert("ec2".parse().unwrap(), ec2);
    catalog.providers.insert(
        "other".parse().unwrap(),
        ProviderEntry::launching(Vec::new()),
    );
    let datacentre = ProviderEntry {
        takes: WorkerSource::Declarations,
        ..ProviderEntry::launching(Vec::new())
    };
    catalog
        .providers
        .insert("datacentre".parse().unwrap(), datacentre);
    catalog
        .out_of_service
        .insert("broken".parse().unwrap(), "its set-up failed".to_owned());
    Arc::new(catalog)
}

fn rule(id: &str, conditions: Value, values: Value) -> Value {
    json!({"ruleId": id, "description": "", "conditions": conditions, "values": values})
}

fn basics(values: Value) -> Value {
    let mut all = json!({"owner": "a@example.com", "description": "d", "maxCapacity": 5});
    rules::assign(all.as_object_mut().unwrap(), values.as_object().unwrap());
    rule("basics", Value::Null, all)
}

fn compile(worker_types: &[&str], rules: &[Value]) -> Result<Compilation, Problems> {
    let document = json!({"workerTypes": worker_types, "rules": rules});
    Compilation::new(Configuration::parse(&document)?, catalog())
}

fn wrong(rules: &[Value]) -> String {
    compile(&["build"], rules).unwrap_err().to_string()
}

fn launch_configs(compilation: &Compilation) -> Vec<(String, Value)> {
    let configs = compilation
        .pools
        .iter()
        .flat_map(|pool| pool.launch_configs());
    configs
        .map(|(_, config)| (config.attributes.to_string(), json!(config.configuration)))
        .collect()
}

#[test]
fn the_example_of_rfc_124_compiles_to_two_pools_without_launches() {
    let document = json!({"workerTypes": ["build-opt", "build-dbg"], "rules": [
        {"ruleId": "basic-options", "conditions": null, "description": "Basic worker options", "values":
            {"scalingRatio": 1, "owner": "build-team@my-open-source-project.com", "description": "configuration for builds"}},
        {"ruleId": "ec2-ami", "description": "Configure EC2 AMI images to be used",
         "conditions": [{"provider": "ec2", "region": "us-east-1"}], "values": {"ec2": {"ImageId": "ami-12345abcdef"}}},
        {"ruleId": "us-east-1a subnets", "description": "us-east-1a needs own subnet for inter-vpc communication",
         "conditions": [{"provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a"}],
         "values": {"ec2": {"SubnetID": "sn-302433abcdef"}}},
    ]});
    let configuration = Configuration::parse(&document).unwrap();
    let compilation = Compilation::new(configuration, catalog()).unwrap();
    let pools: Vec<_> = compilation
        .pools
        .iter()
        .map(|pool| pool.pool_id().to_string())
        .collect();
    assert_eq!(
        pools,
        ["worker-manager/build-opt", "worker-manager/build-dbg"]
    );
    assert!(compilation.pools[0].providers.is_empty());
    let attributes: Attributes = [
        ("provider", "ec2"),
        ("region", "us-east-1"),
        ("availabilityZone", "us-east-1a"),
    ]
    .into_iter()
    .collect();
    assert_eq!(
        Value::Object(compilation.evaluator().evaluate(&attributes).values.clone()),
        json!({
            "scalingRatio": 1,
            "owner": "build-team@my-open-source-project.com",
            "description": "configuration for builds",
            "ec2": {"ImageId": "ami-12345abcdef", "SubnetID": "sn-302433abcdef"},
        })
    );
}

#[test]
fn every_place_of_a_provider_gives_a_launch_config_with_what_the_place_implies() {
    let rules = [
        basics(json!({"providers": {"ec2": {}}})),
        rule(
            "machine",
            json!({"provider": "ec2"}),
            json!({"ec2": {"launchConfig": {"InstanceType": "m5.large"}}}),
        ),
        rule(
            "west",
            json!({"region": "us-west-2"}),
            json!({"ec2": {"launchConfig": {"Placement": {"AvailabilityZone": null, "Tenancy": "host"}}}}),
        ),
    ];
    let compilation = compile(&["build"], &rules).unwrap();
    let configs = launch_configs(&compilation);
    assert_eq!(configs.len(), 3);
    assert_eq!(
        configs[0].0,
        "availabilityZone=us-east-1a, provider=ec2, region=us-east-1, workerType=build"
    );
    assert_eq!(
        configs[0].1,
        json!({"region": "us-east-1", "launchConfig": {"InstanceType": "m5.large", "Placement": {"AvailabilityZone": "us-east-1a"}}})
    );
    assert_eq!(
        configs[2].1["launchConfig"]["Placement"],
        json!({"AvailabilityZone": "us-west-2a", "Tenancy": "host"})
    );
}

#[test]
fn places_select_offered_places_and_add_conditions() {
    let places = json!([
        {"region": "us-east-*", "size": ["small", "large"]},
        {"availabilityZone": "us-west-2a"},
    ]);
    let rules = [
        basics(json!({"providers": {"ec2": {"places": places}}})),
        rule("all", Value::Null, json!({"ec2": {"size": "none"}})),
        rule(
            "small",
            json!({"size": "small"}),
            json!({"ec2": {"size": "s"}}),
        ),
        rule(
            "large",
            json!({"size": "large"}),
            json!({"ec2": {"size": "l"}}),
        ),
    ];
    let configs = launch_configs(&compile(&["build"], &rules).unwrap());
    let sizes: Vec<_> = configs
        .iter()
        .map(|(_, config)| config["size"].as_str().unwrap())
        .collect();
    assert_eq!(sizes, ["s", "l", "s", "l", "none"]);
}

/// Two launch configs `a` and `b` of the provider `other`, with these given ids; `x` is in both.
fn with_given_ids(ids: &Value, x: u8) -> Result<Compilation, Problems> {
    let zone = |name: &str| {
        let values = json!({"other": {"zone": name}});
        rule(name, json!({"zone": name}), values)
    };
    let options = json!({"places": [{"zone": ["a", "b"]}]});
    let basics = basics(json!({"providers": {"other": options}, "other": {"x": x}}));
    let document = json!({"workerTypes": ["build"], "rules": [basics, zone("a"), zone("b")],
        "launchConfigIds": ids});
    Compilation::new(Configuration::parse(&document)?, catalog())
}

fn ids(compilation: &Compilation) -> Vec<String> {
    let configs = compilation.pools[0].launch_configs();
    configs.map(|(_, config)| config.id.to_string()).collect()
}

#[test]
fn a_given_id_is_for_its_content_only() {
    let computed = ids(&with_given_ids(&json!({}), 1).unwrap());
    let given = json!({(computed[0].as_str()): "mine"});
    let known = with_given_ids(&given, 1).unwrap();
    assert_eq!(ids(&known), ["mine", &computed[1]]);
    let (_, config) = known.pools[0].launch_configs().next().unwrap();
    let steering = &config.configuration["workerManager"];
    assert_eq!(steering["launchConfigId"], "mine");
    // The content differs, and so does the id.
    let changed = with_given_ids(&given, 2).unwrap();
    assert_eq!(ids(&changed), ids(&with_given_ids(&json!({}), 2).unwrap()));
    // When the content is back, the id is back.
    assert_eq!(ids(&with_given_ids(&given, 1).unwrap()), ids(&known));
}

#[test]
fn another_given_id_compiles_the_pools_anew() {
    let computed = ids(&with_given_ids(&json!({}), 1).unwrap());
    let before = with_given_ids(&json!({}), 1).unwrap();
    let wanted = with_given_ids(&json!({(computed[1].as_str()): "mine"}), 1).unwrap();
    let next = before.succeed(wanted.configuration, catalog()).unwrap();
    assert_eq!(ids(&next), [computed[0].as_str(), "mine"]);
}

#[test]
fn an_id_in_a_rule_is_refused_with_what_to_write_instead() {
    let values = json!({"other": {"workerManager": {"launchConfigId": "mine"}}});
    let refused = wrong(&[
        basics(json!({"providers": {"other": {"places": [{"zone": "a"}]}}})),
        rule("id", Value::Null, values),
    ]);
    for part in [
        "/other/workerManager/launchConfigId: is not for rules",
        "launchConfigIds: {lc-",
        ": \"mine\"}` beside `rules`",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn a_condition_that_no_provider_offers_fills_nothing() {
    let rules = [
        basics(json!({"providers": {"ec2": {"section": "ec2"}}})),
        rule("all", Value::Null, json!({"ec2": {}})),
    ];
    let mut own = (*catalog()).clone();
    for entry in own.providers.values_mut() {
        entry.places.clear();
    }
    let mut document = json!({"workerTypes": ["build"], "rules": rules});
    document["rules"][0]["values"]["providers"]["ec2"]["places"] = json!([{"region": "mars"}]);
    let configuration = Configuration::parse(&document).unwrap();
    let compilation = Compilation::new(configuration, Arc::new(own)).unwrap();
    assert_eq!(launch_configs(&compilation)[0].1, json!({}));
}

#[test]
fn regions_leave_places_out_and_only_those_that_have_a_region() {
    let rules = [
        basics(json!({"regions": ["us-w*"], "providers": {"ec2": {}, "other": {}}})),
        rule(
            "all",
            Value::Null,
            json!({"ec2": {"a": 1}, "other": {"b": 1}}),
        ),
    ];
    let configs = launch_configs(&compile(&["build"], &rules).unwrap());
    let names: Vec<_> = configs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "availabilityZone=us-west-2a, provider=ec2, region=us-west-2, workerType=build",
            "provider=other, region=other, workerType=build"
        ]
    );
}

#[test]
fn where_nothing_depends_on_the_place_one_launch_config_stands_for_all() {
    let rules = [
        basics(json!({"providers": {"other": {"places": [{"n": ["1", "2", "3"]}]}}})),
        rule("all", Value::Null, json!({"other": {"a": 1}})),
    ];
    let compilation = compile(&["build"], &rules).unwrap();
    assert_eq!(launch_configs(&compilation).len(), 1);
    assert_eq!(compilation.evaluated_attributes().len(), 4);
    // And an edit that makes a difference for one of the others is noticed.
    let mut next = rules.to_vec();
    next.push(rule("third", json!({"n": "3"}), json!({"other": {"a": 3}})));
    let document = json!({"workerTypes": ["build"], "rules": next});
    let after = compilation
        .succeed(Configuration::parse(&document).unwrap(), catalog())
        .unwrap();
    assert_eq!(launch_configs(&after).len(), 2);
}

#[test]
fn disabled_places_are_skipped_and_remembered() {
    let rules = [
        basics(json!({"providers": {"ec2": {}}})),
        rule("all", Value::Null, json!({"ec2": {}})),
        rule(
            "not there",
            json!({"availabilityZone": "us-east-1b"}),
            json!({"disabled": true}),
        ),
    ];
    let compilation = compile(&["build"], &rules).unwrap();
    assert_eq!(launch_configs(&compilation).len(), 2);
    assert_eq!(compilation.pools[0].providers[0].disabled.len(), 1);
}

#[test]
fn workers_that_people_declare_get_their_section_with_the_pool() {
    let rules = [
        basics(json!({"maxCapacity": null, "providers": {"datacentre": {}}})),
        rule(
            "config",
            Value::Null,
            json!({"datacentre": {"workerConfig": {"a": 1}}}),
        ),
    ];
    let compilation = compile(&["proj-x/build"], &rules).unwrap();
    let pool = &compilation.pools[0];
    assert_eq!(pool.pool_id().as_str(), "proj-x/build");
    assert_eq!(
        json!(pool.providers[0].declared),
        json!({"workerConfig": {"a": 1}})
    );
}

/// The errors when a rule sets these values, too.
fn wrong_with(extra: &Value) -> String {
    wrong(&[
        basics(json!({"providers": {"ec2": {}}})),
        rule("all", Value::Null, json!({"ec2": {}})),
        rule("extra", Value::Null, extra.clone()),
    ])
}

#[test]
fn each_error_names_its_pointer_and_rule() {
    for (values, text) in [
        (
            json!({"owner": null}),
            "with workerType=build: /owner: is required, and no rule that applies sets it (rules \"basics\", \"extra\")",
        ),
        (
            json!({"maxCapacity": null}),
            "/maxCapacity: is required for providers that launch workers, and no rule that applies sets it",
        ),
        (
            json!({"minCapacty": 1}),
            "/minCapacty: is neither a setting nor the section of a provider",
        ),
        (
            json!({"providers": ["ec2"]}),
            "/providers: must be a mapping from the ids of providers to their options",
        ),
        (
            json!({"providers": {"ec3": {}}}),
            "/providers/ec3: \"ec3\" is not a provider, did you mean \"ec2\"? The providers are: datacentre, ec2, other. Correct the name, or add the section [providers.ec3] to the configuration of the server (`fleetwright config example` has some) (rule \"extra\")",
        ),
        (
            json!({"providers": {"broken": {}}}),
            "/providers/broken: the places of the provider are not known now: its set-up failed",
        ),
        (
            json!({"providers": {"ec2": 1}}),
            "/providers/ec2: must be an object of options",
        ),
        (
            json!({"providers": {"ec2": {"zones": []}}}),
            "/providers/ec2/zones: is not an option of providers",
        ),
        (
            json!({"providers": {"ec2": {"section": "owner"}}}),
            "/providers/ec2/section: must be a section name",
        ),
    ] {
        let told = wrong_with(&values);
        assert!(told.contains(text), "{values}: {told}");
    }
}

#[test]
fn each_error_about_places_and_launch_configs_names_its_pointer() {
    for (values, text) in [
        (
            json!({"providers": {"ec2": {"places": {}}}}),
            "/providers/ec2/places: must be a list of mappings",
        ),
        (
            json!({"providers": {"ec2": {"places": [{"region": "eu-*"}]}}}),
            "/providers/ec2/places/0/region: matches no place of the provider, which offers us-east-1, us-west-2",
        ),
        (
            json!({"providers": {"ec2": {"places": [{"region": "us-west-2", "availabilityZone": "us-east-1a"}]}}}),
            "/providers/ec2/places/0: each condition matches a place, but no place matches all of them",
        ),
        (
            json!({"providers": {"ec2": {"places": [{"provider": "ec2"}]}}}),
            "/providers/ec2/places/0/provider: `provider` is always set",
        ),
        (
            json!({"providers": {"ec2": {"places": [{"size": 1}]}}}),
            "/providers/ec2/places/0/size: must be a text or a list of texts",
        ),
        (json!({"regions": "[a"}), "/regions: "),
        (
            json!({"emailOnError": "yes"}),
            "/emailOnError: must be true or false",
        ),
        (json!({"description": 1}), "/description: must be a text"),
        (
            json!({"ec2": 1}),
            "region=us-east-1, workerType=build and 2 more: /ec2: must be an object",
        ),
        (
            json!({"ec2": null}),
            "/ec2: this place has no launch config: set values for it, or set `disabled: true` (rules \"all\", \"extra\")",
        ),
        (
            json!({"ec2": {"workerManager": {"providerId": "other"}}}),
            "/ec2/workerManager/providerId: is set by `providers`",
        ),
        (
            json!({"ec2": {"workerManager": {"launchConfigId": "a b"}}}),
            "/ec2/workerManager/launchConfigId: ",
        ),
        (
            json!({"payloadSchema": "x"}),
            "/payloadSchema: must be a JSON Schema",
        ),
        (
            json!({"strategy": "luck"}),
            "/strategy: \"luck\" is not a strategy; use \"weighted\", \"aws-provisioner\", \"balanced\" or \"external\" (rule \"extra\")",
        ),
        (
            json!({"maxCapacity": -1}),
            "/maxCapacity: maxCapacity must be",
        ),
    ] {
        let told = wrong_with(&values);
        assert!(told.contains(text), "{values}: {told}");
    }
}

#[test]
fn a_section_may_stand_where_another_worker_type_opts_in_to_its_provider() {
    let document = json!({"workerTypes": ["a", "b"], "rules": [
        basics(json!({"providers": {"elsewhere": {}}})),
        rule("all", Value::Null, json!({"elsewhere": {"n": 1}})),
        rule("not b", json!({"workerType": "b"}), json!({"providers": {"elsewhere": null}})),
    ]});
    let configuration = Configuration::parse(&document).unwrap();
    let compilation =
        Compilation::new(configuration, Arc::new(ProviderCatalog::assumed())).unwrap();
    let n_configs = compilation
        .pools
        .iter()
        .map(|pool| pool.launch_configs().count());
    assert_eq!(n_configs.collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn what_belongs_to_the_pool_cannot_depend_on_the_place() {
    let rules = [
        basics(json!({"providers": {"ec2": {}}})),
        rule("all", Value::Null, json!({"ec2": {}})),
        rule(
            "fewer",
            json!({"region": "us-west-2"}),
            json!({"maxCapacity": 1}),
        ),
    ];
    let told = wrong(&rules);
    assert!(
        told.contains("/maxCapacity: belongs to the pool and not to a place"),
        "{told}"
    );
    assert!(told.contains("\"fewer\""), "{told}");
}

#[test]
fn a_provider_that_is_out_of_service_is_worth_another_try_and_a_misspelt_one_is_not() {
    let with = |provider: &str| {
        let rules = [basics(json!({"providers": {provider: {}}}))];
        compile(&["build"], &rules).unwrap_err().is_outage()
    };
    assert!(with("broken"));
    assert!(!with("ec3"));
}

#[test]
fn a_missing_provider_is_reported_once_and_nothing_that_follows_from_it() {
    let opt_in = |worker_type: &str| {
        json!({"ruleId": worker_type, "conditions": {"workerType": worker_type}, "values": {
            "providers": {"nowhere": {"section": "cloud"}}, "cloud": {"size": 1}, "regions": ["eu"]}})
    };
    let rules = [basics(json!({})), opt_in("a"), opt_in("b"), opt_in("c")];
    let told = compile(&["a", "b", "c"], &rules).unwrap_err().to_string();
    assert_eq!(
        told,
        "with workerType=a and 2 more: /providers/nowhere: \"nowhere\" is not a provider. The \
         providers are: datacentre, ec2, other. Correct the name, or add the section \
         [providers.nowhere] to the configuration of the server (`fleetwright config example` has \
         some) (rule \"a\")"
    );
}

#[test]
fn all_errors_of_a_document_are_reported_together() {
    let document = json!({"workerType": ["a"], "workerTypes": ["ok", "Not OK", "ok", 1], "rules": [{"ruleId": "x", "conditions": {"region": 1}, "values": {}}, {"ruleId": "x", "values": {}}]});
    let told = Configuration::parse(&document).unwrap_err().to_string();
    for text in [
        "/workerType: `workerType` is not known here",
        "/workerTypes/1: ",
        "/workerTypes/2: `ok` is listed twice",
        "/workerTypes/3: must be a text",
        "/rules/0/conditions/region",
        "/rules/1",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
}

#[test]
fn a_document_is_read_back_as_it_was_written() {
    let document = json!({"description": "d", "workerTypes": ["worker-manager/build", "proj-x/ci"], "rules": [basics(json!({}))]});
    let configuration = Configuration::parse(&document).unwrap();
    let written = configuration.to_document();
    assert_eq!(written["workerTypes"], json!(["build", "proj-x/ci"]));
    assert_eq!(
        Configuration::parse(&written).unwrap().to_document(),
        written
    );
}

#[test]
fn an_edit_takes_over_the_pools_that_it_does_not_touch() {
    let rules = |b: i64| {
        vec![
            basics(json!({"providers": {"ec2": {}}})),
            rule("all", Value::Null, json!({"ec2": {"a": 1}})),
            rule("b", json!({"workerType": "b"}), json!({"ec2": {"b": b}})),
        ]
    };
    let parse =
        |b| Configuration::parse(&json!({"workerTypes": ["a", "b"], "rules": rules(b)})).unwrap();
    let before = Compilation::new(parse(1), catalog()).unwrap();
    let after = before.succeed(parse(2), catalog()).unwrap();
    assert!(Arc::ptr_eq(&before.pools[0], &after.pools[0]));
    assert!(!Arc::ptr_eq(&before.pools[1], &after.pools[1]));
    let changes = difference(Some(&before), Some(&after));
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].replaced.len(), changes[0].n_kept), (3, 0));
    assert_eq!(
        changes[0].replaced[0].values,
        [ValueChange {
            pointer: "/b".to_owned(),
            before: Some(json!(1)),
            after: Some(json!(2))
        }]
    );
    let same = after.succeed(parse(2), catalog()).unwrap();
    assert!(
        after
            .pools
            .iter()
            .zip(&same.pools)
            .all(|(one, other)| Arc::ptr_eq(one, other))
    );
}

#[test]
fn a_difference_names_rules_that_came_went_changed_and_moved() {
    let parse = |ids: &[(&str, i64)]| {
        let rules: Vec<_> = ids
            .iter()
            .map(|(id, n)| rule(id, Value::Null, json!({"n": n})))
            .collect();
        Configuration::parse(&json!({"workerTypes": [], "rules": rules})).unwrap()
    };
    let before = parse(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let after = parse(&[("b", 1), ("c", 2), ("e", 1), ("a", 1)]);
    let changes: Vec<_> = rule_changes(&before, &after)
        .into_iter()
        .map(|(id, change)| match change {
            RuleChange::Added => format!("+{id}"),
            RuleChange::Removed => format!("-{id}"),
            RuleChange::Moved => format!(">{id}"),
            RuleChange::Changed(values) => format!("~{id}{}", values[0].pointer),
        })
        .collect();
    assert_eq!(changes, ["~c/values/n", "+e", ">a", "-d"]);
}
