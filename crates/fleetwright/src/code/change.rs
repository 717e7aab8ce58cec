//! From what is wanted and what is there to what must be done, in which order.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::{ValueChange, value_changes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::Kind;
use super::read::{Wanted, worker_types};
use super::server::{Here, There};

/// A pool with this provider goes away by itself.
const NULL_PROVIDER: &str = "null-provider";
/// Clients of this form are those of the server's configuration.
const STATIC_CLIENT: &str = "static/";

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
}

impl Change {
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.noun(), self.id)
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
    fn gains(&self) -> BTreeSet<String> {
        &self.pools(self.after.as_ref()) - &self.pools(self.before.as_ref())
    }

    /// Pools that it has and will not have.
    pub(super) fn loses(&self) -> BTreeSet<String> {
        &self.pools(self.before.as_ref()) - &self.pools(self.after.as_ref())
    }
}

fn is_going(pool: &Value) -> bool {
    pool["providerId"] == NULL_PROVIDER
}

impl Plan {
    /// `removes`: whether things that are owned and not wanted go.
    pub(super) fn new(wanted: &Wanted, here: &Here, removes: bool) -> Self {
        let mut plan = Self::default();
        for ((kind, id), item) in &wanted.items {
            let there = here.items.get(&(*kind, id.clone()));
            let change = Change {
                kind: *kind,
                id: id.clone(),
                action: if there.is_some() {
                    Action::Update
                } else {
                    Action::Create
                },
                place: Some(item.place.clone()),
                version: there.and_then(|there| there.version),
                before: there.map(|there| there.content.clone()),
                after: Some(item.content.clone()),
                foreseen: None,
            };
            match change.is_done(there) {
                true => *plan.same.entry(*kind).or_default() += 1,
                false => plan.changes.push(change),
            }
        }
        if removes {
            plan.remove(wanted, here);
        }
        plan.check_pools(here);
        plan.order();
        plan
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
            self.changes.push(Change {
                kind: *kind,
                id: id.clone(),
                action: Action::Remove,
                place: None,
                version: there.version,
                before: Some(there.content.clone()),
                after: None,
                foreseen: None,
            });
        }
    }

    /// Pools that follow from a configuration cannot be made by hand as well.
    fn check_pools(&mut self, here: &Here) {
        let freed: BTreeSet<_> = self.changes.iter().flat_map(Change::loses).collect();
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

    /// Who may, before what they may do; what goes, last. A configuration that gives a worker type away
    /// comes before the one that gets it.
    pub(super) fn order(&mut self) {
        let gained: BTreeSet<_> = self.changes.iter().flat_map(Change::gains).collect();
        let rank = |change: &Change| {
            let gives = !change.loses().is_disjoint(&gained);
            match change.action {
                Action::Create | Action::Update => (false, change.kind as u8),
                Action::Remove if gives => (false, change.kind as u8),
                Action::Remove => (true, u8::MAX - change.kind as u8),
            }
        };
        self.changes
            .sort_by(|left, right| (rank(left), &left.id).cmp(&(rank(right), &right.id)));
        let start = self
            .changes
            .iter()
            .position(|change| change.kind == Kind::WorkerConfiguration);
        let Some(start) = start else { return };
        let same_rank = |change: &Change| rank(change) == (false, Kind::WorkerConfiguration as u8);
        let length = self.changes[start..]
            .iter()
            .take_while(|change| same_rank(change))
            .count();
        let mut waiting: Vec<Change> = self.changes.drain(start..start + length).collect();
        let mut ordered = Vec::with_capacity(length);
        while !waiting.is_empty() {
            let is_free = |candidate: &Change| {
                let gains = candidate.gains();
                let mut others = waiting.iter().filter(|other| other.id != candidate.id);
                others.all(|other| other.loses().is_disjoint(&gains))
            };
            // Two that swap worker types wait for each other: the server will say that it cannot be.
            let next = waiting.iter().position(is_free).unwrap_or(0);
            ordered.push(waiting.remove(next));
        }
        self.changes.splice(start..start, ordered);
    }

    pub(super) fn n_same(&self) -> usize {
        self.same.values().sum()
    }
}
