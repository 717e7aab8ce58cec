//! One look at all pools, and one at all machines.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use server::tasks::driver::Task;
use server::tasks::{Rounds, Scan};

use super::host::{Host, peak_bytes};
use crate::machine::Stopwatch;

/// Rounds that are measured after the first.
const ROUNDS: usize = 3;

pub(crate) async fn round(host: &Host) -> anyhow::Result<Value> {
    let mut rounds = Rounds(Arc::clone(&host.app.engine));
    repeated(&mut rounds).await
}

pub(crate) async fn scan(host: &Host) -> anyhow::Result<Value> {
    let mut each = Scan::each(&host.app.engine);
    let scan = each.first_mut().context("there is no provider")?;
    let mut figures = repeated(scan).await?;
    let looks = host.cloud.take_looks();
    let scans = f64::from(u32::try_from(ROUNDS + 1).unwrap_or(u32::MAX));
    figures["cloudCalls"] = json!(looks.count / (ROUNDS as u64 + 1));
    figures["cloudSeconds"] = json!(looks.seconds / scans);
    Ok(figures)
}

async fn repeated(task: &mut impl Task) -> anyhow::Result<Value> {
    let mut seconds = Vec::new();
    for _ in 0..=ROUNDS {
        let watch = Stopwatch::start();
        task.activate().await.map_err(anyhow::Error::msg)?;
        seconds.push(watch.elapsed().as_secs_f64());
    }
    let later = seconds.iter().skip(1).copied();
    Ok(json!({
        "firstSeconds": seconds.first(),
        "seconds": crate::figures::median(later),
        "peakBytes": peak_bytes(),
    }))
}
