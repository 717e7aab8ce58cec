//! One look at all pools, and one at all machines.

use std::sync::Arc;

use serde_json::{Value, json};
use server::tasks::driver::Task;
use server::tasks::{Rounds, Scan};

use super::host::{Host, peak_bytes};
use crate::failure::Failure;
use crate::machine::Stopwatch;

/// Rounds that are measured after the first.
const ROUNDS: usize = 3;

pub(super) async fn round(host: &Host) -> Result<Value, Failure> {
    let mut rounds = Rounds(Arc::clone(&host.app.engine));
    repeated(&mut rounds).await
}

pub(super) async fn scan(host: &Host) -> Result<Value, Failure> {
    let mut each = Scan::each(&host.app.engine);
    let scan = each
        .first_mut()
        .ok_or_else(|| Failure::failed("there is no provider"))?;
    let mut figures = repeated(scan).await?;
    let looks = host.cloud.take_looks();
    let scans = f64::from(u32::try_from(ROUNDS + 1).unwrap_or(u32::MAX));
    figures["cloudCalls"] = json!(looks.count / (ROUNDS as u64 + 1));
    figures["cloudSeconds"] = json!(looks.seconds / scans);
    Ok(figures)
}

async fn repeated(task: &mut impl Task) -> Result<Value, Failure> {
    let mut seconds = Vec::new();
    for _ in 0..=ROUNDS {
        let watch = Stopwatch::start();
        task.activate().await.map_err(Failure::failed)?;
        seconds.push(watch.elapsed().as_secs_f64());
    }
    let later = seconds.iter().skip(1).copied();
    Ok(json!({
        "firstSeconds": seconds.first(),
        "seconds": super::super::figures::median(later),
        "peakBytes": peak_bytes(),
    }))
}
