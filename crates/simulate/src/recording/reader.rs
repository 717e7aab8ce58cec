//! Reads a recording, entry by entry. Entries that cannot be used are counted, with their lines.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::PoolId;
use domain::plan::check_price;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};

use super::entry::{Entry, Header, RunEntry, VERSION, WorkerEntry};
use super::{GapEntry, PoolEntry, Recording};

/// A recording has at most this many entries.
pub const MAX_ENTRIES: usize = 5_000_000;
/// No entry is longer. The longest is a pool with all its launch configs.
pub const MAX_LINE_BYTES: u64 = 32 << 20;
/// A recorded time is at most this long.
const MAX_LENGTH_MS: i64 = 400 * DAY_MS;
/// A machine that registered longer before the answer to its launch has wrong times.
const MAX_ANSWER_MS: i64 = HOUR_MS;
/// A worker runs at most this many tasks at a time.
const MAX_CAPACITY: u32 = 1_000_000;

/// The text is not a recording.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    #[error("it is empty")]
    Empty,
    #[error("line {line}: {error}")]
    Entry { line: usize, error: String },
    #[error("line 1: the first entry must be `recording`: it says what the others are")]
    NoHeader,
    #[error("line {0}: a second `recording` entry; one file is one recording")]
    SecondHeader(usize),
    #[error("it has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    #[error(
        "it begins at {since} and ends at {until}: it must be from a moment to a later one, at \
             most 400 days"
    )]
    Length { since: Timestamp, until: Timestamp },
    #[error("it has more than {0} entries")]
    TooLong(usize),
    #[error("line {line}: the pool {pool} is listed twice")]
    SecondPool { line: usize, pool: PoolId },
}

/// A kind of entries that are left out or corrected, as a clause for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Oddity {
    RunFromFuture,
    RunBackward,
    RunBefore,
    RunOutOfOrder,
    WorkerFromFuture,
    WorkerBackward,
    WorkerWithoutRoom,
    LaunchFromFuture,
    BadPrice,
    GapBackward,
}

impl Oddity {
    fn text(self) -> &'static str {
        match self {
            Self::RunFromFuture => "runs end after the recording, and are left out",
            Self::RunBackward => {
                "runs end before they start, or start before their task waits, \
                                  and are left out"
            }
            Self::RunBefore => "runs ended before the recording, and are left out",
            Self::RunOutOfOrder => "runs are out of order; sorted by time",
            Self::WorkerFromFuture => "workers were made after the recording, and are left out",
            Self::WorkerBackward => "workers have times out of order, and are left out",
            Self::WorkerWithoutRoom => "workers have an impossible capacity, and are left out",
            Self::LaunchFromFuture => "launches were decided after the recording, and are left out",
            Self::BadPrice => "prices are negative or absurd, and count as unknown",
            Self::GapBackward => "gaps end before they begin, and are left out",
        }
    }
}

/// Takes entries in their order.
pub struct RecordingReader {
    most_entries: usize,
    recording: Option<Recording>,
    n_entries: usize,
    last_run: Option<Timestamp>,
    pools: BTreeSet<PoolId>,
    /// How many, and the line of the first.
    oddities: BTreeMap<Oddity, (usize, usize)>,
}

impl Default for RecordingReader {
    fn default() -> Self {
        Self::with_limit(MAX_ENTRIES)
    }
}

impl RecordingReader {
    /// Refuses more entries than this.
    pub fn with_limit(most_entries: usize) -> Self {
        Self {
            most_entries,
            recording: None,
            n_entries: 0,
            last_run: None,
            pools: BTreeSet::new(),
            oddities: BTreeMap::new(),
        }
    }

    /// The number of entries so far.
    pub fn n_entries(&self) -> usize {
        self.n_entries
    }

    pub fn header(&self) -> Option<&Header> {
        self.recording.as_ref().map(|recording| &recording.header)
    }

