//! Follows long-running operations of a vendor.
//!
//! The row of a machine names its operation, so nothing here is needed for correctness: what is
//! kept only saves calls. Ended operations never change, and the others are asked about again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::time::{MINUTE_MS, Timestamp};
use futures_util::stream::{self, StreamExt as _};

use super::error::VendorError;

/// Operations that are asked about at the same time at most.
const MAX_AT_ONCE: usize = 8;
/// Ended operations that are remembered at most.
const MAX_KEPT: usize = 5_000;
/// Ended operations are remembered this long.
const KEEP_MS: i64 = 10 * MINUTE_MS;

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Succeeded,
    Failed {
        code: String,
        message: String,
    },
    /// The vendor knows no such operation, mostly because it is old.
    Unknown,
}

/// Asks the vendor about one operation, by the name that the row of the machine has.
#[async_trait]
pub(crate) trait AskOperation: Sync {
    async fn ask(&self, operation: &str) -> Result<Progress, VendorError>;
}

/// The operations that have ended lately.
#[derive(Default)]
pub(crate) struct Operations(Mutex<BTreeMap<String, (Timestamp, Progress)>>);

impl Operations {
    /// The progress of these operations, by their names. An error means that the vendor
    /// did not answer about the operation.
    pub(crate) async fn follow(
        &self,
        vendor: &dyn AskOperation,
        operations: &[String],
        now: Timestamp,
    ) -> BTreeMap<String, Result<Progress, VendorError>> {
        let mut found = BTreeMap::new();
        let mut questions = Vec::new();
        {
            let kept = self.kept(now);
            for operation in operations {
                match kept.get(operation) {
                    Some((_, progress)) => {
                        found.insert(operation.clone(), Ok(progress.clone()));
                    }
                    None => questions.push(operation),
                }
            }
        }
        let mut asked = Vec::new();
        for operation in questions {
            asked.push(async move { (operation.clone(), vendor.ask(operation).await) });
        }
        let mut answers = stream::iter(asked).buffer_unordered(MAX_AT_ONCE);
        while let Some((operation, progress)) = answers.next().await {
            if let Ok(progress) = &progress {
                self.keep(&operation, progress, now);
            }
            found.insert(operation, progress);
        }
        found
    }

    fn keep(&self, operation: &str, progress: &Progress, now: Timestamp) {
        let has_ended = match progress {
            Progress::Succeeded | Progress::Failed { .. } => true,
            Progress::Running | Progress::Unknown => false,
        };
        let mut kept = self.kept(now);
        if has_ended && kept.len() < MAX_KEPT {
            kept.insert(operation.to_owned(), (now, progress.clone()));
        }
    }

    fn kept(&self, now: Timestamp) -> MutexGuard<'_, BTreeMap<String, (Timestamp, Progress)>> {
        // Every statement leaves the state consistent, so a panic elsewhere does not spoil it.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A negative time: the clock was set back.
        kept.retain(|_, (at, _)| (0..KEEP_MS).contains(&now.millis_since(*at)));
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::testing::sizes_around;

    use super::*;
    use crate::tests::values::now;
    use crate::vendor::Failure;
    use crate::vendor::recorder::TEST_VENDOR;

    /// Operations whose names say how far they are.
    #[derive(Default)]
    struct Named {
        asked: AtomicUsize,
        at_once: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait]
    impl AskOperation for Named {
        async fn ask(&self, operation: &str) -> Result<Progress, VendorError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let n_now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(n_now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            match operation.split('-').next().unwrap() {
                "runs" => Ok(Progress::Running),
                "done" => Ok(Progress::Succeeded),
                "unknown" => Ok(Progress::Unknown),
                "failed" => Ok(Progress::Failed {
                    code: "STOCKOUT".to_owned(),
                    message: "none left".to_owned(),
                }),
                _ => Err(VendorError::new(
                    &TEST_VENDOR,
                    Failure::Lost("cut".to_owned()),
                )),
            }
        }
    }

    #[tokio::test]
    async fn operations_that_have_ended_are_asked_about_once() {
        let (vendor, operations) = (Named::default(), Operations::default());
        let names = ["runs", "done", "unknown", "failed", "lost"].map(str::to_owned);
        let first = operations.follow(&vendor, &names, now()).await;
        assert_eq!(first.len(), 5);
        assert_eq!(first["runs"].as_ref().unwrap(), &Progress::Running);
        assert!(first["lost"].is_err());
        assert!(matches!(first["failed"], Ok(Progress::Failed { .. })));
        let second = operations.follow(&vendor, &names, now()).await;
        assert_eq!(second["done"].as_ref().unwrap(), &Progress::Succeeded);
        assert_eq!(vendor.asked.load(Ordering::SeqCst), 5 + 3);
        let later = now().plus_millis(KEEP_MS);
        operations.follow(&vendor, &names, later).await;
        assert_eq!(vendor.asked.load(Ordering::SeqCst), 5 + 3 + 5);
    }

    #[tokio::test]
    async fn a_few_operations_are_asked_about_at_a_time() {
        for size in sizes_around("cloud::vendor::operations::MAX_AT_ONCE", MAX_AT_ONCE) {
            let vendor = Named::default();
            let names: Vec<String> = (0..size).map(|n| format!("done-{n}")).collect();
            let found = Operations::default().follow(&vendor, &names, now()).await;
            assert_eq!(found.len(), size);
            let most = vendor.most.load(Ordering::SeqCst);
            assert_eq!(most, size.min(MAX_AT_ONCE));
        }
    }

    #[test]
    fn a_limited_number_of_operations_is_kept() {
        for size in sizes_around("cloud::vendor::operations::MAX_KEPT", MAX_KEPT) {
            let operations = Operations::default();
            {
                let mut kept = operations.kept(now());
                for number in 0..size.min(MAX_KEPT) {
                    kept.insert(number.to_string(), (now(), Progress::Succeeded));
                }
            }
            operations.keep("another", &Progress::Succeeded, now());
            let n_kept = operations.kept(now()).len();
            assert_eq!(n_kept, (size + 1).min(MAX_KEPT), "{size}");
        }
    }
}
