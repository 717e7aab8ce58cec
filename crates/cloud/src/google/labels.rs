//! The labels of machines: ours, by which we find machines again, and those that people look for.
//!
//! Google permits lower-case letters, digits, `-` and `_`, at most 63 characters. So names of ours
//! get a form from which they can be read again, or a digest.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::id::{LaunchToken, PoolId, ProviderId};
use serde_json::{Map, Value, json};

use crate::hex;

/// The deployment that the machine belongs to: our root URL.
pub(super) const DEPLOYMENT: &str = "fleetwright-deployment";
/// The provider that made it.
pub(super) const PROVIDER: &str = "fleetwright-provider";
/// The token of the launch that made it, in hexadecimal.
pub(super) const LAUNCH: &str = "fleetwright-launch";
/// The pool that it was made for, with `__` for the slash, if that is a label.
const POOL: &str = "fleetwright-pool";

/// The worker manager and the provider that made it, as Taskcluster writes them.
const CREATED_BY: &str = "created-by";
const MANAGED_BY: &str = "managed-by";
const TASKCLUSTER: &str = "taskcluster";

const MAX_CHARS: usize = 63;
/// Of the digest that keeps names apart which look the same as labels.
const DIGEST_CHARS: usize = 16;

/// The labels of one resource, as Google sends them.
pub(super) type Labels = BTreeMap<String, String>;

/// The labels for the machines of one launch.
pub(super) struct LaunchLabels<'a> {
    pub(super) root_url: &'a str,
    pub(super) provider_id: &'a ProviderId,
    pub(super) token: &'a LaunchToken,
    pub(super) pool_id: &'a PoolId,
    pub(super) owner: &'a str,
    pub(super) launch_config_id: &'a str,
}

impl LaunchLabels<'_> {
    fn labels(&self) -> Vec<(&'static str, String)> {
        let id = self.provider_id.as_str();
        let mut labels = vec![
            (CREATED_BY, maker(self.provider_id)),
            (MANAGED_BY, TASKCLUSTER.to_owned()),
            ("worker-pool-id", plain(self.pool_id.as_str())),
            ("owner", plain(self.owner)),
            ("launch-config-id", plain(self.launch_config_id)),
            (DEPLOYMENT, exact(self.root_url)),
            (PROVIDER, exact(id)),
            (LAUNCH, of_token(self.token)),
        ];
        let pool = self.pool_id.as_str().replace('/', "__");
        if is_label(&pool) {
            labels.push((POOL, pool));
        }
        labels
    }

    /// Adds our labels to those of a launch config. Ours win: without them a machine would be lost.
    pub(super) fn merge_into(&self, given: Option<&Value>) -> Value {
        let given = given.and_then(Value::as_object).cloned();
        let mut labels: Map<String, Value> = given.unwrap_or_default();
        for (key, value) in self.labels() {
            labels.insert(key.to_owned(), json!(value));
        }
        Value::Object(labels)
    }
}

/// The filter of a list for the resources of this deployment and provider.
pub(super) fn filter(root_url: &str, provider_id: &ProviderId) -> String {
    let (root_url, id) = (exact(root_url), exact(provider_id.as_str()));
    format!("(labels.{DEPLOYMENT} = \"{root_url}\") (labels.{PROVIDER} = \"{id}\")")
}

/// The filter of a list for the machines that a Taskcluster's worker manager made for a provider of
/// this name. Ours carry these labels, too.
pub(super) fn filter_of_taskcluster(provider_id: &ProviderId) -> String {
    let maker = maker(provider_id);
    format!("(labels.{MANAGED_BY} = \"{TASKCLUSTER}\") (labels.{CREATED_BY} = \"{maker}\")")
}

/// Whether such a worker manager made the machine, and not we.
pub(super) fn are_of_taskcluster(labels: &Labels, provider_id: &ProviderId) -> bool {
    let is = |key: &str, text: &str| labels.get(key).is_some_and(|it| it == text);
    is(MANAGED_BY, TASKCLUSTER)
        && is(CREATED_BY, &maker(provider_id))
        && !labels.contains_key(DEPLOYMENT)
}

/// How Taskcluster calls the maker of a provider's machines.
fn maker(provider_id: &ProviderId) -> String {
    plain(&format!("taskcluster-wm-{provider_id}"))
}

/// The launch that these labels name: `None` if the machine is not ours, `Some(None)` if it is ours
/// and the labels name no launch.
pub(super) fn launch_of(
    labels: &Labels,
    root_url: &str,
    provider_id: &ProviderId,
) -> Option<Option<LaunchToken>> {
    let is = |key: &str, text: &str| labels.get(key).is_some_and(|it| *it == exact(text));
    let ours = is(DEPLOYMENT, root_url) && is(PROVIDER, provider_id.as_str());
    ours.then(|| labels.get(LAUNCH).and_then(|text| token_of(text)))
}

