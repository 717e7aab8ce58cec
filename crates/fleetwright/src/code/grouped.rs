//! Describes the effects of a large edit of a worker configuration: each difference once, with the
//! launch configs, pools and workers that it concerns.

use std::collections::{BTreeMap, HashMap};

use domain::configuration::ValueChange;
use serde_json::Value;

use super::semantic::{
    conditions, count, cut, is_adopted, items, replaced_values, rule_lines, same_adopted_lines,
    text,
};
use super::style::{Style, indented};
use super::values;
use crate::output::counted;

/// Maximum number of groups of differences of one kind to list.
const MAX_GROUPS: usize = 6;
/// Maximum number of lines of values to print for one group.
const MAX_VALUE_LINES: usize = 8;
/// Maximum number of pools to name for one group.
const MAX_POOLS: usize = 3;
/// More different changes of one value are counted.
const MAX_VARIANTS: usize = 3;

/// Shows complete values: the texts of different values differ.
const COMPLETE: Style = Style {
    in_colour: false,
    in_full: true,
};

/// Lines for rules, settings and launch configs.
pub(super) fn lines(plan: &Value, style: Style) -> Vec<String> {
    let mut lines = rule_lines(plan, style);
    lines.extend(adopted_lines(plan, style));
    let pools = || items(&plan["pools"]).iter();
    let with =
        |change: &str| -> Vec<&Value> { pools().filter(|pool| pool["change"] == change).collect() };
    lines.extend(complete_pools(&with("created"), "created").map(|line| style.added(&line)));
    lines.extend(complete_pools(&with("removed"), "archived").map(|line| style.removed(&line)));
    let changed = |pool: &&Value| {
        let change = pool["change"].as_str();
        !is_adopted(pool) && !matches!(change, Some("created" | "removed"))
    };
    let changed: Vec<&Value> = pools().filter(changed).collect();
    lines.extend(differences(&changed, style));
    lines
}

/// The pools created by hand that are taken over, with their differences.
pub(super) fn adopted_lines(plan: &Value, style: Style) -> Vec<String> {
    let (mut lines, differing) = same_adopted_lines(plan, style);
    if !differing.is_empty() {
        lines.push(style.changed(&format!(
            "{}: created by hand, taken over with these differences:",
            counted(differing.len(), "pool")
        )));
        lines.extend(indented(differences(&differing, style)));
    }
    lines
}

/// A line about pools that are created or removed.
fn complete_pools(pools: &[&Value], list: &str) -> std::option::IntoIter<String> {
    let n_configs: usize = pools.iter().map(|pool| items(&pool[list]).len()).sum();
    let concerned = pools.iter().map(|pool| (text(&pool["workerPoolId"]), 1));
    let line = (!pools.is_empty()).then(|| {
        format!(
            "{} with {}: {}",
            counted(pools.len(), "pool"),
            counted(n_configs, "launch config"),
            named(&concerned.collect())
        )
    });
    line.into_iter()
}

/// The differences of the settings and launch configs of these pools.
fn differences(pools: &[&Value], style: Style) -> Vec<String> {
    let settings = pools.iter().map(|pool| Subject {
        pool: text(&pool["workerPoolId"]),
        of: pool,
        changes: values::parse(&pool["settings"]),
    });
    let settings: Vec<Subject<'_>> = settings.collect();
    let mut lines = group_lines(&settings, "settings", style, |concerned| {
        format!("settings of {}", counted(concerned.len(), "pool"))
    });
    for (list, noun) in [
        ("replaced", "replaced launch config"),
        ("updated", "updated launch config"),
    ] {
        let ways = pools.iter().flat_map(|pool| {
            items(&pool[list]).iter().map(|way| Subject {
                pool: text(&pool["workerPoolId"]),
                of: way,
                changes: replaced_values(way),
            })
        });
        let ways: Vec<Subject<'_>> = ways.collect();
        lines.extend(group_lines(&ways, "launch configs", style, |concerned| {
            launch_configs_title(noun, concerned)
        }));
    }
    lines.extend(places(pools, "created", "new launch config").map(|line| style.added(&line)));
    let archived = places(pools, "archived", "archived launch config");
    lines.extend(archived.map(|line| style.removed(&line)));
    lines
}

/// A pool or a launch config with its differences.
struct Subject<'a> {
    pool: String,
    of: &'a Value,
    changes: Vec<ValueChange>,
}

/// A difference, and the subjects that have it.
struct Difference {
    pointer: String,
    lines: Vec<String>,
    members: Vec<usize>,
}

