//! The resources that the fake cloud keeps for pools, and scripts for them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use domain::id::PoolId;
use domain::pool::Pool;
use serde_json::{Value, json};

use super::FakeCloud;
use super::outcome::Call;
use crate::{CloudError, PoolResourceMaker};

/// The groups of pools, each with the number under which it was made.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Whether the cloud needs a group for each pool.
    pub(super) are_needed: bool,
    made: BTreeMap<PoolId, u64>,
    n_made: u64,
    /// Loses its next answer: the group is made or removed, and the caller does not learn it.
    loses_answer: bool,
}

#[async_trait]
impl PoolResourceMaker for FakeCloud {
    async fn prepare_pool(&self, pool: &Pool, _data: &Value) -> Result<Value, CloudError> {
        let mut state = self.state();
        state.begin(Call::PreparePool)?;
        let groups = &mut state.groups;
        let number = match groups.made.get(&pool.id) {
            Some(number) => *number,
            None => {
                groups.n_made += 1;
                let number = groups.n_made;
                groups.made.insert(pool.id.clone(), number);
                number
            }
        };
        groups.answer()?;
        Ok(json!({"group": number}))
    }

    async fn release_pool(&self, pool_id: &PoolId, _data: &Value) -> Result<(), CloudError> {
        let mut state = self.state();
        state.begin(Call::ReleasePool)?;
        let n_live = state.inventory.live_of_pool(pool_id);
        if n_live > 0 {
            let text = format!("the group of {pool_id} still has {n_live} machines");
            return Err(CloudError::Refused(text));
        }
        state.groups.made.remove(pool_id);
        state.groups.answer()
    }
}

impl Groups {
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

/// Scripts and queries.
impl FakeCloud {
    /// From now on, machines need a group of their pool.
    pub fn need_groups(&self) {
        self.state().groups.are_needed = true;
    }

    /// The pools with a group.
    pub fn groups(&self) -> Vec<PoolId> {
        self.state().groups.made.keys().cloned().collect()
    }

    /// Loses the next answer about a group.
    pub fn lose_group_answer(&self) {
        self.state().groups.loses_answer = true;
    }
}
