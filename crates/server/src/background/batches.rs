//! Work in batches, each in a transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use domain::time::Timestamp;
use engine::Engine;
use engine::change::Change;
use engine::measures::Stopwatch;
use store::{Store, StoreError, Tx};

/// The pause after a deletion is at most this long.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Limits of one activation of a task; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Maximum number of items in one transaction. Small, so that other transactions do not wait
    /// long.
    pub size: u32,
    /// Maximum number of transactions in one activation.
    pub most: usize,
}

/// Deletes a limited number of rows that ended before this time, and returns how many.
type Delete = fn(&mut Tx<'_>, Timestamp, u32) -> Result<u64, StoreError>;
/// Lists a limited number of rows that can be deleted.
type Find<T> = fn(&mut Tx<'_>, u32) -> Result<Vec<T>, StoreError>;
/// Deletes those of these rows that can still be deleted, and returns how many.
type DeleteFound<T> = fn(&mut Tx<'_>, &[T]) -> Result<u64, StoreError>;
/// Lists a limited number of rows that are due at this time.
type ListDue<T> = fn(&mut Tx<'_>, Timestamp, u32) -> Result<Vec<T>, StoreError>;
type Settle<T> = fn(&mut Change<'_, '_>, T) -> Result<(), StoreError>;

impl Batches {
    pub(super) const fn new(size: u32, most: usize) -> Self {
        Self { size, most }
    }

    /// Repeats `batch`, which returns its number of items, until a batch is not full. Returns the
    /// total.
    pub(super) async fn repeat<E, F>(self, mut batch: impl FnMut() -> F) -> Result<u64, E>
    where
        F: Future<Output = Result<u64, E>>,
    {
        let mut total = 0;
        for _ in 0..self.most {
            let done = batch().await?;
            total += done;
            if done < u64::from(self.size) {
                break;
            }
        }
        Ok(total)
    }

    /// The same for deletions. They take a quarter of the time, so that most of it, and of the work
    /// of the disk, is for other writes. A batch begins where the last one ended, and also returns
    /// where it ended.
    pub(super) async fn delete_from<P, F>(
        self,
        mut place: P,
        mut batch: impl FnMut(P) -> F,
    ) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<(u64, P), StoreError>>,
    {
        let mut total = 0;
        for _ in 0..self.most {
            let watch = Stopwatch::start();
            let (n_deleted, end) = batch(place).await?;
            total += n_deleted;
            place = end;
            if n_deleted < u64::from(self.size) {
                break;
            }
            pause_after(&watch).await;
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
        let deletion = move |tx: &mut Tx<'_>| delete(tx, before, self.size);
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
            let found = store.survey(look, move |tx| find(tx, self.size)).await?;
            if found.is_empty() {
                return Ok((0, ()));
            }
            let deletion = store.write(write, move |tx| delete(tx, &found));
            Ok((deletion.await?, ()))
        };
        self.delete_from((), batch).await
    }

    /// Settles the rows that were due at `due`. Each batch looks first: that costs less than a
    /// transaction that writes.
    pub(super) async fn settle<T: 'static>(
        self,
        engine: &Arc<Engine>,
        [look, write]: [&'static str; 2],
        [now, due]: [Timestamp; 2],
        list: ListDue<T>,
        settle: Settle<T>,
    ) -> Result<u64, StoreError> {
        let batch = || async {
            let is_due = move |tx: &mut Tx<'_>| Ok::<_, StoreError>(!list(tx, due, 1)?.is_empty());
            if !engine.store.read(look, is_due).await? {
                return Ok(0);
            }
            let settle_all = move |change: &mut Change<'_, '_>| {
                let rows = list(change.tx, due, self.size)?;
                let n_rows = rows.len() as u64;
                rows.into_iter().try_for_each(|row| settle(change, row))?;
                Ok(n_rows)
            };
            engine.change_alone(write, now, settle_all).await
        };
        self.repeat(batch).await
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "deletions may wait between their batches, and no request waits for them"
)]
async fn pause_after(deletion: &Stopwatch) {
    let pause = deletion.elapsed().saturating_mul(3);
    tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places at which batches begin, of which each deletes this many rows.
    async fn places(batches: Batches, rows: &[u64]) -> (u64, Vec<usize>) {
        let mut begun = Vec::new();
        let batch = |place: usize| {
            begun.push(place);
            let n_deleted = rows.get(place).copied().unwrap_or(0);
            std::future::ready(Ok((n_deleted, place + 1)))
        };
        let n_deleted = batches.delete_from(0, batch).await;
        (n_deleted.unwrap(), begun)
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_go_on_where_the_last_batch_ended_until_one_is_not_full() {
        let batches = Batches::new(5, 3);
        assert_eq!(places(batches, &[]).await, (0, vec![0]));
        assert_eq!(places(batches, &[4, 5]).await, (4, vec![0]));
        assert_eq!(places(batches, &[5]).await, (5, vec![0, 1]));
        assert_eq!(places(batches, &[5, 5, 1]).await, (11, vec![0, 1, 2]));
        assert_eq!(places(batches, &[5; 9]).await, (15, vec![0, 1, 2]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_fails_ends_the_activation() {
        let batches = Batches::new(5, 3);
        let batch = |()| std::future::ready(Err::<(u64, ()), _>(StoreError::Closed));
        assert!(batches.delete_from((), batch).await.is_err());
    }
}