/// A title for each set of subjects with equal differences, those differences, and the pools.
fn group_lines(
    subjects: &[Subject<'_>],
    noun: &str,
    style: Style,
    title: impl Fn(&[&Subject<'_>]) -> String,
) -> Vec<String> {
    let mut groups: HashMap<Vec<usize>, Vec<String>> = HashMap::new();
    for difference in collect(subjects, style) {
        let group = groups.entry(difference.members).or_default();
        group.extend(difference.lines);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(left, left_lines), (right, right_lines)| {
        (right.len(), left_lines).cmp(&(left.len(), right_lines))
    });
    let mut lines = Vec::new();
    for (members, values) in groups.iter().take(MAX_GROUPS) {
        let members: Vec<&Subject<'_>> = members.iter().map(|at| &subjects[*at]).collect();
        lines.push(style.changed(&title(&members)));
        lines.extend(indented(cut(values.clone(), MAX_VALUE_LINES, "line")));
        let mut pools = BTreeMap::new();
        for member in &members {
            *pools.entry(member.pool.clone()).or_default() += 1;
        }
        lines.push(format!("    in {}", named(&pools)));
    }
    if let Some(rest) = groups.get(MAX_GROUPS..).filter(|rest| !rest.is_empty()) {
        lines.push(format!(
            "… and {} more sets of differences of {noun}",
            rest.len()
        ));
    }
    lines
}

/// Each difference once, in the order of pointers.
fn collect(subjects: &[Subject<'_>], style: Style) -> Vec<Difference> {
    let mut known: BTreeMap<(String, String), Difference> = BTreeMap::new();
    for (at, subject) in subjects.iter().enumerate() {
        for change in values::leaves(subject.changes.clone()) {
            let complete = values::lines(std::slice::from_ref(&change), COMPLETE).join("\n");
            let entry = known.entry((change.pointer.clone(), complete));
            let difference = entry.or_insert_with(|| Difference {
                lines: values::lines(std::slice::from_ref(&change), style),
                pointer: change.pointer,
                members: Vec::new(),
            });
            difference.members.push(at);
        }
    }
    let mut by_pointer: BTreeMap<String, Vec<Difference>> = BTreeMap::new();
    for difference in known.into_values() {
        let pointer = difference.pointer.clone();
        by_pointer.entry(pointer).or_default().push(difference);
    }
    by_pointer.into_values().flat_map(join_variants).collect()
}

/// The different changes of one value; many become a single difference.
fn join_variants(variants: Vec<Difference>) -> Vec<Difference> {
    if variants.len() <= MAX_VARIANTS {
        return variants;
    }
    let n_more = variants.len() - 1;
    let mut variants = variants.into_iter();
    let Some(mut first) = variants.next() else {
        return Vec::new();
    };
    first
        .members
        .extend(variants.flat_map(|variant| variant.members));
    first.members.sort_unstable();
    first.members.dedup();
    first.lines.push(format!(
        "… and {n_more} other changes of {}",
        crate::output::printable(&first.pointer)
    ));
    vec![first]
}

fn launch_configs_title(noun: &str, concerned: &[&Subject<'_>]) -> String {
    let mut pools: Vec<&str> = concerned.iter().map(|way| way.pool.as_str()).collect();
    pools.dedup();
    let workers: u64 = concerned.iter().map(|way| count(&way.of["workers"])).sum();
    let mut parts = vec![format!(
        "{} in {}",
        counted(concerned.len(), noun),
        counted(pools.len(), "pool")
    )];
    if workers > 0 {
        parts.push(counted(workers, "running worker"));
    }
    parts.extend(prices(concerned));
    parts.join(", ")
}

/// The price of a machine before and after, if all have the same, and the sum for the workers.
fn prices(concerned: &[&Subject<'_>]) -> Vec<String> {
    let price = |way: &Subject<'_>| {
        let price = |key: &str| way.of[key].as_f64();
        Some((price("priceBefore")?, price("priceAfter")?))
    };
    let mut known = concerned.iter().filter_map(|way| Some((way, price(way)?)));
    let Some((_, first)) = known.next() else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    let is_same = concerned.iter().all(|way| price(way) == Some(first));
    if is_same && (first.0 - first.1).abs() > f64::EPSILON {
        parts.push(format!("${}/h → ${}/h a machine", first.0, first.1));
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "there are fewer than 2^53 workers"
    )]
    let more = |way: &&Subject<'_>| {
        let (before, after) = price(way)?;
        Some((after - before) * count(&way.of["workers"]) as f64)
    };
    let more: f64 = concerned.iter().filter_map(more).sum();
    let more = (more * 10_000.0).round() / 10_000.0;
    if more > 0.0 {
        parts.push(format!("${more}/h more"));
    } else if more < 0.0 {
        parts.push(format!("${}/h less", -more));
    }
    parts
}

/// New or archived launch configs by place.
fn places<'a>(
    pools: &[&'a Value],
    list: &str,
    noun: &'a str,
) -> impl Iterator<Item = String> + use<'a> {
    let mut groups: BTreeMap<String, (BTreeMap<String, usize>, u64)> = BTreeMap::new();
    for pool in pools {
        for way in items(&pool[list]) {
            let (pools, workers) = groups.entry(conditions(way)).or_default();
            *pools.entry(text(&pool["workerPoolId"])).or_default() += 1;
            *workers += count(&way["workers"]);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    let size = |pools: &BTreeMap<String, usize>| pools.values().sum::<usize>();
    groups.sort_by_key(|(place, (pools, _))| (std::cmp::Reverse(size(pools)), place.clone()));
    let rest = groups.split_off(groups.len().min(MAX_GROUPS));
    let n_rest: usize = rest.iter().map(|(_, (pools, _))| size(pools)).sum();
    let more =
        (n_rest > 0).then(|| format!("{} in {} more places", counted(n_rest, noun), rest.len()));
    let lines = groups.into_iter().map(move |(place, (pools, workers))| {
        let workers = match workers {
            0 => String::new(),
            workers => format!(" ({})", counted(workers, "running worker")),
        };
        format!(
            "{} at {place}{workers}: {}",
            counted(size(&pools), noun),
            named(&pools)
        )
    });
    lines.chain(more)
}

/// The first pools, with the number of launch configs if it is not 1.
fn named(pools: &BTreeMap<String, usize>) -> String {
    let shown = pools.iter().take(MAX_POOLS);
    let shown = shown.map(|(pool, n_configs)| match n_configs {
        1 => pool.clone(),
        several => format!("{pool} ({several})"),
    });
    let shown: Vec<String> = shown.collect();
    match pools.len().saturating_sub(MAX_POOLS) {
        0 => shown.join(", "),
        more => format!("{} and {}", shown.join(", "), counted(more, "more pool")),
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

    fn way(pool: usize, zone: &str, values: &Value) -> Value {
        json!({"providerId": "ec2", "before": "lc-a", "after": "lc-b", "workers": pool % 2,
            "priceBefore": 0.5, "priceAfter": 0.25, "values": values,
            "conditions": {"workerType": "w", "provider": "ec2", "region": "ec2", "zone": zone}})
    }

    fn idle() -> Value {
        json!({"pointer": "/idle", "before": 15, "after": 31})
    }

    fn pools(n_pools: usize, values: impl Fn(usize, &str) -> Value) -> Value {
        let pools = (0..n_pools).map(|pool| {
            let ways = ["a", "b"].map(|zone| way(pool, zone, &values(pool, zone)));
            json!({"workerPoolId": format!("p/{pool:03}"), "change": "changed", "settings": [],
                "created": [], "replaced": ways, "updated": [], "archived": []})
        });
        json!({"rules": [], "pools": pools.collect::<Vec<_>>()})
    }

    #[test]
    fn a_difference_of_many_launch_configs_is_shown_once() {
        let id = json!({"pointer": "/workerManager/launchConfigId", "before": "lc-a"});
        let plan = pools(40, |_, _| json!([idle(), id]));
        insta::assert_snapshot!(lines(&plan, STYLE).join("\n"), @r"
        ~ 80 replaced launch configs in 40 pools, 40 running workers, $0.5/h → $0.25/h a machine, $10/h less
            /idle: 15 → 31
            in p/000 (2), p/001 (2), p/002 (2) and 37 more pools
        ");
    }

    #[test]
    fn values_that_depend_on_the_place_are_counted() {
        let machine = |zone: &str| format!("zones/{zone}/n2");
        let plan = pools(9, |pool, zone| {
            let zone = format!("{zone}{pool}");
            let change = json!({"pointer": "/machine", "before": machine(&zone), "after": zone});
            match pool {
                0 => json!([change, idle()]),
                _ => json!([change]),
            }
        });
        insta::assert_snapshot!(lines(&plan, STYLE).join("\n"), @r#"
        ~ 18 replaced launch configs in 9 pools, 8 running workers, $0.5/h → $0.25/h a machine, $2/h less
            /machine: "zones/a0/n2" → "a0"
            … and 17 other changes of /machine
            in p/000 (2), p/001 (2), p/002 (2) and 6 more pools
        ~ 2 replaced launch configs in 1 pool, $0.5/h → $0.25/h a machine
            /idle: 15 → 31
            in p/000 (2)
        "#);
    }

    #[test]
    fn settings_places_and_pools_are_listed_by_what_they_have_in_common() {
        let pool = |pool: usize, change: &str| {
            let new = ["a", "b"].map(|zone| way(pool, zone, &json!([])));
            json!({"workerPoolId": format!("p/{pool}"), "change": change, "created": new,
                "settings": [{"pointer": "/config/maxCapacity", "before": 1, "after": 2}],
                "replaced": [], "updated": [], "archived": [way(pool, "c", &json!([]))]})
        };
        let plan = json!({"rules": [], "pools": [pool(1, "changed"), pool(2, "changed"),
            pool(3, "created"), pool(4, "removed"), pool(5, "adopted")]});
        insta::assert_snapshot!(lines(&plan, STYLE).join("\n"), @r"
        ~ 1 pool: created by hand, taken over with these differences:
            ~ settings of 1 pool
                /config/maxCapacity: 1 → 2
                in p/5
            + 1 new launch config at provider=ec2, zone=a (1 running worker): p/5
            + 1 new launch config at provider=ec2, zone=b (1 running worker): p/5
            - 1 archived launch config at provider=ec2, zone=c (1 running worker): p/5
        + 1 pool with 2 launch configs: p/3
        - 1 pool with 1 launch config: p/4
        ~ settings of 2 pools
            /config/maxCapacity: 1 → 2
            in p/1, p/2
        + 2 new launch configs at provider=ec2, zone=a (1 running worker): p/1, p/2
        + 2 new launch configs at provider=ec2, zone=b (1 running worker): p/1, p/2
        - 2 archived launch configs at provider=ec2, zone=c (1 running worker): p/1, p/2
        ");
    }

    #[test]
    fn lists_are_cut() {
        for n_groups in sizes_around("fleetwright::code::grouped::MAX_GROUPS", MAX_GROUPS) {
            let plan = pools(
                n_groups,
                |pool, _| json!([{"pointer": format!("/v{pool}"), "after": 1}]),
            );
            let lines = lines(&plan, STYLE);
            let titles = lines.iter().filter(|line| line.starts_with('~')).count();
            assert_eq!(titles, n_groups.min(MAX_GROUPS));
            assert_eq!(
                lines.iter().any(|line| line.starts_with('…')),
                n_groups > MAX_GROUPS
            );
        }
        for n_values in sizes_around(
            "fleetwright::code::grouped::MAX_VALUE_LINES",
            MAX_VALUE_LINES,
        ) {
            let value = |at: usize| json!({"pointer": format!("/v{at}"), "after": 1});
            let values: Vec<Value> = (0..n_values).map(value).collect();
            let lines = lines(&pools(1, |_, _| json!(values)), STYLE);
            let shown = lines.iter().filter(|line| line.contains("+ /v")).count();
            assert_eq!(shown, n_values.min(MAX_VALUE_LINES));
            assert_eq!(
                lines.iter().any(|line| line.contains('…')),
                n_values > MAX_VALUE_LINES
            );
        }
        for n_pools in sizes_around("fleetwright::code::grouped::MAX_POOLS", MAX_POOLS) {
            let pools = (0..n_pools).map(|pool| (format!("p/{pool}"), 1)).collect();
            let named = named(&pools);
            assert_eq!(named.matches("p/").count(), n_pools.min(MAX_POOLS));
            assert_eq!(named.contains("more pool"), n_pools > MAX_POOLS);
        }
        for count in sizes_around("fleetwright::code::grouped::MAX_VARIANTS", MAX_VARIANTS) {
            let variant = |at: usize| Difference {
                pointer: "/v".to_owned(),
                lines: vec![format!("/v: {at}")],
                members: vec![at],
            };
            let joined = join_variants((0..count).map(variant).collect());
            let is_joined = count > MAX_VARIANTS;
            assert_eq!(joined.len(), if is_joined { 1 } else { count });
            assert_eq!(
                joined.iter().map(|it| it.members.len()).sum::<usize>(),
                count
            );
        }
    }
}
