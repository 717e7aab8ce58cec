//! Recordings of servers, to replay.
//!
//! A recording is a list of entries. Its file has one entry on each line, in JSON, and the first
//! says what it is. Entries that cannot be used are left out, and counted in notes.

mod change;
mod configuration;
mod entry;
mod observed;
mod past;
mod reader;
mod remarks;
mod replay;
mod report;
mod study;
mod what_if;

use std::collections::BTreeMap;

use domain::configuration::{ProviderEntry, WorkerSource};
use domain::id::ProviderId;

pub use change::{BadChange, Change};
pub use configuration::{Configuration, ConfiguredLaunchConfig, ConfiguredPool};
pub use entry::{
    Entry, GapEntry, Header, LaunchConfigEntry, LaunchEntry, PoolEntry, ProviderNote, RunEntry,
    VERSION, WorkerEntry,
};
pub use past::Past;
pub use reader::{MAX_ENTRIES, MAX_LINE_BYTES, RecordingError, RecordingReader};
pub use replay::{Replay, ReplayError};
pub use report::Report;
pub use study::{RecordedStudy, RecordedStudyError, Variant};
pub use what_if::{BadQuestion, Question, WhatIf};

/// A recording that was read. Times of runs and workers are plausible, and in their order.
#[derive(Clone, Debug)]
pub struct Recording {
    pub header: Header,
    pub providers: BTreeMap<ProviderId, ProviderEntry>,
    /// Ordered by id.
    pub pools: Vec<PoolEntry>,
    /// In the order of their times, as far as they are within the recording.
    pub gaps: Vec<GapEntry>,
    /// In the order of their decisions.
    pub launches: Vec<LaunchEntry>,
    /// In the order of their launches.
    pub workers: Vec<WorkerEntry>,
    /// In the order in which their tasks began to wait.
    pub runs: Vec<RunEntry>,
    /// Remarks about entries that were left out or corrected, for people.
    pub notes: Vec<String>,
}

impl Recording {
    pub fn pool(&self, id: &domain::id::PoolId) -> Option<&PoolEntry> {
        let index = self
            .pools
            .binary_search_by(|pool| pool.worker_pool_id.cmp(id));
        self.pools.get(index.ok()?)
    }

    /// Whether machines are launched at this provider, and not only declared by people.
    pub(crate) fn launches_at(&self, provider: &ProviderId) -> bool {
        let entry = self.providers.get(provider);
        entry.is_none_or(|entry| entry.takes == WorkerSource::Launches)
    }

    /// The length of the recorded time.
    pub fn length_ms(&self) -> i64 {
        self.header.until.millis_since(self.header.since)
    }
}
