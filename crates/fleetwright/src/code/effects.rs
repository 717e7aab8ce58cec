//! Describes the effects of an edit of a worker configuration: of a few launch configs one by one,
//! of many by their differences.

use serde_json::Value;

use super::semantic::{self, items};
use super::style::Style;
use super::{grouped, values};

/// Maximum number of pools and launch configs to list one by one.
const MAX_SINGLE: usize = 6;

/// Lines for conflicts, rules, pools, launch configs, workers and cost.
pub(crate) fn lines(plan: &Value, style: Style) -> Vec<String> {
    let mut lines = semantic::obstacle_lines(plan, style);
    if is_summed_up(plan, style) {
        lines.extend(grouped::lines(plan, style));
    } else {
        lines.extend(semantic::lines(plan, style));
    }
    lines
}

/// The same only for the pools created by hand that are taken over.
pub(crate) fn adopted_lines(plan: &Value, style: Style) -> Vec<String> {
    if is_summed_up(plan, style) {
        grouped::adopted_lines(plan, style)
    } else {
        semantic::adopted_lines(plan, style)
    }
}

/// The effects on these pools only; `None` if it has none on them.
pub(crate) fn of_pools(plan: &Value, pools: &[String]) -> Option<Value> {
    let mut plan = plan.clone();
    let listed = plan["pools"].as_array_mut()?;
    listed.retain(|pool| pools.iter().any(|id| pool["workerPoolId"] == **id));
    let has_some = !listed.is_empty();
    has_some.then_some(plan)
}

/// Whether launch configs are shown by their differences.
pub(super) fn is_summed_up(plan: &Value, style: Style) -> bool {
    !style.in_full && !is_small(plan)
}

/// Whether each launch config can be listed.
fn is_small(plan: &Value) -> bool {
    let pools = items(&plan["pools"]);
    let lists = ["created", "replaced", "updated", "archived"];
    let n_configs = pools
        .iter()
        // Of new and removed pools only the id is shown.
        .filter(|pool| !matches!(pool["change"].as_str(), Some("created" | "removed")))
        .flat_map(|pool| lists.map(|list| items(&pool[list]).len()))
        .sum::<usize>();
    let n_differences = pools
        .iter()
        .map(|pool| values::parse(&pool["settings"]).len());
    pools.len() <= MAX_SINGLE
        && n_configs <= MAX_SINGLE
        && n_differences.sum::<usize>() <= 2 * MAX_SINGLE
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn plan(n_pools: usize, n_configs: usize) -> Value {
        let way = json!({"conditions": {"zone": "z"}, "before": "a", "after": "b",
            "values": [{"pointer": "/x", "before": 1, "after": 2}]});
        let pools = (0..n_pools).map(|pool| {
            json!({"workerPoolId": format!("p/{pool}"), "change": "changed", "settings": [],
                "replaced": vec![way.clone(); n_configs]})
        });
        json!({"pools": pools.collect::<Vec<_>>(), "rules": []})
    }

    #[test]
    fn few_launch_configs_are_listed_and_many_are_summed_up() {
        let style = |in_full| Style {
            in_colour: false,
            in_full,
        };
        for count in sizes_around("fleetwright::code::effects::MAX_SINGLE", MAX_SINGLE) {
            for plan in [plan(1, count), plan(count, 1)] {
                let n_values = |in_full| {
                    let lines = lines(&plan, style(in_full));
                    lines.iter().filter(|line| line.contains("/x: 1")).count()
                };
                assert_eq!(n_values(true), count);
                let expected = if count > MAX_SINGLE { 1 } else { count };
                assert_eq!(n_values(false), expected, "{count}");
            }
        }
    }

    #[test]
    fn the_effects_on_one_pool_can_be_selected() {
        let few = of_pools(&plan(40, 1), &["p/3".to_owned()]).unwrap();
        assert_eq!(few["pools"].as_array().unwrap().len(), 1);
        assert_eq!(of_pools(&plan(40, 1), &["p/none".to_owned()]), None);
    }
}
