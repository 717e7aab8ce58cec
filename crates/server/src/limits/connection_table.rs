//! The order in which open connections leave their places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use metrics::counter;
use tokio_util::sync::CancellationToken;

use crate::telemetry::CONNECTIONS_CLOSED;

/// Why a connection was closed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Full,
    Address,
    Heads,
}

#[derive(Default)]
pub(super) struct Table {
    next_turn: u64,
    pub(super) n_taken: usize,
    pub(super) n_known: usize,
    pub(super) n_kept: usize,
    /// The sizes of heads that have not arrived completely, the oldest first.
    heads: BTreeMap<u64, (usize, IpAddr)>,
    pub(super) head_bytes: usize,
    crowds: HashMap<IpAddr, Crowd>,
    /// The address that loses the next place is the last one.
    ranks: BTreeMap<Rank, IpAddr>,
}

/// The open connections of one address, in the order of their turns.
#[derive(Default)]
pub(super) struct Crowd {
    pub(super) waiting: BTreeMap<u64, CancellationToken>,
    pub(super) busy: BTreeMap<u64, CancellationToken>,
}

/// Whether some connections of an address wait, their number, and the first turn among them.
type Rank = (bool, usize, Reverse<u64>);

impl Table {
    pub(super) fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    pub(super) fn n_open(&self, network: IpAddr) -> usize {
        let crowd = self.crowds.get(&network);
        crowd.map_or(0, |crowd| crowd.waiting.len() + crowd.busy.len())
    }

    pub(super) fn change(&mut self, network: IpAddr, change: impl FnOnce(&mut Crowd)) {
        let crowd = self.crowds.entry(network).or_default();
        if let Some(rank) = crowd.rank() {
            self.ranks.remove(&rank);
        }
        change(crowd);
        match crowd.rank() {
            Some(rank) => {
                self.ranks.insert(rank, network);
            }
            None => {
                self.crowds.remove(&network);
            }
        }
    }

    /// Removes the connection with this turn.
    pub(super) fn forget(&mut self, network: IpAddr, turn: u64) {
        self.drop_head(turn);
        self.change(network, |crowd| {
            crowd.take(turn);
        });
    }

    /// Whether it holds nothing of any connection.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let counts = [self.n_taken, self.n_known, self.n_kept, self.head_bytes];
        let is_nothing = self.crowds.is_empty() && self.ranks.is_empty() && self.heads.is_empty();
        counts == [0; 4] && is_nothing
    }

    pub(super) fn hold_head(&mut self, turn: u64, network: IpAddr, bytes: usize) {
        self.drop_head(turn);
        self.heads.insert(turn, (bytes, network));
        self.head_bytes += bytes;
    }

    pub(super) fn drop_head(&mut self, turn: u64) {
        if let Some((bytes, _)) = self.heads.remove(&turn) {
            self.head_bytes -= bytes;
        }
    }

    pub(super) fn close_oldest_head(&mut self) {
        if let Some((&turn, &(_, network))) = self.heads.first_key_value() {
            self.close(network, turn, Reason::Heads);
        }
    }

    pub(super) fn close_any(&mut self) {
        if let Some(network) = self.ranks.last_key_value().map(|(_, network)| *network) {
            self.close_of(network, Reason::Full);
        }
    }

    pub(super) fn close_of(&mut self, network: IpAddr, reason: Reason) {
        let rank = self.crowds.get(&network).and_then(Crowd::rank);
        if let Some((_, _, Reverse(turn))) = rank {
            self.close(network, turn, reason);
        }
    }

    fn close(&mut self, network: IpAddr, turn: u64, reason: Reason) {
        self.drop_head(turn);
        self.change(network, |crowd| {
            if let Some(closing) = crowd.take(turn) {
                closing.cancel();
                counter!(CONNECTIONS_CLOSED, "reason" => reason.as_str()).increment(1);
            }
        });
    }
}

impl Crowd {
    fn rank(&self) -> Option<Rank> {
        let has_waiting = !self.waiting.is_empty();
        let first = if has_waiting {
            &self.waiting
        } else {
            &self.busy
        };
        let (turn, _) = first.first_key_value()?;
        Some((has_waiting, first.len(), Reverse(*turn)))
    }

    pub(super) fn take(&mut self, turn: u64) -> Option<CancellationToken> {
        self.waiting
            .remove(&turn)
            .or_else(|| self.busy.remove(&turn))
    }
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Address => "address",
            Self::Heads => "heads",
        }
    }
}
