//! The behaviour of builders, on both trees.

mod builds;
mod commands;
mod crashes;
mod deletions;
mod fencing;
mod forgeries;
mod leftovers;
mod lies;
mod requests;
mod uploads;

/// Makes a test for each tree out of an async function that takes a `Twin`.
macro_rules! on_both {
    ($($test:ident)*) => {
        crate::behaviour::on_embedded!($($test)*);
        crate::behaviour::on_zookeeper!($($test)*);
    };
}
pub(crate) use on_both;

/// As `on_both`, for tests to which sessions and faults of the tree do not matter: those on
/// ZooKeeper run only in `./check all`.
macro_rules! on_embedded_first {
    ($($test:ident)*) => {
        crate::behaviour::on_embedded!($($test)*);

        mod long {
            use super::*;

            crate::behaviour::on_zookeeper!($($test)*);
        }
    };
}
pub(crate) use on_embedded_first;

macro_rules! on_embedded {
    ($($test:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::world::Twin::embedded().await).await;
            })*
        }
    };
}
pub(crate) use on_embedded;

macro_rules! on_zookeeper {
    ($($test:ident)*) => {
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
pub(crate) use on_zookeeper;
