//! How long machines take to start, by place and by launch config.

use std::collections::BTreeMap;

use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup};
use domain::phases::{MachineMoments, Phase, RegionPhases, SPANS_MS, by_key, histogram};
use domain::time::{DAY_MS, Timestamp};
use serde_json::{Value, json};
use store::machine_moments::StartedMachine;

use super::super::explain_launch_config::begins_with;
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Only this many of the newest machines are measured.
const MACHINES: u32 = 10_000;
/// Rows of a report; the launch configs with the most machines are shown.
const MAX_LINES: usize = 1_000;

type PlaceKey = (ProviderId, WorkerGroup);
type ConfigKey = (PoolId, LaunchConfigId, ProviderId);

pub(super) async fn read(call: Call) -> Result<Reply, ApiError> {
    let since = match call.query("since") {
        None => call.now.plus_millis(-DAY_MS),
        Some(text) => text
            .parse()
            .map_err(|bad| ApiError::input(format!("since: {bad}")))?,
    };
    let pool_id: Option<PoolId> = call.query_id("workerPoolId")?;
    let read = call.scan("machine_moment_list_all", move |tx| {
        store::machine_moments::list_all(tx, pool_id.as_ref(), since, MACHINES)
    });
    let mut machines = read.await?;
    // The oldest of them, if older ones were left out.
    let measured_since = match machines.last() {
        Some(oldest) if machines.len() == MACHINES as usize => oldest.moments.accepted,
        Some(_) | None => since,
    };
    let scopes = call.scopes();
    machines.retain(|machine| {
        let pool_id = &machine.pool_id;
        scopes.satisfies(&format!("fleetwright:explain:{pool_id}"))
    });
    Reply::json(&report(&machines, measured_since, call.now, MAX_LINES))
}

fn report(
    machines: &[StartedMachine],
    since: Timestamp,
    now: Timestamp,
    max_lines: usize,
) -> Value {
    let all = machines.iter().map(|it| ((), &it.moments));
    let all = by_key(all).remove(&()).unwrap_or_default();
    let place = |it: &StartedMachine| (it.provider_id.clone(), it.moments.region.clone());
    let config = |it: &StartedMachine| {
        let (pool_id, id) = (it.pool_id.clone(), it.launch_config_id.clone());
        (pool_id, id, it.provider_id.clone())
    };
    let place_json = |(provider_id, region): &PlaceKey| json!({"providerId": provider_id.as_str(), "region": region.as_str()});
    let config_json = |(pool_id, id, provider_id): &ConfigKey| {
        json!({
            "workerPoolId": pool_id.as_str(),
            "launchConfigId": id.as_str(),
            "providerId": provider_id.as_str(),
        })
    };
    let (mut places, _) = rows(machines, place, place_json, max_lines);
    let mut by_place: BTreeMap<(String, String), Vec<&StartedMachine>> = BTreeMap::new();
    for machine in machines {
        let (provider_id, region) = place(machine);
        let place = (provider_id.to_string(), region.to_string());
        by_place.entry(place).or_default().push(machine);
    }
    for row in &mut places {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let of_place = by_place.remove(&(text("providerId"), text("region")));
        row["histograms"] = histograms(of_place.unwrap_or_default().into_iter());
    }
    let (configs, n_others) = rows(machines, config, config_json, max_lines);
    json!({
        "since": since.to_string(),
        "until": now.to_string(),
        "machines": machines.len(),
        "phases": phases_json(&all),
        "spansMs": SPANS_MS,
        "histograms": histograms(machines.iter()),
        "places": places,
        "launchConfigs": configs,
        "otherLaunchConfigs": n_others,
    })
}

