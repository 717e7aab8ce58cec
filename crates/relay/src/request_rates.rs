//! Limits of one address: requests in a second, and connections at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the requests of each address in the present second.
pub(crate) struct RequestRates {
    per_second: u32,
    present: Mutex<(Instant, HashMap<IpAddr, u32>)>,
}

impl RequestRates {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            present: Mutex::new((Instant::now(), HashMap::new())),
        }
    }

    /// Whether a request may go on. The map has no more addresses than requests came in a second.
    pub(crate) fn take(&self, address: IpAddr) -> bool {
        let now = Instant::now();
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(present.0) >= SECOND {
            *present = (now, HashMap::new());
        }
        let count = present.1.entry(address).or_default();
        *count = count.saturating_add(1);
        *count <= self.per_second
    }
}

/// Counts the open connections of each address.
pub(crate) struct OpenConnections {
    per_address: u32,
    open: Mutex<HashMap<IpAddr, u32>>,
}

/// A counted connection, until it is dropped.
pub(crate) struct OpenConnection {
    all: Arc<OpenConnections>,
    address: IpAddr,
}

impl OpenConnections {
    pub(crate) fn new(per_address: u32) -> Arc<Self> {
        Arc::new(Self {
            per_address,
            open: Mutex::default(),
        })
    }

    /// `None`: the address has too many.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<OpenConnection> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        Some(OpenConnection {
            all: Arc::clone(self),
            address,
        })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.all.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_number_of_requests_in_each_second() {
        for limit in [1, 5] {
            for n in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
                let rates = RequestRates::new(limit);
                let taken = (0..n).filter(|_| rates.take(HERE)).count();
                assert_eq!(taken, n.min(limit) as usize);
                assert!(rates.take(THERE), "another address");
                tokio::time::advance(SECOND).await;
                assert!(rates.take(HERE));
            }
        }
    }

    #[test]
    fn an_address_has_a_number_of_connections_until_they_end() {
        let limit = 3;
        for n in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
            let all = OpenConnections::new(limit);
            let open: Vec<_> = (0..n).filter_map(|_| all.enter(HERE)).collect();
            assert_eq!(open.len(), n.min(limit) as usize);
            assert!(all.enter(THERE).is_some());
            drop(open);
            assert!(all.open.lock().unwrap().is_empty());
        }
    }
}
