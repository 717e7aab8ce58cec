//! `explain pool --shadow`: what the shadow of a pool would have done, beside what was done.

use serde_json::Value;

use super::{clock, dollars, strategies_text};
use crate::output;

pub(super) fn shadow_text(reply: &Value) -> String {
    let mut text = format!("Now ({})\n", clock(&reply["time"]));
    text.push_str(&strategies_text(reply));
    if reply["shadow"].is_null() {
        text.push_str("  no shadow strategy: set `shadowStrategy` in the config of the pool\n");
    }
    if !reply["now"].is_null() {
        text.push_str(&comparison_text(&reply["now"]));
        let learned = reply["now"]["learnedText"].as_str().unwrap_or_default();
        for line in learned.lines() {
            text.push_str(&format!("  {}\n", output::printable(line)));
        }
    }
    text.push_str(&sums_text(&reply["sums"]));
    for decision in reply["decisions"].as_array().into_iter().flatten() {
        let plan = decision["plan"].as_u64();
        let plan = plan.map_or("no plan".to_owned(), |number| format!("plan {number}"));
        let (number, created) = (&decision["number"], clock(&decision["created"]));
        text.push_str(&format!("\nDecision {number}, {plan} ({created})\n"));
        text.push_str(&comparison_text(decision));
    }
    text
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Both strategies side by side, and how they differ.
fn comparison_text(comparison: &Value) -> String {
    let (live, shadow) = (&comparison["live"], &comparison["shadow"]);
    let mut text = side_by_side(
        [word(live, "strategy"), word(shadow, "strategy")],
        [live, shadow],
        ["nLetGo", "nCalledBack", "nWithoutPrice"],
    );
    let agreement = match word(comparison, "agreement") {
        "same" => "both do the same",
        "other-launch-configs" => "both launch the same number of units, of other launch configs",
        _ => "both differ",
    };
    text.push_str(&format!("  {agreement}\n"));
    for difference in comparison["differences"].as_array().into_iter().flatten() {
        let difference = output::printable(difference.as_str().unwrap_or_default());
        text.push_str(&format!("  difference: {difference}\n"));
    }
    text
}

fn sums_text(sums: &Value) -> String {
    if sums.is_null() {
        return "\nNo decisions yet.\n".to_owned();
    }
    let names = [word(sums, "strategy"), word(sums, "shadowStrategy")];
    let mut text = format!("\nSums since {}\n", clock(&sums["since"]));
    let both = [&sums["live"], &sums["shadow"]];
    let keys = ["letGo", "calledBack", "withoutPrice"];
    text.push_str(&side_by_side(names, both, keys));
    let (all, same) = (&sums["decisions"], &sums["same"]);
    let elsewhere = &sums["otherLaunchConfigs"];
    text.push_str(&format!(
        "  both did the same in {same} of {all} decisions, and the same with other launch configs \
         in {elsewhere}\n"
    ));
    if sums["failed"].as_u64().is_some_and(|failed| failed > 0) {
        text.push_str(&format!(
            "  the shadow made no plan in {}\n",
            sums["failed"]
        ));
    }
    text
}

/// A row for each number, a column for each strategy. `keys`: workers let go, workers called back,
/// machines without a price.
fn side_by_side(names: [&str; 2], both: [&Value; 2], keys: [&str; 3]) -> String {
    let [let_go, called_back, without_price] = keys;
    let row = |title: &str, [live, shadow]: [String; 2]| [title.to_owned(), live, shadow];
    let count = |key: &str| both.map(|of| of[key].as_u64().unwrap_or(0).to_string());
    let price = |key: &str| both.map(|of| dollars(of[key].as_f64().unwrap_or(0.0)));
    let titles = [
        format!("{} (decides)", names[0]),
        format!("{} (shadow)", names[1]),
    ];
    let mut rows = vec![row("", titles), row("units launched", count("units"))];
    for id in launch_configs(both) {
        let units = both.map(|of| units_of(of, id).to_string());
        rows.push(row(&format!("  of {}", output::printable(id)), units));
    }
    rows.extend([
        row("$ per hour", price("pricePerHour")),
        row("machines without a price", count(without_price)),
        row("workers let go", count(let_go)),
        row("$ per hour of these", price("priceOfLetGoPerHour")),
        row("workers called back", count(called_back)),
    ]);
    let widths = [0, 1, 2].map(|column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    });
    let [first, second, third] = widths;
    let lines = rows.iter().map(|[title, live, shadow]| {
        format!("  {title:<first$}  {live:>second$}  {shadow:>third$}\n")
    });
    lines.collect()
}

