//! What differs between the source and here, by meaning and not by text.
//!
//! A server fills in defaults and ids of launch configs and gives lists in its own order; none of
//! that is a difference. Both sides are brought into one normal form, which is also what a diff
//! shows.

use access::scope::ScopeSet;
use domain::id::PoolId;
use rule_import::Pool;
use serde_json::{Value, json};

use super::fleet::{Fleet, Role};
use crate::client::{AUTH, Call, WORKER_MANAGER};
use crate::normal_pool::normal_pool_body;
use crate::output::pretty;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Role,
    Pool,
}

/// One thing to create or to update.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// The normal form of what is here, if there is something.
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// What it is in a few words.
    pub(super) gist: String,
    pub(super) call: Call,
}

/// Everything to do, roles first: pools may need scopes that roles give.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) same: Counts,
    pub(super) only_here: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) pools: usize,
    pub(super) roles: usize,
}

impl Plan {
    pub(super) fn new(wanted: &Fleet, here: &Fleet) -> Self {
        let mut plan = Self::default();
        for (id, role) in &wanted.roles {
            let before = here.roles.get(id).map(normal_role);
            let call = |exists| {
                let (segments, body) = (["roles", id], role.body());
                match exists {
                    true => Call::post(AUTH, &segments, body).to(format!("update role {id}")),
                    false => Call::put(AUTH, &segments, body).to(format!("create role {id}")),
                }
            };
            plan.add(
                (Kind::Role, id),
                before,
                normal_role(role),
                gist_of_role(role),
                call,
            );
        }
        for (id, pool) in &wanted.pools {
            let before = here.pools.get(id).map(|pool| normal_pool(id, pool));
            let name = id.to_string();
            let call = |exists| {
                let (segments, body) = (["worker-pool", &name], pool.body());
                let call = match exists {
                    true => Call::post(WORKER_MANAGER, &segments, body),
                    false => Call::put(WORKER_MANAGER, &segments, body),
                };
                let verb = if exists { "update" } else { "create" };
                call.to(format!("{verb} worker pool {name}"))
            };
            plan.add(
                (Kind::Pool, &name),
                before,
                normal_pool(id, pool),
                gist_of_pool(pool),
                call,
            );
        }
        let pools_only_here = here
            .pools
            .keys()
            .filter(|id| !wanted.pools.contains_key(*id));
        let roles_only_here = here
            .roles
            .keys()
            .filter(|id| !wanted.roles.contains_key(*id));
        plan.only_here = Counts {
            pools: pools_only_here.count(),
            roles: roles_only_here.count(),
        };
        plan
    }

    fn add(
        &mut self,
        (kind, id): (Kind, &str),
        before: Option<Value>,
        after: Value,
        gist: String,
        call: impl FnOnce(bool) -> Call,
    ) {
        if before.as_ref() == Some(&after) {
            match kind {
                Kind::Role => self.same.roles += 1,
                Kind::Pool => self.same.pools += 1,
            }
            return;
        }
        let lines = |value: &Value| format!("{}\n", pretty(value));
        self.changes.push(Change {
            kind,
            id: id.to_owned(),
            before: before.as_ref().map(lines),
            after: lines(&after),
            gist,
            call: call(before.is_some()),
        });
    }
}

impl Change {
    pub(super) fn title(&self) -> String {
        match self.kind {
            Kind::Role => format!("role {}", self.id),
            Kind::Pool => format!("worker pool {}", self.id),
        }
    }
}

fn gist_of_role(role: &Role) -> String {
    counted(role.scopes.len(), "scope")
}

fn gist_of_pool(pool: &Pool) -> String {
    match pool.config.get("launchConfigs").and_then(Value::as_array) {
        None => pool.provider_id.clone(),
        Some(launch_configs) => format!(
            "{}, {}",
            pool.provider_id,
            counted(launch_configs.len(), "launch config")
        ),
    }
}

/// `1 scope`, `2 scopes`.
pub(super) fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

fn normal_role(role: &Role) -> Value {
    let scopes = ScopeSet::new(role.scopes.iter().cloned()).to_vec();
    json!({"description": role.description, "scopes": scopes})
}

fn normal_pool(id: &PoolId, pool: &Pool) -> Value {
    normal_pool_body(id, pool.body())
}

#[cfg(test)]
mod tests {
    use domain::launch_config::id_of;

    use super::*;

    fn pool(config: Value) -> Value {
        json!({"workerPoolId": "a/b", "providerId": "p", "owner": "o@example.com",
            "description": "d", "emailOnError": false, "config": config})
    }

