//! Limits the memory of all requests' bodies together, as text and parsed.
//!
//! Calls without known clients have a budget of their own, of which each address has a share. With
//! its first byte, a body takes memory for its announced length: if bodies took it piece by piece,
//! those that have a part of what they need would wait for each other. A connection that sends
//! nothing holds nothing.
//!
//! Texts take at most half of a budget. The other half is for parsing, so complete texts never wait
//! for each other. A small body does not wait behind a large one: the first that fits continues.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::open_calls;

/// For all calls without known clients, together.
const OPEN_BYTES: usize = 32 * 1024 * 1024;
/// For such calls from one address, behind which thousands of machines may start at once.
const ADDRESS_BYTES: usize = 8 * 1024 * 1024;
/// A body waits at most this long for memory, in all.
const WAIT: Duration = Duration::from_secs(5);

/// Memory for bodies, counted in bytes.
pub struct BodyBudget {
    open: Arc<Pool>,
    admitted: Arc<Pool>,
}

/// The share of one request; dropping it returns the memory.
#[derive(Debug)]
pub struct BodyShare {
    pool: Arc<Pool>,
    /// The address whose share it uses, if addresses are counted.
    address: Option<IpAddr>,
    held: Taken,
    /// For how long it may still wait.
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("The bodies of other requests use all the memory that is reserved for bodies")]
pub struct NoMemory;

#[derive(Debug)]
struct Pool {
    bytes: usize,
    taken: Mutex<Ledger>,
    given_back: Notify,
}

/// Addresses without memory are removed, so there are at most as many as connections.
#[derive(Debug, Default)]
struct Ledger {
    together: Taken,
    by_address: HashMap<IpAddr, Taken>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    text: usize,
    parsed: usize,
}

impl BodyBudget {
    /// `admitted_bytes`: for all requests of known clients.
    pub fn new(admitted_bytes: usize) -> Self {
        Self {
            open: Pool::new(OPEN_BYTES),
            admitted: Pool::new(admitted_bytes),
        }
    }

    pub fn open(&self, address: IpAddr) -> BodyShare {
        BodyShare::of(&self.open, open_calls::counted(address))
    }

    pub fn admitted(&self) -> BodyShare {
        BodyShare::of(&self.admitted, None)
    }

    /// The maximum memory of one request: a part of the budget, so that large requests leave room
    /// for others, but enough for an ordinary body of the maximum size, as text and parsed.
    pub fn admitted_weight(&self, max_body_bytes: usize) -> usize {
        let bytes = self.admitted.bytes;
        (bytes / 4).max(2 * max_body_bytes).min(bytes)
    }

    /// The free memory for requests of known clients, and for other calls.
    pub fn free(&self) -> (usize, usize) {
        (self.admitted.free(), self.open.free())
    }
}

impl BodyShare {
    fn of(pool: &Arc<Pool>, address: Option<IpAddr>) -> Self {
        Self {
            pool: Arc::clone(pool),
            address,
            held: Taken::default(),
            patience: WAIT,
        }
    }

    /// Takes this many more bytes for text; waits for other requests if necessary.
    pub async fn grow_text(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let text = Taken {
            text: bytes,
            parsed: 0,
        };
        self.grow(text).await
    }

    /// The same for the parsed values.
    pub async fn grow_parsed(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let parsed = Taken {
            text: 0,
            parsed: bytes,
        };
        self.grow(parsed).await
    }

    async fn grow(&mut self, more: Taken) -> Result<(), NoMemory> {
        if !self.take(more) {
            let pool = Arc::clone(&self.pool);
            let waiting = async {
                loop {
                    let mut given_back = std::pin::pin!(pool.given_back.notified());
                    // From here on, no returned memory is missed.
                    given_back.as_mut().enable();
                    if self.take(more) {
                        return;
                    }
                    given_back.await;
                }
            };
            let since = Instant::now();
            let waited = tokio::time::timeout(self.patience, waiting).await;
            self.patience = self.patience.saturating_sub(since.elapsed());
            waited.map_err(|_| NoMemory)?;
        }
        self.held = self.held.plus(more);
        Ok(())
    }

