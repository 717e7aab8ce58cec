//! A registration storm: thousands of machines come up in one minute (the peers' bug class B20).

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use crate::ask::Answer;
use crate::database::{Database, on_databases};
use crate::fleet_world::{Fleet, POOL, machine, pool};

/// Machines that started within a minute when an API of a peer failed.
const STORM: u32 = 2_000;
/// As many requests at once as wait for each other.
const SMALL_STORM: u32 = 200;
/// Reads that are sent meanwhile.
const READS: u32 = 100;

async fn b20_a_storm_of_registrations_takes_nothing_down(database: Database, storm: u32) {
    let fleet = Fleet::open(database).await;
    fleet
        .make_pool(POOL, pool("one", storm, storm, &[machine("a")]))
        .await;
    // One plan starts a thousand machines at most.
    fleet.round().await;
    fleet.round().await;
    let keys = fleet.workers_in(POOL, "requested").await;
    assert_eq!(keys.len(), storm as usize);
    fleet.news().await;

    let (mut registrations, mut reads) = (JoinSet::new(), JoinSet::new());
    for key in &keys {
        registrations.spawn(fleet.registration(key).send());
    }
    for _ in 0..READS {
        reads.spawn(fleet.get("/worker-pool/pp%2Fee").send());
    }
    let read: Vec<Answer> = reads.join_all().await;
    assert!(read.iter().all(|answer| answer.status == 200));
    let mut secrets = BTreeSet::new();
    for answer in registrations.join_all().await {
        secrets.insert(answer.expect(200)["secret"].to_string());
    }
    assert_eq!(secrets.len(), keys.len());
    assert_eq!(fleet.states(POOL).await, format!("{storm} running"));
    let told = fleet.n_told("worker-running").await;
    assert_eq!(told, keys.len());
}

mod b20 {
    use super::*;

    async fn run(database: Database) {
        b20_a_storm_of_registrations_takes_nothing_down(database, SMALL_STORM).await;
    }

    on_databases!(
        both,
        tokio::test(flavor = "multi_thread", worker_threads = 4)
    );
}

mod b20_with_two_thousand_machines {
    use super::*;

    async fn run(database: Database) {
        b20_a_storm_of_registrations_takes_nothing_down(database, STORM).await;
    }

    on_databases!(
        long,
        tokio::test(flavor = "multi_thread", worker_threads = 4)
    );
}

impl Fleet {
    /// How often this event was published since the last call, which returns a thousand at a time.
    async fn n_told(&self, exchange: &str) -> usize {
        let mut count = 0;
        loop {
            let news = self.news().await;
            if news.is_empty() {
                return count;
            }
            count += news.iter().filter(|news| *news == exchange).count();
        }
    }
}
