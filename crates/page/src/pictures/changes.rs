//! Changes that concern a pool, from the audit log: the marks of its chart.

use std::collections::BTreeSet;

use api_client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use futures_util::future::join_all;
use serde_json::Value;

use crate::charts::TimeRange;
use crate::json::Json as _;
use crate::links;
use crate::view::Visit;
use crate::words::money;

/// Entries of each type that are read, and worker configurations.
const PAGE: u32 = 100;
/// The types of objects whose changes can concern a pool.
const TYPES: [&str; 5] = [
    "worker-pool",
    "override",
    "budget",
    "worker-configuration",
    "image",
];

/// A change with its moment and the page that has more about it.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) at_ms: i64,
    pub(super) text: String,
    pub(super) href: String,
}

/// The objects that a pool depends on.
struct Pool<'a> {
    id: &'a str,
    owner: &'a str,
    providers: BTreeSet<&'a str>,
    regions: BTreeSet<&'a str>,
    images: BTreeSet<&'a str>,
    /// The worker configurations from which it is compiled.
    configurations: BTreeSet<&'a str>,
}

/// The changes within the time, oldest first. None for people who may not read the audit log.
pub(super) async fn of_pool(visit: &Visit<'_>, range: TimeRange, pool: &Value) -> Vec<Change> {
    let id = pool.text("workerPoolId");
    let moment = |at_ms| domain::time::Timestamp::from_millis(at_ms).to_string();
    let calls = TYPES.map(|kind| {
        let call = Call::get(FLEETWRIGHT, &["audit"])
            .query("entityType", Some(kind))
            .query("entityId", (kind == "worker-pool").then_some(id))
            .query("since", Some(moment(range.from_ms())))
            .query("limit", Some(PAGE));
        visit.api.call(call)
    });
    let replies = join_all(calls).await;
    let entries: Vec<&Value> = replies
        .iter()
        .flatten()
        .flat_map(|reply| reply.list("entries"))
        .collect();
    let names_rules = |entry: &&Value| {
        entry.text("entityType") == "worker-configuration"
            || !entry.text("detail.workerConfigurationId").is_empty()
    };
    let configurations = if entries.iter().any(names_rules) {
        let call = Call::get(WORKER_MANAGER, &["worker-configurations"]);
        let reply = visit.api.call(call.query("limit", Some(PAGE))).await;
        reply.unwrap_or_default()
    } else {
        Value::Null
    };
    changes(&Pool::of(pool, &configurations), &entries)
}

fn changes(pool: &Pool<'_>, entries: &[&Value]) -> Vec<Change> {
    let concerning = entries.iter().filter(|entry| pool.depends_on(entry));
    let changes = concerning.filter_map(|entry| {
        Some(Change {
            at_ms: entry.moment("created")?.as_millis(),
            text: text(entry),
            href: page(entry.text("entityType"), entry.text("entityId")),
        })
    });
    let mut changes: Vec<Change> = changes.collect();
    changes.sort_by_key(|change| change.at_ms);
    changes
}

impl<'a> Pool<'a> {
    fn of(pool: &'a Value, configurations: &'a Value) -> Self {
        let id = pool.text("workerPoolId");
        let configs = pool.list("config.launchConfigs");
        let all = |path| configs.iter().map(move |config| config.text(path));
        let images = configs
            .iter()
            .flat_map(|config| config.list("workerManager.images"));
        let of_pool = |it: &&Value| {
            let types = it.list("workerTypes");
            types.iter().any(|name| name.as_str() == Some(id))
        };
        let configurations = configurations.list("workerConfigurations").iter();
        let mut providers: BTreeSet<&str> = all("workerManager.providerId").collect();
        providers.insert(pool.text("providerId"));
        providers.remove("");
        Self {
            id,
            owner: pool.text("owner"),
            providers,
            regions: all("region").filter(|region| !region.is_empty()).collect(),
            images: images.map(|image| image.text("imageId")).collect(),
            configurations: configurations
                .filter(of_pool)
                .map(|it| it.text("workerConfigurationId"))
                .collect(),
        }
    }

    fn depends_on(&self, entry: &Value) -> bool {
        let id = entry.text("entityId");
        let detail = entry.at("detail");
        match entry.text("entityType") {
            "worker-pool" => id == self.id,
            "override" => {
                detail.text("workerPoolId") == self.id
                    || self.providers.contains(detail.text("providerId"))
                    || self.regions.contains(detail.text("region"))
                    || (self.configurations).contains(detail.text("workerConfigurationId"))
            }
            "budget" => {
                covers(detail.text("workerPools"), self.id)
                    || self.providers.contains(detail.text("providerId"))
                    || !self.owner.is_empty() && detail.text("owner") == self.owner
            }
            "worker-configuration" => self.configurations.contains(id),
            "image" => {
                let action = entry.text("actionType");
                let is_rollout = action.starts_with("canary") || action.starts_with("build-");
                self.images.contains(id) && is_rollout && action != "build-requested"
            }
            _ => false,
        }
    }
}

