//! Measures series: what a minute of them costs, and what reads of them and the status cost.

use std::future::Future;

use domain::id::PoolId;
use domain::series::{Period, SeriesKey, SeriesStep};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use engine::{series, status};
use serde_json::{Value, json};
use store::series_points::Parts;
use store::{Store, StoreError};

use super::host::Host;
use crate::figures::median;
use crate::machine::{self, Stopwatch};
use crate::postgres;

const COPY: &str = include_str!("series.sql");
const CLEAR: &str = include_str!("quiet.sql");

/// Minutes that are measured, and reads of each kind.
const MINUTES: i64 = 20;
const READS: usize = 7;
/// Points of a series in a day: its minutes and its hours.
const COPIED: u64 = 1_464;
/// Pools with short series in one read.
const LINES: u32 = 100;

pub(crate) async fn measure(host: &Host, database: &str) -> anyhow::Result<Value> {
    let (engine, store) = (&host.app.engine, &host.app.engine.store);
    let start = machine::now().start_of(DAY_MS).plus_millis(-2 * DAY_MS);
    // The first minute makes the names.
    series::record_at(engine, start).await?;
    let (mut times, mut points) = (Vec::new(), 0);
    for minute in 1..=MINUTES {
        let watch = Stopwatch::start();
        let now = start.plus_millis(minute * MINUTE_MS);
        let recorded = series::record_at(engine, now).await?;
        times.push(watch.elapsed().as_secs_f64() * 1_000.0);
        points = recorded.points.unwrap_or(0);
    }
    let last = start.plus_millis(MINUTES * MINUTE_MS);
    let before = bytes(database).await?;
    fill_day(store, last).await?;
    let after = bytes(database).await?;
    let grown = after
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    let per_minute = grown.map(|grown| grown / COPIED);
    let now = last.plus_millis(DAY_MS);
    let pool: PoolId = "bench/pool-000000".parse()?;
    let key = SeriesKey::Pool(pool);
    let day = Period::new(SeriesStep::Minute, last, now);
    let read_day = reads(|| {
        let key = key.clone();
        store.read("bench_series", move |tx| {
            series::read(tx, &key, &day).map(drop)
        })
    });
    let read_day = read_day.await?;
    let lines = lines(store, SeriesStep::Hour, HOUR_MS, last).await?;
    let fine_lines = self::lines(store, SeriesStep::Minute, HOUR_MS / 2, last).await?;
    let status = reads(|| async { status::read(engine, machine::now()).await.map(drop) });
    let status = status.await?;
    store::year_old::run(store, CLEAR.to_owned()).await?;
    series::record_at(engine, now.plus_millis(MINUTE_MS)).await?;
    let mut quiet = Vec::new();
    for minute in 2..=MINUTES {
        let watch = Stopwatch::start();
        series::record_at(engine, now.plus_millis(minute * MINUTE_MS)).await?;
        quiet.push(watch.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(json!({
        "recordMs": median(times),
        "pointsPerMinute": points,
        "bytesPerMinute": per_minute,
        "quietMs": median(quiet),
        "readDayMs": read_day,
        "linesMs": lines,
        "fineLinesMs": fine_lines,
        "statusMs": status,
    }))
}

/// Copies the last minute to all minutes and hours of a day after it.
pub(super) async fn fill_day(store: &Store, last: Timestamp) -> anyhow::Result<()> {
    let hour = last.start_of(HOUR_MS);
    let sql = COPY.replace("#last", &last.as_millis().to_string());
    let sql = sql.replace("#hour", &hour.as_millis().to_string());
    store::year_old::run(store, sql).await?;
    Ok(())
}

async fn lines(
    store: &Store,
    step: SeriesStep,
    part_ms: i64,
    last: Timestamp,
) -> anyhow::Result<f64> {
    let from = last.start_of(HOUR_MS);
    let parts = Parts {
        span_ms: step.millis(),
        from,
        until: from.plus_millis(DAY_MS),
        part_ms,
    };
    reads(|| {
        store.read("bench_lines", move |tx| {
            let pools = store::series_points::pools(tx, None, LINES)?;
            if let (Some(first), Some(last)) = (pools.first(), pools.last()) {
                store::series_points::parts(tx, (first, last), &parts)?;
            }
            Ok::<_, StoreError>(())
        })
    })
    .await
}

/// The median time in milliseconds.
async fn reads<F>(read: impl Fn() -> F) -> anyhow::Result<f64>
where
    F: Future<Output = Result<(), StoreError>>,
{
    let mut times = Vec::new();
    for _ in 0..READS {
        let watch = Stopwatch::start();
        read().await?;
        times.push(watch.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(median(times))
}

/// The size of the database.
async fn bytes(database: &str) -> anyhow::Result<Option<u64>> {
    match database.strip_prefix("sqlite:") {
        Some(file) => Ok(std::fs::metadata(file).map(|file| file.len()).ok()),
        None => postgres::size(database).await.map(Some),
    }
}
