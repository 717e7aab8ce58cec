//! Limits how often an address may make calls that need no authorisation, or whose credentials are
//! invalid.
//!
//! Each address has a bucket of tokens that refills evenly; such a call takes one token. Machines
//! behind one NAT share a bucket, so buckets are large. An unused bucket is dropped, which is the
//! same as a full one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::time::{MINUTE_MS, Timestamp};

/// Two generations of at most this many addresses are kept.
const MAX_ADDRESSES: usize = 32 * 1024;
/// The size of a token in milliseconds: each of a minute's calls is refilled within a minute.
const TOKEN_MS: i64 = MINUTE_MS;

pub struct OpenCalls {
    /// Also the maximum burst. Zero: no limit.
    per_minute: i64,
    max_addresses: usize,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, thiserror::Error)]
#[error("Too many calls without valid credentials came from this address")]
pub struct TooManyCalls;

/// Addresses move to the young generation when they are used. When it is full, the old generation
/// is dropped and the young one becomes the old one.
#[derive(Default)]
struct Buckets {
    young: HashMap<IpAddr, Bucket>,
    old: HashMap<IpAddr, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    filled: i64,
    at_ms: i64,
}

impl OpenCalls {
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute: per_minute.into(),
            max_addresses: MAX_ADDRESSES,
            buckets: Mutex::default(),
        }
    }

    /// Takes a token, or refuses the call. Calls from this machine are not counted: a proxy may run
    /// there.
    pub fn take(&self, address: IpAddr, now: Timestamp) -> Result<(), TooManyCalls> {
        let Some(network) = self.counted(address) else {
            return Ok(());
        };
        let fresh = Bucket {
            filled: self.full(),
            at_ms: now.as_millis(),
        };
        let mut buckets = self.buckets();
        let bucket = buckets.bucket(network, fresh, self.max_addresses);
        *bucket = self.refilled(*bucket, now);
        if bucket.filled < TOKEN_MS {
            return Err(TooManyCalls);
        }
        bucket.filled -= TOKEN_MS;
        Ok(())
    }

    /// Whether a call of this address would be refused.
    pub fn is_exhausted(&self, address: IpAddr, now: Timestamp) -> bool {
        let bucket = self.counted(address).and_then(|network| {
            let buckets = self.buckets();
            let known = buckets.young.get(&network).or(buckets.old.get(&network));
            known.copied()
        });
        bucket.is_some_and(|bucket| self.refilled(bucket, now).filled < TOKEN_MS)
    }

    fn counted(&self, address: IpAddr) -> Option<IpAddr> {
        counted(address).filter(|_| self.per_minute > 0)
    }

    fn full(&self) -> i64 {
        self.per_minute.saturating_mul(TOKEN_MS)
    }

    fn refilled(&self, bucket: Bucket, now: Timestamp) -> Bucket {
        // A clock that was set back refills nothing.
        let passed = now.as_millis().saturating_sub(bucket.at_ms).max(0);
        let more = passed.saturating_mul(self.per_minute);
        Bucket {
            filled: bucket.filled.saturating_add(more).min(self.full()),
            at_ms: now.as_millis(),
        }
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    fn bucket(&mut self, address: IpAddr, fresh: Bucket, max: usize) -> &mut Bucket {
        if !self.young.contains_key(&address) && self.young.len() >= max {
            self.old = std::mem::take(&mut self.young);
        }
        let old = &mut self.old;
        let known = || old.remove(&address).unwrap_or(fresh);
        self.young.entry(address).or_insert_with(known)
    }
}

/// The network that is counted for this address; `None`: this machine, which is not counted.
pub(super) fn counted(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    (!address.is_loopback()).then(|| network(address))
}

/// A customer has one address of IPv4, and at least 2^64 of IPv6.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testing::sizes_around;

    use super::*;

    const LIMIT: u32 = 60;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + ms)
    }

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xC000_0200 + number).into()
    }

    /// How many of this many calls at once are accepted.
    fn let_in(calls: &OpenCalls, address: IpAddr, n_calls: u32, ms: i64) -> usize {
        let tries = (0..n_calls).map(|_| calls.take(address, at(ms)));
        tries.filter(Result::is_ok).count()
    }

    #[test]
    fn an_address_makes_a_bounded_number_of_calls_at_once() {
        for n_calls in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
            let calls = OpenCalls::new(LIMIT);
            let expected = n_calls.min(LIMIT) as usize;
            assert_eq!(let_in(&calls, client(1), n_calls, 0), expected, "{n_calls}");
            assert_eq!(let_in(&calls, client(2), 1, 0), 1, "another address");
        }
    }

    #[test]
    fn the_bucket_refills_evenly_up_to_its_limit() {
        let calls = OpenCalls::new(LIMIT);
        assert_eq!(let_in(&calls, client(1), LIMIT, 0), 60);
        assert_eq!(let_in(&calls, client(1), 1, 999), 0);
        assert_eq!(let_in(&calls, client(1), 2, 1_000), 1);
        assert_eq!(let_in(&calls, client(1), 20, 11_500), 10);
        assert_eq!(let_in(&calls, client(1), 100, 3_600_000), 60);
        // The clock is set back by an hour, and continues from there.
        assert_eq!(let_in(&calls, client(1), 1, 0), 0);
        assert_eq!(let_in(&calls, client(1), 2, 1_000), 1);
    }

    #[test]
    fn two_thousand_registrations_a_minute_from_one_address_pass() {
        let calls = OpenCalls::new(crate::config::Limits::default().open_calls_per_minute);
        for minute in 0..10 {
            assert_eq!(let_in(&calls, client(1), 2_000, minute * MINUTE_MS), 2_000);
        }
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_this_machine_is_not_counted() {
        let calls = OpenCalls::new(1);
        let take = |text: &str| calls.take(text.parse().unwrap(), at(0)).is_ok();
        assert!(take("2001:db8::1"));
        assert!(!take("2001:db8::2:3"));
        assert!(take("2001:db8:0:1::1"));
        assert!(take("192.0.2.9"));
        assert!(!take("::ffff:192.0.2.9"));
        for _ in 0..10 {
            assert!(take("127.0.0.1") && take("::1"));
        }
        let unlimited = OpenCalls::new(0);
        assert_eq!(let_in(&unlimited, client(1), 1_000, 0), 1_000);
    }

    #[test]
    fn a_bounded_number_of_addresses_is_kept_and_active_ones_stay() {
        let max = 10;
        for n_addresses in sizes_around("server::limits::open_calls::MAX_ADDRESSES", max) {
            let calls = OpenCalls {
                max_addresses: max,
                ..OpenCalls::new(1)
            };
            assert_eq!(let_in(&calls, client(0), 1, 0), 1);
            for number in 1..=n_addresses {
                let_in(&calls, client(u32::try_from(number).unwrap()), 1, 0);
                assert_eq!(let_in(&calls, client(0), 1, 0), 0, "it is still known");
            }
            let buckets = calls.buckets.lock().unwrap();
            assert!(buckets.young.len() <= max && buckets.old.len() <= max);
        }
    }
}
