//! Definitions of images.

use domain::Version;
use domain::id::ImageName;
use domain::image::StoredImage;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { stored: StoredImage {
    id: Key "image_id",
    document: Mutable "document",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Mutable "version",
} }

static TABLE: Table = Table::of::<StoredImage>("images");

statements! { TABLE;
    GET "image_get" = "SELECT {columns} FROM images WHERE image_id = $1";
    INSERT "image_insert" =
        "INSERT INTO images ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "image_update" =
        "UPDATE images SET {changes} WHERE {key} AND version = {next}";
    DELETE "image_delete" = "DELETE FROM images WHERE image_id = $1 AND version = $2";
    LIST "image_list" =
        "SELECT {columns} FROM images WHERE image_id > $1 ORDER BY image_id LIMIT $2";
    COUNT "image_count" = "SELECT COUNT(*) FROM images";
}

pub fn get(tx: &mut Tx<'_>, id: &ImageName) -> Result<Option<StoredImage>> {
    tx.row(&GET, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, stored: &StoredImage) -> Result<bool> {
    tx.insert(&INSERT, stored)
}

/// Writes a new version, unless another transaction changed the image since version `seen` was
/// read.
pub fn update(tx: &mut Tx<'_>, stored: &StoredImage, seen: Version) -> Result<()> {
    tx.execute_guarded(&UPDATE, (stored.updated(), seen))
}

/// Deletes a definition, unless another transaction changed it since it was read. Its versions
/// stay.
pub fn delete(tx: &mut Tx<'_>, id: &ImageName, seen: Version) -> Result<()> {
    tx.execute_guarded(&DELETE, (id, seen))
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&ImageName>, limit: u32) -> Result<Vec<StoredImage>> {
    let after = after.map_or("", ImageName::as_str);
    tx.rows(&LIST, (after, limit))
}

pub fn count(tx: &mut Tx<'_>) -> Result<u64> {
    tx.number(&COUNT, ())
}
