//! Removes what machines have left, region by region.

use cloud::{Leftover, Machines};
use domain::time::MINUTE_MS;
use metrics::counter;

use super::region_scan::{MAX_CALL, RegionScan, timeout_error};
use crate::measures::LEFTOVERS;

/// A region is cleaned no sooner than this after the last time.
const PERIOD_MS: i64 = 10 * MINUTE_MS;

impl RegionScan {
    /// Asks the provider to remove leftovers of this region, now and then.
    pub(super) async fn remove_leftovers(&mut self, machines: &dyn Machines) {
        let now = self.engine.clock.now();
        // A negative time: the clock was set back.
        let is_fresh = |at| (0..PERIOD_MS).contains(&now.millis_since(at));
        if self.cleaned.is_some_and(is_fresh) {
            return;
        }
        self.cleaned = Some(now);
        let removal = machines.remove_leftovers(&self.region);
        let removed = tokio::time::timeout(MAX_CALL, removal).await;
        let (id, region) = (&self.provider_id, &self.region);
        match removed.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(removed) => removed.iter().for_each(|one| self.note_removed(one)),
            Err(error) => {
                self.scanned.problems += 1;
                tracing::warn!(provider.id = %id, region = %region, error = %error,
                    "cannot remove what machines of {id} have left in {region}; the server tries \
                     again in {} minutes: {error}", PERIOD_MS / MINUTE_MS);
            }
        }
    }

    fn note_removed(&self, removed: &Leftover) {
        let (id, region) = (&self.provider_id, &self.region);
        let Leftover { kind, name } = removed;
        let labels = [
            ("providerId", id.to_string()),
            ("region", region.to_string()),
            ("kind", (*kind).to_owned()),
        ];
        counter!(LEFTOVERS, &labels).increment(1);
        tracing::warn!(provider.id = %id, region = %region, leftover.kind = kind,
            leftover.name = name, "removed the {kind} {name} of {id} in {region}: it belongs to no \
             machine any more");
    }
}
