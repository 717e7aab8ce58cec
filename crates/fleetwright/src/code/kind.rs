//! The kinds of items that files define: their names, fields and API calls.

use domain::configuration::Configuration;
use domain::id::{BudgetId, ClientId, ConfigurationId, ImageName, OverrideId, PoolId, RoleId};
use domain::image_reference::template_of;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use access::scope::ScopeSet;

use crate::client::{AUTH, Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::normal_pool::normal_pool_body;

/// The prefix of clients that the server's configuration defines.
pub(super) const STATIC_CLIENT: &str = "static/";

/// In the order of execution: pools may need scopes that roles grant, and images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Role,
    Client,
    Image,
    WorkerConfiguration,
    WorkerPool,
    Override,
    Budget,
}

const IMAGE_KEYS: &[&str] = &[
    "description",
    "owner",
    "build",
    "environment",
    "secrets",
    "timeLimitSeconds",
    "formats",
    "labels",
    "rebuildAgeSeconds",
    "keep",
    "uploads",
    "validation",
    "canary",
    "paused",
    "usableBy",
];

/// The names and fields of a kind.
struct Form {
    list: &'static str,
    id: &'static str,
    noun: &'static str,
    list_command: &'static str,
    writable: &'static [&'static str],
    /// The schema of requests.
    schema: &'static str,
}

const OVERRIDE_KEYS: &[&str] = &[
    "workerPoolId",
    "launchConfigId",
    "workerConfigurationId",
    "providerId",
    "region",
    "pause",
    "minCapacity",
    "maxCapacity",
    "reason",
    "until",
];

