//! Reports about costs: by pool, launch config, provider, owner, day or use.

use std::sync::Arc;

use domain::cost::{Amount, CostGrouping, CostKind, CostLine, CostReport, CostScope, Currency};
use domain::time::{DAY_MS, Timestamp};
use engine::costs;
use serde_json::{Map, Value, json};
use store::StoreError;

use crate::api::{call::Call, error::ApiError, reply::Reply};

/// How far back a report goes if the request does not say.
const USUAL_MS: i64 = 7 * DAY_MS;
/// Lines of a report if the request does not say.
const MAX_LINES: usize = 1_000;

pub(super) async fn all(call: Call) -> Result<Reply, ApiError> {
    report(&call, CostScope::All).await
}

pub(super) async fn of_pool(call: Call) -> Result<Reply, ApiError> {
    let scope = CostScope::Pool(call.pool_id()?);
    report(&call, scope).await
}

pub(super) async fn of_provider(call: Call) -> Result<Reply, ApiError> {
    let scope = CostScope::Provider(call.id("providerId")?);
    report(&call, scope).await
}

pub(super) async fn of_owner(call: Call) -> Result<Reply, ApiError> {
    let scope = CostScope::Owner(call.parameter("owner").to_owned());
    report(&call, scope).await
}

async fn report(call: &Call, scope: CostScope) -> Result<Reply, ApiError> {
    let by = call.query("by").map(str::parse::<CostGrouping>).transpose();
    let by = by.map_err(|bad| ApiError::input(format!("`by`: {bad}")))?;
    let by = by.unwrap_or(CostGrouping::Pool);
    let now = call.now;
    let since = call.query("since").map(str::parse::<Timestamp>).transpose();
    let since = since.map_err(|bad| ApiError::input(format!("`since`: {bad}")))?;
    let since = since.unwrap_or(now.plus_millis(-USUAL_MS));
    if since >= now {
        return Err(ApiError::input(format!(
            "`since` ({since}) must be in the past"
        )));
    }
    let top = call.query("top").and_then(|top| top.parse().ok());
    let (asked, engine) = (scope.clone(), Arc::clone(&call.app.engine));
    let read = call.scan("cost_report", move |tx| {
        let report = costs::report(tx, by, &asked, since, now)?;
        let is_known = report.total.uses.total().ms > 0 || costs::exists(&engine, tx, &asked)?;
        Ok::<_, StoreError>((report, is_known))
    });
    let (report, is_known) = read.await?;
    // A misspelt name would look like no cost.
    if !is_known {
        let since = report.since;
        return Err(ApiError::not_found(match scope {
            CostScope::All => {
                format!("Nothing has cost anything since {since}: ask for a longer time")
            }
            CostScope::Pool(id) => {
                format!("Pool {id} does not exist, and has cost nothing since {since}")
            }
            CostScope::Provider(id) => {
                format!("Provider {id} does not exist, and has cost nothing since {since}")
            }
            CostScope::Owner(owner) => {
                format!("{owner} owns no pool, and their pools have cost nothing since {since}")
            }
        }));
    }
    Reply::json(&reply(report, by, top.unwrap_or(MAX_LINES)))
}

fn reply(mut report: CostReport, by: CostGrouping, top: usize) -> Value {
    let others = report.cut(top.min(MAX_LINES));
    let lines = report.lines.iter().map(|line| {
        let mut sums = sums(line);
        sums.extend(names(line, by));
        Value::Object(sums)
    });
    let mut reply = json!({
        "since": report.since.to_string(),
        "until": report.until.to_string(),
        "by": by.as_str(),
        "currency": Currency::Usd.as_str(),
        "lines": lines.collect::<Vec<_>>(),
        "total": sums(&report.total),
    });
    if let Some((line, n_lines)) = others {
        let mut sums = sums(&line);
        sums.insert("count".to_owned(), json!(n_lines));
        reply["others"] = Value::Object(sums);
    }
    reply
}

/// The subject of a line.
fn names(line: &CostLine, by: CostGrouping) -> Vec<(String, Value)> {
    let [name, other] = &line.names;
    let named = |key: &str, name: &str| (key.to_owned(), json!(name));
    match by {
        CostGrouping::Kind => vec![named("kind", name)],
        CostGrouping::Pool => vec![named("workerPoolId", name)],
        CostGrouping::LaunchConfig => {
            vec![named("workerPoolId", name), named("launchConfigId", other)]
        }
        CostGrouping::Provider => vec![named("providerId", name)],
        CostGrouping::Owner => vec![named("owner", name)],
        CostGrouping::Day => vec![named("day", name)],
    }
}

fn sums(line: &CostLine) -> Map<String, Value> {
    let use_of = |(kind, amount): (CostKind, Amount)| (kind.to_string(), amount_json(amount));
    let uses: Map<String, Value> = line.uses.iter().map(use_of).collect();
    let (total, wasted) = (line.uses.total(), line.uses.wasted());
    let sums = [
        ("machineMs", json!(total.ms)),
        ("costMicros", json!(total.micros)),
        ("wastedMicros", json!(wasted.micros)),
        ("unpricedMs", json!(line.unpriced_ms)),
        ("uses", Value::Object(uses)),
    ];
    let sums = sums.into_iter();
    sums.map(|(key, value)| (key.to_owned(), value)).collect()
}

fn amount_json(amount: Amount) -> Value {
    json!({"machineMs": amount.ms, "costMicros": amount.micros})
}

#[cfg(test)]
mod tests {
    use domain::cost::Uses;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_summed_up() {
        let limit = MAX_LINES;
        for count in sizes_around("server::api::fleetwright::costs::MAX_LINES", limit) {
            let line = |number: usize| {
                let mut uses = Uses::default();
                uses.add(CostKind::Idle, Amount { ms: 3, micros: 2 });
                CostLine::new([format!("p/{number}"), String::new()], true, uses)
            };
            let at = Timestamp::from_millis(0);
            let report = CostReport::new(at, at, (0..count).map(line).collect());
            let reply = reply(report, CostGrouping::Pool, 9_999);
            assert_eq!(reply["lines"].as_array().unwrap().len(), count.min(limit));
            assert_eq!(reply["total"]["costMicros"], 2 * count);
            let others = count.saturating_sub(limit);
            match others {
                0 => assert_eq!(reply["others"], Value::Null),
                _ => {
                    assert_eq!(reply["others"]["count"], others);
                    assert_eq!(reply["others"]["wastedMicros"], 2 * others);
                }
            }
        }
    }
}
