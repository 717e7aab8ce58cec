//! The stored rollout of an image: the decisions about its builds, its canary, and the
//! uploads that follow.

use serde::{Deserialize, Serialize};

use super::canary::{CanaryCourse, CanaryEvidence, CanaryGroup, RunTrial, StartOutcome, Trial};
use super::launch_variants::ImageSelection;
use super::number::BuildNumber;
use super::standing::Standing;
use crate::Version;
use crate::id::{ImageName, TaskId, WorkerKey};
use crate::run_outcome::RunOutcome;
use crate::task::EndReason;
use crate::time::Timestamp;

/// The decisions about the builds of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageRollout {
    pub image: ImageName,
    pub standing: Standing,
    pub canary: Option<CanaryRun>,
    /// The uploads from which machines start.
    pub selection: ImageSelection,
    /// Counts changes of the selection.
    pub selected: i64,
    /// The ids at providers of all uploads, also of those from which no machine starts.
    pub uploads: Vec<String>,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// A canary that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryRun {
    pub build: BuildNumber,
    pub since: Timestamp,
    pub share: f64,
    /// The client that started it.
    pub by: String,
    pub reason: String,
    /// The verdict so far, for people.
    #[serde(default)]
    pub verdict: String,
    #[serde(default)]
    pub evidence: Option<CanaryEvidence>,
    #[serde(default)]
    pub course: CanaryCourse,
    /// Its time is over without a verdict: a person decides.
    #[serde(default)]
    pub is_expired: bool,
}

/// A machine of a canary, or of a launch config beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTrial {
    pub image: ImageName,
    /// Of a launch that was refused, the group and the id are made up.
    pub worker: WorkerKey,
    pub created: Timestamp,
    pub trial: TrialRecord,
}

/// The facts about the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialRecord {
    pub is_canary: bool,
    pub start: TrialStart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<i64>,
    /// Its first runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<TrialRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialStart {
    Pending,
    Good,
    NeverRegistered,
    NeverClaimed,
    Refused,
    /// Its worker did not run in the image.
    BesideImage,
    /// It was stopped before it could show anything.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialRun {
    pub task_id: TaskId,
    pub run_id: u32,
    pub is_good: bool,
    pub resolved: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
}

impl ImageRollout {
    /// Nothing was decided yet.
    pub fn new(image: ImageName, now: Timestamp) -> Self {
        Self {
            image,
            standing: Standing::default(),
            canary: None,
            selection: ImageSelection::default(),
            selected: 0,
            uploads: Vec::new(),
            last_modified: now,
            version: Version::FIRST,
        }
    }
}

impl TrialRun {
    /// `None`: how the run ended says nothing about the machine.
    pub fn of(outcome: &RunOutcome) -> Option<Self> {
        let is_good = match outcome.reason {
            EndReason::Completed => true,
            EndReason::Failed
            | EndReason::ClaimExpired
            | EndReason::ResourceUnavailable
            | EndReason::InternalError => false,
            EndReason::DeadlineExceeded
            | EndReason::Canceled
            | EndReason::WorkerShutdown
            | EndReason::MalformedPayload
            | EndReason::IntermittentTask
            | EndReason::Superseded => return None,
        };
        Some(Self {
            task_id: outcome.task_id.clone(),
            run_id: outcome.run_id,
            is_good,
            resolved: outcome.resolved,
            duration_ms: outcome.duration_ms(),
        })
    }
}

impl StoredTrial {
    /// `None`: it shows nothing.
    pub fn to_trial(&self) -> Option<Trial> {
        let record = &self.trial;
        let start = match record.start {
            TrialStart::Pending => StartOutcome::Pending,
            TrialStart::Good => StartOutcome::Good,
            TrialStart::NeverRegistered => StartOutcome::NeverRegistered,
            TrialStart::NeverClaimed => StartOutcome::NeverClaimed,
            TrialStart::Refused => StartOutcome::Refused,
            TrialStart::BesideImage => StartOutcome::BesideImage,
            TrialStart::Nothing => return None,
        };
        let runs = record.runs.iter().map(|run| RunTrial {
            resolved: run.resolved,
            is_good: run.is_good,
            duration_ms: run.duration_ms,
        });
        let WorkerKey { pool_id, group, id } = &self.worker;
        Some(Trial {
            created: self.created,
            id: format!("{pool_id} {group} {id}"),
            group: match record.is_canary {
                true => CanaryGroup::Canary,
                false => CanaryGroup::Control,
            },
            start,
            ready_ms: record.ready_ms,
            runs: runs.collect(),
        })
    }
}