const BUDGET_KEYS: &[&str] = &[
    "workerPools",
    "owner",
    "providerId",
    "per",
    "limit",
    "currency",
    "warnAtPercent",
    "lowerAtPercent",
    "lowerToPercent",
    "description",
];

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Role,
        Self::Client,
        Self::Image,
        Self::WorkerConfiguration,
        Self::WorkerPool,
        Self::Override,
        Self::Budget,
    ];

    fn form(self) -> Form {
        match self {
            Self::Role => Form {
                list: "roles",
                id: "roleId",
                noun: "role",
                list_command: "fleetwright role list",
                writable: &["description", "scopes"],
                schema: "auth/v1/create-role-request.json",
            },
            Self::Client => Form {
                list: "clients",
                id: "clientId",
                noun: "client",
                list_command: "fleetwright client list",
                writable: &["description", "scopes", "expires", "deleteOnExpiration"],
                schema: "auth/v1/create-client-request.json",
            },
            Self::Image => Form {
                list: "images",
                id: "imageId",
                noun: "image",
                list_command: "fleetwright image list",
                writable: IMAGE_KEYS,
                schema: "fleetwright/v1/image-request.json",
            },
            Self::WorkerConfiguration => Form {
                list: "workerConfigurations",
                id: "workerConfigurationId",
                noun: "worker configuration",
                list_command: "fleetwright rules list",
                writable: &[
                    "description",
                    "workerTypes",
                    "sets",
                    "rules",
                    "launchConfigIds",
                ],
                schema: "worker-manager/v1/worker-configuration-request.json",
            },
            Self::WorkerPool => Form {
                list: "workerPools",
                id: "workerPoolId",
                noun: "pool",
                list_command: "fleetwright pool list",
                writable: &[
                    "description",
                    "owner",
                    "emailOnError",
                    "providerId",
                    "config",
                ],
                schema: "worker-manager/v1/create-worker-pool-request.json",
            },
            Self::Override => Form {
                list: "overrides",
                id: "overrideId",
                noun: "override",
                list_command: "fleetwright override list",
                writable: OVERRIDE_KEYS,
                schema: "worker-manager/v1/set-override-request.json",
            },
            Self::Budget => Form {
                list: "budgets",
                id: "budgetId",
                noun: "budget",
                list_command: "fleetwright budget list",
                writable: BUDGET_KEYS,
                schema: "worker-manager/v1/set-budget-request.json",
            },
        }
    }

    pub(super) fn list_key(self) -> &'static str {
        self.form().list
    }

    pub(super) fn of_list_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.list_key() == key)
    }

    pub(super) fn id_key(self) -> &'static str {
        self.form().id
    }

    pub(crate) fn noun(self) -> &'static str {
        self.form().noun
    }

    /// The keys beside the id.
    pub(crate) fn writable(self) -> &'static [&'static str] {
        self.form().writable
    }

    /// Whether the server counts the edits of such an item and keeps its versions.
    pub(super) fn has_versions(self) -> bool {
        match self {
            Self::Image | Self::WorkerConfiguration => true,
            Self::Role | Self::Client | Self::WorkerPool | Self::Override | Self::Budget => false,
        }
    }

    pub(super) fn schema(self) -> &'static str {
        self.form().schema
    }

    /// The defaults of omitted keys.
    pub(crate) fn defaults(self) -> Value {
        match self {
            Self::Role | Self::Client => json!({"description": "", "scopes": []}),
            Self::Image => json!({}),
            Self::WorkerConfiguration => json!({"description": ""}),
            Self::WorkerPool => json!({"description": "", "emailOnError": false, "config": {}}),
            Self::Override => json!({"pause": false}),
            Self::Budget => json!({"currency": "USD", "warnAtPercent": 80, "lowerAtPercent": 90,
                "lowerToPercent": 50, "description": ""}),
        }
    }

    pub(super) fn check_id(self, id: &str) -> Result<(), String> {
        let checked = match self {
            Self::Role => id.parse::<RoleId>().map(drop),
            Self::Client if id.starts_with(STATIC_CLIENT) => {
                return Err(format!(
                    "clients whose names begin with {STATIC_CLIENT} are defined in the server's \
                     configuration"
                ));
            }
            Self::Client => id.parse::<ClientId>().map(drop),
            Self::Image => id.parse::<ImageName>().map(drop),
            Self::WorkerConfiguration => id.parse::<ConfigurationId>().map(drop),
            Self::WorkerPool => id.parse::<PoolId>().map(drop),
            Self::Override => id.parse::<OverrideId>().map(drop),
            Self::Budget => id.parse::<BudgetId>().map(drop),
        };
        checked.map_err(|bad| bad.to_string())
    }

    /// The writable fields of a reply.
    pub(super) fn content_of(self, reply: &Value) -> Value {
        let fields = self.writable().iter();
        fields
            .filter_map(|key| Some(((*key).to_owned(), reply.get(*key)?.clone())))
            .collect()
    }

    /// The normalized content: independent of defaults and of the order of keys.
    pub(crate) fn normal(self, id: &str, content: &Value) -> Value {
        let mut normal = content.clone();
        match self {
            Self::Role => normal["scopes"] = scopes(content),
            Self::Client => {
                normal["scopes"] = scopes(content);
                normal_moment(&mut normal, "expires");
            }
            Self::Override => normal_moment(&mut normal, "until"),
            // The server replies with a number of millionths: 240 and 240.0 are equal.
            Self::Budget => normal["limit"] = json!(content["limit"].as_f64()),
            // Its document is kept as it was written.
            Self::Image => {}
            Self::WorkerConfiguration => {
                if let Ok(configuration) = Configuration::parse(content) {
                    normal = configuration.to_document();
                }
            }
            Self::WorkerPool => {
                restore_references(&mut normal);
                if let Ok(id) = id.parse::<PoolId>() {
                    normal = normal_pool_body(&id, normal);
                }
            }
        }
        normal
    }

    pub(super) fn list_call(self) -> Call {
        let call = match self {
            Self::Role => Call::get(AUTH, &["roles2", ""]),
            Self::Client => Call::get(AUTH, &["clients", ""]),
            Self::Image => Call::get(FLEETWRIGHT, &["images"]),
            Self::WorkerConfiguration => Call::get(WORKER_MANAGER, &["worker-configurations"]),
            Self::WorkerPool => Call::get(WORKER_MANAGER, &["worker-pools"]),
            Self::Override => Call::get(WORKER_MANAGER, &["overrides"]),
            Self::Budget => Call::get(WORKER_MANAGER, &["budgets"]),
        };
        call.to(format!("read the {}s", self.noun()))
    }

    /// The call that reads an item. The verbs of these calls are for messages.
    pub(crate) fn read_call(self, verb: &str, id: &str) -> Call {
        let (service, segments) = self.address(id);
        self.about_existing(Call::get(service, &segments), verb, id)
    }

    pub(crate) fn create_call(self, id: &str, body: Value) -> Call {
        let (service, segments) = self.address(id);
        Call::put(service, &segments, body).to(format!("create {} {id}", self.noun()))
    }

    pub(crate) fn update_call(self, id: &str, body: Value) -> Call {
        let (service, segments) = self.address(id);
        let call = match self {
            // Setting one again updates it.
            Self::Override | Self::Budget => Call::put(service, &segments, body),
            Self::Role
            | Self::Client
            | Self::Image
            | Self::WorkerConfiguration
            | Self::WorkerPool => Call::post(service, &segments, body),
        };
        self.about_existing(call, "update", id)
    }

    pub(crate) fn remove_call(self, verb: &str, id: &str) -> Call {
        let (service, segments) = self.address(id);
        self.about_existing(Call::delete(service, &segments), verb, id)
    }

    fn about_existing(self, call: Call, verb: &str, id: &str) -> Call {
        call.to(format!("{verb} {} {id}", self.noun()))
            .list_command(self.form().list_command)
    }

    fn address(self, id: &str) -> (&'static str, [&str; 2]) {
        match self {
            Self::Role => (AUTH, ["roles", id]),
            Self::Client => (AUTH, ["clients", id]),
            Self::Image => (FLEETWRIGHT, ["image", id]),
            Self::WorkerConfiguration => (WORKER_MANAGER, ["worker-configuration", id]),
            Self::WorkerPool => (WORKER_MANAGER, ["worker-pool", id]),
            Self::Override => (WORKER_MANAGER, ["override", id]),
            Self::Budget => (WORKER_MANAGER, ["budget", id]),
        }
    }
}

