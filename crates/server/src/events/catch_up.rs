//! Listeners that are behind: they take turns, and read each page of the store once for all.
//!
//! After a restart of the server, all its listeners come back at once and ask for the same events.
//! Sent as fast as possible, these would occupy the processors for a while, and each request would
//! wait for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The last pages that were read are kept. Listeners that began together want the same one.
const MAX_PAGES: usize = 8;

/// `E` is an event, which is cheap to share.
pub struct CatchUp<E> {
    /// Between two turns; zero: no limit.
    gap: Duration,
    /// When the next turn may begin. In the order in which listeners ask for it.
    next: tokio::sync::Mutex<Option<Instant>>,
    /// One page is read at a time.
    reading: tokio::sync::Mutex<()>,
    /// By the position before their first event, the newest last.
    pages: Mutex<VecDeque<(i64, Arc<[E]>)>>,
}

impl<E> CatchUp<E> {
    pub fn new(pages_per_second: u32) -> Self {
        let gap = match pages_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_secs(1) / rate,
        };
        Self {
            gap,
            next: tokio::sync::Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            pages: Mutex::default(),
        }
    }

    /// Waits until this listener may send its next page.
    pub async fn turn(&self) {
        if self.gap.is_zero() {
            return;
        }
        let mut next = self.next.lock().await;
        let due = next.unwrap_or_else(Instant::now);
        let _ = timeout_at(due, std::future::pending::<()>()).await;
        // Timers are late. The next turn is sooner then, so that there are as many on average.
        *next = Some((due + self.gap).max(Instant::now()));
    }

    /// The events after this position, which `read` reads if no listener has done so before.
    pub async fn page<P>(
        &self,
        after: i64,
        read: impl Future<Output = Result<Vec<E>, P>>,
    ) -> Result<Arc<[E]>, P> {
        if let Some(page) = self.known(after) {
            return Ok(page);
        }
        let _reading = self.reading.lock().await;
        if let Some(page) = self.known(after) {
            return Ok(page);
        }
        let page: Arc<[E]> = read.await?.into();
        if !page.is_empty() {
            let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            if pages.len() >= MAX_PAGES {
                pages.pop_front();
            }
            pages.push_back((after, Arc::clone(&page)));
        }
        Ok(page)
    }

    fn known(&self, after: i64) -> Option<Arc<[E]>> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pages = pages.iter();
        let (_, page) = pages.find(|(begins_after, _)| *begins_after == after)?;
        Some(Arc::clone(page))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use testing::sizes_around;

    use super::*;

    /// How long this many turns take that are asked for at once.
    async fn n_turns_take(pages_per_second: u32, count: usize) -> Duration {
        let catch_up = CatchUp::<i64>::new(pages_per_second);
        // Time: it stands still, apart from the waits.
        let begun = Instant::now();
        let turns = (0..count).map(|_| catch_up.turn());
        futures_util::future::join_all(turns).await;
        // Time: it stands still, apart from the waits.
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_that_are_behind_take_turns() {
        for rate in [1, 400] {
            for count in [0, 1, 399, 400, 401, 4_000] {
                let took = n_turns_take(rate, count).await;
                let least = Duration::from_secs(1) / rate * u32::try_from(count).unwrap();
                let least = least.saturating_sub(Duration::from_secs(1) / rate);
                let most = least + Duration::from_millis(2);
                assert!((least..=most).contains(&took), "{rate}, {count}: {took:?}");
            }
        }
        assert_eq!(n_turns_take(0, 4_000).await, Duration::ZERO);
    }

    #[tokio::test]
    async fn a_page_is_read_once_for_all_listeners() {
        for count in sizes_around("server::events::catch_up::MAX_PAGES", MAX_PAGES) {
            let catch_up = CatchUp::new(0);
            let n_reads = Cell::new(0);
            let page = async |after: i64| {
                let read = async {
                    tokio::task::yield_now().await;
                    n_reads.set(n_reads.get() + 1);
                    Ok::<_, ()>(vec![after + 1])
                };
                let page = catch_up.page(after, read).await.unwrap();
                assert_eq!(*page, [after + 1]);
            };
            let last = i64::try_from(count).unwrap();
            for after in 0..last {
                let (one, two) = tokio::join!(page(after), page(after));
                assert_eq!((one, two), ((), ()));
            }
            assert_eq!(n_reads.get(), count);
            // The oldest page was forgotten if there were more.
            for after in 0..last {
                page(after).await;
            }
            let n_again = if count > MAX_PAGES { count } else { 0 };
            assert_eq!(n_reads.get(), count + n_again);
        }
    }

    #[tokio::test]
    async fn an_empty_page_and_an_error_are_not_kept() {
        let catch_up = CatchUp::<i64>::new(0);
        let empty = catch_up.page(7, async { Ok::<_, ()>(Vec::new()) }).await;
        assert!(empty.unwrap().is_empty());
        assert!(catch_up.page(7, async { Err(()) }).await.is_err());
        let page = catch_up.page(7, async { Ok::<_, ()>(vec![8]) }).await;
        assert_eq!(*page.unwrap(), [8]);
    }
}