    /// Adds a line of a file. Empty lines are ignored.
    pub fn add_line(&mut self, number: usize, line: &str) -> Result<(), RecordingError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let entry = serde_json::from_str::<Entry>(line);
        let entry = entry.map_err(|error| RecordingError::Entry {
            line: number,
            error: error.to_string(),
        })?;
        self.add(number, entry)
    }

    /// Adds an entry. `line`: its number, for messages.
    pub fn add(&mut self, line: usize, entry: Entry) -> Result<(), RecordingError> {
        self.n_entries += 1;
        if self.n_entries > self.most_entries {
            return Err(RecordingError::TooLong(self.most_entries));
        }
        let Some(recording) = &mut self.recording else {
            let Entry::Recording(header) = entry else {
                return Err(RecordingError::NoHeader);
            };
            self.recording = Some(begin(header)?);
            return Ok(());
        };
        match entry {
            Entry::Recording(_) => return Err(RecordingError::SecondHeader(line)),
            Entry::Provider(note) => {
                let known = note.entry.map(|entry| (note.provider_id, entry));
                recording.providers.extend(known);
            }
            Entry::Pool(pool) => {
                let pool = self.checked_pool(line, pool)?;
                self.recording().pools.push(pool);
            }
            Entry::Gap(gap) => {
                if gap.since > gap.until {
                    self.note(Oddity::GapBackward, line);
                } else {
                    self.add_gap(gap);
                }
            }
            Entry::Launch(launch) => {
                if launch.created >= recording.header.until {
                    self.note(Oddity::LaunchFromFuture, line);
                } else {
                    recording.launches.push(launch);
                }
            }
            Entry::Worker(worker) => self.add_worker(line, worker),
            Entry::Run(run) => self.add_run(line, run),
        }
        Ok(())
    }

    fn recording(&mut self) -> &mut Recording {
        self.recording.as_mut().expect("the header was read")
    }

    fn note(&mut self, oddity: Oddity, line: usize) {
        let (count, _) = self.oddities.entry(oddity).or_insert((0, line));
        *count += 1;
    }

    fn checked_pool(
        &mut self,
        line: usize,
        mut pool: PoolEntry,
    ) -> Result<PoolEntry, RecordingError> {
        if !self.pools.insert(pool.worker_pool_id.clone()) {
            let pool = pool.worker_pool_id;
            return Err(RecordingError::SecondPool { line, pool });
        }
        for config in &mut pool.launch_configs {
            config.price = self.checked_price(line, config.price);
        }
        Ok(pool)
    }

    fn checked_price(&mut self, line: usize, price: Option<f64>) -> Option<f64> {
        let price = price?;
        if check_price(price).is_err() {
            self.note(Oddity::BadPrice, line);
            return None;
        }
        Some(price)
    }

    /// Only the part within the recording.
    fn add_gap(&mut self, gap: GapEntry) {
        let recording = self.recording();
        let gap = GapEntry {
            since: gap.since.max(recording.header.since),
            until: gap.until.min(recording.header.until),
        };
        if gap.since < gap.until {
            recording.gaps.push(gap);
        }
    }

    fn add_worker(&mut self, line: usize, mut worker: WorkerEntry) {
        worker.price = self.checked_price(line, worker.price);
        // Fast machines register before the answer to their launch, with which they get their row.
        let registered = worker.registered.filter(|registered| {
            (1..=MAX_ANSWER_MS).contains(&worker.created.millis_since(*registered))
        });
        worker.created = registered.unwrap_or(worker.created);
        let until = self.recording().header.until;
        let times = [
            Some(worker.created),
            worker.registered,
            worker.stopping,
            worker.stopped,
        ];
        let oddity = if worker.created >= until {
            Oddity::WorkerFromFuture
        } else if !times.into_iter().flatten().is_sorted() {
            Oddity::WorkerBackward
        } else if !(1..=MAX_CAPACITY).contains(&worker.capacity) {
            Oddity::WorkerWithoutRoom
        } else {
            return self.recording().workers.push(worker);
        };
        self.note(oddity, line);
    }

    fn add_run(&mut self, line: usize, run: RunEntry) {
        let Header { since, until, .. } = self.recording().header;
        let oddity = if run.resolved >= until {
            Oddity::RunFromFuture
        } else if run.resolved < since {
            Oddity::RunBefore
        } else if ![run.waiting_since, run.started, run.resolved].is_sorted() {
            Oddity::RunBackward
        } else {
            if self.last_run.is_some_and(|last| run.resolved < last) {
                self.note(Oddity::RunOutOfOrder, line);
            }
            self.last_run = self.last_run.max(Some(run.resolved));
            return self.recording().runs.push(run);
        };
        self.note(oddity, line);
    }

    pub fn finish(self) -> Result<Recording, RecordingError> {
        let mut recording = self.recording.ok_or(RecordingError::Empty)?;
        let order =
            |left: &PoolEntry, right: &PoolEntry| left.worker_pool_id.cmp(&right.worker_pool_id);
        recording.pools.sort_by(order);
        recording.gaps.sort_by_key(|gap| (gap.since, gap.until));
        recording.launches.sort_by_key(|launch| launch.created);
        recording.workers.sort_by_key(|worker| worker.created);
        recording
            .runs
            .sort_by_key(|run| (run.waiting_since, run.resolved));
        let notes = self.oddities.into_iter().map(|(oddity, (count, line))| {
            format!("{count} {}; the first is on line {line}", oddity.text())
        });
        recording.notes.extend(notes);
        Ok(recording)
    }
}

fn begin(header: Header) -> Result<Recording, RecordingError> {
    if header.version != VERSION {
        return Err(RecordingError::Version(header.version));
    }
    let Header { since, until, .. } = header;
    if !(1..=MAX_LENGTH_MS).contains(&until.millis_since(since)) {
        return Err(RecordingError::Length { since, until });
    }
    Ok(Recording {
        header,
        providers: BTreeMap::new(),
        pools: Vec::new(),
        gaps: Vec::new(),
        launches: Vec::new(),
        workers: Vec::new(),
        runs: Vec::new(),
        notes: Vec::new(),
    })
}
