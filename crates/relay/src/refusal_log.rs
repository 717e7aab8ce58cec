//! Lines about refused hosts, whose senders choose their number: one a minute for an address and a
//! reason.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const PERIOD: Duration = Duration::from_secs(60);
/// Addresses with a line of their own in a minute.
const MAX_ADDRESSES: usize = 1_000;

#[derive(Default)]
pub(crate) struct RefusalLog(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    last: HashMap<IpAddr, Line>,
    /// Refusals of addresses beyond the limit.
    n_left_out: u64,
}

struct Line {
    at: Instant,
    reason: String,
    n_left_out: u64,
}

impl RefusalLog {
    /// Whether a refusal gets a line, and how many got none since the last line.
    pub(crate) fn line(&self, address: IpAddr, reason: &str) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |line: &Line| now.duration_since(line.at) < PERIOD;
        let mut n_left_out = 0;
        let is_full = lines.last.len() >= MAX_ADDRESSES;
        match lines.last.get_mut(&address) {
            Some(line) if is_current(line) && line.reason == reason => {
                line.n_left_out += 1;
                return None;
            }
            Some(line) => n_left_out = line.n_left_out,
            None if is_full => {
                lines.last.retain(|_, line| is_current(line));
                if lines.last.len() >= MAX_ADDRESSES {
                    lines.n_left_out += 1;
                    return None;
                }
                n_left_out = std::mem::take(&mut lines.n_left_out);
            }
            None => {}
        }
        let line = Line {
            at: now,
            reason: reason.to_owned(),
            n_left_out: 0,
        };
        lines.last.insert(address, line);
        Some(n_left_out)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testing::sizes_around;

    use super::*;

    fn address(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(number).unwrap()).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_refusal_has_one_line_a_minute_and_another_one_its_own() {
        let log = RefusalLog::default();
        assert_eq!(log.line(address(1), "a"), Some(0));
        assert_eq!(log.line(address(1), "a"), None);
        assert_eq!(log.line(address(2), "a"), Some(0));
        assert_eq!(log.line(address(1), "b"), Some(1));
        tokio::time::advance(PERIOD).await;
        assert_eq!(log.line(address(1), "b"), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_addresses_has_lines() {
        for size in sizes_around("relay::refusal_log::MAX_ADDRESSES", MAX_ADDRESSES) {
            let log = RefusalLog::default();
            let lines = (0..size).filter(|it| log.line(address(*it), "a").is_some());
            assert_eq!(lines.count(), size.min(MAX_ADDRESSES), "{size}");
            tokio::time::advance(PERIOD).await;
            let left_out = u64::try_from(size.saturating_sub(MAX_ADDRESSES)).unwrap();
            assert_eq!(log.line(address(100_000), "a"), Some(left_out), "{size}");
        }
    }
}
