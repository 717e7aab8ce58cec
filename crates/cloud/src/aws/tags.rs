//! The tags on EC2 instances: ours, by which we find machines again, and those that people look
//! for.

use domain::id::{LaunchToken, PoolId, ProviderId};
use serde_json::{Map, Value, json};

use super::responses::Tag;

/// The deployment that the machine belongs to: our root URL.
pub(crate) const DEPLOYMENT: &str = "fleetwright:deployment";
/// The provider that made it.
pub(crate) const PROVIDER: &str = "fleetwright:provider";
/// The token of the launch that made it.
pub(crate) const LAUNCH: &str = "fleetwright:launch";

/// The worker manager and the provider that made it, as Taskcluster writes them.
pub(crate) const CREATED_BY: &str = "CreatedBy";
pub(crate) const MANAGED_BY: &str = "ManagedBy";
pub(crate) const TASKCLUSTER: &str = "taskcluster";

/// The pool that it was made for; Taskcluster's name of this tag.
const POOL: &str = "WorkerPoolId";

/// Resources that get the tags. With tagged volumes, the bill can be split by pool.
const TAGGED: [&str; 2] = ["instance", "volume"];

/// The tags for the machines of one launch.
pub(crate) struct LaunchTags<'a> {
    pub(crate) root_url: &'a str,
    pub(crate) provider_id: &'a ProviderId,
    pub(crate) token: &'a LaunchToken,
    pub(crate) pool_id: &'a PoolId,
    pub(crate) owner: &'a str,
}

impl LaunchTags<'_> {
    fn tags(&self) -> [(&'static str, String); 8] {
        [
            (CREATED_BY, maker(self.provider_id)),
            ("Owner", self.owner.to_owned()),
            (MANAGED_BY, TASKCLUSTER.to_owned()),
            ("Name", self.pool_id.to_string()),
            (POOL, self.pool_id.to_string()),
            (DEPLOYMENT, self.root_url.to_owned()),
            (PROVIDER, self.provider_id.to_string()),
            (LAUNCH, self.token.to_string()),
        ]
    }

    /// Adds our tags to the `TagSpecifications` of a launch config. Our value wins where both have
    /// a key: EC2 refuses a key that comes twice, and without our tags a machine would be lost.
    pub(crate) fn merge_into(&self, given: Option<&Value>) -> Value {
        let given = given.and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut theirs, others): (Vec<_>, Vec<_>) = given
            .into_iter()
            .partition(|one| TAGGED.iter().any(|kind| one["ResourceType"] == *kind));
        let mut specifications = others;
        for kind in TAGGED {
            let mut tags = Map::new();
            for specification in theirs.iter_mut().filter(|one| one["ResourceType"] == kind) {
                for tag in list_in(specification, "Tags") {
                    if let Some(key) = tag["Key"].as_str() {
                        tags.insert(key.to_owned(), tag["Value"].clone());
                    }
                }
            }
            for (key, value) in self.tags() {
                tags.insert(key.to_owned(), Value::String(value));
            }
            let tags: Vec<Value> = tags
                .into_iter()
                .map(|(key, value)| json!({"Key": key, "Value": value}))
                .collect();
            specifications.push(json!({"ResourceType": kind, "Tags": tags}));
        }
        Value::Array(specifications)
    }
}

/// How Taskcluster calls the maker of a provider's machines.
pub(crate) fn maker(provider_id: &ProviderId) -> String {
    format!("taskcluster-wm-{provider_id}")
}

/// Whether a Taskcluster's worker manager made the machine, for a provider of this name. Ours carry
/// its tags, too, and those of their deployment.
pub(crate) fn is_of_taskcluster(tags: &[Tag], provider_id: &ProviderId) -> bool {
    value(tags, MANAGED_BY) == Some(TASKCLUSTER)
        && value(tags, CREATED_BY) == Some(&maker(provider_id))
        && value(tags, DEPLOYMENT).is_none()
}

/// The launch that these tags name: `None` if the machine is not ours, `Some(None)` if it is ours
/// and the tags name no launch.
///
/// Checks again what the list's filters checked, because filters have wildcards.
pub(crate) fn launch_of(
    tags: &[Tag],
    root_url: &str,
    provider_id: &ProviderId,
) -> Option<Option<LaunchToken>> {
    let ours = value(tags, DEPLOYMENT) == Some(root_url)
        && value(tags, PROVIDER) == Some(provider_id.as_str());
    ours.then(|| value(tags, LAUNCH).and_then(|token| token.parse().ok()))
}

