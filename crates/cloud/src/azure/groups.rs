//! Resource groups that launch configs name: made when they are missing, once in each process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::{Mutex as StdMutex, PoisonError};

use domain::id::PoolId;
use serde_json::json;
use tokio::sync::Mutex;

use super::records;
use super::site::Site;
use crate::vendor::VendorError;

/// Groups that are remembered at most. Others are asked about at each launch.
pub(super) const MAX_GROUPS: usize = 1_000;

/// The groups that are known to exist. Launches that need the same one wait for one call.
#[derive(Default)]
pub(super) struct ResourceGroups(StdMutex<BTreeMap<String, Arc<Mutex<bool>>>>);

impl ResourceGroups {
    /// Makes the group that a pool needs in this location, unless it exists. A failure is not
    /// remembered.
    pub(super) async fn ensure(
        &self,
        site: &Site,
        pool_id: &PoolId,
        group: &str,
        location: &str,
    ) -> Result<(), VendorError> {
        let entry = self.entry(group);
        let mut exists = entry.lock().await;
        if *exists {
            return Ok(());
        }
        let path = site.arm.paths.group(group);
        if site.arm.get(&path).await?.is_none() {
            let tags = json!({"managed-by": "taskcluster",
                "created-by": format!("taskcluster-wm-{}", site.id)});
            let body = json!({"location": location, "tags": tags});
            site.arm.put(&path, body).await?;
            tracing::info!(provider.id = %site.id, "{} made the resource group {group}", site.id);
            records::made_group(pool_id, group, location).write();
        }
        *exists = true;
        Ok(())
    }

    /// Somebody removed the group, so the next launch asks again.
    pub(super) fn forget(&self, group: &str) {
        let known = self.0.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.remove(&group.to_ascii_lowercase());
    }

    /// The names of all that launches of this process have named.
    pub(super) fn known(&self) -> BTreeSet<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys().cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn n_known(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn entry(&self, group: &str) -> Arc<Mutex<bool>> {
        let known = self.0.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let key = group.to_ascii_lowercase();
        if known.len() >= MAX_GROUPS && !known.contains_key(&key) {
            return Arc::default();
        }
        Arc::clone(known.entry(key).or_default())
    }
}
