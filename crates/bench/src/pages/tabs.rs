//! The cost of open tabs for the server while tasks come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::browser::Browser;
use super::served::Served;
use crate::figures::median;
use crate::load::{Connection, timed};
use crate::prepare::{create_task, signed};
use crate::{machine, processor};

const TASKS_PER_SECOND: u32 = 50;
/// Tasks come in turn for these, and half of the tabs show one of them.
const POOLS: u32 = 50;
const ROUNDS: u32 = 2;
/// For tabs that open, and for the looks of those that were closed.
const SETTLING: Duration = Duration::from_secs(3);

/// The share of a core that the server uses with and without tabs.
pub(super) async fn measure(
    served: &Served,
    browser: &Browser,
    n_tabs: u32,
    seconds: u32,
) -> anyhow::Result<Value> {
    let (mut without, mut with, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(share(served, seconds).await?);
        let bytes = Arc::new(AtomicU64::new(0));
        let mut tabs = JoinSet::new();
        for number in 0..n_tabs {
            tabs.spawn(tab(
                open(served, browser, number).await?,
                Arc::clone(&bytes),
            ));
        }
        machine::pause(SETTLING).await;
        bytes.store(0, Ordering::Relaxed);
        with.push(share(served, seconds).await?);
        let kibibytes = u32::try_from(bytes.load(Ordering::Relaxed) / 1_024)?;
        received.push(f64::from(kibibytes) / f64::from(seconds));
        anyhow::ensure!(tabs.try_join_next().is_none(), "a tab was closed");
        drop(tabs);
        machine::pause(SETTLING).await;
    }
    Ok(json!({
        "tabs": n_tabs,
        "shareWithout": median(without.iter().copied()),
        "shareWith": median(with.iter().copied()),
        "shareOfTabs": median(with) - median(without),
        "kibibytesPerSecond": median(received),
    }))
}

/// The share of a core that the server uses while tasks come.
async fn share(served: &Served, seconds: u32) -> anyhow::Result<f64> {
    let used = || processor::of_process(served.process()).context("no processor time is known");
    let mut connection = Connection::open(served.address).await?;
    let beat = Duration::from_secs(1) / TASKS_PER_SECOND;
    let mut beat = interval_at(Instant::now() + beat, beat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (before, start) = (used()?, Instant::now());
    for number in 0..seconds * TASKS_PER_SECOND {
        beat.tick().await;
        let pool = format!("bench/pool-{:06}", number % POOLS);
        let (_, call) = create_task(&pool, &["true"]);
        let request = signed(&call, served.address, served.credentials.as_ref());
        timed(&mut connection, request)
            .await
            .context("cannot create a task")?;
    }
    Ok((used()? - before) / start.elapsed().as_secs_f64())
}

async fn open(served: &Served, browser: &Browser, number: u32) -> anyhow::Result<TcpStream> {
    let page = match number % 4 {
        0 => "/".to_owned(),
        1 => "/workers".to_owned(),
        _ => format!("/pools/bench/pool-{:06}", number / 4 % POOLS),
    };
    let request = format!(
        "GET /live-page?at={} HTTP/1.1\r\nhost: {}\r\nuser-agent: {}\r\ncookie: {}\r\n\r\n",
        page.replace('/', "%2F"),
        served.address,
        browser.agent,
        browser.cookie,
    );
    let mut stream = TcpStream::connect(served.address).await?;
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads until the server ends the stream.
async fn tab(mut stream: TcpStream, bytes: Arc<AtomicU64>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}