    fn plan(wanted: Value, here: Value) -> Plan {
        Plan::new(&Fleet::parse(wanted).unwrap(), &Fleet::parse(here).unwrap())
    }

    fn pools(wanted: Value, here: Value) -> Plan {
        plan(
            json!({"workerPools": [pool(wanted)]}),
            json!({"workerPools": [pool(here)]}),
        )
    }

    #[test]
    fn what_a_server_adds_is_no_difference() {
        let wanted = json!({
            "maxCapacity": 5,
            "lifecycle": {},
            "launchConfigs": [{"zone": "x"}, {"zone": "y", "workerManager": {"capacityPerInstance": 1}}],
        });
        let id = |zone: &str| {
            let content = json!({ "zone": zone });
            let pool = "a/b".parse().unwrap();
            id_of(&pool, content.as_object().unwrap())
                .unwrap()
                .to_string()
        };
        let here = json!({
            "launchConfigs": [
                {"zone": "y", "workerManager": {"capacityPerInstance": 1, "launchConfigId": id("y")}},
                {"zone": "x", "workerManager": {"launchConfigId": id("x")}},
            ],
            "lifecycle": {"reregistrationTimeout": 345_600, "queueInactivityTimeout": 7_200},
            "maxCapacity": 5.0,
        });
        let plan = pools(wanted, here);
        assert!(plan.changes.is_empty(), "{:?}", plan.changes);
        assert_eq!(plan.same, Counts { pools: 1, roles: 0 });
    }

    #[test]
    fn no_launch_configs_and_an_empty_list_are_the_same() {
        assert!(
            pools(json!({"launchConfigs": []}), json!({}))
                .changes
                .is_empty()
        );
    }

    #[test]
    fn another_launch_config_weight_or_limit_is_a_difference() {
        let one =
            |steering: Value| json!({"launchConfigs": [{"zone": "x", "workerManager": steering}]});
        for (wanted, here) in [
            (json!({"maxCapacity": 1}), json!({"maxCapacity": 2})),
            (one(json!({"initialWeight": 0.5})), one(json!({}))),
            (
                one(json!({"launchConfigId": "p"})),
                one(json!({"launchConfigId": "q"})),
            ),
            (json!({"lifecycle": {}}), json!({})),
            (
                json!({"lifecycle": {"reregistrationTimeout": 3600}}),
                json!({"lifecycle": {}}),
            ),
        ] {
            assert_eq!(pools(wanted, here).changes.len(), 1);
        }
    }

    #[test]
    fn the_order_and_repetition_of_scopes_is_no_difference() {
        let role = |scopes: Value| json!({"roles": [{"roleId": "r", "scopes": scopes}]});
        assert!(
            plan(role(json!(["b", "a", "b"])), role(json!(["a", "b"])))
                .changes
                .is_empty()
        );
        assert_eq!(
            plan(role(json!(["a"])), role(json!(["a", "b"])))
                .changes
                .len(),
            1
        );
    }

    #[test]
    fn roles_come_first_and_what_is_only_here_is_counted() {
        let wanted = json!({
            "roles": [{"roleId": "r", "scopes": []}], "workerPools": [pool(json!({}))],
        });
        let here = json!({"roles": [{"roleId": "other", "scopes": []}]});
        let plan = plan(wanted, here);
        let kinds: Vec<_> = plan.changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [Kind::Role, Kind::Pool]);
        assert!(plan.changes.iter().all(|change| change.before.is_none()));
        assert_eq!(plan.only_here, Counts { pools: 0, roles: 1 });
    }

    #[test]
    fn an_update_replaces_by_post_and_a_new_one_is_put() {
        let update = pools(json!({"maxCapacity": 1}), json!({}));
        assert_eq!(update.changes[0].call.api.method, "POST");
        let create = plan(
            json!({"workerPools": [pool(json!({}))]}),
            json!({"roles": []}),
        );
        assert_eq!(create.changes[0].call.api.method, "PUT");
        assert_eq!(
            create.changes[0].call.api.resource,
            "/api/worker-manager/v1/worker-pool/a%2Fb"
        );
    }

    #[test]
    fn launch_configs_that_make_no_sense_do_not_disappear() {
        let strange = json!({"launchConfigs": [3, {"zone": "x"}, {"zone": "x"}]});
        let plan = pools(strange, json!({}));
        let after: Value = serde_json::from_str(&plan.changes[0].after).unwrap();
        assert_eq!(
            after["config"]["launchConfigs"].as_object().unwrap().len(),
            3
        );
    }
}
