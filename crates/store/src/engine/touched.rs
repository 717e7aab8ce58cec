//! Counters of the changes that this process has made to pools, so that a copy of a pool in memory
//! is known to be old.
//!
//! Each pool has one of a fixed number of counters, by a hash of its id. A counter grows after the
//! commit and before its caller hears of it. So a reader that takes the stamp before it reads the
//! database, and finds the same stamp later, has missed no change of this process.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::statement::Statement;

/// Pools that share a counter are only read more often than necessary.
const N_COUNTERS: usize = 4_096;
/// The tables whose rows are part of a copy.
const COPIED: [&str; 3] = ["worker_pools", "launch_configs", "workers"];

/// The changes of a pool so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStamp(u64);

pub(crate) struct Touched {
    counters: Box<[AtomicU64]>,
    /// Changes of unknown pools, which count for every pool.
    all: AtomicU64,
}

impl Default for Touched {
    fn default() -> Self {
        Self {
            counters: (0..N_COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
        }
    }
}

impl Touched {
    pub(crate) fn stamp(&self, pool: &str) -> PoolStamp {
        let own = self.counter(number_of(pool));
        PoolStamp(own.load(Ordering::SeqCst) + self.all.load(Ordering::SeqCst))
    }

    pub(crate) fn add(&self, touches: &Touches) {
        if touches.all {
            self.all.fetch_add(1, Ordering::SeqCst);
        }
        for number in &touches.pools {
            self.counter(*number).fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counter(&self, number: usize) -> &AtomicU64 {
        self.counters.get(number).unwrap_or(&self.all)
    }
}

fn number_of(pool: &str) -> usize {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(pool);
    let within = hash % u64::try_from(N_COUNTERS).unwrap_or(1);
    usize::try_from(within).unwrap_or(0)
}

/// The pools that a transaction changes.
#[derive(Default)]
pub(crate) struct Touches {
    /// The change that the next statement makes, if its function has said so.
    next: Option<Touch>,
    pools: Vec<usize>,
    pub(crate) all: bool,
}

enum Touch {
    Pool(usize),
    Nothing,
}

impl Touches {
    /// The next statement changes this pool only.
    pub(crate) fn next_pool(&mut self, pool: &str) {
        self.next = Some(Touch::Pool(number_of(pool)));
    }

    /// The next statement changes nothing that a copy shows.
    pub(crate) fn next_nothing(&mut self) {
        self.next = Some(Touch::Nothing);
    }

    /// A statement that does not say what it changes counts for every pool, so a forgotten word
    /// costs time, and never shows an old copy.
    pub(crate) fn note(&mut self, statement: &Statement) {
        if statement.only_reads() || !COPIED.contains(&statement.table.name) {
            return;
        }
        match self.next.take() {
            Some(Touch::Pool(number)) => self.pools.push(number),
            Some(Touch::Nothing) => {}
            None => self.all = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::engine::table::Table;

    static POOLS: Table = Table::unlisted("worker_pools", 1);
    static OTHER: Table = Table::unlisted("outbox", 1);
    static WRITE: Statement = Statement::new(&POOLS, "write", "UPDATE worker_pools SET a = 1");
    static READ: Statement = Statement::new(&POOLS, "read", "SELECT a FROM worker_pools");
    static ELSEWHERE: Statement = Statement::new(&OTHER, "elsewhere", "DELETE FROM outbox");

    fn touched_by(say: impl FnOnce(&mut Touches)) -> (bool, bool) {
        let (touched, mut touches) = (Touched::default(), Touches::default());
        let before = (touched.stamp("demo/one"), touched.stamp("demo/two"));
        say(&mut touches);
        touched.add(&touches);
        let (one, two) = (touched.stamp("demo/one"), touched.stamp("demo/two"));
        (one != before.0, two != before.1)
    }

    #[test]
    fn a_change_counts_for_its_pool_and_an_unknown_one_for_all() {
        let of_one = touched_by(|touches| {
            touches.next_pool("demo/one");
            touches.note(&WRITE);
        });
        assert_eq!(of_one, (true, false));
        assert_eq!(touched_by(|touches| touches.note(&WRITE)), (true, true));
        let second_is_unknown = touched_by(|touches| {
            touches.next_pool("demo/one");
            touches.note(&WRITE);
            touches.note(&WRITE);
        });
        assert_eq!(second_is_unknown, (true, true));
    }

    #[test]
    fn reads_other_tables_and_invisible_changes_count_for_no_pool() {
        let of_none = touched_by(|touches| {
            touches.note(&READ);
            touches.note(&ELSEWHERE);
            touches.next_nothing();
            touches.note(&WRITE);
        });
        assert_eq!(of_none, (false, false));
    }

    #[test]
    fn any_number_of_pools_share_a_fixed_number_of_counters() {
        for count in sizes_around("store::engine::touched::N_COUNTERS", N_COUNTERS) {
            let touched = Touched::default();
            let ids: Vec<String> = (0..count).map(|number| format!("demo/{number}")).collect();
            for id in &ids {
                let before = touched.stamp(id);
                let mut touches = Touches::default();
                touches.next_pool(id);
                touches.note(&WRITE);
                touched.add(&touches);
                assert_ne!(touched.stamp(id), before);
            }
            assert_eq!(touched.counters.len(), N_COUNTERS);
        }
    }
}
