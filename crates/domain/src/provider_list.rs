//! Several providers in the config of a pool that people create.
//!
//! The config names them in `providers`, and each launch config names its own in
//! `workerManager.providerId`. A launch config that names none belongs to the pool's `providerId`.
//! Taskcluster's clients send both on, since a config may have any members.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::id::{BadId, LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::{
    has_own_id, id_for_second_provider, id_of, named_provider, set_id, set_provider, take_provider,
};

/// The key of a config with the list of its providers.
pub const PROVIDERS_KEY: &str = "providers";
/// Maximum number of providers of a pool.
pub const MAX_PROVIDERS: usize = 20;

/// The launch configs of one provider, each with its index in the author's list, and without the
/// name of the provider.
pub type Share = Vec<(usize, Map<String, Value>)>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProviders {
    #[error("config.providers must be a list of 1 to {MAX_PROVIDERS} provider ids, not {0}")]
    List(String),
    #[error("config.providers[{index}] must be a provider id, not {found}")]
    Id { index: usize, found: String },
    #[error("config.providers names {0} twice: name it once")]
    Twice(ProviderId),
    #[error("config.providers must contain {0}, the providerId of the pool")]
    WithoutFirst(ProviderId),
    #[error(
        "{launch_config} names the provider {found}, which the pool does not have: list it in \
         config.providers"
    )]
    NotListed {
        launch_config: String,
        found: String,
    },
    #[error(
        "{launch_config} has the id {id} of {other}, which is of another provider: choose another id"
    )]
    SameId {
        launch_config: String,
        id: LaunchConfigId,
        other: String,
    },
    #[error(transparent)]
    LaunchConfigId(#[from] BadId),
}

/// The providers that a config names, the pool's `providerId` first. `None`: it names none, so the
/// pool has only that one.
pub fn provider_ids(
    first: &ProviderId,
    config: &Value,
) -> Result<Option<Vec<ProviderId>>, BadProviders> {
    // The null provider takes any config, also that of a pool which it replaces.
    let list = config.get(PROVIDERS_KEY).filter(|_| !first.is_null());
    let Some(list) = list else {
        return Ok(None);
    };
    let items = list.as_array();
    let items = items.filter(|items| (1..=MAX_PROVIDERS).contains(&items.len()));
    let items = items.ok_or_else(|| BadProviders::List(outline(list)))?;
    let mut ids = vec![first.clone()];
    let mut has_first = false;
    for (index, item) in items.iter().enumerate() {
        let id = item.as_str().and_then(|text| text.parse().ok());
        let id: ProviderId = id.ok_or_else(|| BadProviders::Id {
            index,
            found: outline(item),
        })?;
        if id == *first && !has_first {
            has_first = true;
        } else if ids.contains(&id) {
            return Err(BadProviders::Twice(id));
        } else {
            ids.push(id);
        }
    }
    match has_first {
        true => Ok(Some(ids)),
        false => Err(BadProviders::WithoutFirst(first.clone())),
    }
}

/// Removes the name of the only provider from launch configs, which the schemas of clouds do not
/// have.
pub fn remove_only_provider(
    id: &ProviderId,
    launch_configs: &mut [Value],
) -> Result<(), BadProviders> {
    for (index, configuration) in launch_configs.iter_mut().enumerate() {
        let Value::Object(configuration) = configuration else {
            continue;
        };
        match named_provider(configuration) {
            Some(named) if named != id.as_str() => {
                return Err(BadProviders::NotListed {
                    launch_config: title(index, configuration),
                    found: outline(named),
                });
            }
            Some(_) | None => take_provider(configuration),
        }
    }
    Ok(())
}

/// The launch configs of each of these providers; those that name none are of the first.
pub fn split(
    ids: &[ProviderId],
    launch_configs: &[Map<String, Value>],
) -> Result<Vec<Share>, BadProviders> {
    let mut shares = vec![Share::new(); ids.len()];
    for (index, configuration) in launch_configs.iter().enumerate() {
        let named = named_provider(configuration);
        let position = match named {
            None => Some(0),
            Some(named) => ids.iter().position(|id| named == id.as_str()),
        };
        let share = position.and_then(|position| shares.get_mut(position));
        let share = share.ok_or_else(|| BadProviders::NotListed {
            launch_config: title(index, configuration),
            found: outline(named.unwrap_or(&Value::Null)),
        })?;
        let mut own = configuration.clone();
        take_provider(&mut own);
        share.push((index, own));
    }
    Ok(shares)
}

