//! Describes the effects of an edit of a worker configuration, from the server's preview.

use domain::configuration::ValueChange;
use serde_json::Value;

use super::style::{Style, indented};
use super::values;
use crate::output::{counted, printable};

/// Maximum number of launch configs of a pool to list for each kind of change.
const MAX_LISTED: usize = 6;
/// Maximum number of rules to list.
const MAX_RULES: usize = 12;
/// Maximum number of lines of values to print for one rule.
const MAX_RULE_LINES: usize = 8;
/// The given id of a launch config. It is no difference of its own, but follows from others.
const GIVEN_ID: &str = "/workerManager/launchConfigId";

/// Conflicts, and images to create first.
pub(super) fn obstacle_lines(plan: &Value, style: Style) -> Vec<String> {
    let conflicts = items(&plan["conflicts"]).iter().map(text);
    let images = items(&plan["missingImages"]).iter().map(text);
    let images = images.map(|image| format!("image {image} does not exist: create it first"));
    let all = conflicts.chain(images);
    all.map(|line| style.conflict(&line)).collect()
}

/// Lines for rules, pools, and each launch config by its conditions, with workers and cost.
pub(super) fn lines(plan: &Value, style: Style) -> Vec<String> {
    let mut lines = rule_lines(plan, style);
    lines.extend(adopted_lines(plan, style));
    for pool in items(&plan["pools"])
        .iter()
        .filter(|pool| !is_adopted(pool))
    {
        lines.extend(pool_lines(pool, style));
    }
    lines
}

/// The rules that differ, with their values.
pub(super) fn rule_lines(plan: &Value, style: Style) -> Vec<String> {
    let rules = items(&plan["rules"]);
    let limit = if style.in_full {
        rules.len()
    } else {
        MAX_RULES
    };
    let mut lines = Vec::new();
    for rule in rules.iter().take(limit) {
        let id = format!("rule {}", text(&rule["ruleId"]));
        lines.push(match rule["change"].as_str() {
            Some("added") => style.added(&id),
            Some("removed") => style.removed(&id),
            Some("moved") => style.changed(&format!("{id}: moved")),
            Some(_) | None => style.changed(&id),
        });
        let values = values::lines(&values::parse(&rule["values"]), style);
        let limit = if style.in_full {
            values.len()
        } else {
            MAX_RULE_LINES
        };
        lines.extend(indented(cut(values, limit, "line")));
    }
    if rules.len() > limit {
        let more = counted(rules.len() - limit, "more rule");
        lines.push(format!("… and {more}"));
    }
    lines
}

/// The first lines, and the number of the others.
pub(super) fn cut(mut lines: Vec<String>, limit: usize, noun: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(limit);
    if more > 0 {
        lines.truncate(limit);
        lines.push(format!("… and {}", counted(more, &format!("more {noun}"))));
    }
    lines
}

/// The pools created by hand that are taken over, with their differences.
pub(super) fn adopted_lines(plan: &Value, style: Style) -> Vec<String> {
    let (mut lines, differing) = same_adopted_lines(plan, style);
    let differing = differing.into_iter();
    lines.extend(differing.flat_map(|pool| pool_lines(pool, style)));
    lines
}

/// The pools that are taken over unchanged, as lines, and the others.
pub(super) fn same_adopted_lines(plan: &Value, style: Style) -> (Vec<String>, Vec<&Value>) {
    let adopted = items(&plan["pools"]).iter();
    let adopted = adopted.filter(|pool| is_adopted(pool));
    let (same, differing): (Vec<_>, Vec<_>) = adopted.partition(|pool| is_same(pool));
    let mut lines = Vec::new();
    if same.len() > MAX_LISTED && !style.in_full {
        lines.push(style.changed(&format!(
            "{} pools: created by hand, taken over unchanged",
            same.len()
        )));
    } else {
        for pool in same {
            lines.push(style.changed(&format!(
                "pool {}: created by hand, taken over unchanged",
                text(&pool["workerPoolId"])
            )));
        }
    }
    (lines, differing)
}

pub(super) fn is_adopted(pool: &Value) -> bool {
    pool["change"] == "adopted"
}

/// Whether it is taken over unchanged.
fn is_same(pool: &Value) -> bool {
    let lists = ["settings", "created", "replaced", "updated", "archived"];
    lists.iter().all(|list| items(&pool[*list]).is_empty())
}

/// A summary; empty if no pool differs.
pub(crate) fn gist(plan: &Value) -> String {
    let counts = &plan["launchConfigs"];
    let mut parts = Vec::new();
    let pools = items(&plan["pools"]);
    let adopted = pools.iter().filter(|pool| is_adopted(pool)).count();
    match (pools.len(), adopted) {
        (0, _) => {}
        (pools, 0) => parts.push(counted(pools, "pool")),
        (pools, adopted) => parts.push(format!(
            "{} ({adopted} created by hand)",
            counted(pools, "pool")
        )),
    }
    parts.extend(launch_configs(
        LAUNCH_CONFIG_CHANGES.map(|(key, _)| count(&counts[key])),
    ));
    parts.extend(consequences(plan));
    parts.join(", ")
}

