//! Heavy work beside other work, a few at a time.
//!
//! A turn belongs to the work and not to who waits for it: somebody who hangs up leaves work behind, and it keeps its
//! turn until it is done. Otherwise hanging up would be a way to have any number of them at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Turns(Arc<Semaphore>);

impl Turns {
    pub fn new(n_at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(n_at_once)))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        finish(turn.map_err(io::Error::other)?, work).await
    }

    /// `None`: it was not its turn within this time.
    pub async fn run_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let turn = tokio::time::timeout(limit, Arc::clone(&self.0).acquire_owned());
        match turn.await {
            Ok(turn) => finish(turn.map_err(io::Error::other)?, work)
                .await
                .map(Some),
            Err(_elapsed) => Ok(None),
        }
    }
}

async fn finish<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    done.await.map_err(io::Error::other)
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// Starts `count` jobs that run until they are released, and checks that at most `limit` of them run at once.
    pub(crate) async fn check(turns: &Turns, count: usize, limit: usize) {
        let (begun, mut has_begun) = mpsc::unbounded_channel();
        let mut let_go = Vec::new();
        let work = (0..count).map(|_| {
            let begun = begun.clone();
            let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
            let_go.push(go_on);
            turns.run(move || {
                begun.send(()).unwrap();
                // An error: it was let go.
                may_go_on.recv().unwrap_err();
            })
        });
        let work: Vec<_> = work.collect();
        let all = futures_util::future::join_all(work);
        let looking = async {
            for _ in 0..count.min(limit) {
                has_begun.recv().await.unwrap();
            }
            // There is a turn for another one as long as fewer than the limit have one.
            let more = turns.run_within(Duration::ZERO, || ()).await.unwrap();
            assert_eq!(more.is_some(), count < limit, "of {count}");
            assert!(has_begun.is_empty(), "of {count}");
            let_go.clear();
        };
        let (done, ()) = tokio::join!(all, looking);
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), count);
    }

    #[tokio::test]
    async fn who_hangs_up_leaves_work_behind_that_keeps_its_turn() {
        let turns = Turns::new(1);
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let work = turns.run(move || {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
        });
        tokio::select! {
            _ = work => panic!("it waits"),
            begun = has_begun => begun.unwrap(),
        }
        // Nobody waits for it any more.
        let at_once = Duration::ZERO;
        assert_eq!(turns.run_within(at_once, || 1).await.unwrap(), None);
        go_on.send(()).unwrap();
        assert_eq!(turns.run(|| 2).await.unwrap(), 2);
        assert_eq!(turns.run_within(at_once, || 3).await.unwrap(), Some(3));
    }
}
