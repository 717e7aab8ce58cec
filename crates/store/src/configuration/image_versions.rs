//! All versions of definitions of images, including those of deleted images.

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
    tx.execute(&INSERT, record.inserted()).map(drop)
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

from_row! { ListedImageVersion { id, version, action, client_id, reason, created } }