fn pool_lines(pool: &Value, style: Style) -> Vec<String> {
    let list = |key: &str| items(&pool[key]);
    let mut parts = launch_configs(LAUNCH_CONFIG_CHANGES.map(|(key, _)| list(key).len() as u64));
    let kept = count(&pool["kept"]);
    if kept > 0 && !parts.is_empty() {
        parts.push(format!("{kept} kept"));
    }
    parts.extend(consequences(pool));
    let mut title = format!("pool {}", text(&pool["workerPoolId"]));
    if is_adopted(pool) {
        title.push_str(": created by hand, taken over");
    }
    if !parts.is_empty() {
        title.push_str(&format!(": {}", parts.join(", ")));
    }
    let mut lines = match pool["change"].as_str() {
        // The content of a new pool follows from the rules, which are shown.
        Some("created") => return vec![style.added(&title)],
        Some("removed") => return vec![style.removed(&title)],
        Some(_) | None => vec![style.changed(&title)],
    };
    lines.extend(value_lines(&pool["settings"], style));
    let mut show = |ways: &[Value], line: &dyn Fn(&Value) -> Vec<String>| {
        let most = if style.in_full {
            ways.len()
        } else {
            MAX_LISTED
        };
        for way in ways.iter().take(most) {
            lines.extend(indented(line(way)));
        }
        if ways.len() > most {
            lines.push(format!("    … and {} more", ways.len() - most));
        }
    };
    show(list("replaced"), &|way| replaced_lines(way, style));
    show(list("updated"), &|way| updated_lines(way, style));
    show(list("created"), &|way| vec![style.added(&way_line(way))]);
    show(list("archived"), &|way| vec![style.removed(&way_line(way))]);
    lines
}

fn replaced_lines(way: &Value, style: Style) -> Vec<String> {
    let mut about = workers(way);
    if let (Some(before), Some(after)) = (way["priceBefore"].as_f64(), way["priceAfter"].as_f64())
        && (before - after).abs() > f64::EPSILON
    {
        about.push(format!("${before}/h → ${after}/h"));
    }
    let title = format!(
        "{}: {} → {}{}",
        conditions(way),
        text(&way["before"]),
        text(&way["after"]),
        in_brackets(&about)
    );
    let mut lines = vec![style.changed(&title)];
    lines.extend(indented(values::lines(&replaced_values(way), style)));
    lines
}

/// The differences of a launch config; its id only if nothing else differs.
pub(super) fn replaced_values(way: &Value) -> Vec<ValueChange> {
    let mut changes = values::parse(&way["values"]);
    if changes.iter().any(|change| change.pointer != GIVEN_ID) {
        changes.retain(|change| change.pointer != GIVEN_ID);
    }
    changes
}

fn updated_lines(way: &Value, style: Style) -> Vec<String> {
    let mut lines = vec![style.changed(&way_line(way))];
    lines.extend(value_lines(&way["values"], style));
    lines
}

fn value_lines(values: &Value, style: Style) -> impl Iterator<Item = String> {
    indented(values::lines(&values::parse(values), style))
}

fn way_line(way: &Value) -> String {
    let mut about = workers(way);
    about.extend(way["price"].as_f64().map(|price| format!("${price}/h")));
    format!(
        "{}: {}{}",
        conditions(way),
        text(&way["launchConfigId"]),
        in_brackets(&about)
    )
}

/// The conditions that distinguish a launch config from others of its pool.
pub(super) fn conditions(way: &Value) -> String {
    // A place without a region has the name of its provider as one.
    let has_region = way["conditions"]["region"] != way["conditions"]["provider"];
    let conditions = way["conditions"].as_object().into_iter().flatten();
    let conditions: Vec<_> = conditions
        .filter(|(name, _)| *name != "workerType" && (*name != "region" || has_region))
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    conditions.join(", ")
}

fn workers(way: &Value) -> Vec<String> {
    match count(&way["workers"]) {
        0 => Vec::new(),
        workers => vec![counted(workers, "worker")],
    }
}

/// The keys of the lists and the names of the changes.
const LAUNCH_CONFIG_CHANGES: [(&str, &str); 4] = [
    ("created", "new launch config"),
    ("replaced", "replaced launch config"),
    ("updated", "updated launch config"),
    ("archived", "archived launch config"),
];

fn launch_configs(counts: [u64; 4]) -> Vec<String> {
    counts
        .into_iter()
        .zip(LAUNCH_CONFIG_CHANGES)
        .filter(|(count, _)| *count > 0)
        .map(|(count, (_, what))| counted(count, what))
        .collect()
}

/// The consequences for running workers.
fn consequences(of: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    let outdated = count(&of["outdatedWorkers"]);
    if outdated > 0 {
        parts.push(format!("{} outdated", counted(outdated, "worker")));
    }
    match of["costDifference"].as_f64() {
        Some(more) if more > 0.0 => parts.push(format!("${more}/h more")),
        Some(less) if less < 0.0 => parts.push(format!("${}/h less", -less)),
        Some(_) | None => {}
    }
    parts
}

pub(super) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => printable(text),
        None => printable(&value.to_string()),
    }
}

