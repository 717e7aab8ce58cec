//! Work in batches, each in a transaction of its own.

use std::sync::Arc;

use domain::time::Timestamp;
use engine::Engine;
use engine::change::Change;
use store::{StoreError, Tx};

/// Limits of one activation of a task; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Maximum number of items in one transaction. Small, so that other transactions do not wait
    /// long.
    pub size: u32,
    /// Maximum number of transactions in one activation.
    pub most: usize,
}

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