/// Puts references to images back where the server put the ids of uploads. Launch configs of
/// canaries are no difference.
fn restore_references(pool: &mut Value) {
    let Some(Value::Array(listed)) = pool.pointer_mut("/config/launchConfigs") else {
        return;
    };
    let restored = listed.iter().filter_map(|config| {
        let known = config.as_object().map(template_of);
        match known {
            Some(Ok(template)) => template.map(Value::Object),
            // The server refuses it with its reason.
            Some(Err(_)) | None => Some(config.clone()),
        }
    });
    *listed = restored.collect();
}

fn normal_moment(content: &mut Value, key: &str) {
    let moment = content[key]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    if let Some(moment) = moment {
        content[key] = json!(moment.to_string());
    }
}

fn scopes(content: &Value) -> Value {
    let scopes = content["scopes"].as_array().into_iter().flatten();
    let scopes = scopes.filter_map(Value::as_str).map(str::to_owned);
    json!(ScopeSet::new(scopes).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_defaults_are_no_difference() {
        for (kind, server_state, stored) in [
            (
                Kind::Role,
                json!({"description": "", "scopes": ["b", "a", "a:*", "a:b"]}),
                json!({"description": "", "scopes": ["a", "a:*", "b"]}),
            ),
            (
                Kind::Client,
                json!({"scopes": [], "expires": "2030-01-01T01:00:00+01:00"}),
                json!({"scopes": [], "expires": "2030-01-01T00:00:00.000Z"}),
            ),
            (
                Kind::WorkerPool,
                json!({"config": {"launchConfigs": [{"image": {"$image": "linux"}}]}}),
                json!({"config": {"launchConfigs": [
                    {"image": "disk-1", "workerManager": {"launchConfigId": "lc-1", "images": [
                        {"imageId": "linux", "at": "/image", "build": 1}]}},
                    {"image": "disk-2", "workerManager": {"launchConfigId": "lc-2", "images": [
                        {"imageId": "linux", "at": "/image", "build": 2}],
                        "canary": {"imageId": "linux", "of": "lc-1", "share": 0.1}}},
                ]}}),
            ),
            (
                Kind::WorkerPool,
                json!({"config": {"lifecycle": {}}}),
                json!({"config": {"lifecycle": {"reregistrationTimeout": 345_600}}}),
            ),
            (
                Kind::WorkerConfiguration,
                json!({"workerTypes": ["worker-manager/a"], "rules": [{"ruleId": "r", "values": {}}]}),
                json!({"description": "", "workerTypes": ["a"], "rules": [
                    {"ruleId": "r", "description": "", "conditions": null, "values": {}}]}),
            ),
        ] {
            assert_eq!(
                kind.normal("a/b", &server_state),
                kind.normal("a/b", &stored)
            );
        }
    }

    #[test]
    fn only_writable_fields_of_a_reply_are_kept() {
        let reply = json!({"roleId": "r", "scopes": [], "created": "x", "expandedScopes": []});
        assert_eq!(Kind::Role.content_of(&reply), json!({"scopes": []}));
    }
}