fn in_brackets(parts: &[String]) -> String {
    if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    const STYLE: Style = Style {
        in_colour: false,
        in_full: false,
    };

    fn way(zone: &str) -> Value {
        json!({"providerId": "ec2", "launchConfigId": "lc-1", "workers": 1, "price": 0.5,
            "conditions": {"workerType": "build", "provider": "ec2", "zone": zone}})
    }

    fn shown(plan: &Value, style: Style) -> Vec<String> {
        let mut lines = obstacle_lines(plan, style);
        lines.extend(super::lines(plan, style));
        lines
    }

    fn plan() -> Value {
        json!({
            "rules": [
                {"ruleId": "ami", "change": "changed", "values": [
                    {"pointer": "/values/ec2/ImageId", "before": "ami-1", "after": "ami-2"}]},
                {"ruleId": "new", "change": "added"},
                {"ruleId": "last", "change": "moved"},
            ],
            "pools": [{
                "workerPoolId": "worker-manager/build", "change": "changed", "kept": 3,
                "outdatedWorkers": 2, "costDifference": -0.25,
                "settings": [{"pointer": "/config/maxCapacity", "before": 1, "after": 2}],
                "replaced": [{"providerId": "ec2", "before": "lc-a", "after": "lc-b", "workers": 2,
                    "priceBefore": 0.5, "priceAfter": 0.25,
                    "conditions": {"workerType": "build", "provider": "ec2", "region": "r"},
                    "values": [{"pointer": "/ImageId", "before": "ami-1", "after": "ami-2"}]}],
                "created": (0..8).map(|n| way(&format!("z{n}"))).collect::<Vec<_>>(),
                "archived": [],
            }],
            "launchConfigs": {"created": 8, "replaced": 1, "archived": 0, "kept": 3},
            "unchangedPools": 4, "outdatedWorkers": 2, "costDifference": -0.25,
            "conflicts": ["a/b belongs to the worker configuration c"],
        })
    }

    #[test]
    fn effects_are_described_with_workers_and_costs() {
        insta::assert_snapshot!(shown(&plan(), STYLE).join("\n"), @r#"
        ! a/b belongs to the worker configuration c
        ~ rule ami
            /values/ec2/ImageId: "ami-1" → "ami-2"
        + rule new
        ~ rule last: moved
        ~ pool worker-manager/build: 8 new launch configs, 1 replaced launch config, 3 kept, 2 workers outdated, $0.25/h less
            /config/maxCapacity: 1 → 2
            ~ provider=ec2, region=r: lc-a → lc-b (2 workers, $0.5/h → $0.25/h)
                /ImageId: "ami-1" → "ami-2"
            + provider=ec2, zone=z0: lc-1 (1 worker, $0.5/h)
            + provider=ec2, zone=z1: lc-1 (1 worker, $0.5/h)
            + provider=ec2, zone=z2: lc-1 (1 worker, $0.5/h)
            + provider=ec2, zone=z3: lc-1 (1 worker, $0.5/h)
            + provider=ec2, zone=z4: lc-1 (1 worker, $0.5/h)
            + provider=ec2, zone=z5: lc-1 (1 worker, $0.5/h)
            … and 2 more
        "#);
        assert_eq!(
            gist(&plan()),
            "1 pool, 8 new launch configs, 1 replaced launch config, 2 workers outdated, $0.25/h less"
        );
    }

    #[test]
    fn lists_of_rules_and_values_are_cut() {
        let rule =
            |values: Vec<Value>| json!({"ruleId": "r", "change": "changed", "values": values});
        for count in sizes_around("fleetwright::code::semantic::MAX_RULES", MAX_RULES) {
            let plan = json!({"rules": vec![rule(Vec::new()); count]});
            let lines = rule_lines(&plan, STYLE);
            assert_eq!(
                lines.len(),
                count.min(MAX_RULES) + usize::from(count > MAX_RULES)
            );
        }
        for count in sizes_around(
            "fleetwright::code::semantic::MAX_RULE_LINES",
            MAX_RULE_LINES,
        ) {
            let value = |at: usize| json!({"pointer": format!("/v{at}"), "after": 1});
            let plan = json!({"rules": [rule((0..count).map(value).collect())]});
            let lines = rule_lines(&plan, STYLE);
            let expected = count.min(MAX_RULE_LINES) + usize::from(count > MAX_RULE_LINES);
            assert_eq!(lines.len(), 1 + expected);
        }
    }

    #[test]
    fn the_given_id_is_a_difference_only_if_nothing_else_differs() {
        let id = json!({"pointer": GIVEN_ID, "before": "lc-1"});
        let other = json!({"pointer": "/x", "before": 1, "after": 2});
        assert_eq!(replaced_values(&json!({"values": [id, other]})).len(), 1);
        assert_eq!(replaced_values(&json!({"values": [id]})).len(), 1);
    }

    #[test]
    fn all_launch_configs_are_listed_if_that_is_asked_for() {
        let full = Style {
            in_full: true,
            ..STYLE
        };
        assert!(
            shown(&plan(), full)
                .iter()
                .any(|line| line.contains("zone=z7"))
        );
    }
}