/// How many machines took how long for each step, and for all together.
fn histograms<'a>(machines: impl Iterator<Item = &'a StartedMachine>) -> Value {
    let moments: Vec<&MachineMoments> = machines.map(|machine| &machine.moments).collect();
    let of_phases = Phase::ALL.map(|phase| {
        let times = moments.iter().filter_map(|it| it.took_ms(phase));
        (Phase::as_str(phase), json!(histogram(times)))
    });
    let totals = histogram(moments.iter().filter_map(|it| it.total_ms()));
    let total = ("total", json!(totals));
    let all = of_phases.into_iter().chain([total]);
    all.map(|(name, counts)| (name.to_owned(), counts))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A row for each key, those with the most machines first, and the number of those left out.
fn rows<K: Ord + Clone>(
    machines: &[StartedMachine],
    key: impl Fn(&StartedMachine) -> K,
    show: impl Fn(&K) -> Value,
    max_lines: usize,
) -> (Vec<Value>, usize) {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for machine in machines {
        *counts.entry(key(machine)).or_default() += 1;
    }
    let phases = by_key(machines.iter().map(|it| (key(it), &it.moments)));
    let mut counts: Vec<(K, usize)> = counts.into_iter().collect();
    counts.sort_by(|(one, left), (other, right)| right.cmp(left).then_with(|| one.cmp(other)));
    let n_others = counts.len().saturating_sub(max_lines);
    counts.truncate(max_lines);
    let rows = counts.iter().map(|(key, count)| {
        let mut row = show(key);
        row["machines"] = json!(count);
        row["phases"] = phases.get(key).map(phases_json).unwrap_or_default();
        row
    });
    (rows.collect(), n_others)
}

fn phases_json(phases: &RegionPhases) -> Value {
    let phases = phases.iter().map(|(phase, times)| {
        json!({
            "from": begins_with(*phase),
            "phase": Phase::as_str(*phase),
            "machines": times.machines,
            "p50Ms": times.median_ms,
            "p90Ms": times.p90_ms,
            "maxMs": times.max_ms,
        })
    });
    phases.collect()
}

#[cfg(test)]
mod tests {
    use domain::phases::MachineMoments;
    use testing::sizes_around;

    use super::*;

    fn machine(config: usize, took_ms: i64) -> StartedMachine {
        let at = |millis: i64| Timestamp::from_millis(1_000 + millis);
        StartedMachine {
            pool_id: "p/q".parse().unwrap(),
            provider_id: "fake".parse().unwrap(),
            launch_config_id: format!("lc-{config:05}").parse().unwrap(),
            moments: MachineMoments {
                region: "west".parse().unwrap(),
                decided: Some(at(0)),
                requested: Some(at(10)),
                accepted: at(30),
                registered: Some(at(30 + took_ms)),
                first_claim: None,
            },
        }
    }

    fn shown(machines: &[StartedMachine]) -> Value {
        let (since, now) = (Timestamp::from_millis(0), Timestamp::from_millis(9_000));
        report(machines, since, now, MAX_LINES)
    }

    #[test]
    fn each_place_and_launch_config_has_the_times_of_its_machines() {
        let machines = [machine(1, 100), machine(1, 200), machine(2, 900)];
        let report = shown(&machines);
        assert_eq!(report["machines"], 3);
        let registered = json!({"from": "accepted", "phase": "registered", "machines": 3,
            "p50Ms": 200, "p90Ms": 900, "maxMs": 900});
        assert_eq!(report["phases"][2], registered);
        assert_eq!(report["places"][0]["phases"][2], registered);
        assert_eq!(report["places"][0]["region"], "west");
        assert_eq!(report["histograms"]["registered"][0], 3);
        assert_eq!(report["histograms"]["total"][0], 0);
        assert_eq!(report["places"][0]["histograms"], report["histograms"]);
        let first = &report["launchConfigs"][0];
        assert_eq!(
            (&first["launchConfigId"], &first["machines"]),
            (&json!("lc-00001"), &json!(2))
        );
        assert_eq!(first["phases"][2]["maxMs"], 200);
        assert_eq!(shown(&[])["phases"], json!([]));
    }

    #[test]
    fn launch_configs_beyond_the_limit_are_counted() {
        let limit = MAX_LINES;
        for count in sizes_around("server::api::fleetwright::lists::startup::MAX_LINES", limit) {
            let machines: Vec<StartedMachine> = (0..count).map(|it| machine(it, 1)).collect();
            let report = shown(&machines);
            let shown = report["launchConfigs"].as_array().map_or(0, Vec::len);
            assert_eq!(shown, count.min(MAX_LINES));
            assert_eq!(report["otherLaunchConfigs"], count - shown);
        }
    }
}
