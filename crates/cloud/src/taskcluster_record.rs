//! Log records in the form of Taskcluster's services, for `log.format = "taskcluster"`.

use serde_json::Value;

/// Other formats of the log leave the records of this target out.
pub const TARGET: &str = "taskcluster";

/// The level of a record, as syslog counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Warning = 4,
    Notice = 5,
    Info = 6,
    Debug = 7,
}

/// A log record with the type and the fields that Taskcluster documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub kind: &'static str,
    /// The version of the fields of this kind.
    pub version: u8,
    pub severity: Severity,
    pub fields: Value,
}

impl Record {
    /// A record whose fields have their first version.
    pub fn first(kind: &'static str, severity: Severity, fields: Value) -> Self {
        Self {
            kind,
            version: 1,
            severity,
            fields,
        }
    }

    pub fn write(&self) {
        let (kind, version, severity) = (self.kind, self.version, self.severity as u8);
        let fields = &self.fields;
        tracing::info!(
            target: TARGET,
            { record.kind = kind, record.version = version, record.severity = severity,
                record.fields = %fields },
            "{kind}"
        );
    }
}
