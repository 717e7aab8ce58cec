//! What can be written as code, and how each is called, read, written and removed.

use domain::configuration::Configuration;
use domain::id::{ClientId, ConfigurationId, OverrideId, PoolId, RoleId};
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use access::scope::ScopeSet;

use crate::client::{AUTH, Call, WORKER_MANAGER};
use crate::normal_pool::normal_pool_body;

/// Clients of this form are those of the server's configuration.
pub(super) const STATIC_CLIENT: &str = "static/";

/// In the order in which they are carried out: pools may need scopes that roles give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Role,
    Client,
    WorkerConfiguration,
    WorkerPool,
    Override,
}

/// How a kind of thing is named and what it consists of.
struct Form {
    list: &'static str,
    id: &'static str,
    noun: &'static str,
    writable: &'static [&'static str],
    /// What requests must fit.
    schema: &'static str,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Role,
        Self::Client,
        Self::WorkerConfiguration,
        Self::WorkerPool,
        Self::Override,
    ];

    fn form(self) -> Form {
        match self {
            Self::Role => Form {
                list: "roles",
                id: "roleId",
                noun: "role",
                writable: &["description", "scopes"],
                schema: "auth/v1/create-role-request.json",
            },
            Self::Client => Form {
                list: "clients",
                id: "clientId",
                noun: "client",
                writable: &["description", "scopes", "expires", "deleteOnExpiration"],
                schema: "auth/v1/create-client-request.json",
            },
            Self::WorkerConfiguration => Form {
                list: "workerConfigurations",
                id: "workerConfigurationId",
                noun: "worker configuration",
                writable: &["description", "workerTypes", "rules", "launchConfigIds"],
                schema: "worker-manager/v1/worker-configuration-request.json",
            },
            Self::WorkerPool => Form {
                list: "workerPools",
                id: "workerPoolId",
                noun: "worker pool",
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
                writable: &[
                    "workerPoolId",
                    "launchConfigId",
                    "providerId",
                    "region",
                    "pause",
                    "minCapacity",
                    "maxCapacity",
                    "reason",
                    "until",
                ],
                schema: "worker-manager/v1/set-override-request.json",
            },
        }
    }

    /// Under which key files list them.
    pub(super) fn list_key(self) -> &'static str {
        self.form().list
    }

    pub(super) fn of_list_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.list_key() == key)
    }

    /// The key that holds the name of one.
    pub(super) fn id_key(self) -> &'static str {
        self.form().id
    }

    pub(super) fn noun(self) -> &'static str {
        self.form().noun
    }

    /// The keys beside the name.
    pub(super) fn writable(self) -> &'static [&'static str] {
        self.form().writable
    }

    pub(super) fn schema(self) -> &'static str {
        self.form().schema
    }

    /// What is meant if a key is not there.
    pub(super) fn defaults(self) -> Value {
        match self {
            Self::Role | Self::Client => json!({"description": "", "scopes": []}),
            Self::WorkerConfiguration => json!({"description": ""}),
            Self::WorkerPool => json!({"description": "", "emailOnError": false, "config": {}}),
            Self::Override => json!({"pause": false}),
        }
    }

    pub(super) fn check_id(self, id: &str) -> Result<(), String> {
        let checked = match self {
            Self::Role => id.parse::<RoleId>().map(drop),
            Self::Client if id.starts_with(STATIC_CLIENT) => {
                return Err(format!(
                    "clients whose names begin with {STATIC_CLIENT} are made by the server's configuration"
                ));
            }
            Self::Client => id.parse::<ClientId>().map(drop),
            Self::WorkerConfiguration => id.parse::<ConfigurationId>().map(drop),
            Self::WorkerPool => id.parse::<PoolId>().map(drop),
            Self::Override => id.parse::<OverrideId>().map(drop),
        };
        checked.map_err(|bad| bad.to_string())
    }

    /// What of a reply can be written again.
    pub(super) fn content_of(self, reply: &Value) -> Value {
        let fields = self.writable().iter();
        fields
            .filter_map(|key| Some(((*key).to_owned(), reply.get(*key)?.clone())))
            .collect()
    }

    /// A form in which equal things are equal, whatever servers and authors add or reorder.
    pub(super) fn normal(self, id: &str, content: &Value) -> Value {
        let mut normal = content.clone();
        match self {
            Self::Role => normal["scopes"] = scopes(content),
            Self::Client => {
                normal["scopes"] = scopes(content);
                normal_moment(&mut normal, "expires");
            }
            Self::Override => normal_moment(&mut normal, "until"),
            Self::WorkerConfiguration => {
                if let Ok(configuration) = Configuration::parse(content) {
                    normal = configuration.to_document();
                }
            }
            Self::WorkerPool => {
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
            Self::WorkerConfiguration => Call::get(WORKER_MANAGER, &["worker-configurations"]),
            Self::WorkerPool => Call::get(WORKER_MANAGER, &["worker-pools"]),
            Self::Override => Call::get(WORKER_MANAGER, &["overrides"]),
        };
        call.to(format!("read the {}s", self.noun()))
    }

    pub(super) fn read_call(self, id: &str) -> Call {
        let (service, segments) = self.address(id);
        Call::get(service, &segments).to(format!("read {} {id}", self.noun()))
    }

    pub(super) fn create_call(self, id: &str, body: Value) -> Call {
        let (service, segments) = self.address(id);
        Call::put(service, &segments, body).to(format!("create {} {id}", self.noun()))
    }

    pub(super) fn update_call(self, id: &str, body: Value) -> Call {
        let (service, segments) = self.address(id);
        let call = match self {
            // To set one again is to change it.
            Self::Override => Call::put(service, &segments, body),
            Self::Role | Self::Client | Self::WorkerConfiguration | Self::WorkerPool => {
                Call::post(service, &segments, body)
            }
        };
        call.to(format!("update {} {id}", self.noun()))
    }

    pub(super) fn remove_call(self, id: &str) -> Call {
        let (service, segments) = self.address(id);
        Call::delete(service, &segments).to(format!("remove {} {id}", self.noun()))
    }

    fn address(self, id: &str) -> (&'static str, [&str; 2]) {
        match self {
            Self::Role => (AUTH, ["roles", id]),
            Self::Client => (AUTH, ["clients", id]),
            Self::WorkerConfiguration => (WORKER_MANAGER, ["worker-configuration", id]),
            Self::WorkerPool => (WORKER_MANAGER, ["worker-pool", id]),
            Self::Override => (WORKER_MANAGER, ["override", id]),
        }
    }
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
    fn what_servers_reorder_and_add_is_no_difference() {
        for (kind, here, there) in [
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
            assert_eq!(kind.normal("a/b", &here), kind.normal("a/b", &there));
        }
    }

    #[test]
    fn only_what_can_be_written_is_kept_of_a_reply() {
        let reply = json!({"roleId": "r", "scopes": [], "created": "x", "expandedScopes": []});
        assert_eq!(Kind::Role.content_of(&reply), json!({"scopes": []}));
    }
}
