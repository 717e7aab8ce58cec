//! The event of a pause: its target, its reason and its end.

use serde_json::{Value, json};

use crate::id::ProviderId;
use crate::overrides::{Override, Target};

/// Words without a value are `_`.
pub(super) fn routing_key(target: &Target, provider_id: Option<&ProviderId>) -> String {
    let provider = match target {
        Target::Provider(id) => Some(id),
        Target::Pool(_)
        | Target::LaunchConfig(..)
        | Target::Configuration(_)
        | Target::Region(_) => provider_id,
    };
    let provider = provider.map_or("_", ProviderId::as_str);
    let (left, right) = target.pool_id().map_or(("_", "_"), |id| id.parts());
    let (group, config) = match target {
        Target::Pool(_) | Target::Configuration(_) | Target::Provider(_) => ("_", "_"),
        Target::LaunchConfig(_, id) => ("_", id.as_str()),
        Target::Region(group) => (group.as_str(), "_"),
    };
    format!("primary.{provider}.{left}.{right}.{group}._.{config}._")
}

pub(super) fn payload(pause: &Override, provider_id: Option<&ProviderId>) -> Value {
    let mut payload = json!({
        "overrideId": pause.id.as_str(),
        "owner": pause.owner.as_str(),
        "reason": pause.reason,
        "until": pause.until.to_string(),
    });
    let mut set = |name: &str, text: &str| payload[name] = json!(text);
    if let Some(id) = provider_id {
        set("providerId", id.as_str());
    }
    match &pause.target {
        Target::Pool(id) => set("workerPoolId", id.as_str()),
        Target::LaunchConfig(pool_id, id) => {
            set("workerPoolId", pool_id.as_str());
            set("launchConfigId", id.as_str());
        }
        Target::Configuration(id) => set("workerConfigurationId", id.as_str()),
        Target::Provider(id) => set("providerId", id.as_str()),
        Target::Region(group) => set("region", group.as_str()),
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routing_key_of_a_pause_names_what_it_is_about() {
        let key = |target: &Target| routing_key(target, None);
        let pool = "a/b".parse().unwrap();
        assert_eq!(key(&Target::Pool(pool)), "primary._.a.b._._._._");
        let provider = Target::Provider("aws".parse().unwrap());
        assert_eq!(key(&provider), "primary.aws._._._._._._");
        let region = Target::Region("us-east-1".parse().unwrap());
        assert_eq!(key(&region), "primary._._._.us-east-1._._._");
        let config = Target::LaunchConfig("a/b".parse().unwrap(), "lc".parse().unwrap());
        let aws = "aws".parse().unwrap();
        assert_eq!(routing_key(&config, Some(&aws)), "primary.aws.a.b._._.lc._");
    }
}
