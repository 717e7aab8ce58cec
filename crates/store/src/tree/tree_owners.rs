//! The process that owns the embedded tree.
//!
//! Its lease only keeps a second process from starting. Correctness comes from the epoch: only the
//! last owner can write nodes.

use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("tree_owners", 1);

statements! { TABLE;
    GET "tree_owner_get" =
        "SELECT process, epoch, renewed FROM tree_owners WHERE name = 'tree'";
    TAKE "tree_owner_take" =
        "INSERT INTO tree_owners (name, process, epoch, renewed) VALUES ('tree', $1, 1, $2) \
         ON CONFLICT (name) DO UPDATE SET process = excluded.process, \
         epoch = tree_owners.epoch + 1, renewed = excluded.renewed \
         WHERE tree_owners.epoch = $3 AND tree_owners.renewed = $4";
    RENEW "tree_owner_renew" =
        "UPDATE tree_owners SET renewed = $1 WHERE name = 'tree' AND epoch = $2";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOwner {
    /// JSON.
    pub process: String,
    pub epoch: i64,
    /// `Timestamp::from_millis(0)`: it has ended.
    pub renewed: Timestamp,
}

pub fn get(tx: &mut Tx<'_>) -> Result<Option<TreeOwner>> {
    tx.row(&GET, ())
}

/// Makes this process the owner after the one that was read. Returns the new epoch.
pub fn take(
    tx: &mut Tx<'_>,
    process: &str,
    now: Timestamp,
    seen: Option<&TreeOwner>,
) -> Result<i64> {
    let epoch = seen.map_or(0, |seen| seen.epoch);
    let renewed = seen.map_or(Timestamp::from_millis(0), |seen| seen.renewed);
    tx.execute_guarded(&TAKE, (process, now, epoch, renewed))?;
    Ok(epoch + 1)
}

/// Writes that the owner of this epoch runs. Returns `false` if there is a later one.
pub fn renew(tx: &mut Tx<'_>, epoch: i64, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(&RENEW, (now, epoch))? == 1)
}

/// Writes that the owner of this epoch has ended.
pub fn release(tx: &mut Tx<'_>, epoch: i64) -> Result<()> {
    renew(tx, epoch, Timestamp::from_millis(0)).map(drop)
}

from_row! { TreeOwner { process, epoch, renewed } }
