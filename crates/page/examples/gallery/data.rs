//! Made-up data that look like those of a fleet.

use page::charts::Series;

pub(crate) const MINUTE_MS: i64 = 60_000;
pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The 30th of November 2026, 08:31 UTC.
pub(crate) const START_MS: i64 = 1_796_027_460_000;
pub(crate) const N_MINUTES: i64 = 360;

/// The counts of a pool in one minute.
#[derive(Clone, Copy, Default)]
struct Pool {
    waiting: f64,
    busy: f64,
    idle: f64,
    booting: f64,
    requested: f64,
    leaving: f64,
    refused: f64,
}

/// The counts of a pool over time.
pub(crate) struct PoolSeries {
    pub(crate) waiting: Series,
    pub(crate) busy: Series,
    pub(crate) idle: Series,
    pub(crate) booting: Series,
    pub(crate) requested: Series,
    pub(crate) leaving: Series,
    pub(crate) refused: Series,
    pub(crate) capacity: Series,
    pub(crate) limit: Series,
}

/// A day's load of a pool with this limit; another seed is another day.
pub(crate) fn pool(seed: i64, limit: f64) -> PoolSeries {
    let mut pool = Pool::default();
    let minutes: Vec<Pool> = (0..N_MINUTES)
        .map(|minute| {
            pool = next(pool, seed, minute, limit);
            pool
        })
        .collect();
    let series = |value: fn(&Pool) -> f64| {
        // The record has a gap of eight minutes.
        let values = minutes.iter().zip(0..);
        let values = values.map(|(pool, minute)| {
            let is_gap = seed == 1 && (200..208).contains(&minute);
            (!is_gap).then(|| value(pool))
        });
        Series {
            from_ms: START_MS,
            step_ms: MINUTE_MS,
            values: values.collect(),
        }
    };
    PoolSeries {
        waiting: series(|pool| pool.waiting),
        busy: series(|pool| pool.busy),
        idle: series(|pool| pool.idle),
        booting: series(|pool| pool.booting),
        requested: series(|pool| pool.requested),
        leaving: series(|pool| pool.leaving),
        refused: series(|pool| pool.refused),
        capacity: series(|pool| pool.busy + pool.idle),
        limit: Series::new(START_MS, N_MINUTES * MINUTE_MS, [limit]),
    }
}

/// A number from 0 to 1 that looks like chance.
pub(crate) fn noise(seed: i64, number: i64) -> f64 {
    let mut bits = (seed * 7_919 + number).wrapping_mul(6_364_136_223_846_793_005);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(1_442_695_040_888_963_407);
    ((bits >> 33) & 0xffff) as f64 / 65_536.0
}

fn next(pool: Pool, seed: i64, minute: i64, limit: f64) -> Pool {
    let phase = (minute + 40 * seed) as f64 / 57.0;
    let wanted = limit * (0.55 + 0.65 * phase.sin()).max(0.04);
    let wanted = wanted * 0.06f64.mul_add(noise(seed, minute), 0.97);
    let capacity = pool.busy + pool.idle + pool.booting + pool.requested;
    let room = (limit - capacity).max(0.0);
    let asked = (wanted - capacity)
        .clamp(0.0, limit / 12.0)
        .min(room)
        .round();
    let is_refused = pool.requested > 0.0 && noise(seed, minute + 5_000) > 0.8;
    let granted = if is_refused {
        (pool.requested / 2.0).floor()
    } else {
        pool.requested
    };
    let ready = (pool.booting * 0.4).ceil();
    let there = pool.busy + pool.idle + ready;
    let spare = (there - wanted).max(0.0);
    let ended = if noise(seed, minute + 9_000) > 0.6 {
        (spare * 0.3).floor()
    } else {
        0.0
    };
    let busy = wanted.min(there - ended).round();
    Pool {
        waiting: (wanted - busy).max(0.0).round(),
        busy,
        idle: (there - ended - busy).max(0.0).round(),
        booting: pool.booting - ready + granted,
        requested: asked,
        leaving: (pool.leaving / 2.0).floor() + ended,
        refused: pool.requested - granted,
    }
}
