//! Parses values of flags, and reads traces from files.

use std::io::Read as _;
use std::path::Path;

use simulate::scenario::ScenarioName;
use simulate::strategy::SimulatedStrategy;
use simulate::trace::{MAX_TRACE_BYTES, Trace};

use crate::failure::Failure;
use crate::output;

/// A week.
const MAX_SECONDS: f64 = 604_800.0;

pub(super) fn strategy(text: &str) -> Result<SimulatedStrategy, String> {
    text.parse::<SimulatedStrategy>()
        .map_err(|unknown| unknown.to_string())
}

pub(super) fn scenario(text: &str) -> Result<ScenarioName, String> {
    text.parse::<ScenarioName>()
        .map_err(|unknown| unknown.to_string())
}

/// A duration in seconds, in milliseconds.
pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    let ms = seconds.map(|seconds| (seconds * 1_000.0).round());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a week has few milliseconds"
    )]
    let ms = ms.map(|ms| ms as i64);
    ms.ok_or_else(|| format!("not a number of seconds from 0 to {MAX_SECONDS}"))
}

/// At least a tenth of a second, since each plan takes time.
pub(super) fn interval(text: &str) -> Result<i64, String> {
    let ms = seconds(text)?;
    if ms < 100 {
        return Err("an interval is at least 0.1 seconds".to_owned());
    }
    Ok(ms)
}

/// Notes on standard error if the records are not in the order of their times.
pub(super) fn read_trace(path: &Path) -> Result<Trace, Failure> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_TRACE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::from(files::unreadable(path, &error)))?;
    let path = path.display();
    let trace = Trace::parse(&bytes)
        .map_err(|bad| Failure::usage(format!("{path} is not a trace: {bad}")))?;
    if trace.n_out_of_order > 0 {
        let records = output::counted(trace.n_out_of_order, "record");
        output::note(&format!("{path}: sorted by time; out of order: {records}"));
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_decimals() {
        assert_eq!(seconds("20"), Ok(20_000));
        assert_eq!(seconds("0.25"), Ok(250));
        assert_eq!(seconds("0"), Ok(0));
        for bad in ["", "x", "-1", "NaN", "inf", "604801"] {
            let error = "not a number of seconds from 0 to 604800";
            assert_eq!(seconds(bad), Err(error.to_owned()), "{bad}");
        }
        assert_eq!(interval("0.1"), Ok(100));
        assert!(interval("0.09").is_err() && interval("0").is_err());
    }
}
