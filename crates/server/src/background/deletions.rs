//! Deletions in batches, with pauses between them: most of the time, and of the work of the disk,
//! is for other writes.

use std::collections::BTreeMap;
use std::time::Duration;

use api_client::with_causes;
use domain::time::Timestamp;
use engine::measures::Stopwatch;
use store::{Store, StoreError, Tx};

use super::batches::Batches;
use super::driver::{ActivationResult, summary};

/// The period of the tasks that delete.
pub(super) const PERIOD: Duration = Duration::from_secs(300);
/// The least pause, while deletions keep up. With files on a disk, a launch waits until the disk
/// has written its plan, and with it all pages that were changed before: at twice as many deletions
/// in a second, the slowest of a hundred launches takes two and a half times as long.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// The pause after a slow deletion is at most this long.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The least pause is halved at most this many times.
const MAX_HALVINGS: u32 = 6;

/// The least pause after a deletion. While activations take longer than their period, each halves
/// it for the next one, so that many kinds of rows do not wait for each other too long.
#[derive(Debug, Default)]
pub(super) struct DeletionPace {
    n_halvings: u32,
}

impl DeletionPace {
    fn least_pause(&self) -> Duration {
        LEAST_PAUSE / 2_u32.pow(self.n_halvings)
    }

    pub(super) fn deletions(&self, batches: Batches) -> Deletions {
        Deletions {
            batches,
            least_pause: self.least_pause(),
        }
    }

    /// Notes how long an activation took.
    pub(super) fn note(&mut self, activation: &Stopwatch) {
        self.adapt(activation.elapsed());
    }

    fn adapt(&mut self, took: Duration) {
        self.n_halvings = match took > PERIOD {
            true => (self.n_halvings + 1).min(MAX_HALVINGS),
            false => self.n_halvings.saturating_sub(1),
        };
    }
}

/// The results of the deletions of one activation. A deletion that fails hinders no other, since a
/// table of which nothing is deleted grows until the disk is full.
#[derive(Debug, Default)]
pub(super) struct DeletionTally {
    counts: BTreeMap<&'static str, u64>,
    failed: Vec<(&'static str, StoreError)>,
}

impl DeletionTally {
    /// Adds what was done to one kind of row.
    pub(super) fn add(&mut self, kind: &'static str, deleted: Result<u64, StoreError>) {
        match deleted {
            Ok(count) => *self.counts.entry(kind).or_default() += count,
            Err(error) => self.failed.push((kind, error)),
        }
    }

    /// The counts; or, if one has failed, all errors.
    pub(super) fn result(self) -> ActivationResult {
        if self.failed.is_empty() {
            let counts: Vec<_> = self.counts.into_iter().collect();
            return Ok(summary(&counts));
        }
        let failed = self.failed.iter();
        let texts = failed.map(|(kind, error)| format!("{kind}: {}", with_causes(error)));
        Err(texts.collect::<Vec<_>>().join("; ").into())
    }
}

/// Limits of the deletions of one activation, for each kind of row; the next one continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deletions {
    batches: Batches,
    least_pause: Duration,
}

