//! Several calls of a cloud for one question: run together, and their results put together.

use std::fmt::Display;

use domain::id::ProviderId;
use futures_util::stream::{self, StreamExt as _};

use crate::CloudError;

/// Calls of one question that run at the same time at most.
pub(crate) const MAX_CALLS_AT_ONCE: usize = 8;

/// Runs all calls, some of them at a time. Results come in the order of the calls.
pub(crate) async fn run_together<F: Future>(calls: Vec<F>) -> Vec<F::Output> {
    stream::iter(calls)
        .buffered(MAX_CALLS_AT_ONCE)
        .collect()
        .await
}

/// The results of looks at machines. A failure must not hide the others, so it is the result only
/// if nothing succeeded.
pub(crate) fn successes<T, E>(
    provider_id: &ProviderId,
    results: impl IntoIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, CloudError>
where
    E: Display,
    CloudError: From<E>,
{
    let (mut seen, mut failed) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(one) => seen.push(one),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if seen.is_empty() => Err(error.into()),
        Some(error) => {
            tracing::warn!(provider.id = %provider_id, error = %error,
                "cannot look at some machines of {provider_id}: {error}");
            Ok(seen)
        }
        None => Ok(seen),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::testing::sizes_around;

    use super::*;

    #[tokio::test]
    async fn a_few_calls_run_at_a_time_and_their_results_are_in_order() {
        for size in sizes_around("cloud::several_calls::MAX_CALLS_AT_ONCE", MAX_CALLS_AT_ONCE) {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut calls = Vec::new();
            for number in 0..size {
                let (now, most) = (&now, &most);
                calls.push(async move {
                    let n_now = now.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(n_now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    number
                });
            }
            let results = run_together(calls).await;
            assert_eq!(results, (0..size).collect::<Vec<_>>());
            assert_eq!(most.into_inner(), size.min(MAX_CALLS_AT_ONCE));
        }
    }

    #[test]
    fn a_failure_hides_no_success() {
        let id = "cloud".parse().unwrap();
        let down = || CloudError::Unavailable("down".to_owned());
        let results = |list: Vec<Result<u8, CloudError>>| successes(&id, list);
        assert_eq!(results(vec![]), Ok(vec![]));
        assert_eq!(results(vec![Ok(1), Err(down()), Ok(2)]), Ok(vec![1, 2]));
        assert_eq!(results(vec![Err(down())]), Err(down()));
    }
}