/// The launch configs of all providers in the author's order, each with the name of its provider,
/// unless its author named none. Those with the same content at two providers get ids of their own.
pub fn join(
    pool_id: &PoolId,
    ids: &[ProviderId],
    authored: &[Map<String, Value>],
    shares: Vec<Share>,
) -> Result<Vec<Map<String, Value>>, BadProviders> {
    let mut joined: BTreeMap<usize, (&ProviderId, Map<String, Value>)> = BTreeMap::new();
    for (id, share) in ids.iter().zip(shares) {
        for (index, mut configuration) in share {
            if authored.get(index).and_then(named_provider).is_some() {
                set_provider(&mut configuration, id);
            }
            joined.insert(index, (id, configuration));
        }
    }
    let mut known: BTreeMap<LaunchConfigId, (usize, &ProviderId)> = BTreeMap::new();
    for (index, (provider_id, configuration)) in &mut joined {
        let mut id = id_of(pool_id, configuration)?;
        let is_twin = |other: &&(usize, &ProviderId)| other.1 != *provider_id;
        if known.get(&id).filter(is_twin).is_some() && !has_own_id(configuration) {
            id = id_for_second_provider(pool_id, provider_id, configuration)?;
            set_id(configuration, &id);
        }
        if let Some((other, _)) = known.get(&id).filter(is_twin) {
            let none = Map::new();
            return Err(BadProviders::SameId {
                launch_config: title(*index, configuration),
                other: title(*other, authored.get(*other).unwrap_or(&none)),
                id,
            });
        }
        known.entry(id).or_insert((*index, provider_id));
    }
    let configurations = joined.into_values();
    Ok(configurations
        .map(|(_, configuration)| configuration)
        .collect())
}

/// The launch config for people: its index in the list, and the id that its author gave it.
pub fn title(index: usize, configuration: &Map<String, Value>) -> String {
    let id = configuration.get("workerManager");
    let id = id.and_then(|steering| steering["launchConfigId"].as_str());
    let id = id.map(|id| format!(" ({id})"));
    format!("launchConfigs[{index}]{}", id.unwrap_or_default())
}