/// The launch configs of both, in their order.
fn launch_configs(both: [&Value; 2]) -> Vec<&str> {
    let launches = both.iter().filter_map(|of| of["launches"].as_array());
    let ids = launches
        .flatten()
        .map(|launched| word(launched, "launchConfigId"));
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn units_of(of: &Value, id: &str) -> u64 {
    let mut launches = of["launches"].as_array().into_iter().flatten();
    let launched = launches.find(|launched| word(launched, "launchConfigId") == id);
    launched
        .and_then(|launched| launched["units"].as_u64())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn opinion(strategy: &str, units: u64, price: f64) -> Value {
        json!({"strategy": strategy, "units": units, "pricePerHour": price, "nLetGo": 0,
            "launches": [{"launchConfigId": "east", "machines": units, "units": units}],
            "nCalledBack": 0, "nWithoutPrice": 0, "priceOfLetGoPerHour": 0.0})
    }

    fn comparison() -> Value {
        json!({"live": opinion("weighted", 4, 2.0), "shadow": opinion("balanced", 1, 0.5),
            "agreement": "different",
            "differences": ["weighted launches 4 units, balanced 1; balanced: 1 more unit is needed: 4 tasks wait"]})
    }

    #[test]
    fn a_pool_and_its_shadow_stand_side_by_side() {
        let mut decision = comparison();
        decision["number"] = json!(3);
        decision["plan"] = json!(7);
        decision["created"] = json!("2026-11-21T06:00:00.000Z");
        let sums = json!({"units": 4, "launches": [], "letGo": 2, "calledBack": 0,
            "pricePerHour": 2.0, "withoutPrice": 1, "priceOfLetGoPerHour": 0.25});
        let reply = json!({
            "time": "2026-11-21T06:19:13.123Z",
            "strategy": {"text": "weighted, the default of the server"},
            "shadow": {"text": "balanced, chosen by the pool"},
            "now": null,
            "decisions": [decision],
            "sums": {"strategy": "weighted", "shadowStrategy": "balanced",
                "since": "2026-11-21T05:00:00.000Z", "decisions": 5, "same": 2,
                "otherLaunchConfigs": 1, "different": 2, "failed": 1, "live": sums.clone(), "shadow": sums},
        });
        insta::assert_snapshot!(shadow_text(&reply), @r"
        Now (2026-11-21 06:19:13Z)
          strategy: weighted, the default of the server
          shadow strategy: balanced, chosen by the pool

        Sums since 2026-11-21 05:00:00Z
                                    weighted (decides)  balanced (shadow)
          units launched                             4                  4
          $ per hour                                 2                  2
          machines without a price                   1                  1
          workers let go                             2                  2
          $ per hour of these                     0.25               0.25
          workers called back                        0                  0
          both did the same in 2 of 5 decisions, and the same with other launch configs in 1
          the shadow made no plan in 1

        Decision 3, plan 7 (2026-11-21 06:00:00Z)
                                    weighted (decides)  balanced (shadow)
          units launched                             4                  1
            of east                                  4                  1
          $ per hour                                 2                0.5
          machines without a price                   0                  0
          workers let go                             0                  0
          $ per hour of these                        0                  0
          workers called back                        0                  0
          both differ
          difference: weighted launches 4 units, balanced 1; balanced: 1 more unit is needed: 4 tasks wait
        ");
    }

    #[test]
    fn a_pool_without_a_shadow_says_how_to_get_one() {
        let reply = json!({"time": "2026-11-21T06:19:13.123Z", "shadow": null, "now": null,
            "decisions": [], "sums": null});
        insta::assert_snapshot!(shadow_text(&reply), @r"
        Now (2026-11-21 06:19:13Z)
          no shadow strategy: set `shadowStrategy` in the config of the pool

        No decisions yet.
        ");
    }
}
