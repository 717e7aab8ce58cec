//! The pools and roles of a source.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::PoolId;
use rule_import::Pool;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commands::first_pool::{FIRST_POOL, FIRST_POOL_OWNER, LOCAL_PROVIDER};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fleet {
    pub(super) pools: BTreeMap<PoolId, Pool>,
    pub(super) roles: BTreeMap<String, Role>,
    /// The numbers of items of other kinds, by kind.
    pub(super) ignored: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Role {
    #[serde(default)]
    pub(super) description: String,
    pub(super) scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRole {
    role_id: String,
    #[serde(flatten)]
    role: Role,
}

impl Fleet {
    /// Parses a document: lists by name, or one list of items with their kinds. Items of other
    /// kinds (hooks, secrets, clients) are counted and skipped.
    pub(super) fn parse(document: Value) -> Result<Self, String> {
        let mut fleet = Self::default();
        match document {
            Value::Array(items) => fleet.add_by_kind(items)?,
            Value::Object(mut lists) => {
                let mut known = false;
                let mut take = |name: &str| match lists.remove(name) {
                    Some(Value::Array(items)) => {
                        known = true;
                        Ok(items)
                    }
                    Some(_) => Err(format!("{name} is not a list")),
                    None => Ok(Vec::new()),
                };
                fleet.add_by_kind(take("resources")?)?;
                fleet.add_pools(take("workerPools")?)?;
                fleet.add_roles(take("roles")?)?;
                if !known {
                    return Err(NO_LISTS.to_owned());
                }
                for (name, list) in lists {
                    let items = list.as_array().into_iter().flatten();
                    let count = items.filter(|item| item.is_object()).count();
                    fleet.ignore(&name, count);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Err(NO_LISTS.to_owned());
            }
        }
        Ok(fleet)
    }

    pub(super) fn add_pools(&mut self, items: Vec<Value>) -> Result<(), String> {
        for (position, item) in items.into_iter().enumerate() {
            let (id, pool) = Pool::parse(item)
                .map_err(|error| format!("pool number {}: {error}", position + 1))?;
            if self.pools.insert(id.clone(), pool).is_some() {
                return Err(format!("pool {id} is listed twice"));
            }
        }
        Ok(())
    }

    pub(super) fn add_roles(&mut self, items: Vec<Value>) -> Result<(), String> {
        for (position, item) in items.into_iter().enumerate() {
            let wire: WireRole = serde_json::from_value(item)
                .map_err(|error| format!("role number {}: {error}", position + 1))?;
            let mut seen = BTreeSet::new();
            let mut role = wire.role;
            // Servers refuse duplicate scopes, which have no effect.
            role.scopes.retain(|scope| seen.insert(scope.clone()));
            if self.roles.insert(wire.role_id.clone(), role).is_some() {
                return Err(format!("role {} is listed twice", wire.role_id));
            }
        }
        Ok(())
    }

    /// Removes the pools that the source is deleting.
    pub(super) fn remove_deleted_pools(&mut self) {
        self.pools.retain(|_, pool| !pool.is_being_deleted());
    }

    /// Removes the first pool of `up`: each server has its own. Returns whether it existed.
    pub(super) fn remove_first_pool(&mut self) -> bool {
        let n_pools = self.pools.len();
        self.pools.retain(|id, pool| {
            let is_first = id.as_str() == FIRST_POOL && pool.owner == FIRST_POOL_OWNER;
            !(is_first && pool.provider_id == LOCAL_PROVIDER)
        });
        self.pools.len() < n_pools
    }

    fn ignore(&mut self, kind: &str, count: usize) {
        if count > 0 {
            *self.ignored.entry(kind.to_owned()).or_default() += count;
        }
    }

    fn add_by_kind(&mut self, items: Vec<Value>) -> Result<(), String> {
        let (mut pools, mut roles) = (Vec::new(), Vec::new());
        for (position, item) in items.into_iter().enumerate() {
            match item["kind"].as_str() {
                Some("WorkerPool") => pools.push(item),
                Some("Role") => roles.push(item),
                Some(other) => self.ignore(other, 1),
                None => {
                    return Err(format!("item number {} has no kind", position + 1));
                }
            }
        }
        self.add_pools(pools)?;
        self.add_roles(roles)
    }
}

const NO_LISTS: &str = "none of the lists workerPools, roles and resources found";

impl Role {
    pub(super) fn body(&self) -> Value {
        json!({"description": self.description, "scopes": self.scopes})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Value {
        json!({"kind": "WorkerPool", "workerPoolId": "a/b", "providerId": "p", "owner": "o",
            "description": "d", "emailOnError": true, "config": {}})
    }

    fn role() -> Value {
        json!({"kind": "Role", "roleId": "r", "description": "", "scopes": ["s"]})
    }

    #[test]
    fn lists_by_name_and_lists_by_kind_are_the_same_fleet() {
        let by_name = json!({"about": "…", "workerPools": [pool()], "roles": [role()]});
        let hook = json!({"kind": "Hook", "hookId": "h"});
        let by_kind = json!({"managed": [".*"], "resources": [role(), hook, pool()]});
        let fleet = Fleet::parse(by_name).unwrap();
        assert_eq!((fleet.pools.len(), fleet.roles.len()), (1, 1));
        let ignored = BTreeMap::from([("Hook".to_owned(), 1)]);
        let read = Fleet::parse(by_kind).unwrap();
        assert_eq!((&read.pools, &read.roles), (&fleet.pools, &fleet.roles));
        assert_eq!(read.ignored, ignored);
        assert_eq!(Fleet::parse(json!([pool(), role()])).unwrap(), fleet);
    }

    #[test]
    fn errors_have_their_position() {
        let without_owner = json!({"workerPoolId": "a/b", "providerId": "p", "config": {}});
        for (document, error) in [
            (json!(3), NO_LISTS),
            (json!({}), NO_LISTS),
            (json!({"roles": 3}), "roles is not a list"),
            (
                json!({"workerPools": [without_owner]}),
                "pool number 1: missing field `owner`",
            ),
            (json!([role(), role()]), "role r is listed twice"),
            (json!([{}]), "item number 1 has no kind"),
        ] {
            assert_eq!(Fleet::parse(document).unwrap_err(), error);
        }
    }

    #[test]
    fn things_of_other_kinds_are_counted() {
        let document =
            json!({"roles": [role()], "clients": [{}, {}], "managed": ["Client=x"], "hooks": []});
        let fleet = Fleet::parse(document).unwrap();
        assert_eq!(fleet.ignored, BTreeMap::from([("clients".to_owned(), 2)]));
    }

    #[test]
    fn the_first_pool_of_a_server_is_not_imported() {
        let first = |owner: &str, provider: &str| {
            let mut first = pool();
            first["workerPoolId"] = json!(FIRST_POOL);
            first["owner"] = json!(owner);
            first["providerId"] = json!(provider);
            let mut fleet = Fleet::parse(json!([first, pool()])).unwrap();
            (fleet.remove_first_pool(), fleet.pools.len())
        };
        assert_eq!(first(FIRST_POOL_OWNER, LOCAL_PROVIDER), (true, 1));
        assert_eq!(first("me@example.com", LOCAL_PROVIDER), (false, 2));
        assert_eq!(first(FIRST_POOL_OWNER, "other"), (false, 2));
    }

    #[test]
    fn duplicate_scopes_are_imported_once() {
        let role = json!({"kind": "Role", "roleId": "r", "scopes": ["b", "a", "b"]});
        let fleet = Fleet::parse(json!([role])).unwrap();
        assert_eq!(fleet.roles["r"].scopes, ["b", "a"]);
    }

    #[test]
    fn a_pool_that_is_being_deleted_is_not_imported() {
        let mut pool = pool();
        pool["providerId"] = json!("null-provider");
        let mut fleet = Fleet::parse(json!([pool])).unwrap();
        fleet.remove_deleted_pools();
        assert!(fleet.pools.is_empty());
    }
}