/// The pool that these tags name.
pub(crate) fn pool_of(tags: &[Tag]) -> Option<PoolId> {
    value(tags, POOL)?.parse().ok()
}

pub(super) fn value<'a>(tags: &'a [Tag], key: &str) -> Option<&'a str> {
    let tag = tags.iter().find(|tag| tag.key == key)?;
    Some(&tag.value)
}

fn list_in<'a>(within: &'a Value, key: &str) -> &'a [Value] {
    within[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AAAAAAAAQgGAAAAAAAAAAA";

    fn merge_into(given: Value) -> Value {
        LaunchTags {
            root_url: "https://fleet.example.com",
            provider_id: &"aws".parse().unwrap(),
            token: &TOKEN.parse().unwrap(),
            pool_id: &"proj/ci".parse().unwrap(),
            owner: "ops@example.com",
        }
        .merge_into(Some(&given))
    }

    fn tags_of(specifications: &Value, kind: &str) -> Vec<(String, String)> {
        let all = specifications.as_array().unwrap();
        let one: Vec<_> = all.iter().filter(|s| s["ResourceType"] == kind).collect();
        assert_eq!(one.len(), 1, "one specification for {kind}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let tag = |tag: &Value| (text(&tag["Key"]), text(&tag["Value"]));
        list_in(one[0], "Tags").iter().map(tag).collect()
    }

    #[test]
    fn machines_and_volumes_carry_our_tags() {
        let tagged = merge_into(Value::Null);
        assert_eq!(tags_of(&tagged, "instance"), tags_of(&tagged, "volume"));
        let mut tags = tags_of(&tagged, "instance");
        tags.sort();
        let tags: Vec<_> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            tags,
            [
                "CreatedBy=taskcluster-wm-aws",
                "ManagedBy=taskcluster",
                "Name=proj/ci",
                "Owner=ops@example.com",
                "WorkerPoolId=proj/ci",
                "fleetwright:deployment=https://fleet.example.com",
                "fleetwright:launch=AAAAAAAAQgGAAAAAAAAAAA",
                "fleetwright:provider=aws",
            ]
        );
    }

    #[test]
    fn tags_of_the_launch_config_stay_unless_we_need_their_key() {
        let tagged = merge_into(json!([
            {"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "x"}]},
            {"ResourceType": "instance", "Tags": [{"Key": "fleetwright:launch", "Value": "y"}]},
            {"ResourceType": "network-interface", "Tags": [{"Key": "n", "Value": "z"}]},
        ]));
        assert_eq!(
            tags_of(&tagged, "network-interface"),
            [("n".to_owned(), "z".to_owned())]
        );
        let of_machine = tags_of(&tagged, "instance");
        assert_eq!(of_machine.len(), 9);
        assert!(of_machine.contains(&("team".to_owned(), "x".to_owned())));
        assert!(of_machine.contains(&(LAUNCH.to_owned(), TOKEN.to_owned())));
        assert_eq!(tags_of(&tagged, "volume").len(), 8);
    }

    #[test]
    fn only_tags_of_this_deployment_and_provider_are_ours() {
        let tag = |key: &str, value: &str| Tag {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let tags = [
            tag(DEPLOYMENT, "https://a"),
            tag(PROVIDER, "aws"),
            tag(LAUNCH, TOKEN),
        ];
        let launch = |url, id: &str| launch_of(&tags, url, &id.parse().unwrap());
        assert_eq!(launch("https://a", "aws"), Some(TOKEN.parse().ok()));
        assert_eq!(launch("https://*", "aws"), None);
        assert_eq!(launch("https://a", "aws2"), None);
        let unnamed = launch_of(&tags[..2], "https://a", &"aws".parse().unwrap());
        assert_eq!(unnamed, Some(None));
    }

    #[test]
    fn machines_of_a_taskcluster_are_told_from_ours_and_from_those_of_others() {
        let tag = |key: &str, value: &str| Tag {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let theirs = [
            tag("CreatedBy", "taskcluster-wm-aws"),
            tag("ManagedBy", "taskcluster"),
            tag(DEPLOYMENT, "https://a"),
        ];
        let is_theirs = |tags: &[Tag], id: &str| is_of_taskcluster(tags, &id.parse().unwrap());
        assert!(is_theirs(&theirs[..2], "aws"));
        assert!(!is_theirs(&theirs[..2], "aws2"));
        assert!(!is_theirs(&theirs[..1], "aws"), "somebody's tag alone");
        assert!(!is_theirs(&theirs[1..2], "aws"), "another provider's");
        assert!(!is_theirs(&theirs, "aws"), "ours");
    }
}
