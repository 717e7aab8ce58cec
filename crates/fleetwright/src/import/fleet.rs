//! What is brought over: worker pools and roles, as a source gives them.

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
    /// How many things of other kinds the source has, by kind.
    pub(super) ignored: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Role {
    pub(super) description: String,
    pub(super) scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRole {
    role_id: String,
    #[serde(default)]
    description: String,
    scopes: Vec<String>,
}

impl Fleet {
    /// Reads a document: lists by name, or one list of items that each say their kind. Items of
    /// other kinds (hooks, secrets, clients) are not ours to bring over.
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
                .map_err(|problem| format!("worker pool number {}: {problem}", position + 1))?;
            if self.pools.insert(id.clone(), pool).is_some() {
                return Err(format!("worker pool {id} is there twice"));
            }
        }
        Ok(())
    }

    pub(super) fn add_roles(&mut self, items: Vec<Value>) -> Result<(), String> {
        for (position, item) in items.into_iter().enumerate() {
            let wire: WireRole = serde_json::from_value(item)
                .map_err(|problem| format!("role number {}: {problem}", position + 1))?;
            let mut seen = BTreeSet::new();
            let mut scopes = wire.scopes;
            // Servers refuse a scope that is there twice, and it means nothing.
            scopes.retain(|scope| seen.insert(scope.clone()));
            let role = Role {
                description: wire.description,
                scopes,
            };
            if self.roles.insert(wire.role_id.clone(), role).is_some() {
                return Err(format!("role {} is there twice", wire.role_id));
            }
        }
        Ok(())
    }

    /// A pool that the source is deleting does not come over.
    pub(super) fn forget_deleted_pools(&mut self) {
        self.pools.retain(|_, pool| !pool.is_being_deleted());
    }

    /// The pool that `up` makes for itself does not come over: each server has its own.
    pub(super) fn forget_first_pool(&mut self) -> bool {
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
                    return Err(format!(
                        "item number {} does not say its kind",
                        position + 1
                    ));
                }
            }
        }
        self.add_pools(pools)?;
        self.add_roles(roles)
    }
}

const NO_LISTS: &str = "there is neither a list workerPools nor roles nor resources in it";

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
    fn what_is_wrong_is_named_with_its_place() {
        let without_owner = json!({"workerPoolId": "a/b", "providerId": "p", "config": {}});
        for (document, problem) in [
            (json!(3), NO_LISTS),
            (json!({}), NO_LISTS),
            (json!({"roles": 3}), "roles is not a list"),
            (
                json!({"workerPools": [without_owner]}),
                "worker pool number 1: missing field `owner`",
            ),
            (json!([role(), role()]), "role r is there twice"),
            (json!([{}]), "item number 1 does not say its kind"),
        ] {
            assert_eq!(Fleet::parse(document).unwrap_err(), problem);
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
    fn the_first_pool_of_a_server_does_not_come_over() {
        let first = |owner: &str, provider: &str| {
            let mut first = pool();
            first["workerPoolId"] = json!(FIRST_POOL);
            first["owner"] = json!(owner);
            first["providerId"] = json!(provider);
            let mut fleet = Fleet::parse(json!([first, pool()])).unwrap();
            (fleet.forget_first_pool(), fleet.pools.len())
        };
        assert_eq!(first(FIRST_POOL_OWNER, LOCAL_PROVIDER), (true, 1));
        assert_eq!(first("me@example.com", LOCAL_PROVIDER), (false, 2));
        assert_eq!(first(FIRST_POOL_OWNER, "other"), (false, 2));
    }

    #[test]
    fn a_scope_that_is_there_twice_comes_over_once() {
        let role = json!({"kind": "Role", "roleId": "r", "scopes": ["b", "a", "b"]});
        let fleet = Fleet::parse(json!([role])).unwrap();
        assert_eq!(fleet.roles["r"].scopes, ["b", "a"]);
    }

    #[test]
    fn a_pool_that_is_being_deleted_does_not_come_over() {
        let mut pool = pool();
        pool["providerId"] = json!("null-provider");
        let mut fleet = Fleet::parse(json!([pool])).unwrap();
        fleet.forget_deleted_pools();
        assert!(fleet.pools.is_empty());
    }
}
