//! Series over time: of all pools, of a pool, of a launch config, and short ones of many pools.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::PoolId;
use domain::series::{FleetLevels, MAX_POINTS, Period, Point, SeriesKey, SeriesStep};
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use engine::series;
use serde_json::{Value, json};
use store::StoreError;
use store::series_points::{Parts, PoolPart, SeriesPoints};

use crate::api::{call::Call, error::ApiError, paging::Page, reply::Reply};

/// The time of a request that names none.
const USUAL_MS: i64 = DAY_MS;
/// Parts of a spark line.
const MAX_PARTS: i64 = 200;
/// Pools with spark lines in one reply.
const MAX_POOLS: u32 = 200;
/// Pools that a request names.
const MAX_NAMED: usize = 100;
/// A minute that ended this long ago should be recorded.
const LATE_MS: i64 = 2 * MINUTE_MS;

pub(super) async fn all(call: Call) -> Result<Reply, ApiError> {
    read(&call, SeriesKey::All).await
}

pub(super) async fn of_pool(call: Call) -> Result<Reply, ApiError> {
    let key = SeriesKey::Pool(call.pool_id()?);
    read(&call, key).await
}

pub(super) async fn of_launch_config(call: Call) -> Result<Reply, ApiError> {
    let key = SeriesKey::LaunchConfig(call.pool_id()?, call.id("launchConfigId")?);
    read(&call, key).await
}

/// The time that is asked for.
fn time(call: &Call) -> Result<(Timestamp, Timestamp), ApiError> {
    let moment = |name: &str, usual: Timestamp| match call.query(name) {
        None => Ok(usual),
        Some(text) => text
            .parse::<Timestamp>()
            .map_err(|bad| ApiError::input(format!("`{name}`: {bad}"))),
    };
    let until = moment("until", call.now)?;
    let from = moment("from", until.plus_millis(-USUAL_MS))?;
    if from >= until {
        return Err(ApiError::input(format!(
            "`from` ({from}) must be before `until` ({until})"
        )));
    }
    if from >= call.now {
        return Err(ApiError::input(format!(
            "`from` ({from}) must be in the past"
        )));
    }
    Ok((from, until.min(call.now)))
}

fn period(call: &Call) -> Result<Period, ApiError> {
    let (from, until) = time(call)?;
    let step = call.query("step").map(str::parse::<SeriesStep>).transpose();
    let step = step.map_err(|bad| ApiError::input(format!("`step`: {bad}")))?;
    let is_chosen = step.is_some();
    let step = step.unwrap_or_else(|| SeriesStep::finest(from, until, call.now));
    let period = Period::new(step, from, until);
    let n_points = period.n_points();
    if n_points > MAX_POINTS {
        let advice = match is_chosen {
            true => "ask for a shorter time, or for a longer step",
            false => "ask for a shorter time",
        };
        return Err(ApiError::input(format!(
            "From {from} to {until} there are {n_points} points of a {step}, and at most \
             {MAX_POINTS} are allowed: {advice}"
        )));
    }
    Ok(period)
}

async fn read(call: &Call, key: SeriesKey) -> Result<Reply, ApiError> {
    let period = period(call)?;
    let asked = key.clone();
    let read = call.scan("series_points", move |tx| series::read(tx, &asked, &period));
    let (points, last) = read.await?;
    // A misspelt name would look like a quiet pool.
    let Some(points) = points else {
        let name = match &key {
            SeriesKey::All => "The series of all pools".to_owned(),
            SeriesKey::Pool(id) => format!("Pool {id}"),
            SeriesKey::LaunchConfig(id, config) => format!("Launch config {config} of pool {id}"),
        };
        return Err(ApiError::not_found(format!(
            "{name} does not exist, and nothing was recorded of it since {}",
            period.from
        )));
    };
    Reply::json(&reply(&period, &points, last, call.now))
}

