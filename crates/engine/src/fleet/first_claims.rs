//! First claims of workers, as an outside queue tells them.

use std::collections::BTreeMap;

use domain::id::WorkerKey;
use domain::phases::Phase;
use domain::run_outcome::RunClaim;
use domain::time::Timestamp;

use crate::change::Change;

/// Records the first claim of each of these workers that runs and has none yet. Returns how many
/// were new.
pub fn note_first_claims(
    change: &mut Change<'_, '_>,
    claims: impl IntoIterator<Item = RunClaim>,
) -> store::Result<u64> {
    let mut first: BTreeMap<WorkerKey, Timestamp> = BTreeMap::new();
    for RunClaim { worker, at } in claims {
        let at = at.min(change.now);
        let known = first.entry(worker).or_insert(at);
        *known = at.min(*known);
    }
    let mut n_new = 0;
    for key in store::workers::without_claim(change.tx, first.keys())? {
        let Some(at) = first.get(&key).copied() else {
            continue;
        };
        if let Some(worker) = store::workers::note_first_claim(change.tx, &key, at)? {
            let registered = worker.terms.registered_at.map(Timestamp::from_millis);
            change.measure_phase(&worker, Phase::FirstClaim, registered, at);
            n_new += 1;
        }
    }
    Ok(n_new)
}
