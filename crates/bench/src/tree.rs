//! Benchmarks of the tree: calls, the hand-over of a lock, and the load of an idle client.
//!
//! The embedded tree is in memory, so that the figures are its own and not those of a database.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use backplane::tree::{
    CallLimits, EmbeddedTree, Lifetime, Lock, MemoryStorage, Tree, TreeError, TreeLimits, TreePath,
    ZookeeperTree, create_with_lock, lock_path,
};
use clap::Args;
use engine::clock::SystemClock;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use crate::figures::Sample;
use crate::{machine, output, zookeeper};

const IN_FLIGHT: usize = 500;
const SESSION: Duration = Duration::from_secs(10);
/// A wait for a lock that takes longer is an error.
const LOCK_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Number of nodes that are created, set and read
    #[arg(long, default_value_t = 20_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// How often a lock is handed over
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hand_overs: u32,
    /// Number of nodes that an idle client watches
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    watched: u32,
    /// Seconds for which an idle client is watched
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    idle_seconds: u64,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let servers = zookeeper::servers()?;
    output::note("the embedded tree");
    let embedded = EmbeddedTree::open(
        Arc::new(MemoryStorage::default()),
        Arc::new(SystemClock),
        TreeLimits::default(),
        CallLimits::default(),
    );
    let embedded: Arc<dyn Tree> = Arc::new(embedded.await?.session());
    let of_embedded = measure(&embedded, &arguments).await?;
    output::note("ZooKeeper");
    let files = machine::temporary_folder()?;
    let name = files.path().file_name().unwrap_or_default();
    let root = format!("/{}", name.to_string_lossy());
    let tree = ZookeeperTree::open(zookeeper::settings(servers.clone(), &root, SESSION)?)?;
    tree.connected().await?;
    let tree: Arc<dyn Tree> = Arc::new(tree);
    let of_zookeeper = measure(&tree, &arguments).await?;
    let packets = idle_packets(&servers, &tree, &arguments).await?;
    let figures = json!({
        "embedded": of_embedded,
        "zookeeper": of_zookeeper,
        "idlePacketsPerMinute": packets,
    });
    output::figures(&figures, as_json, output::lines);
    Ok(())
}

async fn measure(tree: &Arc<dyn Tree>, arguments: &Arguments) -> anyhow::Result<Value> {
    let top: TreePath = "/top".parse()?;
    tree.create(&top, b"", Lifetime::Persistent).await?;
    let nodes = (0..arguments.nodes).map(|number| format!("/top/{number}").parse());
    let nodes: Vec<TreePath> = nodes.collect::<Result<_, _>>()?;
    // The second round is the figure: the first one warms up the server.
    calls_per_second(tree, &nodes).await?;
    for chunk in nodes.chunks(IN_FLIGHT) {
        try_join_all(chunk.iter().map(|node| tree.delete(node, None))).await?;
    }
    let mut figures = calls_per_second(tree, &nodes).await?;
    let times = hand_overs(tree, arguments.hand_overs).await?;
    let sample = Sample::new(times, Duration::ZERO);
    let hand_over = json!({"p50Ms": sample.percentile_ms(50), "p99Ms": sample.percentile_ms(99)});
    figures.insert("lockHandOver".to_owned(), hand_over);
    Ok(Value::Object(figures))
}

#[derive(Clone, Copy)]
enum Call {
    Create,
    Set,
    Get,
}

impl Call {
    async fn make(self, tree: &dyn Tree, node: &TreePath) -> Result<(), TreeError> {
        let data = [b'x'; 250];
        match self {
            Self::Create => {
                let created = tree.create(node, &data, Lifetime::Persistent);
                created.await.map(drop)
            }
            Self::Set => tree.set(node, &data, None).await.map(drop),
            Self::Get => tree.get(node).await.map(drop),
        }
    }
}

async fn calls_per_second(
    tree: &Arc<dyn Tree>,
    nodes: &[TreePath],
) -> anyhow::Result<Map<String, Value>> {
    let count = u32::try_from(nodes.len()).context("too many nodes")?;
    let mut figures = Map::new();
    for (name, call) in [
        ("createsPerSecond", Call::Create),
        ("setsPerSecond", Call::Set),
        ("getsPerSecond", Call::Get),
    ] {
        let watch = machine::Stopwatch::start();
        for chunk in nodes.chunks(IN_FLIGHT) {
            try_join_all(chunk.iter().map(|node| call.make(tree.as_ref(), node))).await?;
        }
        let rate = f64::from(count) / watch.elapsed().as_secs_f64();
        figures.insert(name.to_owned(), json!(rate));
    }
    Ok(figures)
}

/// From the release of a lock until the client that waits for it has it.
async fn hand_overs(tree: &Arc<dyn Tree>, count: u32) -> anyhow::Result<Vec<Duration>> {
    let node: TreePath = "/locked".parse()?;
    create_with_lock(tree, &node, b"").await?;
    let contenders = lock_path(&node)?;
    let mut times = Vec::new();
    let watch = Arc::new(machine::Stopwatch::start());
    for _ in 0..count {
        let held = Lock::acquire(tree, &node, "a", LOCK_LIMIT).await?;
        let (waiting, locked, clock) = (Arc::clone(tree), node.clone(), Arc::clone(&watch));
        let waiter = tokio::spawn(async move {
            let lock = Lock::acquire(&waiting, &locked, "b", LOCK_LIMIT).await;
            (lock, clock.elapsed())
        });
        while tree.children(&contenders).await?.len() < 2 {}
        // A moment for the waiter to set its watch.
        for _ in 0..3 {
            tree.exists(&node).await?;
        }
        let released = watch.elapsed();
        held.release().await?;
        let (lock, taken) = waiter.await?;
        times.push(taken - released);
        lock?.release().await?;
    }
    Ok(times)
}

/// Packets that the server receives in a minute in which nothing changes.
async fn idle_packets(
    servers: &str,
    tree: &Arc<dyn Tree>,
    arguments: &Arguments,
) -> anyhow::Result<u64> {
    output::note(&format!("an idle client, for {} s", arguments.idle_seconds));
    let mut watches = Vec::new();
    for number in 0..arguments.watched {
        let node: TreePath = format!("/top/{number}").parse()?;
        watches.push(tree.watch_node(&node).await?);
    }
    let subtree = tree.watch_subtree(&"/top".parse()?).await?;
    let before = zookeeper::packets_received(servers)?;
    machine::pause(Duration::from_secs(arguments.idle_seconds)).await;
    let received = zookeeper::packets_received(servers)? - before;
    drop((watches, subtree));
    Ok(received * 60 / arguments.idle_seconds)
}
