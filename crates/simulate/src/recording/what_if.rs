//! A question about the recorded time: how it would have been with a change.

use std::collections::BTreeSet;

use domain::id::PoolId;

use super::change::{BadChange, Change};
use super::configuration::Configuration;
use super::replay::{Replay, ReplayError};
use super::report::{CHANGED, PRESENT, Report, sentence};
use super::study::{RecordedStudy, RecordedStudyError, Variant};
use super::{Past, Recording};
use crate::study::Series;

/// A change to simulate beside the present configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Only these pools. Empty: all that launch workers.
    pub pools: BTreeSet<PoolId>,
    pub change: Change,
    pub seeds: Vec<u64>,
}

/// A question that cannot be answered with this recording.
#[derive(Debug, thiserror::Error)]
pub enum BadQuestion {
    #[error("the recording has no pool {0}")]
    UnknownPool(PoolId),
    #[error("the recording has no pool that launches workers: nothing can be simulated")]
    NothingLaunches,
    #[error(transparent)]
    Change(#[from] BadChange),
    #[error("{configuration}: {error}")]
    Replay {
        configuration: &'static str,
        error: ReplayError,
    },
}

/// A question with its recording, ready to be simulated.
pub struct WhatIf<'a> {
    recording: &'a Recording,
    question: Question,
    present: Configuration,
    past: Past,
    remarks: Vec<String>,
    study: RecordedStudy,
}

impl<'a> WhatIf<'a> {
    pub fn new(recording: &'a Recording, question: Question) -> Result<Self, BadQuestion> {
        Self::with_definitions(recording, None, question)
    }

    /// `defined`: the configuration before the settings of the question change it. `None`: the
    /// present one.
    pub fn with_definitions(
        recording: &'a Recording,
        defined: Option<Configuration>,
        question: Question,
    ) -> Result<Self, BadQuestion> {
        let mut present = Configuration::present(recording);
        let has_change = defined.is_some() || !question.change.is_empty();
        let mut changed = defined.unwrap_or_else(|| present.clone());
        question.change.define(recording, &mut changed)?;
        if let Some(unknown) = question
            .pools
            .iter()
            .find(|id| !changed.0.contains_key(*id))
        {
            return Err(BadQuestion::UnknownPool(unknown.clone()));
        }
        if !question.pools.is_empty() {
            present = present.only(&question.pools);
            changed = changed.only(&question.pools);
        }
        present.0.retain(|_, pool| !pool.launch_configs.is_empty());
        changed.0.retain(|id, pool| {
            // A pool that loses its launch configs keeps its tasks.
            !pool.launch_configs.is_empty() || present.0.contains_key(id)
        });
        if present.0.is_empty() && changed.0.is_empty() {
            return Err(BadQuestion::NothingLaunches);
        }
        question.change.set(&mut changed)?;
        let simulated = present.launching();
        let past = Past::of(recording, &simulated);
        let mut remarks = recording.remarks(&simulated, &past);
        let mut variants = vec![variant(PRESENT, recording, &present, &mut remarks)?];
        if has_change {
            if changed == present {
                remarks.push("nothing differs from the present configuration".to_owned());
            }
            variants.push(variant(CHANGED, recording, &changed, &mut remarks)?);
        }
        if question.seeds.len() < 2 {
            remarks.push("one seed does not say how much is chance".to_owned());
        }
        let study = RecordedStudy {
            name: "recorded".to_owned(),
            about: about(recording, &past),
            variants,
            seeds: question.seeds.clone(),
        };
        Ok(Self {
            recording,
            question,
            present,
            past,
            remarks,
            study,
        })
    }

    /// How many simulations it takes.
    pub fn n_simulations(&self) -> usize {
        self.study.n_simulations()
    }

    /// Simulates on this many threads, as long as `goes_on` says so. The result does not depend on
    /// their number. `progress` gets the number of simulations that are done.
    pub fn run(
        self,
        n_threads: usize,
        progress: &(dyn Fn(usize) + Sync),
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Report, RecordedStudyError> {
        let result = self.study.run_while(n_threads, progress, goes_on)?;
        let header = &self.recording.header;
        Ok(Report {
            since: header.since,
            until: header.until,
            sentence: sentence(&self.question.change, &self.present, &self.past, &result),
            series: Series::of_recording(self.recording, &self.present.launching()),
            past: self.past,
            result,
            seeds: self.question.seeds,
            remarks: self.remarks,
        })
    }
}

/// The recorded time and load.
fn about(recording: &Recording, past: &Past) -> String {
    let (since, until) = (recording.header.since, recording.header.until);
    let tasks = match past.tasks {
        1 => "1 task".to_owned(),
        n => format!("{n} tasks"),
    };
    format!("Recorded from {since} to {until}: {tasks}")
}

fn variant(
    name: &'static str,
    recording: &Recording,
    configuration: &Configuration,
    remarks: &mut Vec<String>,
) -> Result<Variant, BadQuestion> {
    let replay = Replay::new(recording, configuration).map_err(|error| BadQuestion::Replay {
        configuration: name,
        error,
    })?;
    for note in &replay.notes {
        // The same is usually missing for both configurations.
        let known = format!("{PRESENT}: {note}");
        if !remarks.contains(&known) {
            remarks.push(format!("{name}: {note}"));
        }
    }
    Ok(Variant {
        name: name.to_owned(),
        replay,
    })
}