/// The pool that these labels name.
pub(super) fn pool_of(labels: &Labels) -> Option<PoolId> {
    // The second part of a pool's id has no underscore.
    let (first, second) = labels.get(POOL)?.rsplit_once("__")?;
    format!("{first}/{second}").parse().ok()
}

/// A text in the form of Taskcluster's labels.
pub(super) fn plain(text: &str) -> String {
    let fold = |c: char| {
        let c = c.to_ascii_lowercase();
        let is_allowed = c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if is_allowed { c } else { '-' }
    };
    text.chars().map(fold).take(MAX_CHARS).collect()
}

/// A label that no other text has.
pub(super) fn exact(text: &str) -> String {
    if is_label(text) {
        return text.to_owned();
    }
    let mut digest = hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    digest.truncate(DIGEST_CHARS);
    let mut start = plain(text);
    start.truncate(MAX_CHARS - DIGEST_CHARS - 1);
    format!("{start}-{digest}")
}

pub(super) fn is_label(text: &str) -> bool {
    text.len() <= MAX_CHARS && plain(text) == text
}

/// Tokens are base64url of 16 bytes, in which case counts.
fn of_token(token: &LaunchToken) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(token.as_str()).unwrap_or_default();
    hex(&bytes)
}

fn token_of(text: &str) -> Option<LaunchToken> {
    let digits = text.as_bytes();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let pairs = (0..16).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok());
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    URL_SAFE_NO_PAD.encode(bytes).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AbCdEfGhQgGAAAA_AAAA-A";

    fn labels(pool: &str) -> Labels {
        let merged = LaunchLabels {
            root_url: "https://fleet.example.com",
            provider_id: &"GCP".parse().unwrap(),
            token: &TOKEN.parse().unwrap(),
            pool_id: &pool.parse().unwrap(),
            owner: "Ops@example.com",
            launch_config_id: "lc-AB12",
        }
        .merge_into(Some(&json!({"team": "x", "owner": "other"})));
        serde_json::from_value(merged).unwrap()
    }

    #[test]
    fn labels_of_taskcluster_and_our_own_are_added() {
        let labels = labels("proj_a/ci");
        let texts: Vec<_> = labels
            .iter()
            .map(|(key, it)| format!("{key}={it}"))
            .collect();
        assert_eq!(
            texts,
            [
                "created-by=taskcluster-wm-gcp",
                "fleetwright-deployment=https---fleet-example-com-c6ec37b2fff00a59",
                "fleetwright-launch=01b09d11f1a142018000003f000000f8",
                "fleetwright-pool=proj_a__ci",
                "fleetwright-provider=gcp-31e3cbd5c7bd25c4",
                "launch-config-id=lc-ab12",
                "managed-by=taskcluster",
                "owner=ops-example-com",
                "team=x",
                "worker-pool-id=proj_a-ci",
            ]
        );
    }

    #[test]
    fn our_labels_name_the_launch_and_the_pool() {
        let labels = labels("proj_a/ci");
        let launch = |url, id: &str| launch_of(&labels, url, &id.parse().unwrap());
        let here = "https://fleet.example.com";
        assert_eq!(launch(here, "GCP"), Some(TOKEN.parse().ok()));
        assert_eq!(launch("https://fleet.example-com", "GCP"), None);
        assert_eq!(launch(here, "gcp"), None);
        assert_eq!(pool_of(&labels), "proj_a/ci".parse().ok());
        assert_eq!(pool_of(&self::labels("Proj/ci")), None);
        let mut unnamed = labels.clone();
        unnamed.insert(LAUNCH.to_owned(), "é".repeat(16));
        let found = launch_of(&unnamed, here, &"GCP".parse().unwrap());
        assert_eq!(found, Some(None));
    }

    #[test]
    fn machines_of_a_taskcluster_are_told_from_ours_and_from_those_of_others() {
        let mut labels = labels("proj_a/ci");
        let is_theirs =
            |labels: &Labels, id: &str| are_of_taskcluster(labels, &id.parse().unwrap());
        assert!(!is_theirs(&labels, "GCP"), "ours");
        labels.remove(DEPLOYMENT);
        assert!(is_theirs(&labels, "GCP"));
        assert!(!is_theirs(&labels, "gcp2"));
        labels.remove(MANAGED_BY);
        assert!(!is_theirs(&labels, "GCP"), "somebody's label alone");
    }

    #[test]
    fn texts_that_look_the_same_as_labels_stay_apart() {
        assert_eq!(exact("plain-name_1"), "plain-name_1");
        let (one, two) = (exact("https://a.b"), exact("https://a-b"));
        assert!(one != two && one.starts_with("https---a-b-"), "{one} {two}");
        for text in ["", "é", &"x".repeat(64), &"X".repeat(500)] {
            assert!(is_label(&exact(text)) && is_label(&plain(text)), "{text}");
        }
    }
}
