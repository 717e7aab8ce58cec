//! Ids. Each is parsed once, at the edge, and no two kinds share a type. Clones share the text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use contract::patterns;

/// The text does not match the pattern of its kind of id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}: it must match {pattern}")]
pub struct BadId {
    pub kind: &'static str,
    pub text: String,
    pub pattern: &'static str,
}

/// The text is not one of the names of its kind.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is {what}")]
pub struct BadName {
    pub text: String,
    /// Like `not a priority`.
    pub what: &'static str,
}

/// Makes a type in JSON the text that it prints and parses.
macro_rules! text_in_json {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Gives the variants of an enum their names: `ALL`, `as_str`, and how they are printed and parsed.
macro_rules! names {
    ($name:ident, $not_one:literal, $($variant:ident = $text:literal),+ $(,)?) => {
        impl $name {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::id::BadName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let named = Self::ALL.into_iter().find(|name| name.as_str() == text);
                let text = text.to_owned();
                named.ok_or($crate::id::BadName { text, what: $not_one })
            }
        }
    };
}

pub(crate) use {names, text_in_json};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident: $kind:literal, $pattern:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                if patterns::matches($pattern, text) {
                    Ok(Self(text.into()))
                } else {
                    Err(BadId { kind: $kind, text: text.to_owned(), pattern: $pattern })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_in_json!($name);
    )+};
}

ids! {
    /// A worker pool: `<provisioner>/<worker type>`. Also the name of its task queue (RFC 145).
    PoolId: "worker pool id", patterns::WORKER_POOL_ID;
    /// A configured provider; several may be of one kind.
    ProviderId: "provider id", patterns::PROVIDER_ID;
    /// The location of a worker: a region, a zone, a datacentre.
    WorkerGroup: "worker group", patterns::GENERIC_ID;
    /// A worker within its group.
    WorkerId: "worker id", patterns::GENERIC_ID;
    /// A launch config within its pool.
    LaunchConfigId: "launch config id", patterns::PROVIDER_ID;
    /// A worker configuration: a set of rules from which pools are made.
    ConfigurationId: "worker configuration id", patterns::CONFIGURATION_ID;
    /// An override.
    OverrideId: "override id", patterns::OVERRIDE_ID;
    /// A budget of money.
    BudgetId: "budget id", patterns::BUDGET_ID;
    /// A relay of a datacentre.
    RelayId: "relay id", patterns::GENERIC_ID;
    /// A configured service that plans pools, for the strategy `external`.
    StrategyServiceId: "strategy service name", patterns::GENERIC_ID;
    /// An image, which builders build and machines start from.
    ImageName: "name of an image", patterns::IMAGE_NAME;
    /// A launch: used by us, by the cloud, and on the machines that it made.
    LaunchToken: "launch token", patterns::SLUGID;
    /// A task.
    TaskId: "task id", patterns::SLUGID;
    /// A group of tasks: by default, the id of its first task.
    TaskGroupId: "task group id", patterns::SLUGID;
    /// The scheduler that is responsible for a group of tasks.
    SchedulerId: "scheduler id", patterns::GENERIC_ID;
    /// The project that a task belongs to.
    ProjectId: "project id", patterns::PROJECT_ID;
    /// A reported error.
    ErrorId: "error id", patterns::SLUGID;
    /// A client, which can sign requests.
    ClientId: "client id", patterns::CLIENT_ID;
    /// A role; `assume:<roleId>` grants it.
    RoleId: "role id", patterns::ROLE_ID;
}

impl PoolId {
    /// The two parts, which the queue once called provisioner and worker type.
    pub fn parts(&self) -> (&str, &str) {
        self.0
            .split_once('/')
            .expect("the pattern demands one slash")
    }
}

impl ProviderId {
    /// The built-in provider of pools that are being removed. It does nothing.
    pub const NULL: &'static str = "null-provider";

    pub fn null() -> Self {
        Self(Self::NULL.into())
    }

    pub fn is_null(&self) -> bool {
        *self.0 == *Self::NULL
    }
}

/// Identifies a worker: its pool, group and id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey {
    pub pool_id: PoolId,
    pub group: WorkerGroup,
    pub id: WorkerId,
}

impl WorkerKey {
    pub fn parse(pool_id: PoolId, group: &str, id: &str) -> Result<Self, BadId> {
        let (group, id) = (group.parse()?, id.parse()?);
        Ok(Self { pool_id, group, id })
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pool_id, self.group, self.id)
    }
}

impl FromStr for WorkerKey {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let parse = || {
            let (rest, id) = text.rsplit_once('/')?;
            let (pool_id, group) = rest.rsplit_once('/')?;
            Some(Self {
                pool_id: pool_id.parse().ok()?,
                group: group.parse().ok()?,
                id: id.parse().ok()?,
            })
        };
        parse().ok_or_else(|| BadName {
            text: text.to_owned(),
            what: "not the key of a worker",
        })
    }
}

text_in_json!(WorkerKey);

/// An offering: launch configs of all pools with the same provider and place share it.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct OfferingId(String);

impl OfferingId {
    pub fn new(provider: &ProviderId, place: &str) -> Self {
        Self(format!("{provider} {place}"))
    }

    /// Whether the memory of this offering, or what shadows learned of it, has this id.
    pub fn is_recorded_as(&self, id: &Self) -> bool {
        self == id || self.for_shadows() == *id
    }

    /// The name under which shadows remember it: pools that decide by memory do not see this. No
    /// provider has a `/` in its name.
    pub fn for_shadows(&self) -> Self {
        Self(format!("shadow/{self}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OfferingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pool_id_has_two_halves() {
        let id: PoolId = "proj-x/ci-linux".parse().unwrap();
        assert_eq!(id.parts(), ("proj-x", "ci-linux"));
    }

    #[test]
    fn a_pool_id_that_is_not_two_slugs_is_refused() {
        for text in [
            "", "a", "a/", "/a", "a/b/c", "a/B", "a/b-", "a b/c", "a/b\n",
        ] {
            let refused = text.parse::<PoolId>().unwrap_err();
            assert_eq!(
                (refused.kind, refused.text.as_str()),
                ("worker pool id", text)
            );
        }
    }

    #[test]
    fn an_id_of_38_characters_is_long_enough_and_39_too_long() {
        assert!("x".repeat(38).parse::<WorkerId>().is_ok());
        assert!("x".repeat(39).parse::<WorkerId>().is_err());
    }

    proptest! {
        #[test]
        fn printing_and_parsing_ids_agree(text in "[a-zA-Z0-9-_]{1,38}/[a-z][a-z0-9]{0,37}") {
            prop_assert_eq!(text.parse::<PoolId>().unwrap().to_string(), text);
        }

        #[test]
        fn no_text_makes_parsing_panic(text in ".*") {
            let _ = text.parse::<PoolId>();
            let _ = text.parse::<WorkerId>();
            let _ = text.parse::<RoleId>();
        }
    }
}
