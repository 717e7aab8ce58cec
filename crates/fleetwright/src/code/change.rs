//! Computes the changes from the definitions and the state of the server.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::{ValueChange, value_changes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definitions::{Definitions, Item, worker_types};
use super::effects;
use super::kind::{Kind, STATIC_CLIENT};
use super::server::{ServerItem, ServerState};

/// The provider of pools that are being deleted.
pub(super) const NULL_PROVIDER: &str = "null-provider";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    Create,
    Update,
    Remove,
}

/// One planned change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) action: Action,
    /// The file that defines the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// The version of the worker configuration that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<i64>,
    /// The content that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Value>,
    /// The content to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Value>,
    /// The server's preview of the effects of a worker configuration.
    #[serde(rename = "foreseen", default, skip_serializing_if = "Option::is_none")]
    pub(super) effects: Option<Value>,
    /// The pools created by hand that a worker configuration takes over, with the content read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) adopted: BTreeMap<String, Value>,
}

/// The results of a plan's changes that later changes of the same plan need.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The pools that worker configurations give up.
    pub(super) freed: BTreeSet<String>,
    /// The images that are created.
    pub(super) images: BTreeSet<String>,
}

impl Earlier {
    /// The errors for images of a server's preview that neither exist nor will be created.
    pub(super) fn image_errors(&self, preview: &Value) -> Vec<String> {
        let missing = preview["missingImages"].as_array().into_iter().flatten();
        missing
            .filter_map(Value::as_str)
            .filter(|image| !self.images.contains(*image))
            .map(|image| {
                format!(
                    "image {image} does not exist: create it first, add it to the files, or \
                     correct the name"
                )
            })
            .collect()
    }
}

/// The changes to make, and the obstacles.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// The numbers of items without a difference.
    pub(super) same: BTreeMap<Kind, usize>,
    /// Conflicts with the state of the server.
    pub(super) conflicts: Vec<String>,
    /// Errors in definitions.
    pub(super) errors: Vec<String>,
    /// Probably misspelt parts, which are not refused.
    pub(super) warnings: Vec<String>,
    /// The launch configs that the server would create for pools defined by hand.
    pub(super) made: BTreeMap<String, BTreeSet<String>>,
}

impl Change {
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.noun(), self.id)
    }

    /// The file that defines the item, or the item's title.
    pub(super) fn origin(&self) -> String {
        self.place.clone().unwrap_or_else(|| self.title())
    }

    /// The values that differ between the old and the new content.
    pub(super) fn values(&self) -> Vec<ValueChange> {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return Vec::new();
        };
        let before = self.kind.normal(&self.id, before);
        let after = self.kind.normal(&self.id, after);
        value_changes(&before, &after)
    }

    /// The change from the stored to the defined content of an item.
    pub(super) fn from(
        key: &(Kind, String),
        stored: Option<&ServerItem>,
        item: Option<&Item>,
    ) -> Self {
        Self {
            kind: key.0,
            id: key.1.clone(),
            action: match (stored, item) {
                (_, None) => Action::Remove,
                (Some(_), Some(_)) => Action::Update,
                (None, Some(_)) => Action::Create,
            },
            place: item.map(|item| item.place.clone()),
            version: stored.and_then(|stored| stored.version),
            before: stored.map(|stored| stored.content.clone()),
            after: item.map(|item| item.content.clone()),
            effects: None,
            adopted: BTreeMap::new(),
        }
    }

    /// Whether the stored item is the one that was read.
    pub(super) fn has_read(&self, stored: Option<&ServerItem>) -> bool {
        match (self.kind, self.version, stored) {
            (kind, Some(version), Some(stored)) if kind.has_versions() => {
                stored.version == Some(version)
            }
            (_, _, stored) => {
                let normal = |content: &Value| self.kind.normal(&self.id, content);
                self.before.as_ref().map(normal) == stored.map(|stored| normal(&stored.content))
            }
        }
    }

    /// Whether the change is already applied.
    pub(super) fn is_done(&self, stored: Option<&ServerItem>) -> bool {
        let normal = |content: &Value| self.kind.normal(&self.id, content);
        match (&self.after, stored) {
            (None, None) => true,
            (None, Some(stored)) => self.kind == Kind::WorkerPool && is_going(&stored.content),
            (Some(_), None) => false,
            (Some(after), Some(stored)) => normal(after) == normal(&stored.content),
        }
    }

    fn pools(&self, content: Option<&Value>) -> BTreeSet<String> {
        match self.kind {
            Kind::WorkerConfiguration => content.map(worker_types).unwrap_or_default(),
            Kind::Role
            | Kind::Client
            | Kind::Image
            | Kind::WorkerPool
            | Kind::Override
            | Kind::Budget => BTreeSet::new(),
        }
    }

    pub(super) fn gains(&self) -> BTreeSet<String> {
        &self.pools(self.after.as_ref()) - &self.pools(self.before.as_ref())
    }

    pub(super) fn loses(&self) -> BTreeSet<String> {
        &self.pools(self.before.as_ref()) - &self.pools(self.after.as_ref())
    }
}

