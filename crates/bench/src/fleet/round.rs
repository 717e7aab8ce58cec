//! Measures a round over all pools, and a scan of all machines.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use engine::fleet::Scanner;
use serde_json::{Value, json};
use server::background::ProvisionRounds;
use server::background::driver::BackgroundTask;

use super::cloud::PROVIDER;
use super::host::{Host, peak_bytes};
use crate::figures::{count, median};
use crate::machine::Stopwatch;

/// Rounds that are measured after the first.
const ROUNDS: usize = 3;
/// Times of scans are given for this many workers.
const PER_WORKERS: f64 = 100_000.0;
/// The server leaves a scan of more than 30 s to the next one, which would then find less.
pub(super) const LONGEST_SCAN: Duration = Duration::from_secs(600);

pub(crate) async fn round(host: &Host) -> anyhow::Result<Value> {
    let mut rounds = ProvisionRounds(Arc::clone(&host.app.engine));
    let mut seconds = Vec::new();
    for _ in 0..=ROUNDS {
        seconds.push(activate(&mut rounds).await?);
    }
    let later = seconds.iter().skip(1).copied();
    Ok(json!({
        "firstSeconds": seconds.first(),
        "seconds": median(later),
        "peakBytes": peak_bytes(),
    }))
}

/// Each scan is also given without the time of the cloud, which no program can save. The server
/// works while the cloud does, so its processor time is given, too.
pub(crate) async fn scan(host: &Host) -> anyhow::Result<Value> {
    let provider_id = PROVIDER.parse().context("this is the id of a provider")?;
    let mut scanner = Scanner::new(Arc::clone(&host.app.engine), provider_id);
    let (mut seconds, mut of_cloud, mut own) = (Vec::new(), Vec::new(), Vec::new());
    let mut processor = Vec::new();
    let (mut calls, mut n_workers) = (0, 0);
    for _ in 0..=ROUNDS {
        let (watch, before) = (Stopwatch::start(), host.meter.read());
        scanner.scan_for(LONGEST_SCAN).await?;
        let took = watch.elapsed().as_secs_f64();
        let used = host.meter.read().zip(before);
        let looks = host.cloud.take_looks();
        (calls, n_workers) = (looks.count, looks.n_workers);
        seconds.push(took);
        of_cloud.push(looks.seconds);
        let share = PER_WORKERS / count(n_workers).max(1.0);
        own.push((took - looks.seconds) * share);
        processor.extend(used.map(|(after, before)| (after - before).answering() * share));
    }
    anyhow::ensure!(n_workers > 0, "the scan found no workers");
    let later = |seconds: Vec<f64>| median(seconds.into_iter().skip(1));
    Ok(json!({
        "firstSeconds": seconds.first(),
        "seconds": later(seconds),
        "peakBytes": peak_bytes(),
        "cloudCalls": calls,
        "cloudSeconds": later(of_cloud),
        "workers": n_workers,
        "ownSecondsPer100000": later(own),
        "processorSecondsPer100000": (!processor.is_empty()).then(|| later(processor)),
    }))
}

/// Returns how many seconds it took.
async fn activate(task: &mut impl BackgroundTask) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    task.activate().await.map_err(anyhow::Error::msg)?;
    Ok(watch.elapsed().as_secs_f64())
}
