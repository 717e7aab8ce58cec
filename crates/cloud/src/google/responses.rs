//! Answers of Compute Engine, as far as they are read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::labels::Labels;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    /// An address.
    pub(super) zone: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) status_message: Option<String>,
    #[serde(default)]
    pub(super) machine_type: String,
    #[serde(default)]
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) scheduling: Map<String, Value>,
    #[serde(default)]
    pub(super) creation_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SerialOutput {
    #[serde(default)]
    pub(super) contents: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AggregatedInstances {
    /// By `zones/<zone>`.
    #[serde(default)]
    pub(super) items: BTreeMap<String, ScopedInstances>,
    #[serde(default)]
    pub(super) unreachables: Vec<String>,
    pub(super) next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ScopedInstances {
    #[serde(default)]
    pub(super) instances: Vec<Instance>,
    pub(super) warning: Option<Warning>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Warning {
    #[serde(default)]
    pub(super) code: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    pub(super) name: String,
    #[serde(default)]
    pub(super) operation_type: String,
    pub(super) target_id: Option<String>,
    /// `PENDING`, `RUNNING` or `DONE`.
    pub(super) status: String,
    /// From 0 to 100.
    pub(super) progress: Option<f64>,
    pub(super) error: Option<OperationErrors>,
    pub(super) http_error_status_code: Option<u16>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct OperationErrors {
    #[serde(default)]
    pub(super) errors: Vec<OperationError>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct OperationError {
    #[serde(default)]
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
    pub(super) next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Disk {
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// The addresses of the machines that use it.
    #[serde(default)]
    pub(super) users: Vec<String>,
    pub(super) creation_timestamp: Option<String>,
    pub(super) last_detach_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Zone {
    pub(super) name: String,
    /// An address.
    pub(super) region: String,
    pub(super) deprecated: Option<Deprecated>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Deprecated {
    #[serde(default)]
    pub(super) state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceAccount {
    pub(super) email: String,
    pub(super) unique_id: String,
}

impl Operation {
    pub(super) fn is_done(&self) -> bool {
        self.status == "DONE"
    }

    /// The done part, from 0 to 1.
    pub(super) fn part_done(&self) -> Option<f64> {
        let percent = self.progress?;
        (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
    }

    /// The first error: code and message. More than one is rare, and the first one decides.
    pub(super) fn failure(&self) -> Option<(&str, &str)> {
        let first = self.error.as_ref()?.errors.first();
        let pair = |error: &'static str| (error, error);
        Some(first.map_or(pair("UNKNOWN_ERROR"), |error| {
            (error.code.as_str(), error.message.as_str())
        }))
    }
}
