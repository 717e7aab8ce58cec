//! What of a task matters for the files of its runs; its definition, which may be large, does not.

use domain::id::TaskId;
use domain::task::{Run, RunDocument};
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::statements;
use crate::task::TABLE;
use crate::tx::Tx;

statements! { TABLE;
    GET "task_runs" = "SELECT task_id, runs, expires FROM tasks WHERE task_id = $1";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRuns {
    /// Oldest first; the place of a run is its number.
    pub runs: Vec<Run>,
    /// When the task is forgotten, and everything that it left behind.
    pub expires: Timestamp,
}

impl TaskRuns {
    pub fn run(&self, run_id: u32) -> Option<&Run> {
        self.runs.get(run_id as usize)
    }

    /// The number of the last run.
    pub fn latest(&self) -> Option<u32> {
        u32::try_from(self.runs.len().checked_sub(1)?).ok()
    }
}

pub fn task_runs(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<TaskRuns>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], runs)
}

fn runs(row: &Row<'_>) -> Result<TaskRuns, BadRow> {
    let documents = row.json::<Vec<RunDocument>>(1)?.into_iter();
    Ok(TaskRuns {
        runs: documents.map(Run::try_from).collect::<Result<_, _>>()?,
        expires: row.time(2)?,
    })
}