    fn take(&self, more: Taken) -> bool {
        self.pool.ledger().take(self.pool.bytes, self.address, more)
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        if self.held != Taken::default() {
            self.pool.ledger().give_back(self.address, self.held);
            self.pool.given_back.notify_waiters();
        }
    }
}

impl Pool {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            taken: Mutex::default(),
            given_back: Notify::new(),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> usize {
        self.bytes - self.ledger().together.all()
    }
}

impl Ledger {
    /// Takes it, if both the budget and the share of the address have room.
    fn take(&mut self, bytes: usize, address: Option<IpAddr>, more: Taken) -> bool {
        let together = self.together.plus(more);
        if !together.fits(bytes, more) {
            return false;
        }
        if let Some(address) = address {
            let known = self.by_address.get(&address).copied();
            let of_address = known.unwrap_or_default().plus(more);
            if !of_address.fits(ADDRESS_BYTES, more) {
                return false;
            }
            if of_address != Taken::default() {
                self.by_address.insert(address, of_address);
            }
        }
        self.together = together;
        true
    }

    fn give_back(&mut self, address: Option<IpAddr>, held: Taken) {
        self.together = self.together.minus(held);
        let Some(address) = address else {
            return;
        };
        if let Some(of_address) = self.by_address.get_mut(&address) {
            *of_address = of_address.minus(held);
            if *of_address == Taken::default() {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Taken {
    fn all(self) -> usize {
        self.text.saturating_add(self.parsed)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            text: self.text.saturating_add(other.text),
            parsed: self.parsed.saturating_add(other.parsed),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            text: self.text - other.text,
            parsed: self.parsed - other.parsed,
        }
    }

    /// Whether this many bytes fit, the last of which is `more`.
    fn fits(self, bytes: usize, more: Self) -> bool {
        self.all() <= bytes && (more.text == 0 || self.text <= bytes / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMIT: usize = 1_000;
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xC000_0200 + number).into()
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_take_at_most_the_budget() {
        for bytes in [0, 1, LIMIT / 2 - 1, LIMIT / 2] {
            let budget = BodyBudget::new(LIMIT);
            let mut share = budget.admitted();
            share.grow_text(bytes).await.unwrap();
            assert_eq!(budget.free(), (LIMIT - bytes, OPEN_BYTES));
            share.grow_parsed(LIMIT - bytes).await.unwrap();
            assert_eq!(budget.free(), (0, OPEN_BYTES));
            drop(share);
            assert_eq!(budget.free(), (LIMIT, OPEN_BYTES));
        }
        for bytes in [LIMIT / 2 + 1, LIMIT, LIMIT + 1, usize::MAX] {
            let budget = BodyBudget::new(LIMIT);
            budget.admitted().grow_text(bytes).await.unwrap_err();
            let parsed = budget.admitted().grow_parsed(bytes).await;
            assert_eq!(parsed.is_ok(), bytes <= LIMIT, "{bytes}");
            assert_eq!(budget.free().0, LIMIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_others_for_a_limited_time() {
        let budget = BodyBudget::new(LIMIT);
        let (mut first, mut second) = (budget.admitted(), budget.admitted());
        first.grow_text(LIMIT / 2 - 1).await.unwrap();
        let start = Instant::now();
        assert!(second.grow_text(2).await.is_err());
        assert_eq!(start.elapsed(), WAIT);
        // The patience of that one has ended.
        let mut second = budget.admitted();
        let later = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (grown, ()) = tokio::join!(second.grow_text(2), later);
        grown.unwrap();
        assert_eq!(budget.free().0, LIMIT - 2);
        drop(second);
        assert_eq!(budget.free().0, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_waits_several_times_waits_no_longer_in_all() {
        let budget = BodyBudget::new(LIMIT);
        let mut share = budget.admitted();
        let start = Instant::now();
        for n_waits in 1..=3 {
            let mut first = budget.admitted();
            first.grow_text(LIMIT / 2 - share.held.text).await.unwrap();
            let later = async {
                // Time: its test stops it.
                let _ = tokio::time::timeout(Duration::from_secs(2), std::future::pending::<()>())
                    .await;
                drop(first);
            };
            let (grown, ()) = tokio::join!(share.grow_text(1), later);
            assert_eq!(grown.is_ok(), n_waits < 3);
        }
        assert_eq!(start.elapsed(), Duration::from_secs(6));
        // It asks for nothing more, and others go on.
        drop(share);
        assert_eq!(budget.free().0, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn texts_leave_room_for_parsing_so_large_bodies_do_not_block_each_other() {
        let budget = BodyBudget::new(LIMIT);
        let mut shares: Vec<_> = (0..5).map(|_| budget.admitted()).collect();
        for share in &mut shares {
            share.grow_text(LIMIT / 10).await.unwrap();
        }
        // Each takes all the room for parsing, so they continue one after the other.
        let parsed = shares.into_iter().map(|mut share| async move {
            share.grow_parsed(LIMIT / 2).await.unwrap();
            tokio::task::yield_now().await;
        });
        let start = Instant::now();
        futures_util::future::join_all(parsed).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(budget.free().0, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_does_not_wait_behind_a_large_one() {
        let budget = BodyBudget::new(LIMIT);
        let (mut first, mut heavy) = (budget.admitted(), budget.admitted());
        first.grow_parsed(LIMIT / 2).await.unwrap();
        let start = Instant::now();
        let light = async {
            tokio::task::yield_now().await;
            let mut light = budget.admitted();
            light.grow_text(LIMIT / 4).await.unwrap();
            light.grow_parsed(LIMIT / 4).await.unwrap();
            drop((light, first));
        };
        let (grown, ()) = tokio::join!(heavy.grow_parsed(LIMIT / 2 + 1), light);
        grown.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[test]
    fn one_request_takes_a_quarter_or_the_size_of_the_largest_ordinary_body() {
        let budget = BodyBudget::new(LIMIT);
        for (max_body, expected) in [(1, 250), (125, 250), (126, 252), (500, 1_000)] {
            assert_eq!(budget.admitted_weight(max_body), expected, "{max_body}");
        }
    }

    #[tokio::test]
    async fn open_calls_take_nothing_from_known_clients() {
        let budget = BodyBudget::new(LIMIT);
        let mut taken = budget.open(HERE);
        taken.grow_parsed(OPEN_BYTES).await.unwrap();
        assert_eq!(budget.free(), (LIMIT, 0));
        budget.admitted().grow_parsed(LIMIT).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_share_of_the_budget_for_open_calls() {
        for bytes in [
            0,
            1,
            ADDRESS_BYTES - 1,
            ADDRESS_BYTES,
            ADDRESS_BYTES + 1,
            OPEN_BYTES,
        ] {
            let budget = BodyBudget::new(LIMIT);
            let mut share = budget.open(client(1));
            let grown = share.grow_parsed(bytes).await;
            assert_eq!(grown.is_ok(), bytes <= ADDRESS_BYTES, "{bytes}");
            // Of several requests together.
            let rest = ADDRESS_BYTES - share.held.all();
            let mut second = budget.open(client(1));
            assert!(second.grow_parsed(rest + 1).await.is_err());
            second.grow_parsed(rest).await.unwrap();
            budget.open(client(2)).grow_text(LIMIT).await.unwrap();
            // This machine has no share: a proxy may run here.
            let free = budget.free().1;
            budget.open(HERE).grow_parsed(free).await.unwrap();
            drop((share, second));
            assert_eq!(budget.free(), (LIMIT, OPEN_BYTES));
            assert!(budget.open.ledger().by_address.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn texts_of_an_address_take_half_of_its_share() {
        let budget = BodyBudget::new(LIMIT);
        let (mut first, mut second) = (budget.open(client(1)), budget.open(client(1)));
        first.grow_text(ADDRESS_BYTES / 2).await.unwrap();
        assert!(second.grow_text(1).await.is_err());
        first.grow_parsed(ADDRESS_BYTES / 2).await.unwrap();
    }
}