fn reply(period: &Period, points: &SeriesPoints, last: Option<Timestamp>, now: Timestamp) -> Value {
    let span = period.step.millis();
    // The present minute may be recorded in a moment, so it is not missing yet.
    let late = now.plus_millis(-LATE_MS).start_of(span);
    let end = last.map_or(late, |last| last.start_of(span).plus_millis(span).max(late));
    let recorded: BTreeMap<Timestamp, &Point> = points
        .points
        .iter()
        .map(|(since, point)| (*since, point))
        .collect();
    let mut maxima = points.maxima.iter().peekable();
    let mut maximum = None;
    let mut shown = Vec::new();
    for time in period.beginnings().take_while(|time| *time < end) {
        while let Some((_, value)) = maxima.next_if(|(at, _)| *at < time.plus_millis(span)) {
            maximum = Some(*value);
        }
        shown.push(match recorded.get(&time) {
            Some(point) => point_json(period.step, time, point, maximum),
            None => json!({"time": time.to_string(), "recorded": false}),
        });
    }
    json!({
        "step": period.step.as_str(),
        "from": period.from.to_string(),
        "until": period.until.to_string(),
        "points": shown,
    })
}

fn point_json(step: SeriesStep, time: Timestamp, point: &Point, maximum: Option<i64>) -> Value {
    let (levels, tallies) = (&point.values.levels, &point.values.tallies);
    let mean = |sum: i64| thousandths(point.mean_thousandths(sum));
    let mut shown = json!({
        "time": time.to_string(),
        "recorded": true,
        "minutes": point.minutes,
        "waiting": mean(levels.waiting),
        "requested": mean(levels.requested),
        "booting": mean(levels.booting),
        "idle": mean(levels.idle),
        "busy": mean(levels.busy),
        "leaving": mean(levels.leaving),
        "launched": tallies.launched,
        "refused": tallies.refused,
        "failed": tallies.failed,
        "cost": tallies.cost,
        "waited": tallies.waited,
    });
    if let Some(maximum) = maximum {
        shown["maximum"] = maximum.into();
    }
    if step != SeriesStep::Minute {
        shown["highest"] = levels_json(&point.highest);
    }
    shown
}

fn levels_json(levels: &FleetLevels) -> Value {
    json!({
        "waiting": levels.waiting,
        "requested": levels.requested,
        "booting": levels.booting,
        "idle": levels.idle,
        "busy": levels.busy,
        "leaving": levels.leaving,
    })
}

/// A whole number without decimals, or up to three of them.
fn thousandths(number: i64) -> Value {
    if number % 1_000 == 0 {
        return (number / 1_000).into();
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a picture needs no more digits than a double"
    )]
    let number = number as f64 / 1_000.0;
    number.into()
}

/// Short series of many pools.
pub(super) async fn of_pools(call: Call) -> Result<Reply, ApiError> {
    let parts = parts(&call)?;
    let mut page: Page<(String,)> = call.page()?;
    page.limit = page.limit.min(MAX_POOLS);
    let (after, limit) = (page.after_id::<PoolId>()?, page.limit_and_one());
    let named = named_pools(&call)?;
    let is_named = named.is_some();
    let read = call.scan("series_parts", move |tx| {
        let recorded = store::series_points::recorded_parts(tx, &parts)?;
        if let Some(pools) = named {
            let values = store::series_points::parts_of_named(tx, &pools, &parts)?;
            return Ok((pools, recorded, values));
        }
        let pools = store::series_points::pools(tx, after.as_ref(), limit)?;
        let values = match (pools.first(), pools.last()) {
            (Some(first), Some(last)) => store::series_points::parts(tx, (first, last), &parts)?,
            _ => Vec::new(),
        };
        Ok::<_, StoreError>((pools, recorded, values))
    });
    let (mut pools, recorded, values) = read.await?;
    let token = match is_named {
        true => None,
        false => page.cut(&mut pools, |id| (id.to_string(),)),
    };
    let mut lines: BTreeMap<PoolId, Vec<PoolPart>> = BTreeMap::new();
    for part in values {
        lines.entry(part.pool_id.clone()).or_default().push(part);
    }
    let n_parts = parts.until.millis_since(parts.from) / parts.part_ms;
    let recorded: BTreeMap<i64, u64> = recorded.into_iter().collect();
    let is_recorded = |part: &i64| recorded.contains_key(part);
    let pools = pools.into_iter().map(|id| {
        let line = lines.remove(&id).unwrap_or_default();
        line_json(&id, &line, n_parts, &is_recorded)
    });
    let mut reply = json!({
        "from": parts.from.to_string(),
        "until": parts.until.to_string(),
        "partMs": parts.part_ms,
        "recorded": (0..n_parts).map(|part| is_recorded(&part)).collect::<Vec<bool>>(),
        "pools": pools.collect::<Vec<Value>>(),
    });
    if let Some(token) = token {
        reply["continuationToken"] = token.into();
    }
    Reply::json(&reply)
}

