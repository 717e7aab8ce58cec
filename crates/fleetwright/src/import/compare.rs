//! Compares the source with the target semantically.
//!
//! Servers add defaults and ids of launch configs, and order lists differently; none of that is a
//! difference. Both sides are normalized, and diffs show the normalized form.

use rule_import::Pool;
use serde_json::Value;

use super::fleet::{Fleet, Role};
use crate::client::Call;
use crate::code::{Kind, gist_of_new};
use crate::output::pretty;

/// One item to create or to update.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) id: String,
    /// The normalized item on the target, if it exists.
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// A summary of the item.
    pub(super) gist: String,
    pub(super) call: Call,
}

/// All changes, roles first: pools may need scopes that roles grant.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) same: Counts,
    pub(super) only_on_target: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) pools: usize,
    pub(super) roles: usize,
}

impl Plan {
    pub(super) fn new(source: &Fleet, target: &Fleet) -> Self {
        let mut plan = Self::default();
        for (id, role) in &source.roles {
            let before = target.roles.get(id).map(Role::body);
            let is_same = plan.add(Kind::Role, id, before, role.body());
            plan.same.roles += usize::from(is_same);
        }
        for (id, pool) in &source.pools {
            let before = target.pools.get(id).map(Pool::body);
            let is_same = plan.add(Kind::WorkerPool, id.as_str(), before, pool.body());
            plan.same.pools += usize::from(is_same);
        }
        let (pools, roles) = (target.pools.keys(), target.roles.keys());
        plan.only_on_target = Counts {
            pools: pools.filter(|id| !source.pools.contains_key(*id)).count(),
            roles: roles.filter(|id| !source.roles.contains_key(*id)).count(),
        };
        plan
    }

    /// Whether it creates this pool.
    pub(super) fn creates_pool(&self, id: &str) -> bool {
        self.changes.iter().any(|change| {
            change.kind == Kind::WorkerPool && change.id == id && change.before.is_none()
        })
    }

    /// Adds a change, unless the items are equal. Returns whether they are.
    fn add(&mut self, kind: Kind, id: &str, before: Option<Value>, body: Value) -> bool {
        let before = before.map(|before| kind.normal(id, &before));
        let after = kind.normal(id, &body);
        if before.as_ref() == Some(&after) {
            return true;
        }
        let lines = |value: &Value| format!("{}\n", pretty(value));
        self.changes.push(Change {
            kind,
            id: id.to_owned(),
            before: before.as_ref().map(lines),
            after: lines(&after),
            gist: gist_of_new(kind, &body),
            call: match before {
                Some(_) => kind.update_call(id, body),
                None => kind.create_call(id, body),
            },
        });
        false
    }
}

impl Change {
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.noun(), self.id)
    }

    /// The title in JSON, where pools have their name of the API.
    pub(super) fn json_title(&self) -> String {
        let of_api = if self.kind == Kind::WorkerPool {
            "worker "
        } else {
            ""
        };
        format!("{of_api}{}", self.title())
    }
}

#[cfg(test)]
mod tests {
    use domain::launch_config::id_of;
    use serde_json::json;

    use super::*;

    fn pool(config: Value) -> Value {
        json!({"workerPoolId": "a/b", "providerId": "p", "owner": "o@example.com",
            "description": "d", "emailOnError": false, "config": config})
    }

    fn plan(source: Value, target: Value) -> Plan {
        Plan::new(
            &Fleet::parse(source).unwrap(),
            &Fleet::parse(target).unwrap(),
        )
    }

    fn pools(source: Value, target: Value) -> Plan {
        plan(
            json!({"workerPools": [pool(source)]}),
            json!({"workerPools": [pool(target)]}),
        )
    }

    #[test]
    fn defaults_added_by_servers_are_no_difference() {
        let source = json!({
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
        let target = json!({
            "launchConfigs": [
                {"zone": "y", "workerManager": {"capacityPerInstance": 1, "launchConfigId": id("y")}},
                {"zone": "x", "workerManager": {"launchConfigId": id("x")}},
            ],
            "lifecycle": {"reregistrationTimeout": 345_600, "queueInactivityTimeout": 7_200},
            "maxCapacity": 5.0,
        });
        let plan = pools(source, target);
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
        for (source, target) in [
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
            assert_eq!(pools(source, target).changes.len(), 1);
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
    fn roles_come_first_and_items_only_on_the_target_are_counted() {
        let source = json!({
            "roles": [{"roleId": "r", "scopes": []}], "workerPools": [pool(json!({}))],
        });
        let target = json!({"roles": [{"roleId": "other", "scopes": []}]});
        let plan = plan(source, target);
        let kinds: Vec<_> = plan.changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [Kind::Role, Kind::WorkerPool]);
        assert!(plan.changes.iter().all(|change| change.before.is_none()));
        assert_eq!(plan.only_on_target, Counts { pools: 0, roles: 1 });
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
        let invalid = json!({"launchConfigs": [3, {"zone": "x"}, {"zone": "x"}]});
        let plan = pools(invalid, json!({}));
        let after: Value = serde_json::from_str(&plan.changes[0].after).unwrap();
        assert_eq!(
            after["config"]["launchConfigs"].as_object().unwrap().len(),
            3
        );
    }
}
