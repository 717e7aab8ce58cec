//! Tasks whose time has come: those past their deadline, and those that are to be forgotten.

use domain::id::TaskId;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::statement::statements;
use crate::task::{TABLE, active};
use crate::tx::Tx;

statements! { TABLE;
    OVERDUE "task_list_overdue" = concat!(
        "SELECT task_id FROM tasks WHERE deadline < $1 AND ", active!(),
        " ORDER BY deadline LIMIT $2");
    EXPIRED "task_list_expired" = concat!(
        "SELECT task_id FROM tasks WHERE expires < $1 AND NOT ", active!(),
        " ORDER BY expires LIMIT $2");
    DELETE "task_delete" = "DELETE FROM tasks WHERE task_id = $1";
    DELETE_DEFINITION "task_delete_definition" = "DELETE FROM task_definitions WHERE task_id = $1";
    DELETE_PENDING "task_delete_pending" = "DELETE FROM pending_tasks WHERE task_id = $1";
    DELETE_CLAIM "task_delete_claim" = "DELETE FROM claimed_tasks WHERE task_id = $1";
    DELETE_RELEASE "task_delete_release" = "DELETE FROM task_releases WHERE task_id = $1";
    DELETE_EDGES "task_delete_edges" = "DELETE FROM task_dependencies WHERE task_id = $1";
}

/// Unresolved tasks whose deadline was before this moment.
pub fn task_list_overdue(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<TaskId>, StoreError> {
    let values = [before.into(), limit.into()];
    tx.rows(&OVERDUE, &values, |row| Ok(row.text(0)?.parse()?))
}

/// Forgets resolved tasks and what they waited for; the others are resolved by their deadline first, so that
/// it is told. As many as the limit means: ask again.
pub fn task_delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let expired: Vec<TaskId> = tx.rows(&EXPIRED, &[now.into(), limit.into()], |row| {
        Ok(row.text(0)?.parse()?)
    })?;
    for id in &expired {
        for statement in [
            &DELETE,
            &DELETE_DEFINITION,
            &DELETE_PENDING,
            &DELETE_CLAIM,
            &DELETE_RELEASE,
            &DELETE_EDGES,
        ] {
            tx.execute(statement, &[id.as_str().into()])?;
        }
    }
    Ok(expired.len() as u64)
}
