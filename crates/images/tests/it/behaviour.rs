//! The behaviour of builders, on both trees.

mod builds;
mod commands;
mod crashes;
mod deletions;
mod fencing;
mod leftovers;
mod requests;
mod uploads;

/// Makes a test for each tree out of an async function that takes a `Twin`.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::world::Twin::embedded().await).await;
            })*
        }

        mod zookeeper {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(twin) = crate::world::Twin::zookeeper() {
                    super::$test(twin).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;
