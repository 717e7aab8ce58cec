//! A rule set of the size that large fleets have.

use domain::configuration::{Market, Wares};
use serde_json::{Map, Value, json};

const WORKER_TYPES: usize = 400;
const REGIONS: usize = 6;
const ZONES: usize = 3;
const RULES: usize = 200;

/// One provider with six regions of three zones.
pub(crate) fn market() -> Market {
    let mut places = Vec::new();
    for region in 0..REGIONS {
        for zone in 0..ZONES {
            let pairs = [
                ("region".to_owned(), region_name(region)),
                ("availabilityZone".to_owned(), zone_name(region, zone)),
            ];
            places.push(pairs.into_iter().collect());
        }
    }
    let mut wares = Wares::launching(places);
    wares
        .fills
        .insert("region".to_owned(), "/region".to_owned());
    let mut market = Market::default();
    let id = "ec2".parse().expect("this is the name of a provider");
    market.providers.insert(id, wares);
    market
}

/// The rules, of which one, about one worker type, says this number.
pub(crate) fn document(number: u32) -> Value {
    let worker_types: Vec<String> = (0..WORKER_TYPES).map(worker_type).collect();
    json!({"workerTypes": worker_types, "rules": rules(number, json!({"ec2": {}}))})
}

/// The same for a server without that provider: evaluated as the other, and launching nothing.
pub(crate) fn unprovisioned() -> Value {
    let worker_types: Vec<String> = (0..WORKER_TYPES).map(worker_type).collect();
    let mut rules = rules(0, json!({}));
    let with_sections = rules
        .iter_mut()
        .filter(|rule| rule["conditions"]["provider"].is_null());
    for rule in with_sections.filter(|rule| rule["values"].get("ec2").is_some()) {
        rule["conditions"]["provider"] = json!("ec2");
    }
    json!({"workerTypes": worker_types, "rules": rules})
}

/// Of one evaluation, another for each number.
pub(crate) fn conditions(number: usize) -> Value {
    let region = number % REGIONS;
    json!({
        "workerType": worker_type(number % WORKER_TYPES),
        "provider": "ec2",
        "region": region_name(region),
        "availabilityZone": zone_name(region, number % ZONES),
    })
}

fn rules(number: u32, providers: Value) -> Vec<Value> {
    let mut rules = vec![rule(
        "basics",
        Value::Null,
        json!({"owner": "ops@example.com", "description": "measured", "maxCapacity": 100, "scalingRatio": 1, "providers": providers}),
    )];
    rules.push(rule(
        "machine",
        json!({"provider": "ec2"}),
        json!({"ec2": machine()}),
    ));
    for region in 0..REGIONS {
        let image = format!("ami-{region:017}");
        let values = json!({"ec2": {"launchConfig": {"ImageId": image}}});
        rules.push(rule(
            &format!("image {region}"),
            json!({"provider": "ec2", "region": region_name(region)}),
            values,
        ));
        for zone in 0..ZONES {
            let name = zone_name(region, zone);
            let values = json!({"ec2": {"launchConfig": {"SubnetId": format!("subnet-{name}")}}});
            rules.push(rule(
                &format!("subnet {name}"),
                json!({"provider": "ec2", "availabilityZone": name}),
                values,
            ));
        }
    }
    let single = json!({"ec2": {"workerConfig": {"number": number}}});
    rules.push(rule(
        "one worker type",
        json!({"workerType": worker_type(7)}),
        single,
    ));
    let mut group = 0;
    while rules.len() < RULES {
        let pattern = match group % 3 {
            0 => json!(format!("*-{:02}?", group % 40)),
            1 => json!([worker_type(group), worker_type(group * 3 % WORKER_TYPES)]),
            _ => json!(format!("project-{}-*", group % 20)),
        };
        let values = json!({"ec2": {"workerConfig": {"features": {format!("feature{}", group % 30): group}}}});
        rules.push(rule(
            &format!("group {group}"),
            json!({"workerType": pattern}),
            values,
        ));
        group += 1;
    }
    rules
}

fn machine() -> Value {
    let tags: Map<String, Value> = (0..6)
        .map(|tag| (format!("tag{tag}"), json!(format!("value{tag}"))))
        .collect();
    json!({
        "capacityPerInstance": 1,
        "launchConfig": {
            "InstanceType": "m5.2xlarge",
            "InstanceMarketOptions": {"MarketType": "spot"},
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 120, "VolumeType": "gp3"}}],
            "SecurityGroupIds": ["sg-0123456789abcdef0"],
        },
        "workerConfig": {"tags": tags, "deviceManagement": {"loopbackVideo": {"enabled": true}}},
    })
}

fn rule(id: &str, conditions: Value, values: Value) -> Value {
    json!({"ruleId": id, "description": "measured", "conditions": conditions, "values": values})
}

fn worker_type(number: usize) -> String {
    format!("project-{}-{number:03}", number % 20)
}

fn region_name(region: usize) -> String {
    format!("region-{region}")
}

fn zone_name(region: usize, zone: usize) -> String {
    let letter = ["a", "b", "c"][zone % ZONES];
    format!("region-{region}{letter}")
}
