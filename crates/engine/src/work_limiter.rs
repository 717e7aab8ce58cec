//! Runs blocking work on other threads, a limited number of jobs at a time.
//!
//! The permit belongs to the job and not to its caller: a caller that disconnects leaves its job
//! running, and the job keeps its permit until it ends. Otherwise disconnecting would bypass the
//! limit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub struct WorkLimiter(Arc<Semaphore>);

impl WorkLimiter {
    pub fn new(n_at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(n_at_once)))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        run_blocking(permit.map_err(io::Error::other)?, work).await
    }

    /// `None`: no permit was free within this time.
    pub async fn run_within<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let permit = tokio::time::timeout(limit, Arc::clone(&self.0).acquire_owned());
        match permit.await {
            Ok(permit) => run_blocking(permit.map_err(io::Error::other)?, work)
                .await
                .map(Some),
            Err(_elapsed) => Ok(None),
        }
    }
}

pub(crate) async fn run_blocking<T: Send + 'static>(
    permit: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    done.await.map_err(io::Error::other)
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// Starts `count` jobs that run until they are released; at most `limit` may run at once.
    pub(crate) async fn check_limit(limiter: &WorkLimiter, count: usize, limit: usize) {
        let (started, mut has_started) = mpsc::unbounded_channel();
        let mut releases = Vec::new();
        let work = (0..count).map(|_| {
            let started = started.clone();
            let (release, released) = std::sync::mpsc::channel::<()>();
            releases.push(release);
            limiter.run(move || {
                started.send(()).unwrap();
                // An error: its sender was dropped.
                released.recv().unwrap_err();
            })
        });
        let work: Vec<_> = work.collect();
        let all = futures_util::future::join_all(work);
        let checking = async {
            for _ in 0..count.min(limit) {
                has_started.recv().await.unwrap();
            }
            // A further job gets a permit only below the limit.
            let more = limiter.run_within(Duration::ZERO, || ()).await.unwrap();
            assert_eq!(more.is_some(), count < limit, "of {count}");
            assert!(has_started.is_empty(), "of {count}");
            releases.clear();
        };
        let (done, ()) = tokio::join!(all, checking);
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), count);
    }

    #[tokio::test]
    async fn a_job_whose_caller_disconnected_keeps_its_permit() {
        let limiter = WorkLimiter::new(1);
        let (started, has_started) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let work = limiter.run(move || {
            started.send(()).unwrap();
            released.recv().unwrap();
        });
        tokio::select! {
            _ = work => panic!("it waits"),
            started = has_started => started.unwrap(),
        }
        // The caller has dropped its future, and the job still runs.
        let at_once = Duration::ZERO;
        assert_eq!(limiter.run_within(at_once, || 1).await.unwrap(), None);
        release.send(()).unwrap();
        assert_eq!(limiter.run(|| 2).await.unwrap(), 2);
        assert_eq!(limiter.run_within(at_once, || 3).await.unwrap(), Some(3));
    }
}