/// A value for an error message.
fn outline(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn id(text: &str) -> ProviderId {
        text.parse().unwrap()
    }

    fn listed(providers: Value) -> Result<Option<Vec<ProviderId>>, String> {
        let config = json!({"providers": providers});
        provider_ids(&id("one"), &config).map_err(|bad| bad.to_string())
    }

    fn configs(list: Value) -> Vec<Map<String, Value>> {
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn the_providers_of_a_config_are_listed_with_the_pools_own_first() {
        assert_eq!(provider_ids(&id("one"), &json!({})), Ok(None));
        assert_eq!(listed(json!(["one"])), Ok(Some(vec![id("one")])));
        let expected = vec![id("one"), id("three"), id("two")];
        assert_eq!(listed(json!(["three", "one", "two"])), Ok(Some(expected)));
    }

    #[test]
    fn an_invalid_list_of_providers_is_refused_with_the_reason() {
        let cases = [
            (
                json!("one"),
                "config.providers must be a list of 1 to 20 provider ids, not \"one\"",
            ),
            (
                json!([]),
                "config.providers must be a list of 1 to 20 provider ids, not []",
            ),
            (
                json!(null),
                "config.providers must be a list of 1 to 20 provider ids, not null",
            ),
            (
                json!(["one", 7]),
                "config.providers[1] must be a provider id, not 7",
            ),
            (
                json!(["one", "a b"]),
                "config.providers[1] must be a provider id, not \"a b\"",
            ),
            (
                json!(["one", "two", "two"]),
                "config.providers names two twice: name it once",
            ),
            (
                json!(["one", "one"]),
                "config.providers names one twice: name it once",
            ),
            (
                json!(["two"]),
                "config.providers must contain one, the providerId of the pool",
            ),
        ];
        for (list, expected) in cases {
            assert_eq!(listed(list).unwrap_err(), expected);
        }
        for count in sizes_around("domain::provider_list::MAX_PROVIDERS", MAX_PROVIDERS) {
            let further = (1..count).map(|number| format!("p{number}"));
            let list: Vec<String> = std::iter::once("one".to_owned()).chain(further).collect();
            let list = &list[..count.min(list.len())];
            let is_good = (1..=MAX_PROVIDERS).contains(&list.len());
            assert_eq!(listed(json!(list)).is_ok(), is_good, "{count}");
        }
    }

    #[test]
    fn launch_configs_go_to_the_providers_that_they_name_and_come_back_in_their_order() {
        let ids = [id("one"), id("two")];
        let authored = configs(json!([
            {"a": 1, "workerManager": {"providerId": "two", "maxCapacity": 3}},
            {"a": 2},
            {"a": 3, "workerManager": {"providerId": "one"}},
        ]));
        let shares = split(&ids, &authored).unwrap();
        let expected = json!([
            [[1, {"a": 2}], [2, {"a": 3}]],
            [[0, {"a": 1, "workerManager": {"maxCapacity": 3}}]],
        ]);
        assert_eq!(serde_json::to_value(&shares).unwrap(), expected);
        let pool_id = "a/b".parse().unwrap();
        assert_eq!(join(&pool_id, &ids, &authored, shares), Ok(authored));
    }

    #[test]
    fn a_pool_of_one_provider_may_name_it_and_no_other() {
        let mut list = [
            json!({"workerManager": {"providerId": "one", "maxCapacity": 2}}),
            json!({"workerManager": {"providerId": "one"}}),
            json!({}),
            json!("no object"),
        ];
        assert_eq!(remove_only_provider(&id("one"), &mut list), Ok(()));
        let expected = json!([{"workerManager": {"maxCapacity": 2}}, {}, {}, "no object"]);
        assert_eq!(json!(list), expected);
        let mut list = [json!({"workerManager": {"providerId": "two"}})];
        let refused = remove_only_provider(&id("one"), &mut list)
            .unwrap_err()
            .to_string();
        assert!(
            refused.starts_with("launchConfigs[0] names the provider \"two\""),
            "{refused}"
        );
        let config = json!({"providers": ["one"]});
        assert_eq!(provider_ids(&ProviderId::null(), &config), Ok(None));
    }

    #[test]
    fn a_launch_config_of_a_provider_that_the_pool_does_not_have_is_refused() {
        let refused = |list: Value| split(&[id("one")], &configs(list)).unwrap_err().to_string();
        let list = json!([{}, {"workerManager": {"providerId": "two", "launchConfigId": "b"}}]);
        assert_eq!(
            refused(list),
            "launchConfigs[1] (b) names the provider \"two\", which the pool does not have: list \
             it in config.providers"
        );
        let list = json!([{"workerManager": {"providerId": 7}}]);
        assert!(refused(list).starts_with("launchConfigs[0] names the provider 7, which"));
    }

    #[test]
    fn the_same_content_at_two_providers_has_two_ids_and_a_given_id_only_one_provider() {
        let ids = [id("one"), id("two")];
        let pool_id: PoolId = "a/b".parse().unwrap();
        let joined = |list: Value| {
            let authored = configs(list);
            let shares = split(&ids, &authored).unwrap();
            join(&pool_id, &ids, &authored, shares).map_err(|bad| bad.to_string())
        };
        let both = joined(json!([{"a": 1}, {"a": 1, "workerManager": {"providerId": "two"}}]));
        let of = |configuration| id_of(&pool_id, configuration).unwrap();
        let both = both.unwrap();
        assert_ne!(of(&both[0]), of(&both[1]));
        assert!(!has_own_id(&both[0]) && has_own_id(&both[1]));
        let clash = joined(json!([
            {"workerManager": {"launchConfigId": "x"}},
            {"workerManager": {"launchConfigId": "x", "providerId": "two"}},
        ]));
        assert_eq!(
            clash.unwrap_err(),
            "launchConfigs[1] (x) has the id x of launchConfigs[0] (x), which is of another provider: choose another id"
        );
    }
}
