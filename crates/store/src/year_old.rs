//! A database as a large fleet leaves it after a year: for tests and benchmarks.
//!
//! The database itself makes the rows, from statements that count. They have the form that this
//! program writes, with made-up names.

use domain::id::OfferingId;
use domain::market::{OfferingMemory, PoolMemory};
use domain::time::Timestamp;

use crate::engine::migration;
use crate::engine::session::{Connection, Session};
use crate::engine::sqlite::Mode;
use crate::engine::store::{Lane, Store};
use crate::engine::{Result, statistics, to_json};

/// The parts, each with its statements.
const PARTS: [(&str, &str); 3] = [
    ("year_old/fleet", include_str!("year_old/fleet.sql")),
    ("year_old/queue", include_str!("year_old/queue.sql")),
    ("year_old/history", include_str!("year_old/history.sql")),
];

/// Numbers are spread by multiplying with this prime, which divides no power of ten.
const SPREAD: u32 = 7_368_787;

/// The year that a database is filled with.
#[derive(Clone, Copy, Debug)]
pub struct YearOld {
    /// The end of the year.
    pub now: Timestamp,
    /// Counts are divided by this. With 1: 400 pools, 250,000 workers, 1,600,000 tasks, and so on.
    /// A divisor of 400.
    pub divisor: u32,
    /// Other names and times for each seed.
    pub seed: u32,
}

/// Fills a new database with all migrations.
pub async fn fill(store: &Store, year: YearOld) -> Result<()> {
    store
        .submit(Lane::Write, move |session| fill_all(session, year))
        .await
}

/// Fills tables with these statements, in one transaction.
pub async fn run(store: &Store, sql: String) -> Result<()> {
    let fill = move |session: &mut Session| {
        run_part(session, "year_old/other", &sql)?;
        statistics::gather(session)
    };
    store.submit(Lane::Write, fill).await
}

fn fill_all(session: &mut Session, year: YearOld) -> Result<()> {
    for (name, template) in PARTS {
        run_part(session, name, &year.fill_in(template))?;
    }
    statistics::gather(session)
}

fn run_part(session: &mut Session, name: &'static str, sql: &str) -> Result<()> {
    session.once(name, Mode::Write, |session| run_batch(session, name, sql))
}

fn run_batch(session: &mut Session, name: &str, sql: &str) -> Result<()> {
    if matches!(session.connection, Connection::Postgres(_)) {
        migration::batch(session, name, "SET LOCAL statement_timeout = 0")?;
    }
    migration::batch(session, name, sql)
}

impl YearOld {
    /// Replaces what begins with `#`: the last one first, since arguments may have some.
    fn fill_in(self, template: &str) -> String {
        let mut sql = template.to_owned();
        while let Some(start) = sql.rfind('#') {
            let open = sql[start..].find('(').map_or(sql.len(), |at| start + at);
            let close = closing(&sql, open);
            let arguments = sql.get(open + 1..close).unwrap_or_default();
            let text = self.text(&sql[start + 1..open], arguments);
            sql.replace_range(start..sql.len().min(close + 1), &text);
        }
        sql
    }

    fn text(self, name: &str, of: &str) -> String {
        let number = || of.parse::<i64>().unwrap_or_default();
        let spread =
            |of: &str, below: &str| format!("((({of}) * {SPREAD} + {}) % {below})", self.seed);
        match name {
            "n" => (number() / i64::from(self.divisor)).max(1).to_string(),
            "now" => self.now.as_millis().to_string(),
            "iso" => self.now.plus_millis(number()).to_string(),
            "random" => match of.rsplit_once(", ") {
                Some((of, below)) => spread(of, below),
                None => spread(of, "1"),
            },
            "pool" => format!(
                "('year/pool-' || CAST(CASE WHEN ({of}) % 3 = 0 THEN 0 \
                 ELSE ({of}) * 7919 % #n(400) END AS TEXT))"
            ),
            // The queue of a running task is the pool of its worker.
            "queue" => format!(
                "#pool(CASE WHEN {of} >= #n(500000) AND {of} < #n(600000) \
                 THEN {of} - #n(500000) ELSE {of} END)"
            ),
            "task" => {
                let digits = spread(of, "100000000");
                format!("(substr(CAST(100000000 + {digits} AS TEXT), 2) || 'QACWAAAAAAAAAA')")
            }
            "worker" => {
                let digits = spread(of, "100000000");
                format!("('i-' || CAST(100000000 + {digits} AS TEXT))")
            }
            "filler" => {
                let length = usize::try_from(number()).unwrap_or_default();
                format!("'{}'", filler(length))
            }
            "pool_memory" => quoted(&PoolMemory::default()),
            "offering_memory" => {
                let offering =
                    OfferingId::new(&"cloud".parse().expect("this is a name"), "west m5");
                quoted(&OfferingMemory::new(&offering))
            }
            // The database reports the error.
            unknown => format!("unknown {unknown}"),
        }
    }
}

/// The place of the parenthesis that closes the one at `open`.
fn closing(sql: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, character) in sql.char_indices().skip_while(|(at, _)| *at < open) {
        match character {
            '(' => depth += 1,
            ')' if depth == 1 => return at,
            ')' => depth -= 1,
            _ => {}
        }
    }
    sql.len()
}

fn quoted(value: &impl serde::Serialize) -> String {
    format!("'{}'", to_json(value))
}

/// Text that does not compress well.
fn filler(length: usize) -> String {
    let mut state = SPREAD;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from_digit(state >> 27, 32).unwrap_or('0')
    });
    letters.take(length).collect()
}
