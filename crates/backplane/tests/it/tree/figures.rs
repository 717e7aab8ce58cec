//! Figures of the trees: run it by name, on a quiet machine and with a release build.
//!
//! `scripts/with-zookeeper cargo test --release -p fleetwright-backplane --test it figures
//! -- --ignored --nocapture --test-threads 1`

use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{Lifetime, Lock, Tree, TreePath, create_with_lock};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::twin::{Server, Twin, connect, path};

const N_CALLS: usize = 20_000;
const IN_FLIGHT: usize = 500;
const N_HAND_OVERS: usize = 500;
const N_WATCHED: usize = 1_000;
const IDLE: Duration = Duration::from_secs(60);

#[expect(clippy::print_stderr, reason = "figures are for people")]
fn show(text: &str) {
    eprintln!("{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it prints figures and takes minutes"]
async fn figures_of_the_embedded_tree() {
    let twin = Twin::embedded().await;
    measure("embedded, in memory", &twin.session().await.tree).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it prints figures and takes minutes"]
async fn figures_of_zookeeper() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    let mut settings = server.settings(&path("/figures"));
    settings.session = Duration::from_secs(10);
    let tree = connect(settings).await;
    measure("ZooKeeper", &tree).await;
    measure_idle(&server, &tree).await;
}

async fn measure(name: &str, tree: &Arc<dyn Tree>) {
    let top = path("/top");
    tree.create(&top, b"", Lifetime::Persistent).await.unwrap();
    let data = [b'x'; 250];
    let nodes: Vec<TreePath> = (0..N_CALLS).map(|n| path(&format!("/top/{n}"))).collect();
    // The second round is the figure: the first one warms up the server.
    for round in ["first", "second"] {
        for chunk in nodes.chunks(IN_FLIGHT) {
            join_all(chunk.iter().map(|node| tree.delete(node, None))).await;
        }
        let mut rates = Vec::new();
        for what in ["create", "set", "get"] {
            let start = Instant::now();
            for chunk in nodes.chunks(IN_FLIGHT) {
                let calls = chunk.iter().map(|node| async {
                    match what {
                        "create" => tree
                            .create(node, &data, Lifetime::Persistent)
                            .await
                            .map(drop),
                        "set" => tree.set(node, &data, None).await.map(drop),
                        _ => tree.get(node).await.map(drop),
                    }
                });
                assert!(join_all(calls).await.iter().all(Result::is_ok));
            }
            let rate = N_CALLS as f64 / start.elapsed().as_secs_f64();
            rates.push(format!("{what} {rate:.0}/s"));
        }
        show(&format!(
            "{name}, {round} round, {IN_FLIGHT} in flight: {}",
            rates.join(", ")
        ));
    }
    let node = path("/locked");
    create_with_lock(tree, &node, b"").await.unwrap();
    let mut times: Vec<u128> = Vec::new();
    for _ in 0..N_HAND_OVERS {
        let held = Lock::acquire(tree, &node, "a", Duration::from_secs(60))
            .await
            .unwrap();
        let (waiting, locked) = (Arc::clone(tree), node.clone());
        let waiter = tokio::spawn(async move {
            let lock = Lock::acquire(&waiting, &locked, "b", Duration::from_secs(60)).await;
            (lock.unwrap(), Instant::now())
        });
        let directory = backplane::tree::lock_path(&node).unwrap();
        while tree.children(&directory).await.unwrap().len() < 2 {}
        // A moment for the waiter to set its watch.
        for _ in 0..3 {
            tree.exists(&node).await.unwrap();
        }
        let start = Instant::now();
        held.release().await.unwrap();
        let (lock, taken) = waiter.await.unwrap();
        times.push((taken - start).as_micros());
        lock.release().await.unwrap();
    }
    times.sort_unstable();
    let (median, p99) = (times[N_HAND_OVERS / 2], times[N_HAND_OVERS * 99 / 100]);
    show(&format!(
        "{name}: lock hand-over median {median} us, p99 {p99} us"
    ));
}

/// Packets that the server received in a minute in which nothing changes.
async fn measure_idle(server: &Server, tree: &Arc<dyn Tree>) {
    let mut watches = Vec::new();
    for number in 0..N_WATCHED {
        watches.push(
            tree.watch_node(&path(&format!("/top/{number}")))
                .await
                .unwrap(),
        );
    }
    let subtree = tree.watch_subtree(&path("/top")).await.unwrap();
    let before = packets(server).await;
    let _ = tokio::time::timeout(IDLE, std::future::pending::<()>()).await;
    let n_packets = packets(server).await - before;
    drop((watches, subtree));
    show(&format!(
        "ZooKeeper: {n_packets} packets a minute with {N_WATCHED} watched nodes, session 10 s"
    ));
}

async fn packets(server: &Server) -> u64 {
    let mut stream = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    stream.write_all(b"mntr").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("zk_packets_received"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}
