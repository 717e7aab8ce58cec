//! After a refusal a launch config pauses for a while, however well it worked before (I9).

use std::cmp::Reverse;

use domain::id::LaunchToken;
use domain::launch::{Cause, Launch, LaunchState, StoredLaunch};
use domain::market::Trouble;
use domain::plan::first_pause_ms;
use domain::time::Timestamp;
use store::StoreError;

use crate::picture::Picture;
use crate::world::World;

impl World {
    /// No launch of this step uses a launch config that was refused just before. The transaction
    /// that decides reads the launches again, so neither an old read nor another process is an
    /// excuse.
    pub(crate) fn check_refusals(&self, before: &Picture, after: &Picture) {
        let is_new = |launch: &&Launch| !before.launches.contains_key(&launch.token);
        for launch in after.launches.values().filter(is_new) {
            let is_same = |other: &&Launch| {
                // A pool may have moved to another provider.
                other.pool_id == launch.pool_id
                    && other.provider_id == launch.provider_id
                    && other.launch_config_id == launch.launch_config_id
            };
            let refusals = before.launches.values().filter(is_same).filter_map(refusal);
            let Some((refused, Reverse(_), cause)) = refusals.max() else {
                continue;
            };
            // The answer of another launch may have come in this very step.
            let all = before.launches.values().chain(after.launches.values());
            let accepted = all.filter(is_same).filter_map(acceptance).max();
            let pause_ms = launch.created.millis_since(refused);
            // After the clocks were set back, refusals lie ahead.
            let is_too_soon = (0..least_pause_ms(cause)).contains(&pause_ms);
            if is_too_soon && accepted < Some(refused) {
                let (pool, config) = (&launch.pool_id, &launch.launch_config_id);
                self.problem(format!(
                    "I9: asked again {pause_ms} ms after a refusal ({cause}): {config} of {pool}"
                ));
            }
        }
    }

    /// Changes the database to what a planner without memory of refusals would see.
    pub(crate) async fn forget_refusals(&self) {
        let picture = Picture::take(&self.observer, self.now()).await;
        for launch in picture.launches.into_values() {
            if matches!(launch.state, LaunchState::Refused { .. }) {
                let problem = "it was forgotten".to_owned();
                let launch = Launch::from_stored(StoredLaunch {
                    state: LaunchState::Withdrawn { problem },
                    ..launch.into_stored()
                });
                let written = self.observer.write("forget_refusal", move |tx| {
                    store::launches::update(tx, &launch).map(drop)
                });
                let written: Result<(), StoreError> = written.await;
                written.expect("the observer's database works");
            }
        }
    }
}

/// Any strategy pauses for so long. Pauses of `balanced` are up to a fifth shorter or longer, so
/// that offerings that failed together are not tried together.
fn least_pause_ms(cause: Cause) -> i64 {
    first_pause_ms(cause).min(Trouble::from(cause).least_pause_ms())
}

/// When and why the cloud refused all or a part of a launch. Of several at one time the first token
/// counts.
fn refusal(launch: &Launch) -> Option<(Timestamp, Reverse<&LaunchToken>, Cause)> {
    let cause = match launch.state {
        LaunchState::Refused { cause, .. } => cause,
        LaunchState::Accepted if launch.made < launch.machines => Cause::Capacity,
        LaunchState::Accepted
        | LaunchState::Open
        | LaunchState::Unknown { .. }
        | LaunchState::Withdrawn { .. } => return None,
    };
    Some((launch.last_modified, Reverse(&launch.token), cause))
}

/// When the cloud made all that it was asked for.
fn acceptance(launch: &Launch) -> Option<Timestamp> {
    let is_accepted = launch.state == LaunchState::Accepted && launch.made >= launch.machines;
    is_accepted.then_some(launch.last_modified)
}
