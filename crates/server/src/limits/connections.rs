//! Places of connections: their number is limited, and callers without credentials share the rest
//! of it.
//!
//! A connection is *known* once a client has proved itself on it. A known connection is never
//! closed to make room. All others are *open*: they wait for a request, or a request is under way.
//!
//! - If all places are taken, a new connection gets the place of an open one. Waiting connections
//!   go first: the longest waiting one of the address with the most of them. So an address that
//!   takes many places loses its own.
//! - Known connections leave some places to the others, so that health checks are answered.
//! - One address has a part of all places for open connections. Beyond it, the address loses its
//!   own. This machine, and trusted proxies, have no such limit.
//! - Heads of requests that have not arrived completely have a budget. Beyond it, the oldest goes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::connection_table::{Reason, Table};
use super::open_calls::{counted, network};
use crate::config::{Limits, MAX_HEAD_BYTES};

/// Known connections leave this many places to others, or a tenth if that is less.
const MAX_SPARED: usize = 32;

/// The places of all connections of a server.
pub struct Connections {
    max: usize,
    max_known: usize,
    /// For open connections of one address.
    max_of_address: usize,
    /// For heads of requests that have not arrived completely.
    max_head_bytes: usize,
    /// Open connections that may stay after a reply.
    max_kept: usize,
    table: Mutex<Table>,
    left: Notify,
}

/// The place of one connection; dropping it leaves the place to others.
pub struct ConnectionPlace(Arc<Connection>);

/// The state of a connection, as far as its place depends on it.
pub struct Connection {
    connections: Arc<Connections>,
    network: IpAddr,
    closing: CancellationToken,
    state: Mutex<State>,
}

/// Dropping it ends the request.
pub struct UnderWay(Arc<Connection>);

#[derive(Debug, thiserror::Error)]
#[error(
    "Clients use all connections of this server: try again later. Its operator may raise \
     `server.max_connections`"
)]
pub struct TooManyConnections;

#[derive(Clone, Copy, Debug)]
struct State {
    /// The place in the order of those in the same stage.
    turn: u64,
    stage: Stage,
    /// Whether an open connection has one of the places of those that stay after a reply.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For a request, or the rest of its head.
    Waiting,
    Busy,
    Known,
    Left,
}

impl Connections {
    pub fn new(limits: &Limits) -> Arc<Self> {
        let max = limits.max_connections;
        // A proxy has the connections of all its clients.
        let of_address = match limits.connections_per_address {
            Some(0) => usize::MAX,
            _ if limits.trusted_proxies > 0 => usize::MAX,
            Some(of_address) => of_address,
            None => (max / 4).max(1),
        };
        Arc::new(Self {
            max,
            max_known: max - (max / 10).min(MAX_SPARED),
            max_of_address: of_address,
            max_head_bytes: limits.head_memory_bytes,
            max_kept: limits.head_memory_bytes / MAX_HEAD_BYTES,
            table: Mutex::default(),
            left: Notify::new(),
        })
    }

