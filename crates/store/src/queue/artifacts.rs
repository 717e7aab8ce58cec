//! Records of artifacts. Their bytes are in files, which are stored elsewhere.

use domain::artifact::{Artifact, ArtifactName};
use domain::id::TaskId;
use domain::time::Timestamp;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { artifact: Artifact {
    task_id: Key "task_id",
    run_id: Key "run_id",
    name: Key "name",
    content_type: Mutable "content_type",
    expires: Mutable "expires",
    created: Fixed "created",
    content: Mutable "details",
}
also {
    Mutable "storage_type" = artifact.content.storage_type(),
    Mutable "state" = state(artifact),
    Mutable "bytes" = bytes(artifact),
} }

static TABLE: Table = Table::of::<Artifact>("artifacts");

statements! { TABLE;
    GET "artifact_get" =
        "SELECT {columns} FROM artifacts WHERE task_id = $1 AND run_id = $2 AND name = $3";
    LIST "artifact_list" =
        "SELECT {columns} FROM artifacts \
         WHERE task_id = $1 AND run_id = $2 AND name > $3 ORDER BY name LIMIT $4";
    BYTES_OF_OTHERS "artifact_bytes_of_others" =
        "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM artifacts \
         WHERE task_id = $1 AND NOT (run_id = $2 AND name = $3)";
    INSERT "artifact_insert" =
        "INSERT INTO artifacts ({written}) VALUES ({values}) \
         ON CONFLICT (task_id, run_id, name) DO NOTHING";
    UPDATE "artifact_update" =
        "UPDATE artifacts SET {changes} WHERE {key}";
    DELETE_EXPIRED "artifact_delete_expired" =
        "DELETE FROM artifacts WHERE (task_id, run_id, name) IN (\
         SELECT task_id, run_id, name FROM artifacts WHERE expires < $1 ORDER BY expires LIMIT $2) \
         RETURNING {columns}";
}

pub fn get(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    name: &ArtifactName,
) -> Result<Option<Artifact>> {
    tx.row(&GET, (task_id, run_id, name))
}

/// The artifacts of one run, ordered by name.
pub fn list(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    after: Option<&ArtifactName>,
    limit: u32,
) -> Result<Vec<Artifact>> {
    let after = after.map_or("", ArtifactName::as_str);
    tx.rows(&LIST, (task_id, run_id, after, limit))
}

/// The bytes of all other files of the task, in all its runs.
pub fn bytes_of_others(tx: &mut Tx<'_>, artifact: &Artifact) -> Result<u64> {
    let Artifact {
        task_id,
        run_id,
        name,
        ..
    } = artifact;
    tx.number(&BYTES_OF_OTHERS, (task_id, *run_id, name))
}

/// Returns `false` if the run has an artifact of this name already.
pub fn insert(tx: &mut Tx<'_>, artifact: &Artifact) -> Result<bool> {
    tx.insert(&INSERT, artifact)
}

/// Returns `false` if the artifact does not exist, because it has expired.
pub fn update(tx: &mut Tx<'_>, artifact: &Artifact) -> Result<bool> {
    Ok(tx.execute(&UPDATE, artifact.updated())? == 1)
}

/// Returns the deleted artifacts, so that their files can be deleted, too. Call it again while
/// there are as many as the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<Artifact>> {
    tx.rows(&DELETE_EXPIRED, (now, limit))
}

fn state(artifact: &Artifact) -> &'static str {
    if artifact.content.is_present() {
        "present"
    } else {
        "awaited"
    }
}

fn bytes(artifact: &Artifact) -> i64 {
    i64::try_from(artifact.content.uploaded_bytes()).unwrap_or(i64::MAX)
}
