//! Disks that have outlived their machines.
//!
//! Only disks carry our labels beside machines: addresses that are not reserved end with their
//! machine, and nothing is reserved by us.

use domain::time::Timestamp;

use super::GoogleProvider;
use super::labels;
use super::responses::Disk;
use crate::leftovers::{KEEP, Leftover, bounded, is_kept, is_old};
use crate::several_calls::{run_together, successes};
use crate::{CloudError, Region};

impl GoogleProvider {
    pub(super) async fn remove_disks(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        let known = self.zones.known().unwrap_or_default();
        let Region::Group(group) = region else {
            return Ok(Vec::new());
        };
        let (now, filter) = (self.clock.now(), labels::filter(&self.root_url, &self.id));
        let mut removals = Vec::new();
        for zone in known.get(group.as_str()).into_iter().flatten() {
            let disks = self.compute.disks(zone, &filter).await?;
            let left = disks.into_iter().filter(|disk| self.is_left(disk, now));
            removals.extend(left.map(|disk| (zone, disk.name)));
        }
        let mut calls = Vec::new();
        for (zone, name) in bounded(removals) {
            calls.push(async move {
                self.compute.delete_disk(zone, &name).await?;
                Ok::<_, crate::vendor::VendorError>(Leftover { kind: "disk", name })
            });
        }
        successes(&self.id, run_together(calls).await)
    }

    /// Whether a disk is ours, and no machine has used it for a while.
    fn is_left(&self, disk: &Disk, now: Timestamp) -> bool {
        // A substitute for Google may ignore the filter.
        let is_ours = labels::launch_of(&disk.labels, &self.root_url, &self.id).is_some();
        let times = [&disk.creation_timestamp, &disk.last_detach_timestamp];
        let times = times.into_iter().flatten();
        let last: Option<Timestamp> = times.filter_map(|text| text.parse().ok()).max();
        is_ours
            && disk.users.is_empty()
            && !is_kept(disk.labels.get(KEEP).map(String::as_str))
            && is_old(last, now)
    }
}
