//! The machines of canaries, and of the launch configs beside them.

use domain::id::ImageName;
use domain::image::StoredTrial;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { trial: StoredTrial {
    image: Key "image_id",
    worker: Key ["worker_pool_id", "worker_group", "worker_id"],
    created: Fixed "created",
    trial: Mutable "trial",
} }

static TABLE: Table = Table::of::<StoredTrial>("canary_trials");

statements! { TABLE;
    LIST "canary_trial_list" =
        "SELECT {columns} FROM canary_trials WHERE image_id = $1 \
         ORDER BY created, worker_pool_id, worker_group, worker_id LIMIT $2";
    INSERT "canary_trial_insert" =
        "INSERT INTO canary_trials ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "canary_trial_update" = "UPDATE canary_trials SET {changes} WHERE {key}";
    DELETE "canary_trial_delete" = "DELETE FROM canary_trials WHERE image_id = $1";
}

/// In the order of their creation.
pub fn list(tx: &mut Tx<'_>, image: &ImageName, limit: u32) -> Result<Vec<StoredTrial>> {
    tx.rows(&LIST, (image, limit))
}

/// Writes what is known of a machine.
pub fn write(tx: &mut Tx<'_>, trial: &StoredTrial) -> Result<()> {
    if !tx.insert(&INSERT, trial)? {
        tx.run(&UPDATE, trial.updated())?;
    }
    Ok(())
}

pub fn delete(tx: &mut Tx<'_>, image: &ImageName) -> Result<()> {
    tx.run(&DELETE, image)
}
