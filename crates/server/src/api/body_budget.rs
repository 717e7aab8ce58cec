//! How much memory the bodies of all requests may take together, as text and parsed.
//!
//! Calls that anybody can make have a budget of their own, so they take nothing from the others. A body
//! holds what has come of it, not what was announced: a connection that sends nothing holds nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{ApiError, Code};

/// For all calls that anybody can make, together.
const OPEN_BYTES: usize = 32 * 1024 * 1024;
/// A body waits at most this long for memory.
const WAIT: Duration = Duration::from_secs(5);

/// Memory for bodies, counted in bytes.
pub struct BodyBudget {
    open: Arc<Semaphore>,
    admitted: Arc<Semaphore>,
    admitted_bytes: usize,
}

/// What one request holds of it; given back when it is dropped.
#[derive(Debug)]
pub struct BodyShare {
    of: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    /// `admitted_bytes`: for all requests whose callers were authorised.
    pub fn new(admitted_bytes: usize) -> Self {
        let admitted_bytes = admitted_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            open: Arc::new(Semaphore::new(OPEN_BYTES)),
            admitted: Arc::new(Semaphore::new(admitted_bytes)),
            admitted_bytes,
        }
    }

    pub(super) fn open(&self) -> BodyShare {
        BodyShare::of(&self.open)
    }

    pub(super) fn admitted(&self) -> BodyShare {
        BodyShare::of(&self.admitted)
    }

    /// No request can have more than all there is.
    pub(super) fn admitted_bytes(&self) -> usize {
        self.admitted_bytes
    }

    /// How much is free for authorised requests, and for calls that anybody can make.
    pub fn free(&self) -> (usize, usize) {
        (
            self.admitted.available_permits(),
            self.open.available_permits(),
        )
    }
}

impl BodyShare {
    fn of(semaphore: &Arc<Semaphore>) -> Self {
        Self {
            of: Arc::clone(semaphore),
            held: None,
        }
    }

    /// Takes this many bytes more, if need be when others have given some back.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Ok(permits) = u32::try_from(bytes) else {
            return Err(busy());
        };
        if permits == 0 {
            return Ok(());
        }
        let more = match Arc::clone(&self.of).try_acquire_many_owned(permits) {
            Ok(more) => more,
            Err(_) => {
                let waiting = Arc::clone(&self.of).acquire_many_owned(permits);
                let waited = tokio::time::timeout(WAIT, waiting).await;
                waited.ok().and_then(Result::ok).ok_or_else(busy)?
            }
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

fn busy() -> ApiError {
    let text = "The bodies of other requests take all the memory there is for bodies";
    ApiError::new(Code::ServerBusy, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1_000;

    #[tokio::test(start_paused = true)]
    async fn bodies_take_what_there_is_and_not_more() {
        for bytes in [0, 1, LIMIT - 1, LIMIT] {
            let budget = BodyBudget::new(LIMIT);
            let mut share = budget.admitted();
            share.grow(bytes).await.unwrap();
            assert_eq!(budget.free(), (LIMIT - bytes, OPEN_BYTES));
            drop(share);
            assert_eq!(budget.free(), (LIMIT, OPEN_BYTES));
        }
        for bytes in [LIMIT + 1, 10 * LIMIT] {
            let budget = BodyBudget::new(LIMIT);
            let refused = budget.admitted().grow(bytes).await.unwrap_err();
            assert_eq!(refused.code, Code::ServerBusy);
            assert_eq!(budget.free().0, LIMIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_others_a_while_and_no_longer() {
        let budget = BodyBudget::new(LIMIT);
        let (mut first, mut second) = (budget.admitted(), budget.admitted());
        first.grow(LIMIT - 1).await.unwrap();
        let start = tokio::time::Instant::now();
        assert!(second.grow(2).await.is_err());
        assert_eq!(start.elapsed(), WAIT);
        let later = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (grown, ()) = tokio::join!(second.grow(2), later);
        grown.unwrap();
        assert_eq!(budget.free().0, LIMIT - 2);
        drop(second);
        assert_eq!(budget.free().0, LIMIT);
    }

    #[tokio::test]
    async fn open_calls_take_nothing_from_authorised_requests() {
        let budget = BodyBudget::new(LIMIT);
        let mut taken = budget.open();
        taken.grow(OPEN_BYTES).await.unwrap();
        assert_eq!(budget.free(), (LIMIT, 0));
        budget.admitted().grow(LIMIT).await.unwrap();
    }
}
