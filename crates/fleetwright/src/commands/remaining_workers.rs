//! Reports the worker processes that keep running when `up` stops.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, printable};

/// Time limit of the report, which delays the stop of the server.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of pools to check.
const MAX_POOLS: usize = 1_000;
/// Maximum number of workers to list; further ones are counted.
const MAX_NAMED: usize = 20;

/// Reads the running workers of these providers from the server, before it stops.
pub(super) async fn report(client: &Client, providers: BTreeSet<String>) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-pools"])
        .query("limit", Some(MAX_POOLS))
        .to("list pools");
    let pools = client.call(&call).await?;
    let mut workers = Vec::new();
    for pool in pools_with_workers(&pools, &providers) {
        let call = Call::get(WORKER_MANAGER, &["workers", pool])
            .query("state", Some("running"))
            .to("list workers");
        let reply = client.call(&call).await?;
        let listed = reply["workers"].as_array().into_iter().flatten();
        let ids = listed.filter_map(|worker| worker["workerId"].as_str());
        workers.extend(ids.map(|id| format!("{} {}", printable(pool), printable(id))));
    }
    if !workers.is_empty() {
        output::note(&text(&workers));
    }
    Ok(())
}

fn pools_with_workers<'a>(
    pools: &'a Value,
    providers: &BTreeSet<String>,
) -> impl Iterator<Item = &'a str> {
    let pools = pools["workerPools"].as_array().into_iter().flatten();
    let of_these = pools.filter(|pool| {
        let provider = pool["providerId"].as_str().unwrap_or_default();
        providers.contains(provider) && pool["runningCount"] != 0
    });
    of_these.filter_map(|pool| pool["workerPoolId"].as_str())
}

fn text(workers: &[String]) -> String {
    let count = match workers.len() {
        1 => "1 worker process keeps running".to_owned(),
        count => format!("{count} worker processes keep running"),
    };
    let named = workers.iter().take(MAX_NAMED);
    let mut lines: Vec<_> = named.map(|worker| format!("  {worker}")).collect();
    if workers.len() > MAX_NAMED {
        lines.push(format!("  and {} more", workers.len() - MAX_NAMED));
    }
    format!(
        "{count} without the server:\n{}\nThey finish their tasks, and report them if the server \
         starts again within 20 minutes.\nIdle workers stop after 10 minutes without the server. \
         `fleetwright up` connects to them again.",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn only_pools_of_local_providers_that_have_workers_are_asked() {
        let pool = |id: &str, provider: &str, running: u8| json!({"workerPoolId": id, "providerId": provider, "runningCount": running});
        let pools = json!({"workerPools": [pool("a/one", "local", 1), pool("a/none", "local", 0), pool("a/far", "aws", 3)]});
        let providers = BTreeSet::from(["local".to_owned()]);
        let found: Vec<_> = pools_with_workers(&pools, &providers).collect();
        assert_eq!(found, ["a/one"]);
    }

    #[test]
    fn workers_are_named_up_to_a_bound() {
        let workers =
            |count: usize| -> Vec<String> { (0..count).map(|n| format!("p w{n}")).collect() };
        assert!(
            text(&workers(1))
                .starts_with("1 worker process keeps running without the server:\n  p w0\nThey")
        );
        let limit = MAX_NAMED;
        for count in sizes_around("fleetwright::commands::remaining_workers::MAX_NAMED", limit) {
            let named = count.min(limit);
            let text = text(&workers(count));
            assert_eq!(text.matches("  p w").count(), named, "{count}");
            let more = format!("  and {} more\n", count - named);
            assert_eq!(text.contains(&more), count > named, "{count}");
        }
    }
}
