//! Versions of definitions of images, including those of deleted images.

use domain::Version;
use domain::id::ImageName;
use domain::image::{ImageAction, ImageVersion};
use domain::time::Timestamp;

use crate::engine::{Entity, Result, Table, Tx, columns, from_row, statements};

columns! { record: ImageVersion {
    id: Key "image_id",
    version: Key "version",
    action: Fixed "action",
    document: Fixed "document",
    client_id: Fixed "client_id",
    reason: Fixed "reason",
    created: Fixed "created",
} }

static TABLE: Table = Table::of::<ImageVersion>("image_versions");

statements! { TABLE;
    INSERT "image_version_insert" =
        "INSERT INTO image_versions ({written}) VALUES ({values})";
    GET "image_version_get" =
        "SELECT {columns} FROM image_versions WHERE image_id = $1 AND version = $2";
    LIST "image_version_list" =
        "SELECT image_id, version, action, client_id, reason, created FROM image_versions \
         WHERE image_id = $1 AND version < $2 ORDER BY version DESC LIMIT $3";
    OLDEST "image_version_oldest" =
        "SELECT version FROM image_versions \
         WHERE image_id = $1 ORDER BY version LIMIT 1";
    // One version stays of what is deleted, so that its numbers go on.
    DELETE_REPLACED "image_version_delete_replaced" =
        "DELETE FROM image_versions WHERE (image_id, version) IN (\
         SELECT v.image_id, v.version FROM image_versions AS v \
         WHERE v.created < $1 AND EXISTS (SELECT 1 FROM image_versions AS n \
         WHERE n.image_id = v.image_id \
         AND n.version > v.version AND n.created < $1) \
         AND EXISTS (SELECT 1 FROM image_versions AS k \
         WHERE k.image_id = v.image_id \
         AND k.version >= v.version + CASE WHEN EXISTS (SELECT 1 FROM images AS c \
         WHERE c.image_id = v.image_id) \
         THEN CAST($2 AS BIGINT) ELSE CAST(1 AS BIGINT) END) \
         ORDER BY v.created LIMIT $3)";
}

/// A version without its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedImageVersion {
    pub id: ImageName,
    pub version: Version,
    pub action: ImageAction,
    pub client_id: String,
    pub reason: String,
    pub created: Timestamp,
}

pub fn insert(tx: &mut Tx<'_>, record: &ImageVersion) -> Result<()> {
    tx.run(&INSERT, record.inserted())
}

pub fn get(tx: &mut Tx<'_>, id: &ImageName, version: Version) -> Result<Option<ImageVersion>> {
    tx.row(&GET, (id, version))
}

/// Ordered from newest to oldest. Deleted images have versions, too.
pub fn list(
    tx: &mut Tx<'_>,
    id: &ImageName,
    before: Option<Version>,
    limit: u32,
) -> Result<Vec<ListedImageVersion>> {
    let before = before.unwrap_or(Version(i64::MAX));
    tx.rows(&LIST, (id, before, limit))
}

/// The oldest version that is still kept.
pub fn oldest(tx: &mut Tx<'_>, id: &ImageName) -> Result<Option<Version>> {
    tx.row(&OLDEST, id)
}

/// Deletes versions that were replaced before this moment, but not the newest `kept` of what still
/// exists, and never the last one. Call it again while it returns the limit.
pub fn delete_replaced(tx: &mut Tx<'_>, before: Timestamp, kept: u32, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_REPLACED, (before, kept, limit))
}

from_row! { ListedImageVersion { id, version, action, client_id, reason, created } }