/// Whether a pool is being deleted: it has no provider any more.
pub(super) fn is_going(pool: &Value) -> bool {
    pool["providerId"] == NULL_PROVIDER
}

impl Plan {
    /// `removes`: whether to remove owned items that are not defined.
    pub(super) fn new(
        definitions: &Definitions,
        server_state: &ServerState,
        removes: bool,
    ) -> Self {
        let mut plan = Self::default();
        for (key, item) in &definitions.items {
            let stored = server_state.items.get(key);
            let change = Change::from(key, stored, Some(item));
            if change.is_done(stored) {
                *plan.same.entry(key.0).or_default() += 1
            } else {
                plan.changes.push(change)
            }
        }
        if removes {
            plan.remove(definitions, server_state);
        }
        plan.take_over(definitions, server_state);
        plan.check_pools(server_state);
        plan.order();
        plan.check_cycles();
        plan.check_updates();
        plan
    }

    pub(super) fn freed(&self) -> BTreeSet<String> {
        self.changes.iter().flat_map(Change::loses).collect()
    }

    pub(super) fn earlier(&self) -> Earlier {
        let images = self
            .changes
            .iter()
            .filter(|change| change.kind == Kind::Image && change.action == Action::Create);
        Earlier {
            freed: self.freed(),
            images: images.map(|change| change.id.clone()).collect(),
        }
    }

    /// Plans pools that a configuration gives up, even if they look right now: they will be
    /// deleted.
    fn take_over(&mut self, definitions: &Definitions, server_state: &ServerState) {
        for pool in self.freed() {
            let key = (Kind::WorkerPool, pool);
            let (stored, item) = (server_state.items.get(&key), definitions.items.get(&key));
            let Some(item) = item else { continue };
            let change = Change::from(&key, stored, Some(item));
            if change.is_done(stored) {
                if let Some(same) = self.same.get_mut(&key.0) {
                    *same = same.saturating_sub(1);
                }
                self.changes.push(change);
            }
        }
    }

    fn remove(&mut self, definitions: &Definitions, server_state: &ServerState) {
        let Some(owns) = &definitions.owns else {
            return;
        };
        let compiled = definitions.compiled();
        for ((kind, id), stored) in &server_state.items {
            let is_defined = definitions.items.contains_key(&(*kind, id.clone()));
            let stays = match kind {
                // Pools of a configuration are created and deleted with it.
                Kind::WorkerPool => {
                    server_state.compiled.contains_key(id)
                        || compiled.contains_key(id)
                        || is_going(&stored.content)
                }
                Kind::Client => id.starts_with(STATIC_CLIENT),
                Kind::Role
                | Kind::Image
                | Kind::WorkerConfiguration
                | Kind::Override
                | Kind::Budget => false,
            };
            if is_defined || stays || !owns.has(*kind, id) {
                continue;
            }
            let key = (*kind, id.clone());
            self.changes.push(Change::from(&key, Some(stored), None));
        }
    }

    /// Refuses to define a pool by hand that a configuration compiles.
    fn check_pools(&mut self, server_state: &ServerState) {
        let freed = self.freed();
        for change in &self.changes {
            if let (Kind::WorkerPool, Some(owner)) =
                (change.kind, server_state.compiled.get(&change.id))
                && !freed.contains(&change.id)
            {
                self.conflicts.push(format!(
                    "{}: pool {} is compiled from worker configuration {owner}: change its rules \
                     instead",
                    change.place.as_deref().unwrap_or_default(),
                    change.id
                ));
            }
        }
    }

    /// The changes that concern these pools, with the effects on them alone.
    pub(super) fn about(&self, pools: &[String]) -> Self {
        let changes = self.changes.iter().filter_map(|change| {
            let is_pool = change.kind == Kind::WorkerPool && pools.contains(&change.id);
            let effects = effects::of_pools(change.effects.as_ref().unwrap_or(&Value::Null), pools);
            (is_pool || effects.is_some()).then(|| Change {
                effects,
                ..change.clone()
            })
        });
        Self {
            changes: changes.collect(),
            ..Self::default()
        }
    }

    pub(super) fn n_same(&self) -> usize {
        self.same.values().sum()
    }
}
