//! A call to a provider about the resources of a pool, within a limit.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use cloud::CloudError;
use futures_util::FutureExt as _;

/// Clouds make networks in minutes.
const CALL_LIMIT: Duration = Duration::from_secs(300);

/// Asks the provider, within a limit.
pub(super) async fn call<T>(
    asked: impl Future<Output = Result<T, CloudError>>,
) -> Result<T, CloudError> {
    let caught = AssertUnwindSafe(asked).catch_unwind();
    match tokio::time::timeout(CALL_LIMIT, caught).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(CloudError::Unavailable(
            "the provider's code panicked".to_owned(),
        )),
        Err(_) => Err(CloudError::Unavailable(format!(
            "no answer within {} s",
            CALL_LIMIT.as_secs()
        ))),
    }
}
