//! From what is wanted and what is there to what must be done.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::{ValueChange, value_changes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definitions::{Item, Wanted, worker_types};
use super::kind::{Kind, STATIC_CLIENT};
use super::server::{Here, There};

/// A pool with this provider goes away by itself.
pub(super) const NULL_PROVIDER: &str = "null-provider";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    Create,
    Update,
    Remove,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) action: Action,
    /// Which file wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// The version that was read, of a worker configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<i64>,
    /// What was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Value>,
    /// What is to be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Value>,
    /// What the server says would follow from a worker configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) foreseen: Option<Value>,
    /// The worker pools made by hand that a worker configuration takes over, as they were read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) adopted: BTreeMap<String, Value>,
}

/// What is to be done, and what is not.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    /// How many are as they should be.
    pub(super) same: BTreeMap<Kind, usize>,
    /// What is there already and stands in the way.
    pub(super) conflicts: Vec<String>,
    /// What cannot be used as it is.
    pub(super) errors: Vec<String>,
    /// The launch configs of worker pools made by hand, as the server says they would be made.
    pub(super) made: BTreeMap<String, BTreeSet<String>>,
}

impl Change {
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.noun(), self.id)
    }

    /// Which file wants it, or what it is.
    pub(super) fn origin(&self) -> String {
        self.place.clone().unwrap_or_else(|| self.title())
    }

    /// The values that differ, where there is something before and after.
    pub(super) fn values(&self) -> Vec<ValueChange> {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return Vec::new();
        };
        let before = self.kind.normal(&self.id, before);
        let after = self.kind.normal(&self.id, after);
        value_changes(&before, &after)
    }

    /// What has this content, or shall have it.
    pub(super) fn from(key: &(Kind, String), there: Option<&There>, item: Option<&Item>) -> Self {
        Self {
            kind: key.0,
            id: key.1.clone(),
            action: match (there, item) {
                (_, None) => Action::Remove,
                (Some(_), Some(_)) => Action::Update,
                (None, Some(_)) => Action::Create,
            },
            place: item.map(|item| item.place.clone()),
            version: there.and_then(|there| there.version),
            before: there.map(|there| there.content.clone()),
            after: item.map(|item| item.content.clone()),
            foreseen: None,
            adopted: BTreeMap::new(),
        }
    }

    /// Is this what was read?
    pub(super) fn has_read(&self, there: Option<&There>) -> bool {
        match (self.kind, self.version, there) {
            (Kind::WorkerConfiguration, Some(version), Some(there)) => {
                there.version == Some(version)
            }
            (_, _, there) => {
                let normal = |content: &Value| self.kind.normal(&self.id, content);
                self.before.as_ref().map(normal) == there.map(|there| normal(&there.content))
            }
        }
    }

    /// Is it as it should be already?
    pub(super) fn is_done(&self, there: Option<&There>) -> bool {
        let normal = |content: &Value| self.kind.normal(&self.id, content);
        match (&self.after, there) {
            (None, None) => true,
            (None, Some(there)) => self.kind == Kind::WorkerPool && is_going(&there.content),
            (Some(_), None) => false,
            (Some(after), Some(there)) => normal(after) == normal(&there.content),
        }
    }

    fn pools(&self, content: Option<&Value>) -> BTreeSet<String> {
        match self.kind {
            Kind::WorkerConfiguration => content.map(worker_types).unwrap_or_default(),
            Kind::Role | Kind::Client | Kind::WorkerPool | Kind::Override => BTreeSet::new(),
        }
    }

    /// Pools that it did not have and will have.
    pub(super) fn gains(&self) -> BTreeSet<String> {
        &self.pools(self.after.as_ref()) - &self.pools(self.before.as_ref())
    }

    /// Pools that it has and will not have.
    pub(super) fn loses(&self) -> BTreeSet<String> {
        &self.pools(self.before.as_ref()) - &self.pools(self.after.as_ref())
    }
}

/// Whether a pool has nobody any more who launches workers for it.
pub(super) fn is_going(pool: &Value) -> bool {
    pool["providerId"] == NULL_PROVIDER
}

impl Plan {
    /// `removes`: whether things that are owned and not wanted go.
    pub(super) fn new(wanted: &Wanted, here: &Here, removes: bool) -> Self {
        let mut plan = Self::default();
        for (key, item) in &wanted.items {
            let there = here.items.get(key);
            let change = Change::from(key, there, Some(item));
            match change.is_done(there) {
                true => *plan.same.entry(key.0).or_default() += 1,
                false => plan.changes.push(change),
            }
        }
        if removes {
            plan.remove(wanted, here);
        }
        plan.take_over(wanted, here);
        plan.check_pools(here);
        plan.order();
        plan.check_circles();
        plan.check_updates();
        plan
    }

    /// The pools that worker configurations give up.
    pub(super) fn freed(&self) -> BTreeSet<String> {
        self.changes.iter().flat_map(Change::loses).collect()
    }

    /// Worker pools that a configuration gives up look like what is wanted only until then.
    fn take_over(&mut self, wanted: &Wanted, here: &Here) {
        for pool in self.freed() {
            let key = (Kind::WorkerPool, pool);
            let (there, item) = (here.items.get(&key), wanted.items.get(&key));
            let Some(item) = item else { continue };
            let change = Change::from(&key, there, Some(item));
            if change.is_done(there) {
                if let Some(same) = self.same.get_mut(&key.0) {
                    *same = same.saturating_sub(1);
                }
                self.changes.push(change);
            }
        }
    }

    fn remove(&mut self, wanted: &Wanted, here: &Here) {
        let Some(owns) = &wanted.owns else { return };
        let compiled = wanted.compiled();
        for ((kind, id), there) in &here.items {
            let is_wanted = wanted.items.contains_key(&(*kind, id.clone()));
            let stays = match kind {
                // Its configuration decides about it, the one that it has or the one that it gets.
                Kind::WorkerPool => {
                    here.compiled.contains_key(id)
                        || compiled.contains_key(id)
                        || is_going(&there.content)
                }
                Kind::Client => id.starts_with(STATIC_CLIENT),
                Kind::Role | Kind::WorkerConfiguration | Kind::Override => false,
            };
            if is_wanted || stays || !owns.has(*kind, id) {
                continue;
            }
            let key = (*kind, id.clone());
            self.changes.push(Change::from(&key, Some(there), None));
        }
    }

    /// Pools that follow from a configuration cannot be made by hand as well.
    fn check_pools(&mut self, here: &Here) {
        let freed = self.freed();
        for change in &self.changes {
            if let (Kind::WorkerPool, Some(owner)) = (change.kind, here.compiled.get(&change.id))
                && !freed.contains(&change.id)
            {
                self.conflicts.push(format!(
                    "{}: worker pool {} is made of the worker configuration {owner}: change its rules instead",
                    change.place.as_deref().unwrap_or_default(),
                    change.id
                ));
            }
        }
    }

    pub(super) fn n_same(&self) -> usize {
        self.same.values().sum()
    }
}
