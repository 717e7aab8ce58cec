//! Recorded loads: files of records of eight bytes, as Taskcluster's simulator has them.
//!
//! A record is two big-endian unsigned numbers of 32 bits, in milliseconds: when the task was
//! created, from the start of the recording, and how long it ran.

use domain::time::DAY_MS;

use crate::scenario::Arrival;

/// The length of a record.
const RECORD_BYTES: usize = 8;
/// No trace is larger than this.
pub const MAX_TRACE_BYTES: u64 = 256 * 1024 * 1024;
/// A task that runs longer than this is a corrupt record.
const MAX_DURATION_MS: i64 = 14 * DAY_MS;

/// The tasks of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In the order of their times.
    pub arrivals: Vec<Arrival>,
    /// How many records were earlier than the record before them.
    pub n_out_of_order: usize,
}

/// A file that is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrace {
    #[error("it is empty: a trace has a record of {RECORD_BYTES} bytes for each task")]
    Empty,
    #[error(
        "it has {size} bytes, and its last record is cut off after {rest} of {RECORD_BYTES} bytes"
    )]
    Truncated { size: usize, rest: usize },
    #[error(
        "record {record} (at byte {byte}): the task runs {days} days, and no task runs longer than 14"
    )]
    TooLong {
        record: usize,
        byte: usize,
        days: i64,
    },
    #[error("it has more than {MAX_TRACE_BYTES} bytes")]
    TooLarge,
}

impl Trace {
    /// Reads a file. Records may be in any order.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadTrace> {
        let size = bytes.len();
        if size as u64 > MAX_TRACE_BYTES {
            return Err(BadTrace::TooLarge);
        }
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        if !rest.is_empty() {
            let rest = rest.len();
            return Err(BadTrace::Truncated { size, rest });
        }
        if records.is_empty() {
            return Err(BadTrace::Empty);
        }
        let arrivals = records.iter().enumerate().map(parse_record);
        let mut arrivals = arrivals.collect::<Result<Vec<Arrival>, _>>()?;
        let pairs = arrivals.windows(2);
        let n_out_of_order = pairs.filter(|pair| pair[1].at_ms < pair[0].at_ms).count();
        // Stable: tasks of the same time stay in the order of the file.
        arrivals.sort_by_key(|arrival| arrival.at_ms);
        Ok(Self {
            arrivals,
            n_out_of_order,
        })
    }
}

fn parse_record((index, record): (usize, &[u8; RECORD_BYTES])) -> Result<Arrival, BadTrace> {
    let [a, b, c, d, e, f, g, h] = *record;
    let duration_ms = i64::from(u32::from_be_bytes([e, f, g, h]));
    if duration_ms > MAX_DURATION_MS {
        return Err(BadTrace::TooLong {
            record: index + 1,
            byte: index * RECORD_BYTES,
            days: duration_ms / DAY_MS,
        });
    }
    Ok(Arrival {
        at_ms: i64::from(u32::from_be_bytes([a, b, c, d])),
        duration_ms,
        pool: 0,
        rank: 0,
    })
}
