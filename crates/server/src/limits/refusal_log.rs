//! Limits the log lines about refused requests, whose senders choose their number.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use domain::time::{MINUTE_MS, Timestamp};

use super::OpenCalls;

/// One address has this part of the lines.
const PART_OF_ADDRESS: u32 = 10;

pub struct RefusalLog {
    per_minute: u32,
    of_address: OpenCalls,
    minute: Mutex<Minute>,
}

#[derive(Default)]
struct Minute {
    since_ms: i64,
    n_lines: u32,
    /// Refusals without a line, since the last line.
    n_left_out: u64,
}

impl RefusalLog {
    /// Zero: no lines.
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            of_address: OpenCalls::new((per_minute / PART_OF_ADDRESS).max(1)),
            minute: Mutex::default(),
        }
    }

    /// Whether a refusal of this address gets a line, and how many got none since the last line.
    pub fn line(&self, address: IpAddr, now: Timestamp) -> Option<u64> {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.as_millis().saturating_sub(minute.since_ms);
        // A clock that was set back begins another minute.
        if !(0..MINUTE_MS).contains(&passed) {
            (minute.since_ms, minute.n_lines) = (now.as_millis(), 0);
        }
        let has_room = minute.n_lines < self.per_minute;
        if !has_room || self.of_address.take(address, now).is_err() {
            minute.n_left_out += 1;
            return None;
        }
        minute.n_lines += 1;
        Some(std::mem::take(&mut minute.n_left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + ms)
    }

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xC000_0200 + number).into()
    }

    #[test]
    fn a_bounded_number_of_refusals_is_logged_and_the_others_are_counted() {
        const LIMIT: u32 = 20;
        for n in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
            let log = RefusalLog::new(LIMIT);
            let lines = (0..n).filter(|_| log.line(HERE, at(0)).is_some()).count();
            assert_eq!(lines, n.min(LIMIT) as usize, "{n}");
            let left_out = u64::from(n.saturating_sub(LIMIT));
            assert_eq!(log.line(HERE, at(MINUTE_MS)), Some(left_out));
            assert_eq!(log.line(HERE, at(MINUTE_MS)), Some(0));
        }
        assert_eq!(RefusalLog::new(0).line(HERE, at(0)), None);
    }

    #[test]
    fn one_address_has_a_part_of_the_lines() {
        let log = RefusalLog::new(30);
        let lines = |address| {
            let tries = (0..100).map(|_| log.line(address, at(0)));
            tries.filter(Option::is_some).count()
        };
        assert_eq!([1, 2, 3].map(|number| lines(client(number))), [3, 3, 3]);
        assert_eq!(lines(HERE), 21, "the rest");
    }
}
