//! The tags on all that is made for a machine: Taskcluster's, and those by which it is found again.

use domain::id::{LaunchToken, PoolId, ProviderId};
use serde_json::{Map, Value, json};

/// The deployment that made it: our root URL.
pub(super) const DEPLOYMENT: &str = "fleetwright-deployment";
/// The token of the launch that made it.
pub(super) const LAUNCH: &str = "fleetwright-launch";
/// The machine that it belongs to.
pub(super) const MACHINE: &str = "fleetwright-machine";
/// Taskcluster's name of the tag with the provider that made it.
pub(super) const PROVIDER: &str = "provider-id";
/// Taskcluster's name of the tag with the pool that it was made for.
const POOL: &str = "worker-pool-id";
const GROUP: &str = "worker-group";
const LAUNCH_CONFIG: &str = "launch-config-id";

/// The worker manager and the provider that made it, as Taskcluster writes them.
const CREATED_BY: &str = "created-by";
const MANAGED_BY: &str = "managed-by";
const TASKCLUSTER: &str = "taskcluster";

/// The tags of one launch.
pub(super) struct LaunchTags<'a> {
    pub(super) root_url: &'a str,
    pub(super) provider_id: &'a ProviderId,
    pub(super) token: &'a LaunchToken,
    pub(super) pool_id: &'a PoolId,
    pub(super) owner: &'a str,
    pub(super) group: &'a str,
    pub(super) launch_config_id: &'a str,
}

impl LaunchTags<'_> {
    /// The tags of a machine and its parts. Ours win over those of the launch config: without them
    /// a machine would be lost.
    pub(super) fn merge_into(&self, given: Option<&Value>, machine: &str) -> Map<String, Value> {
        let mut tags = Map::new();
        for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => value.to_string(),
            };
            tags.insert(key.clone(), Value::String(text));
        }
        for (key, value) in [
            (CREATED_BY, maker(self.provider_id)),
            (MANAGED_BY, TASKCLUSTER.to_owned()),
            (PROVIDER, self.provider_id.to_string()),
            (GROUP, self.group.to_owned()),
            (POOL, self.pool_id.to_string()),
            ("root-url", self.root_url.to_owned()),
            ("owner", self.owner.to_owned()),
            (LAUNCH_CONFIG, self.launch_config_id.to_owned()),
            (DEPLOYMENT, self.root_url.to_owned()),
            (LAUNCH, self.token.to_string()),
            (MACHINE, machine.to_owned()),
        ] {
            // Azure's names of tags have no case.
            tags.retain(|own, _| !own.eq_ignore_ascii_case(key));
            tags.insert(key.to_owned(), Value::String(value));
        }
        tags
    }
}

/// The tags of a network of a pool.
pub(super) fn network_tags(root_url: &str, provider_id: &ProviderId, pool_id: &PoolId) -> Value {
    json!({
        DEPLOYMENT: root_url, PROVIDER: provider_id, POOL: pool_id,
        MANAGED_BY: TASKCLUSTER, CREATED_BY: maker(provider_id),
    })
}

/// The pool that a resource was made for.
pub(super) fn pool_of(resource: &Value) -> Option<PoolId> {
    FoundTags::of(resource).pool_id()
}

/// The tags of something that Azure describes.
#[derive(Clone, Copy)]
pub(super) struct FoundTags<'a>(&'a Value);

impl<'a> FoundTags<'a> {
    pub(super) fn of(resource: &'a Value) -> Self {
        Self(&resource["tags"])
    }

    pub(super) fn get(self, key: &str) -> Option<&'a str> {
        self.0[key].as_str()
    }

    /// Whether this deployment and this provider made it.
    pub(super) fn are_ours(self, root_url: &str, provider_id: &ProviderId) -> bool {
        self.get(DEPLOYMENT) == Some(root_url) && self.get(PROVIDER) == Some(provider_id.as_str())
    }

    /// Whether a Taskcluster's worker manager made it, for a provider of this name, and not we.
    pub(super) fn are_of_taskcluster(self, provider_id: &ProviderId) -> bool {
        self.get(MANAGED_BY) == Some(TASKCLUSTER)
            && self.get(CREATED_BY) == Some(&maker(provider_id))
            && self.get(DEPLOYMENT).is_none()
    }

    pub(super) fn token(self) -> Option<LaunchToken> {
        self.get(LAUNCH)?.parse().ok()
    }

    pub(super) fn pool_id(self) -> Option<PoolId> {
        self.get(POOL)?.parse().ok()
    }

    /// The location that its machine is in.
    pub(super) fn group(self) -> Option<&'a str> {
        self.get(GROUP)
    }

    pub(super) fn machine(self) -> Option<&'a str> {
        self.get(MACHINE)
    }
}

/// How Taskcluster calls the maker of a provider's machines.
fn maker(provider_id: &ProviderId) -> String {
    format!("taskcluster-wm-{provider_id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AAAAAAAAQgGAAAAAAAAAAA";

    fn merged(given: &Value) -> Map<String, Value> {
        let tags = LaunchTags {
            root_url: "https://fleet.example.com",
            provider_id: &"azure".parse().unwrap(),
            token: &TOKEN.parse().unwrap(),
            pool_id: &"proj/ci".parse().unwrap(),
            owner: "ops@example.com",
            group: "westus",
            launch_config_id: "lc-1",
        };
        tags.merge_into(Some(given), "vm-1")
    }

    #[test]
    fn taskclusters_tags_and_ours_win_over_those_of_the_launch_config() {
        let given = json!({"team": "x", "n": 7, "Owner": "evil", "fleetwright-launch": "evil"});
        let tags = Value::Object(merged(&given));
        let expected = json!({
            "team": "x",
            "n": "7",
            "created-by": "taskcluster-wm-azure",
            "managed-by": "taskcluster",
            "provider-id": "azure",
            "worker-group": "westus",
            "worker-pool-id": "proj/ci",
            "root-url": "https://fleet.example.com",
            "owner": "ops@example.com",
            "launch-config-id": "lc-1",
            "fleetwright-deployment": "https://fleet.example.com",
            "fleetwright-launch": TOKEN,
            "fleetwright-machine": "vm-1",
        });
        assert_eq!(tags, expected);
    }

    #[test]
    fn only_tags_of_this_deployment_and_provider_are_ours() {
        let resource = json!({"tags": merged(&json!({}))});
        let found = FoundTags::of(&resource);
        let ours = |url, id: &str| found.are_ours(url, &id.parse().unwrap());
        assert!(ours("https://fleet.example.com", "azure"));
        assert!(!ours("https://fleet.example.com", "azure2"));
        assert!(!ours("https://other.example.com", "azure"));
        assert_eq!(found.token(), TOKEN.parse().ok());
        assert_eq!(found.pool_id(), "proj/ci".parse().ok());
        assert_eq!(found.machine(), Some("vm-1"));
        let untagged = json!({"name": "x"});
        assert!(!FoundTags::of(&untagged).are_ours("https://a", &"azure".parse().unwrap()));
    }
}