/// Whether a pattern of pools, such as `a/*`, covers this one.
fn covers(pattern: &str, id: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => id.starts_with(start),
        None => pattern == id,
    }
}

fn text(entry: &Value) -> String {
    let (kind, id) = (entry.text("entityType"), entry.text("entityId"));
    let (action, detail) = (
        entry.text("actionType").replace('-', " "),
        entry.at("detail"),
    );
    let what = match (kind, action.as_str()) {
        ("worker-pool", _) => format!("config {action}"),
        ("override", "set") => overridden(detail),
        ("budget", "set") => format!(
            "budget {id} set to {} a {}",
            money(detail.number("limit").unwrap_or_default() * 1_000_000.0),
            detail.text("per")
        ),
        ("worker-configuration", _) => format!("rules {id}: {action}"),
        ("image", _) => {
            let action = action.strip_prefix("build ").unwrap_or(&action);
            format!("build {} of image {id} {action}", detail.count("build"))
        }
        _ => format!("{kind} {id} {action}"),
    };
    let reason = match detail.text("reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!("{what}, by {}{reason}", entry.text("clientId"))
}

fn overridden(detail: &Value) -> String {
    let of = match detail.text("launchConfigId") {
        "" => String::new(),
        config => format!("launch config {config} "),
    };
    if detail.is("pause") {
        return format!("{of}paused");
    }
    let limits = [("minCapacity", "minimum"), ("maxCapacity", "maximum")];
    let limits = limits.into_iter().filter_map(|(member, word)| {
        let limit = detail.at(member).as_u64()?;
        Some(format!("{word} {limit}"))
    });
    let limits: Vec<String> = limits.collect();
    format!("{of}override: {}", limits.join(", "))
}

/// The page that has more about a change.
fn page(kind: &str, id: &str) -> String {
    match kind {
        "image" => links::image(id),
        "worker-configuration" => links::to("rules", &[id]),
        _ => {
            let query = [("type".to_owned(), kind.to_owned())];
            links::with("/events", &query, "entity", id)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, id: &str, action: &str, detail: Value) -> Value {
        json!({"entityType": kind, "entityId": id, "actionType": action, "clientId": "people/ana",
            "created": "1970-01-01T01:00:00.000Z", "detail": detail})
    }

    #[test]
    fn only_changes_of_what_a_pool_depends_on_are_its_changes() {
        let pool = json!({"workerPoolId": "a/b", "providerId": "aws", "owner": "x@example.com",
            "config": {"launchConfigs": [
                {"region": "us-1", "workerManager": {"providerId": "google",
                    "images": [{"imageId": "ci"}]}}]}});
        let configurations = json!({"workerConfigurations": [
            {"workerConfigurationId": "rules", "workerTypes": ["a/b"]},
            {"workerConfigurationId": "other", "workerTypes": ["a/c"]},
        ]});
        let entries = [
            entry("worker-pool", "a/b", "updated", Value::Null),
            entry(
                "override",
                "o1",
                "set",
                json!({"workerPoolId": "a/b", "pause": true,
                "launchConfigId": "lc", "reason": "slow"}),
            ),
            entry(
                "override",
                "o2",
                "set",
                json!({"region": "us-1", "maxCapacity": 3}),
            ),
            entry(
                "override",
                "o3",
                "set",
                json!({"workerPoolId": "a/c", "pause": true}),
            ),
            entry("override", "o4", "removed", json!({"providerId": "google"})),
            entry(
                "budget",
                "b1",
                "set",
                json!({"workerPools": "a/*", "limit": 8.0, "per": "month"}),
            ),
            entry(
                "budget",
                "b2",
                "set",
                json!({"workerPools": "b/*", "limit": 8.0, "per": "day"}),
            ),
            entry(
                "worker-configuration",
                "rules",
                "rule-replaced",
                Value::Null,
            ),
            entry(
                "worker-configuration",
                "other",
                "rule-replaced",
                Value::Null,
            ),
            entry("image", "ci", "build-promoted", json!({"build": 2})),
            entry("image", "ci", "build-requested", json!({"build": 3})),
            entry("image", "other", "build-promoted", json!({"build": 2})),
        ];
        let entries: Vec<&Value> = entries.iter().collect();
        let found = changes(&Pool::of(&pool, &configurations), &entries);
        let texts: Vec<&str> = found.iter().map(|change| change.text.as_str()).collect();
        let wanted = [
            "config updated, by people/ana",
            "launch config lc paused, by people/ana: slow",
            "override: maximum 3, by people/ana",
            "override o4 removed, by people/ana",
            "budget b1 set to $8.00 a month, by people/ana",
            "rules rules: rule replaced, by people/ana",
            "build 2 of image ci promoted, by people/ana",
        ];
        assert_eq!(texts, wanted);
        assert_eq!(found[1].href, "/events?type=override&entity=o1");
        assert_eq!(found[0].at_ms, 3_600_000);
    }
}
