//! Turns: of two concurrent transactions that decide about one subject, the later runs again and
//! sees what the other wrote.

use crate::engine::{error::Result, statement::statements, table::Table, tx::Tx};

static TABLE: Table = Table::unlisted("turns", 1);

statements! { TABLE;
    TAKE "turn_take" =
        "INSERT INTO turns (name, number) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET number = turns.number + 1 RETURNING number";
    LAST "turn_last" = "SELECT number FROM turns WHERE name = $1";
    // Plans and launches have the numbers of their pool's turn, so it may begin anew after them.
    DELETE_PLANS "turn_delete_of_pools" =
        "DELETE FROM turns WHERE name IN (SELECT t.name FROM turns AS t \
         WHERE t.name >= 'pool:' AND t.name < 'pool;' \
         AND NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = substr(t.name, 6)) \
         AND NOT EXISTS (SELECT 1 FROM plans AS n WHERE n.worker_pool_id = substr(t.name, 6)) \
         AND NOT EXISTS (SELECT 1 FROM launches AS l WHERE l.worker_pool_id = substr(t.name, 6)) \
         ORDER BY t.name LIMIT $1)";
    DELETE_SHADOWS "turn_delete_of_shadows" =
        "DELETE FROM turns WHERE name IN (SELECT t.name FROM turns AS t \
         WHERE t.name >= 'shadow:' AND t.name < 'shadow;' \
         AND NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = substr(t.name, 8)) \
         AND NOT EXISTS (SELECT 1 FROM shadow_plans AS s \
         WHERE s.worker_pool_id = substr(t.name, 8)) \
         ORDER BY t.name LIMIT $1)";
}

/// Takes the next turn of this name, and returns its number.
///
/// Two transactions that take a turn of one name cannot both commit on the same snapshot:
/// PostgreSQL fails the later one, which runs again; SQLite runs one after the other.
pub fn take(tx: &mut Tx<'_>, name: &str) -> Result<i64> {
    let number = tx.row(&TAKE, name)?;
    number.ok_or_else(|| tx.lost_race())
}

/// The number of the turn that was taken last; 0 if none was.
pub fn last(tx: &mut Tx<'_>, name: &str) -> Result<i64> {
    Ok(tx.row(&LAST, name)?.unwrap_or(0))
}

/// Deletes the turns of pools that no longer exist, once nothing has a number of theirs. Call it
/// again while it returns the limit.
pub fn delete_orphans(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let plans = tx.execute(&DELETE_PLANS, limit)?;
    let shadows = tx.execute(&DELETE_SHADOWS, limit)?;
    Ok(plans.max(shadows))
}
