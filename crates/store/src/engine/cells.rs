//! Conversion of values to and from single columns, by type.

use domain::Version;
use domain::artifact::{ArtifactName, Content};
use domain::audit::EntityType;
use domain::budgets::BudgetPeriod;
use domain::configuration::Action;
use domain::cost::{CostKind, Currency};
use domain::id::{
    BudgetId, ClientId, ConfigurationId, ErrorId, ImageName, LaunchConfigId, LaunchToken,
    OverrideId, PoolId, ProviderId, RelayId, RoleId, SchedulerId, TaskGroupId, TaskId, WorkerGroup,
    WorkerId,
};
use domain::image::{CanaryRun, ImageAction, ImageSelection, Standing, TrialRecord};
use domain::launch_failures::FailureCause;
use domain::market::OfferingId;
use domain::pool_resources::ResourcesState;
use domain::queue_worker::{QuarantineEntry, TaskRun};
use domain::session::SessionKind;
use domain::task::{EndReason, Priority, Run, RunDocument, TaskDocument, TaskState};
use domain::time::Timestamp;
use domain::waits::WaitCause;
use domain::worker::{Terms, WorkerState};
use domain::worker_presence::WorkerPresence;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::engine::{row::BadRow, row::Row, value::Value, value::to_json};

/// The value of one column.
pub(crate) trait Cell: Sized {
    fn value(&self) -> Value<'_>;
    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow>;
}

/// `None` is stored as NULL.
impl<T: Cell> Cell for Option<T> {
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, T::value)
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        if row.is_null(column)? {
            return Ok(None);
        }
        T::read(row, column).map(Some)
    }
}

impl Cell for String {
    fn value(&self) -> Value<'_> {
        self.into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        row.text(column).map(str::to_owned)
    }
}

/// Numbers above the maximum of a column are stored as that maximum.
impl Cell for u64 {
    fn value(&self) -> Value<'_> {
        i64::try_from(*self).unwrap_or(i64::MAX).into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        row.number(column)
    }
}

/// Only prices are fractions. They are stored in millionths of a dollar.
impl Cell for f64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a price above the maximum is stored as the maximum"
    )]
    fn value(&self) -> Value<'_> {
        ((self * 1_000_000.0).round() as i64).into()
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "prices have far fewer digits than an f64 holds"
    )]
    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        Ok(row.integer(column)? as Self / 1_000_000.0)
    }
}

macro_rules! number_cells {
    ($($type:ty: $read:expr),+) => {$(
        impl Cell for $type {
            fn value(&self) -> Value<'_> {
                (*self).into()
            }

            fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
                row.number(column).map($read)
            }
        }
    )+};
}

number_cells!(
    i64: |number| number,
    u32: |number| number,
    bool: |number: i64| number != 0,
    Timestamp: Timestamp::from_millis,
    Version: Version
);

/// Types with `as_str` and a parser for its text.
macro_rules! text_cells {
    ($($type:ty),+ $(,)?) => {$(
        impl Cell for $type {
            fn value(&self) -> Value<'_> {
                self.as_str().into()
            }

            fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
                Ok(row.text(column)?.parse()?)
            }
        }
    )+};
}

text_cells!(
    Action,
    ArtifactName,
    BudgetId,
    BudgetPeriod,
    ClientId,
    ConfigurationId,
    CostKind,
    Currency,
    EndReason,
    EntityType,
    ErrorId,
    FailureCause,
    ImageAction,
    ImageName,
    LaunchConfigId,
    LaunchToken,
    OverrideId,
    PoolId,
    ProviderId,
    RelayId,
    RoleId,
    SchedulerId,
    SessionKind,
    TaskGroupId,
    TaskId,
    TaskState,
    WaitCause,
    WorkerGroup,
    WorkerId,
    ResourcesState,
    WorkerPresence,
    WorkerState,
);

/// The text of an offering has no form that could be wrong.
impl Cell for OfferingId {
    fn value(&self) -> Value<'_> {
        self.as_str().into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        let text = Json::String(row.text(column)?.to_owned());
        serde_json::from_value(text).map_err(|error| BadRow(error.to_string()))
    }
}

macro_rules! json_cells {
    ($($type:ty),+ $(,)?) => {$(
        impl Cell for $type {
            fn value(&self) -> Value<'_> {
                to_json(self).into()
            }

            fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
                read_json(row, column)
            }
        }
    )+};
}

json_cells!(
    CanaryRun,
    Content,
    ImageSelection,
    Json,
    Map<String, Json>,
    Standing,
    Terms,
    TrialRecord,
    Vec<QuarantineEntry>,
    Vec<String>,
    TaskDocument,
    Vec<TaskRun>,
);

fn read_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, BadRow> {
    serde_json::from_str(row.text(column)?)
        .map_err(|error| BadRow(format!("column {column} is not the expected JSON: {error}")))
}

impl Cell for Vec<ProviderId> {
    fn value(&self) -> Value<'_> {
        let ids: Vec<&str> = self.iter().map(ProviderId::as_str).collect();
        to_json(&ids).into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        let texts: Vec<String> = read_json(row, column)?;
        let ids = texts.iter().map(|text| text.parse());
        Ok(ids.collect::<Result<_, _>>()?)
    }
}

impl Cell for Vec<Run> {
    fn value(&self) -> Value<'_> {
        let runs: Vec<RunDocument> = self.iter().map(RunDocument::from).collect();
        to_json(&runs).into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        let runs: Vec<RunDocument> = read_json(row, column)?;
        let runs = runs.into_iter().map(Run::try_from);
        Ok(runs.collect::<Result<_, _>>()?)
    }
}

impl Cell for Priority {
    fn value(&self) -> Value<'_> {
        self.rank().into()
    }

    fn read(row: &Row<'_>, column: usize) -> Result<Self, BadRow> {
        let rank = row.number(column)?;
        Self::of_rank(rank).ok_or_else(|| BadRow(format!("{rank} is not a priority")))
    }
}
