//! The list of our machines in all zones.
//!
//! Google lists all zones by one call, while scans go region by region. So the regions of one scan
//! share a list, for a few seconds.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::time::{Clock, SECOND_MS, Timestamp};
use tokio::sync::Mutex;

use super::compute::{Compute, MAX_PAGES};
use super::error::GOOGLE;
use super::responses::Instance;
use super::row::{last_part, region_of};
use crate::vendor::{VendorError, all_pages};

/// The regions of one scan ask within this time.
const FRESH_MS: i64 = 5 * SECOND_MS;

/// The machines that one list showed.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) machines: Vec<Instance>,
    /// Zones whose machines Google could not list.
    unreachable: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct Listing(Mutex<Option<(Timestamp, Arc<Snapshot>)>>);

impl Listing {
    /// A list of this moment, or of a moment ago. Concurrent callers wait for the same call.
    pub(super) async fn get(
        &self,
        compute: &Compute,
        filter: &str,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Snapshot>, VendorError> {
        let mut kept = self.0.lock().await;
        let asked = clock.now();
        if let Some((at, snapshot)) = &*kept
            && (0..FRESH_MS).contains(&asked.millis_since(*at))
        {
            return Ok(Arc::clone(snapshot));
        }
        *kept = None;
        let snapshot = Arc::new(list(compute, filter).await?);
        *kept = Some((asked, Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    /// The machines have changed.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

impl Snapshot {
    /// The first zone of this region that could not be listed.
    pub(super) fn unreachable_in(&self, region: &str) -> Option<&str> {
        let mut zones = self.unreachable.iter();
        zones
            .find(|zone| region_of(zone) == region)
            .map(|it| it.as_str())
    }
}

/// Part of a page: the machines and the unreachable zones.
type Scope = (Vec<Instance>, BTreeSet<String>);

async fn list(compute: &Compute, filter: &str) -> Result<Snapshot, VendorError> {
    let pages: Vec<Scope> = all_pages(&GOOGLE, MAX_PAGES, |after| async move {
        let page = compute.instances(filter, after).await?;
        let unreachables = page.unreachables.iter();
        let mut unreachable: BTreeSet<String> = unreachables
            .map(|zone| last_part(zone).to_owned())
            .collect();
        let mut machines = Vec::new();
        for (scope, listed) in page.items {
            if listed.warning.is_some_and(|it| it.code == "UNREACHABLE") {
                unreachable.insert(last_part(&scope).to_owned());
            }
            machines.extend(listed.instances);
        }
        Ok((vec![(machines, unreachable)], page.next_page_token))
    })
    .await?;
    let mut snapshot = Snapshot::default();
    for (machines, unreachable) in pages {
        snapshot.machines.extend(machines);
        snapshot.unreachable.extend(unreachable);
    }
    Ok(snapshot)
}