    /// Takes a place, which an open connection leaves if necessary. Waits if known clients have
    /// all places.
    pub async fn enter(self: &Arc<Self>, peer: IpAddr) -> ConnectionPlace {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // From here on, no place that is left is missed.
            left.as_mut().enable();
            if let Some(place) = self.try_enter(peer) {
                return place;
            }
            left.await;
        }
    }

    /// A free place; otherwise asks another connection to leave.
    fn try_enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPlace> {
        let network = network(peer.to_canonical());
        let mut table = self.table();
        if table.n_taken >= self.max {
            table.close_any();
            return None;
        }
        table.n_taken += 1;
        let closing = CancellationToken::new();
        let turn = table.turn();
        table.change(network, |crowd| {
            crowd.waiting.insert(turn, closing.clone());
        });
        if counted(peer).is_some() && table.n_open(network) > self.max_of_address {
            table.close_of(network, Reason::Address);
        }
        Some(ConnectionPlace(Arc::new(Connection {
            connections: Arc::clone(self),
            network,
            closing,
            state: Mutex::new(State {
                turn,
                stage: Stage::Waiting,
                is_kept: false,
            }),
        })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    pub fn connection(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Connection {
    /// Cancelled when this connection must leave its place.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// This many bytes of a head have arrived, and more are to come.
    pub fn hold_head(&self, bytes: usize) {
        let state = self.state();
        if state.stage == Stage::Waiting {
            let mut table = self.connections.table();
            table.hold_head(state.turn, self.network, bytes);
            while table.head_bytes > self.connections.max_head_bytes {
                table.close_oldest_head();
            }
        }
    }

    /// A request is under way, until the value is dropped.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.go_on(Stage::Waiting, Stage::Busy);
        UnderWay(Arc::clone(self))
    }

    /// The sender of the request is a known client.
    pub fn identify(&self) -> Result<(), TooManyConnections> {
        let mut state = self.state();
        if matches!(state.stage, Stage::Known | Stage::Left) {
            return Ok(());
        }
        let mut table = self.connections.table();
        if table.n_known >= self.connections.max_known {
            return Err(TooManyConnections);
        }
        table.n_known += 1;
        self.forget(&mut table, &mut state);
        state.stage = Stage::Known;
        Ok(())
    }

    /// Whether the connection may stay after the reply that is sent now. A connection takes memory
    /// while it waits for another request.
    pub fn may_stay(&self) -> bool {
        let mut state = self.state();
        if matches!(state.stage, Stage::Known | Stage::Left) || state.is_kept {
            return true;
        }
        let mut table = self.connections.table();
        state.is_kept = table.n_kept < self.connections.max_kept;
        table.n_kept += usize::from(state.is_kept);
        state.is_kept
    }

    fn leave(&self) {
        let mut state = self.state();
        let mut table = self.connections.table();
        table.n_taken -= 1;
        table.n_known -= usize::from(state.stage == Stage::Known);
        self.forget(&mut table, &mut state);
        state.stage = Stage::Left;
        drop(table);
        self.connections.left.notify_waiters();
    }

    /// Moves an open connection behind all others of the next stage.
    fn go_on(&self, from: Stage, to: Stage) {
        let mut state = self.state();
        if state.stage != from {
            return;
        }
        let mut table = self.connections.table();
        table.drop_head(state.turn);
        let (old, new) = (state.turn, table.turn());
        table.change(self.network, |crowd| {
            // It is missing if it was closed meanwhile.
            if let Some(closing) = crowd.take(old) {
                let others = match to {
                    Stage::Busy => &mut crowd.busy,
                    Stage::Waiting | Stage::Known | Stage::Left => &mut crowd.waiting,
                };
                others.insert(new, closing);
            }
        });
        (state.turn, state.stage) = (new, to);
    }

    fn forget(&self, table: &mut Table, state: &mut State) {
        table.forget(self.network, state.turn);
        table.n_kept -= usize::from(std::mem::take(&mut state.is_kept));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.go_on(Stage::Busy, Stage::Waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt as _;
    use testing::sizes_around;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xC000_0200 + number).into()
    }

    fn connections(max: usize, per_address: Option<usize>) -> Arc<Connections> {
        Connections::new(&Limits {
            max_connections: max,
            connections_per_address: per_address,
            ..Limits::default()
        })
    }

    fn enter(connections: &Arc<Connections>, peer: IpAddr) -> ConnectionPlace {
        let entered = connections.enter(peer).now_or_never();
        entered.expect("there is a free place")
    }

    fn is_closing(place: &ConnectionPlace) -> bool {
        place.connection().closing().is_cancelled()
    }

    /// How many of them are still open.
    fn n_open(places: &[ConnectionPlace]) -> usize {
        places.iter().filter(|place| !is_closing(place)).count()
    }

    /// The new connection of this address, for which one of `places` left its place.
    async fn replace(
        connections: &Arc<Connections>,
        peer: IpAddr,
        places: &mut Vec<ConnectionPlace>,
    ) {
        let entering = connections.enter(peer);
        let mut entering = std::pin::pin!(entering);
        assert!(entering.as_mut().now_or_never().is_none());
        places.retain(|place| !is_closing(place));
        places.push(entering.now_or_never().expect("one has left"));
    }

    #[tokio::test]
    async fn an_address_has_a_share_of_open_connections_and_loses_its_own() {
        const LIMIT: usize = 4;
        for n in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
            let all = connections(1_000, Some(LIMIT));
            let other = enter(&all, client(2));
            let places: Vec<_> = (0..n).map(|_| enter(&all, client(1))).collect();
            assert_eq!(n_open(&places), n.min(LIMIT), "{n}");
            // The last ones stay.
            assert_eq!(n_open(&places[n - n.min(LIMIT)..]), n.min(LIMIT));
            assert!(!is_closing(&other));
            // Neither this machine nor known clients are counted.
            let here: Vec<_> = (0..n).map(|_| enter(&all, HERE)).collect();
            assert_eq!(n_open(&here), n);
            let known = (0..n).map(|_| {
                let place = enter(&all, client(3));
                place.connection().identify().unwrap();
                place
            });
            assert_eq!(n_open(&known.collect::<Vec<_>>()), n);
        }
        for (per_address, expected) in [(Some(0), 1_000), (None, 250), (Some(1), 1)] {
            let all = connections(1_000, per_address);
            let places: Vec<_> = (0..1_000).map(|_| enter(&all, client(1))).collect();
            assert_eq!(n_open(&places), expected);
        }
    }

    #[tokio::test]
    async fn a_network_of_ipv6_is_one_address_and_a_trusted_proxy_has_no_share() {
        let all = connections(100, Some(1));
        let network = |text: &str| enter(&all, text.parse().unwrap());
        let places = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(network);
        assert_eq!(places.each_ref().map(is_closing), [true, false, false]);
        let all = Connections::new(&Limits {
            connections_per_address: Some(1),
            trusted_proxies: 1,
            ..Limits::default()
        });
        let places: Vec<_> = (0..10).map(|_| enter(&all, client(1))).collect();
        assert_eq!(n_open(&places), 10);
    }

    #[tokio::test]
    async fn a_new_connection_replaces_the_longest_waiting_one_of_the_address_with_most() {
        let all = connections(10, Some(0));
        let mut places = vec![enter(&all, client(2))];
        places.extend((0..9).map(|_| enter(&all, client(1))));
        let newest = Arc::clone(places[9].connection());
        for number in 3..11 {
            replace(&all, client(number), &mut places).await;
            assert!(places.iter().any(|place| place.0.network == client(2)));
            assert!(!newest.closing().is_cancelled());
        }
        // Each address has one: now the oldest goes.
        replace(&all, client(11), &mut places).await;
        assert!(!places.iter().any(|place| place.0.network == client(2)));
        assert_eq!(places.len(), 10);
    }

    #[tokio::test]
    async fn a_connection_with_a_request_goes_after_those_that_wait_and_a_known_one_never() {
        let all = connections(3, Some(0));
        let mut places: Vec<_> = (0..3).map(|_| enter(&all, HERE)).collect();
        let known = Arc::clone(places[0].connection());
        known.identify().unwrap();
        let busy = Arc::clone(places[1].connection());
        let under_way = busy.begin();
        replace(&all, HERE, &mut places).await;
        assert!(!busy.closing().is_cancelled());
        let waiting = Arc::clone(places[2].connection());
        // Both have requests: the one goes whose request is older.
        let second = waiting.begin();
        replace(&all, HERE, &mut places).await;
        assert!(busy.closing().is_cancelled() && !waiting.closing().is_cancelled());
        drop((under_way, second));
        places.iter().for_each(|place| place.0.identify().unwrap());
        let entering = all.enter(HERE);
        let mut entering = std::pin::pin!(entering);
        assert!(entering.as_mut().now_or_never().is_none());
        assert_eq!(n_open(&places), 3);
        places.pop();
        entering.now_or_never().expect("one has left");
    }

    #[tokio::test]
    async fn known_clients_leave_places_to_others() {
        for spared in sizes_around("server::limits::connections::MAX_SPARED", MAX_SPARED) {
            let max = 10 * spared.max(1);
            let all = connections(max, Some(0));
            let mut places: Vec<_> = (0..max).map(|_| enter(&all, client(1))).collect();
            let known = places.iter().filter(|place| place.0.identify().is_ok());
            assert_eq!(known.count(), max - spared.clamp(1, MAX_SPARED), "{max}");
            replace(&all, client(3), &mut places).await;
        }
        let all = connections(1, None);
        enter(&all, client(1)).connection().identify().unwrap();
    }

    #[tokio::test]
    async fn heads_that_have_not_arrived_have_a_budget_and_the_oldest_goes() {
        const HEADS: usize = 4;
        let limits = Limits {
            head_memory_bytes: HEADS * MAX_HEAD_BYTES,
            ..Limits::default()
        };
        for n in [0, 1, HEADS - 1, HEADS, HEADS + 1, 10 * HEADS] {
            let all = Connections::new(&limits);
            let silent = enter(&all, HERE);
            let places: Vec<_> = (0..n).map(|_| enter(&all, HERE)).collect();
            for place in &places {
                place.0.hold_head(MAX_HEAD_BYTES / 2);
                place.0.hold_head(MAX_HEAD_BYTES);
            }
            assert_eq!(n_open(&places), n.min(HEADS), "{n}");
            assert_eq!(n_open(&places[n - n.min(HEADS)..]), n.min(HEADS));
            assert!(!is_closing(&silent));
            assert_eq!(all.table().head_bytes, n.min(HEADS) * MAX_HEAD_BYTES);
            drop(places);
            assert_eq!(all.table().head_bytes, 0);
        }
        // A head that has arrived is held no longer.
        let all = Connections::new(&limits);
        let place = enter(&all, HERE);
        place.0.hold_head(MAX_HEAD_BYTES);
        let under_way = place.0.begin();
        assert_eq!(all.table().head_bytes, 0);
        drop(under_way);
    }

    #[tokio::test]
    async fn a_bounded_number_of_open_connections_stays_after_a_reply() {
        const KEPT: usize = 4;
        let limits = Limits {
            head_memory_bytes: KEPT * MAX_HEAD_BYTES,
            ..Limits::default()
        };
        for n in [0, 1, KEPT - 1, KEPT, KEPT + 1, 10 * KEPT] {
            let all = Connections::new(&limits);
            let places: Vec<_> = (0..n).map(|_| enter(&all, HERE)).collect();
            let stay = || places.iter().filter(|place| place.0.may_stay()).count();
            assert_eq!(stay(), n.min(KEPT), "{n}");
            assert_eq!(stay(), n.min(KEPT), "as before");
            places.iter().for_each(|place| place.0.identify().unwrap());
            assert_eq!(stay(), n, "all are known");
            assert_eq!(all.table().n_kept, 0);
        }
    }

    #[tokio::test]
    async fn nothing_is_kept_of_connections_that_have_left() {
        let all = connections(20, Some(3));
        for number in 0..200 {
            let place = enter(&all, client(number % 7));
            place.0.hold_head(100);
            let under_way = place.0.begin();
            place.0.may_stay();
            if number % 3 == 0 {
                place.0.identify().unwrap();
            }
            if number % 2 == 0 {
                drop(place);
                drop(under_way);
            } else {
                drop(under_way);
                drop(place);
            }
        }
        assert!(all.table().is_empty());
    }
}