/// Deletes a limited number of rows that ended before this time, and returns how many.
type Delete = fn(&mut Tx<'_>, Timestamp, u32) -> Result<u64, StoreError>;
/// Lists a limited number of rows that can be deleted.
type Find<T> = fn(&mut Tx<'_>, u32) -> Result<Vec<T>, StoreError>;
/// Deletes those of these rows that can still be deleted, and returns how many.
type DeleteFound<T> = fn(&mut Tx<'_>, &[T]) -> Result<u64, StoreError>;

impl Deletions {
    /// Without a least pause.
    pub(super) fn hasty(batches: Batches) -> Self {
        Self {
            batches,
            least_pause: Duration::ZERO,
        }
    }

    /// Maximum number of rows in one transaction.
    pub(super) fn size(self) -> u32 {
        self.batches.size
    }

    /// Repeats `batch` until one is not full. It begins where the last one ended, and returns how
    /// many rows it deleted, and where it ended. Returns the total.
    pub(super) async fn delete_from<P, F>(
        self,
        mut place: P,
        mut batch: impl FnMut(P) -> F,
    ) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<(u64, P), StoreError>>,
    {
        let mut total = 0;
        for _ in 0..self.batches.most {
            let watch = Stopwatch::start();
            let (n_deleted, end) = batch(place).await?;
            total += n_deleted;
            place = end;
            if n_deleted < u64::from(self.size()) {
                break;
            }
            self.pause_after(watch.elapsed()).await;
        }
        Ok(total)
    }

    pub(super) async fn delete(
        self,
        store: &Store,
        name: &'static str,
        before: Timestamp,
        delete: Delete,
    ) -> Result<u64, StoreError> {
        let deletion = move |tx: &mut Tx<'_>| delete(tx, before, self.size());
        let batch = |()| async { Ok((store.write(name, deletion).await?, ())) };
        self.delete_from((), batch).await
    }

    /// Deletes rows that take long to find. Each batch finds them before its transaction, so that
    /// other writes do not wait for that.
    pub(super) async fn delete_found<T: Send + Sync + 'static>(
        self,
        store: &Store,
        [look, write]: [&'static str; 2],
        find: Find<T>,
        delete: DeleteFound<T>,
    ) -> Result<u64, StoreError> {
        let batch = |()| async {
            let found = store.survey(look, move |tx| find(tx, self.size())).await?;
            if found.is_empty() {
                return Ok((0, ()));
            }
            let deletion = store.write(write, move |tx| delete(tx, &found));
            Ok((deletion.await?, ()))
        };
        self.delete_from((), batch).await
    }

    /// Repeats a change that deletes, until one is not full. Returns the total.
    pub(super) async fn repeat<F>(self, mut batch: impl FnMut() -> F) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<u64, StoreError>>,
    {
        let batch = |()| {
            let deletion = batch();
            async { Ok((deletion.await?, ())) }
        };
        self.delete_from((), batch).await
    }

    /// A deletion takes at most a quarter of the time.
    #[expect(
        clippy::disallowed_methods,
        reason = "deletions may wait between their batches, and no request waits for them"
    )]
    async fn pause_after(self, deletion: Duration) {
        let pause = deletion.saturating_mul(3).min(LONGEST_PAUSE);
        tokio::time::sleep(pause.max(self.least_pause)).await;
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    /// The places at which batches begin, of which each deletes this many rows.
    async fn places(deletions: Deletions, rows: &[u64]) -> (u64, Vec<usize>) {
        let mut begun = Vec::new();
        let batch = |place: usize| {
            begun.push(place);
            let n_deleted = rows.get(place).copied().unwrap_or(0);
            std::future::ready(Ok((n_deleted, place + 1)))
        };
        let n_deleted = deletions.delete_from(0, batch).await;
        (n_deleted.unwrap(), begun)
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_go_on_where_the_last_batch_ended_until_one_is_not_full() {
        let deletions = Deletions::hasty(Batches::new(5, 3));
        assert_eq!(places(deletions, &[]).await, (0, vec![0]));
        assert_eq!(places(deletions, &[4, 5]).await, (4, vec![0]));
        assert_eq!(places(deletions, &[5]).await, (5, vec![0, 1]));
        assert_eq!(places(deletions, &[5, 5, 1]).await, (11, vec![0, 1, 2]));
        assert_eq!(places(deletions, &[5; 9]).await, (15, vec![0, 1, 2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_fails_ends_the_activation() {
        let deletions = Deletions::hasty(Batches::new(5, 3));
        let batch = |()| std::future::ready(Err::<(u64, ()), _>(StoreError::Closed));
        assert!(deletions.delete_from((), batch).await.is_err());
    }

    #[test]
    fn a_kind_that_fails_leaves_the_counts_of_the_others_and_all_errors_are_returned() {
        let mut tally = DeletionTally::default();
        for (kind, count) in [("plans", 2), ("events", 0), ("plans", 3)] {
            tally.add(kind, Ok(count));
        }
        assert_eq!(tally.counts, BTreeMap::from([("plans", 5), ("events", 0)]));
        tally.add("audit", Err(StoreError::Closed));
        tally.add("workers", Err(StoreError::Closed));
        let closed = StoreError::Closed;
        let error = tally.result().unwrap_err().to_string();
        assert_eq!(error, format!("audit: {closed}; workers: {closed}"));
        let mut tally = DeletionTally::default();
        tally.add("plans", Ok(0));
        assert_eq!(tally.result().unwrap(), serde_json::Value::Null);
    }

    #[tokio::test(start_paused = true)]
    async fn only_full_batches_are_followed_by_a_pause() {
        let deletions = DeletionPace::default().deletions(Batches::new(5, 3));
        for (rows, n_full) in [(&[] as &[u64], 0), (&[4], 0), (&[5], 1), (&[5, 5, 4], 2)] {
            let start = tokio::time::Instant::now();
            places(deletions, rows).await;
            assert_eq!(start.elapsed(), LEAST_PAUSE * n_full, "{rows:?}");
        }
    }

    #[test]
    fn pauses_become_shorter_while_activations_take_longer_than_their_period() {
        let most = usize::try_from(MAX_HALVINGS).unwrap();
        let longer = PERIOD + Duration::from_millis(1);
        for count in sizes_around("server::background::deletions::MAX_HALVINGS", most) {
            let mut pace = DeletionPace::default();
            for _ in 0..count {
                pace.adapt(longer);
            }
            let n_halvings = u32::try_from(count.min(most)).unwrap();
            assert_eq!(pace.least_pause(), LEAST_PAUSE / 2_u32.pow(n_halvings));
            pace.adapt(PERIOD);
            let n_left = n_halvings.saturating_sub(1);
            assert_eq!(pace.least_pause(), LEAST_PAUSE / 2_u32.pow(n_left));
        }
    }
}
