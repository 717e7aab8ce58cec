//! Turns: of two concurrent transactions that decide about one subject, the later runs again and
//! sees what the other wrote.

use crate::engine::{error::Result, statement::statements, table::Table, tx::Tx, value::to_json};

static TABLE: Table = Table::unlisted("turns", 1);

/// Whether turn `t` is that of plans of a pool that no longer exists. Plans and launches have the
/// numbers of their pool's turn, so it may begin anew after them.
macro_rules! is_of_no_plan {
    () => {
        "t.name >= 'pool:' AND t.name < 'pool;' \
         AND NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = substr(t.name, 6)) \
         AND NOT EXISTS (SELECT 1 FROM plans AS n WHERE n.worker_pool_id = substr(t.name, 6)) \
         AND NOT EXISTS (SELECT 1 FROM launches AS l WHERE l.worker_pool_id = substr(t.name, 6))"
    };
}

/// The same for plans of shadows.
macro_rules! is_of_no_shadow {
    () => {
        "t.name >= 'shadow:' AND t.name < 'shadow;' \
         AND NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = substr(t.name, 8)) \
         AND NOT EXISTS (SELECT 1 FROM shadow_plans AS s \
         WHERE s.worker_pool_id = substr(t.name, 8))"
    };
}

macro_rules! list {
    ($condition:ident) => {
        concat!(
            "SELECT t.name FROM turns AS t WHERE ",
            $condition!(),
            " ORDER BY t.name LIMIT $1"
        )
    };
}

macro_rules! delete {
    ($condition:ident) => {
        concat!(
            "DELETE FROM turns WHERE name IN (SELECT t.name \
             FROM json_each($1) AS v CROSS JOIN turns AS t WHERE t.name = v.value ->> 0 AND ",
            $condition!(),
            ")"
        )
    };
}

statements! { TABLE;
    TAKE "turn_take" =
        "INSERT INTO turns (name, number) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET number = turns.number + 1 RETURNING number";
    LAST "turn_last" = "SELECT number FROM turns WHERE name = $1";
    LIST_PLANS "turn_list_of_no_plan" = list!(is_of_no_plan);
    LIST_SHADOWS "turn_list_of_no_shadow" = list!(is_of_no_shadow);
    DELETE_PLANS "turn_delete_of_no_plan" = delete!(is_of_no_plan);
    DELETE_SHADOWS "turn_delete_of_no_shadow" = delete!(is_of_no_shadow);
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

/// The turns of pools that no longer exist, once nothing has a number of theirs. This looks at the
/// turns of all pools, so do it outside of the transaction that deletes them.
pub fn list_orphans(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<String>> {
    let mut names: Vec<String> = tx.rows(&LIST_PLANS, limit)?;
    let left = limit.saturating_sub(u32::try_from(names.len()).unwrap_or(limit));
    let shadows: Vec<String> = tx.rows(&LIST_SHADOWS, left)?;
    names.extend(shadows);
    Ok(names)
}

/// Deletes those of these turns that nothing needs.
pub fn delete_orphans(tx: &mut Tx<'_>, names: &[String]) -> Result<u64> {
    let names: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let names = to_json(&names);
    Ok(tx.execute(&DELETE_PLANS, &names)? + tx.execute(&DELETE_SHADOWS, &names)?)
}