/// The pools that the query names, separated by commas.
fn named_pools(call: &Call) -> Result<Option<Vec<PoolId>>, ApiError> {
    let Some(list) = call.query("pools") else {
        return Ok(None);
    };
    let pools: BTreeSet<PoolId> = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
    if pools.len() > MAX_NAMED {
        return Err(ApiError::input(format!(
            "`pools` names {} pools, and at most {MAX_NAMED} are allowed",
            pools.len()
        )));
    }
    Ok(Some(pools.into_iter().collect()))
}

/// The last part ends with the point that contains `until`.
fn parts(call: &Call) -> Result<Parts, ApiError> {
    let (from, until) = time(call)?;
    let n_parts = match call.query("points") {
        // Hours of the usual time: to read its minutes takes longer.
        None => 24,
        Some(text) => text
            .parse()
            .ok()
            .filter(|count| (1..=MAX_PARTS).contains(count))
            .ok_or_else(|| {
                ApiError::input(format!(
                    "`points` must be from 1 to {MAX_PARTS}, not {text}"
                ))
            })?,
    };
    let length = until.millis_since(from);
    let age = call.now.millis_since(from);
    let is_hourly =
        length >= n_parts * HOUR_MS || length > DAY_MS || age > SeriesStep::Minute.kept_ms();
    let is_daily = length >= n_parts * DAY_MS || age > SeriesStep::Hour.kept_ms();
    let step = match (is_daily, is_hourly) {
        (true, _) => SeriesStep::Day,
        (false, true) => SeriesStep::Hour,
        (false, false) => SeriesStep::Minute,
    };
    let span_ms = step.millis();
    let period = Period::new(step, from, until);
    let part_ms = (length + n_parts * span_ms - 1) / (n_parts * span_ms) * span_ms;
    let n_parts = (period.until.millis_since(period.from) + part_ms - 1) / part_ms;
    Ok(Parts {
        span_ms,
        from: period.until.plus_millis(-n_parts * part_ms),
        until: period.until,
        part_ms,
    })
}

fn line_json(
    id: &PoolId,
    line: &[PoolPart],
    n_parts: i64,
    is_recorded: &impl Fn(&i64) -> bool,
) -> Value {
    let mut line = line.iter().peekable();
    let (mut waiting, mut capacity) = (Vec::new(), Vec::new());
    for number in 0..n_parts {
        let part = line.next_if(|part| part.part == number);
        let value = |value: Option<i64>| match is_recorded(&number) {
            true => Value::from(value.unwrap_or(0)),
            false => Value::Null,
        };
        waiting.push(value(part.map(|part| part.waiting)));
        capacity.push(value(part.map(|part| part.capacity)));
    }
    json!({"workerPoolId": id.as_str(), "waiting": waiting, "capacity": capacity})
}
