//! The groups of the fake cloud, one for each pool, which its machines may need.

use std::collections::BTreeMap;

use domain::id::PoolId;
use serde_json::{Value, json};

use crate::CloudError;

/// The groups of pools, each with the number under which it was made.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Whether the cloud needs a group for each pool.
    pub(super) are_needed: bool,
    pub(super) made: BTreeMap<PoolId, u64>,
    n_made: u64,
    /// Loses its next answer: the group is made or removed, and the caller does not learn it.
    pub(super) loses_answer: bool,
}

impl Groups {
    /// Makes the group of a pool, if there is none, and returns its data.
    pub(super) fn make(&mut self, pool_id: &PoolId) -> Result<Value, CloudError> {
        if !self.made.contains_key(pool_id) {
            self.n_made += 1;
            self.made.insert(pool_id.clone(), self.n_made);
        }
        self.answer()?;
        Ok(json!({"group": self.made.get(pool_id)}))
    }

    /// Removes the group of a pool with this many machines.
    pub(super) fn remove(&mut self, pool_id: &PoolId, n_live: usize) -> Result<(), CloudError> {
        if n_live > 0 {
            let text = format!("the group of {pool_id} still has {n_live} machines");
            return Err(CloudError::Refused(text));
        }
        self.made.remove(pool_id);
        self.answer()
    }

    fn answer(&mut self) -> Result<(), CloudError> {
        match std::mem::take(&mut self.loses_answer) {
            true => Err(CloudError::Unavailable("the answer was lost".to_owned())),
            false => Ok(()),
        }
    }

    /// Why a launch cannot use the group; `None`: it can.
    pub(super) fn refusal(&self, pool_id: &PoolId, data: &Value) -> Option<String> {
        if !self.are_needed {
            return None;
        }
        let known = self
            .made
            .get(pool_id)
            .map(|number| json!({"group": number}));
        (known.as_ref() != Some(data)).then(|| format!("the group of {pool_id} does not exist"))
    }
}
