//! Artifacts of tasks: what there is to know of them. The bytes are files, which are not kept here.

use domain::artifact::{Artifact, ArtifactName};
use domain::id::TaskId;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;
use crate::value::to_json;

static TABLE: Table = Table {
    name: "artifacts",
    key_columns: 3,
};

macro_rules! columns {
    () => {
        "task_id, run_id, name, content_type, expires, created, details"
    };
}

statements! { TABLE;
    GET "artifact_get" = concat!(
        "SELECT ", columns!(), " FROM artifacts WHERE task_id = $1 AND run_id = $2 AND name = $3");
    LIST "artifact_list" = concat!(
        "SELECT ", columns!(), " FROM artifacts \
         WHERE task_id = $1 AND run_id = $2 AND name > $3 ORDER BY name LIMIT $4");
    INSERT "artifact_insert" = concat!(
        "INSERT INTO artifacts (", columns!(), ", storage_type, state) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (task_id, run_id, name) DO NOTHING");
    UPDATE "artifact_update" =
        "UPDATE artifacts SET content_type = $1, expires = $2, details = $3, storage_type = $4, \
         state = $5 WHERE task_id = $6 AND run_id = $7 AND name = $8";
    DELETE_EXPIRED "artifact_delete_expired" =
        "DELETE FROM artifacts WHERE (task_id, run_id, name) IN (\
         SELECT task_id, run_id, name FROM artifacts WHERE expires < $1 ORDER BY expires LIMIT $2) \
         RETURNING task_id, run_id, name, content_type, expires, created, details";
}

pub fn artifact_get(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    name: &ArtifactName,
) -> Result<Option<Artifact>, StoreError> {
    let values = [task_id.as_str().into(), run_id.into(), name.as_str().into()];
    tx.row(&GET, &values, artifact)
}

/// Those of one run, by name.
pub fn artifact_list(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    after: Option<&ArtifactName>,
    limit: u32,
) -> Result<Vec<Artifact>, StoreError> {
    let after = after.map_or("", ArtifactName::as_str);
    let values = [
        task_id.as_str().into(),
        run_id.into(),
        after.into(),
        limit.into(),
    ];
    tx.rows(&LIST, &values, artifact)
}

/// `false`: there is one of this name already.
pub fn artifact_insert(tx: &mut Tx<'_>, artifact: &Artifact) -> Result<bool, StoreError> {
    let details = to_json(&artifact.content);
    let inserted = tx.execute(
        &INSERT,
        &[
            artifact.task_id.as_str().into(),
            artifact.run_id.into(),
            artifact.name.as_str().into(),
            (&artifact.content_type).into(),
            artifact.expires.into(),
            artifact.created.into(),
            (&details).into(),
            artifact.content.storage_type().into(),
            state(artifact).into(),
        ],
    )?;
    Ok(inserted == 1)
}

/// `false`: it has expired meanwhile.
pub fn artifact_update(tx: &mut Tx<'_>, artifact: &Artifact) -> Result<bool, StoreError> {
    let details = to_json(&artifact.content);
    let updated = tx.execute(
        &UPDATE,
        &[
            (&artifact.content_type).into(),
            artifact.expires.into(),
            (&details).into(),
            artifact.content.storage_type().into(),
            state(artifact).into(),
            artifact.task_id.as_str().into(),
            artifact.run_id.into(),
            artifact.name.as_str().into(),
        ],
    )?;
    Ok(updated == 1)
}

/// Returns what has gone, so that its file can go, too. As many as the limit means: ask again.
pub fn artifact_delete_expired(
    tx: &mut Tx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Artifact>, StoreError> {
    tx.rows(&DELETE_EXPIRED, &[now.into(), limit.into()], artifact)
}

fn state(artifact: &Artifact) -> &'static str {
    if artifact.content.is_present() {
        "present"
    } else {
        "awaited"
    }
}

fn artifact(row: &Row<'_>) -> Result<Artifact, BadRow> {
    Ok(Artifact {
        task_id: row.text(0)?.parse()?,
        run_id: row.number(1)?,
        name: row.text(2)?.parse()?,
        content_type: row.text(3)?.to_owned(),
        expires: row.time(4)?,
        created: row.time(5)?,
        content: row.json(6)?,
    })
}
