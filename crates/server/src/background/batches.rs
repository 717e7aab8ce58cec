//! Work that is done in batches, each in a transaction of its own.

/// How much one activation of a task does; the rest waits for the next.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Items in one transaction; few, so that other transactions do not wait long.
    pub size: u32,
    /// Transactions in one activation.
    pub most: usize,
}

impl Batches {
    /// Repeats what does a batch, and says how much that was, until a batch is not full. Returns how much was done.
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
