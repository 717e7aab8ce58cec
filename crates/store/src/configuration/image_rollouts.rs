//! Rollouts of images: which builds machines start from.

use domain::id::ImageName;
use domain::image::ImageRollout;
use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, Result, Table, Tx, columns, from_row, statements};

columns! { rollout: ImageRollout {
    image: Key "image_id",
    standing: Mutable "standing",
    canary: Mutable "canary",
    selection: Mutable "selection",
    selected: Mutable "selected",
    uploads: Mutable "uploads",
    last_modified: Mutable "last_modified",
    version: Version "version",
} }

static TABLE: Table = Table::of::<ImageRollout>("image_rollouts");

statements! { TABLE;
    OF "image_rollout_list_of" =
        "SELECT {columns} FROM json_each($1) AS v CROSS JOIN image_rollouts \
         WHERE image_id = v.value ->> 0";
    GET "image_rollout_get" = "SELECT {columns} FROM image_rollouts WHERE image_id = $1";
    WITH_CANARY "image_rollout_list_with_canary" =
        "SELECT image_id FROM image_rollouts WHERE canary IS NOT NULL AND image_id > $1 \
         ORDER BY image_id LIMIT $2";
    // A definition is stored as compact JSON, and an empty list names no roles.
    RESTRICTED "image_rollout_list_restricted" =
        "SELECT r.image_id, r.uploads FROM images AS i CROSS JOIN image_rollouts AS r \
         WHERE r.image_id = i.image_id AND i.document LIKE '%\"usableBy\":[\"%' \
         ORDER BY r.image_id LIMIT $1";
    INSERT "image_rollout_insert" =
        "INSERT INTO image_rollouts ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "image_rollout_update" = "UPDATE image_rollouts SET {changes} WHERE {key}";
    TAKE_JUDGEMENT "image_rollout_take_judgement" =
        "UPDATE image_rollouts SET judged = $1 \
         WHERE image_id = $2 AND (judged <= $3 OR judged > $4)";
    DELETE "image_rollout_delete" = "DELETE FROM image_rollouts WHERE image_id = $1";
}

/// The ids of the uploads of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadIds {
    pub image: ImageName,
    pub uploads: Vec<String>,
}

from_row! { UploadIds { image, uploads } }

pub fn get(tx: &mut Tx<'_>, image: &ImageName) -> Result<Option<ImageRollout>> {
    tx.row(&GET, image)
}

/// The rollouts of these images; those without one are absent.
pub fn of(tx: &mut Tx<'_>, images: &[ImageName]) -> Result<Vec<ImageRollout>> {
    let rows: Vec<[&str; 1]> = images.iter().map(|image| [image.as_str()]).collect();
    tx.rows(&OF, crate::engine::to_json(&rows))
}

/// Images with a canary that runs, ordered by id.
pub fn list_with_canary(
    tx: &mut Tx<'_>,
    after: Option<&ImageName>,
    limit: u32,
) -> Result<Vec<ImageName>> {
    tx.rows(&WITH_CANARY, (after.map_or("", ImageName::as_str), limit))
}

/// The uploads of the images that only holders of some roles may use.
pub fn list_restricted(tx: &mut Tx<'_>) -> Result<Vec<UploadIds>> {
    tx.rows(&RESTRICTED, ALL_ROWS)
}

/// Returns `false` and changes nothing if the image has one already.
pub fn insert(tx: &mut Tx<'_>, rollout: &ImageRollout) -> Result<bool> {
    tx.insert(&INSERT, rollout)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
pub fn update(tx: &mut Tx<'_>, rollout: &ImageRollout) -> Result<()> {
    tx.update(&UPDATE, rollout)
}

/// Takes it on the caller to judge the canary now, unless a process did so less than `period_ms`
/// ago. Returns whether the caller has to. A moment in the future is that of a wrong clock.
pub fn take_judgement(
    tx: &mut Tx<'_>,
    image: &ImageName,
    now: Timestamp,
    period_ms: i64,
) -> Result<bool> {
    let (last, latest) = (now.plus_millis(-period_ms), now.plus_millis(period_ms));
    Ok(tx.execute(&TAKE_JUDGEMENT, (now, image, last, latest))? == 1)
}

pub fn delete(tx: &mut Tx<'_>, image: &ImageName) -> Result<()> {
    tx.run(&DELETE, image)
}
