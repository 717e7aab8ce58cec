//! Work in batches, each in a transaction of its own.

/// Limits of one activation of a task; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Maximum number of items in one transaction. Small, so that other transactions do not wait
    /// long.
    pub size: u32,
    /// Maximum number of transactions in one activation.
    pub most: usize,
}

impl Batches {
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
}
