//! The time limits of a request's head: a long one until its first byte, a short one from then on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// Counts the reads of a connection that brought bytes.
#[derive(Clone, Default)]
pub(super) struct Arrivals(Arc<AtomicU64>);

/// A timer for one connection: each sleep is shortened when bytes arrive.
///
/// Hyper starts one sleep when it begins to wait for a head, and polls it after each read.
pub(super) struct HeadTimer {
    pub(super) arrivals: Arrivals,
    /// From the first byte on.
    pub(super) limit: Duration,
}

struct HeadSleep {
    sleep: Pin<Box<dyn Sleep>>,
    arrivals: Arrivals,
    /// Nothing has arrived while the connection is at this number. `None`: a head is arriving.
    idle_at: Option<u64>,
    limit: Duration,
}

impl Arrivals {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep {
            sleep: TokioTimer::new().sleep_until(deadline),
            arrivals: self.arrivals.clone(),
            idle_at: Some(self.arrivals.count()),
            limit: self.limit,
        })
    }

    fn now(&self) -> Instant {
        TokioTimer::new().now()
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self
            .idle_at
            .is_some_and(|seen| seen != self.arrivals.count())
        {
            self.idle_at = None;
            let timer = TokioTimer::new();
            let deadline = timer.now() + self.limit;
            timer.reset(&mut self.sleep, deadline);
        }
        self.sleep.as_mut().poll(context)
    }
}

impl Sleep for HeadSleep {}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(90);
    const LIMIT: Duration = Duration::from_secs(10);

    fn timer() -> HeadTimer {
        HeadTimer {
            arrivals: Arrivals::default(),
            limit: LIMIT,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_the_long_limit() {
        let (timer, start) = (timer(), tokio::time::Instant::now());
        timer.arrivals.note(); // of the request before
        timer.sleep(IDLE).await;
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_begins_the_short_limit_and_further_ones_do_not_extend_it() {
        let (timer, start) = (timer(), tokio::time::Instant::now());
        let mut waiting = timer.sleep(IDLE);
        let first = tokio::time::timeout(IDLE / 2, &mut waiting).await;
        first.unwrap_err();
        timer.arrivals.note();
        let second = tokio::time::timeout(LIMIT / 2, &mut waiting).await;
        second.unwrap_err();
        timer.arrivals.note();
        waiting.await;
        assert_eq!(start.elapsed(), IDLE / 2 + LIMIT);
    }
}
