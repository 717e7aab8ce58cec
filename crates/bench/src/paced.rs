//! Measures whether reads stay fast while workers register, 2,000 a minute.
//!
//! Both sides send at a fixed rate instead of as fast as possible: the result is how long a reader
//! waits, not how much could be read.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::figures::Sample;
use super::load::{Connection, Length, Requests, timed};
use super::prepare::World;
use super::scenario::Pace;
use crate::machine::Stopwatch;

const READERS: usize = 4;
const READ_BEAT: Duration = Duration::from_millis(10);
const REGISTRATIONS_PER_MINUTE: u32 = 2_000;

/// The latencies of readers, without and with registrations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    pub(crate) registrations_per_minute: f64,
    pub(crate) idle_p99_ms: f64,
    pub(crate) busy_p99_ms: f64,
    pub(crate) registration_p99_ms: f64,
}

pub(crate) async fn measure(
    address: SocketAddr,
    world: &World,
    pace: Pace,
) -> anyhow::Result<Mixed> {
    let (reads, registrations) = (world.reads(), world.registrations());
    let (round, mut total) = (pace.round(), Duration::ZERO);
    let (mut idle, mut busy, mut registered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pace.rounds {
        idle.extend(readers(address, &reads, round).await?);
        let beat = Duration::from_secs(60) / REGISTRATIONS_PER_MINUTE;
        let watch = Stopwatch::start();
        let (read, done) = tokio::join!(
            readers(address, &reads, round),
            one(address, registrations.clone(), 0, beat, round),
        );
        total += watch.elapsed();
        busy.extend(read?);
        registered.extend(done?);
    }
    let registrations = Sample::new(registered, total);
    Ok(Mixed {
        registrations_per_minute: registrations.per_second() * 60.0,
        idle_p99_ms: Sample::new(idle, total).percentile_ms(99),
        busy_p99_ms: Sample::new(busy, total).percentile_ms(99),
        registration_p99_ms: registrations.percentile_ms(99),
    })
}

async fn readers(
    address: SocketAddr,
    reads: &Requests,
    length: Length,
) -> anyhow::Result<Vec<Duration>> {
    let mut tasks = JoinSet::new();
    for reader in 0..READERS {
        let offset = reader * reads.prepared.len() / READERS;
        tasks.spawn(one(address, reads.clone(), offset, READ_BEAT, length));
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.context("a sender of requests panicked")??);
    }
    Ok(latencies)
}

async fn one(
    address: SocketAddr,
    requests: Requests,
    offset: usize,
    beat: Duration,
    length: Length,
) -> anyhow::Result<Vec<Duration>> {
    let mut connection = Connection::open(address)
        .await
        .context("cannot connect to the measured server")?;
    let mut beat = interval_at(Instant::now() + beat, beat);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let watch = Stopwatch::start();
    let mut latencies = Vec::new();
    while length.goes_on(latencies.len(), watch.elapsed()) {
        beat.tick().await;
        let position = (offset + latencies.len()) % requests.prepared.len();
        let request = requests.prepared[position].clone();
        latencies.push(timed(&mut connection, request).await?);
    }
    Ok(latencies)
}
