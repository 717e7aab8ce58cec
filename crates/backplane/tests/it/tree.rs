//! The tree: one suite for both implementations, and faults of a real ZooKeeper.

mod client_process;
mod counting;
mod faults;
mod locks;
mod logins;
mod members;
mod nodes;
mod protection;
mod proxy;
mod seals;
mod storage;
mod transfers;
mod twin;
mod watches;

/// Makes a test for each implementation out of an async function that takes a `&Twin`.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&crate::tree::twin::Twin::embedded().await).await;
            })*
        }

        mod zookeeper {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(twin) = crate::tree::twin::Twin::zookeeper() {
                    super::$test(&twin).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;
