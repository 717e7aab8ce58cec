//! How long a cloud asks not to be called again.
//!
//! Clouds say so in headers, of refusals and of successes, and far below the code that knows the
//! region and the kind of the call. So the caller opens a scope around its call, and the code that
//! reads headers notes there what it finds.

use std::cell::Cell;
use std::time::Duration;

/// Longest pause that a cloud may ask for.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(600);

tokio::task_local! {
    static ASKED: Cell<Option<Duration>>;
}

/// Makes calls, and returns their result with the longest pause that the cloud asked for meanwhile.
/// The calls run in the task of the caller.
pub async fn with_pause<T>(calls: impl Future<Output = T>) -> (T, Option<Duration>) {
    let scope = async {
        let result = calls.await;
        (result, ASKED.with(Cell::get))
    };
    ASKED.scope(Cell::new(None), scope).await
}

/// Notes that the cloud asks for a pause of its calls. Outside of a scope, nothing waits for it.
pub(crate) fn ask_for_pause(pause: Duration) {
    let pause = Some(pause.min(MAX_PAUSE));
    let _ = ASKED.try_with(|asked| asked.set(asked.get().max(pause)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_pause_of_the_calls_of_a_scope_counts() {
        let seconds = Duration::from_secs;
        ask_for_pause(seconds(1));
        let (result, pause) = with_pause(async {
            ask_for_pause(seconds(2));
            let inner = with_pause(async { ask_for_pause(seconds(9)) }).await;
            assert_eq!(inner.1, Some(seconds(9)));
            tokio::task::yield_now().await;
            ask_for_pause(seconds(3));
            ask_for_pause(seconds(1));
            7
        })
        .await;
        assert_eq!((result, pause), (7, Some(seconds(3))));
        assert_eq!(with_pause(async {}).await.1, None);
        let (_, pause) = with_pause(async { ask_for_pause(seconds(100_000)) }).await;
        assert_eq!(pause, Some(MAX_PAUSE));
    }
}
