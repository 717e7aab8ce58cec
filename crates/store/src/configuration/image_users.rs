//! The pools whose launch configs refer to images.

use domain::id::{ImageName, PoolId};

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("image_users", 2);

statements! { TABLE;
    POOLS "image_user_list_pools" =
        "SELECT worker_pool_id FROM image_users WHERE image_id = $1 AND worker_pool_id > $2 \
         ORDER BY worker_pool_id LIMIT $3";
    IMAGES "image_user_list_images" =
        "SELECT image_id FROM image_users WHERE worker_pool_id = $1 ORDER BY image_id LIMIT $2";
    COUNTS "image_user_count" =
        "SELECT u.image_id, COUNT(*) FROM json_each($1) AS v CROSS JOIN image_users AS u \
         WHERE u.image_id = v.value ->> 0 GROUP BY u.image_id ORDER BY u.image_id LIMIT $2";
    OUTDATED "image_user_list_outdated" =
        "SELECT DISTINCT u.worker_pool_id FROM image_rollouts AS r CROSS JOIN image_users AS u \
         WHERE u.image_id = r.image_id AND u.applied <> r.selected AND u.worker_pool_id > $1 \
         ORDER BY u.worker_pool_id LIMIT $2";
    DELETE "image_user_delete" = "DELETE FROM image_users WHERE worker_pool_id = $1";
    INSERT "image_user_insert" =
        "INSERT INTO image_users (image_id, worker_pool_id, applied) VALUES ($1, $2, $3) \
         ON CONFLICT (image_id, worker_pool_id) DO UPDATE SET applied = excluded.applied";
}

/// The number of pools that use an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCount {
    pub image: ImageName,
    pub pools: i64,
}

from_row! { UserCount { image, pools } }

/// Ordered by id.
pub fn list_pools(
    tx: &mut Tx<'_>,
    image: &ImageName,
    after: Option<&PoolId>,
    limit: u32,
) -> Result<Vec<PoolId>> {
    tx.rows(&POOLS, (image, after.map_or("", PoolId::as_str), limit))
}

/// The images that a pool uses.
pub fn list_images(tx: &mut Tx<'_>, pool: &PoolId) -> Result<Vec<ImageName>> {
    tx.rows(&IMAGES, (pool, ALL_ROWS))
}

/// How many pools use each of these images; images that no pool uses are absent.
pub fn count(tx: &mut Tx<'_>, images: &[ImageName]) -> Result<Vec<UserCount>> {
    let rows: Vec<[&str; 1]> = images.iter().map(|image| [image.as_str()]).collect();
    tx.rows(&COUNTS, (&to_json(&rows), ALL_ROWS))
}

/// Pools whose launch configs were made with another selection than that of now, ordered by id.
pub fn list_outdated(tx: &mut Tx<'_>, after: Option<&PoolId>, limit: u32) -> Result<Vec<PoolId>> {
    tx.rows(&OUTDATED, (after.map_or("", PoolId::as_str), limit))
}

/// Notes which images a pool uses, each with the selection that was applied.
pub fn replace(tx: &mut Tx<'_>, pool: &PoolId, images: &[(ImageName, i64)]) -> Result<()> {
    tx.run(&DELETE, pool)?;
    for (image, applied) in images {
        tx.run(&INSERT, (image, pool, *applied))?;
    }
    Ok(())
}
