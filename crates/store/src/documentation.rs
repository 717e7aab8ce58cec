//! Documentation of worker configurations and worker types: a tarball each, and what is told of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::documentation::{Record, Subject};
use domain::id::{ConfigurationId, PoolId};

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "documentation",
    key_columns: 2,
};

macro_rules! columns {
    () => {
        "kind, subject, title, digest, packed_bytes, unpacked_bytes, n_files, created, last_modified"
    };
}

statements! { TABLE;
    GET "documentation_get" = concat!(
        "SELECT ", columns!(), ", tarball FROM documentation WHERE kind = $1 AND subject = $2");
    RECORD "documentation_record" = concat!(
        "SELECT ", columns!(), " FROM documentation WHERE kind = $1 AND subject = $2");
    LIST "documentation_list" = concat!(
        "SELECT ", columns!(), " FROM documentation WHERE (kind, subject) > ($1, $2) \
         ORDER BY kind, subject LIMIT $3");
    PUT "documentation_put" = concat!(
        "INSERT INTO documentation (", columns!(), ", tarball) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
         ON CONFLICT (kind, subject) DO UPDATE SET title = excluded.title, \
         digest = excluded.digest, packed_bytes = excluded.packed_bytes, \
         unpacked_bytes = excluded.unpacked_bytes, n_files = excluded.n_files, \
         last_modified = excluded.last_modified, tarball = excluded.tarball");
    DELETE "documentation_delete" = "DELETE FROM documentation WHERE kind = $1 AND subject = $2";
    DELETE_ORPHANS "documentation_delete_orphans" =
        "DELETE FROM documentation WHERE (kind, subject) IN (\
         SELECT known.kind, known.subject FROM documentation AS known \
         LEFT JOIN worker_pools AS pool \
         ON known.kind = $1 AND pool.worker_pool_id = known.subject \
         LEFT JOIN worker_configurations AS configuration \
         ON known.kind = $2 AND configuration.worker_configuration_id = known.subject \
         WHERE pool.worker_pool_id IS NULL AND configuration.worker_configuration_id IS NULL \
         ORDER BY known.kind, known.subject LIMIT $3)";
    CONFIGURATION_OF "documentation_configuration_of" =
        "SELECT worker_configuration_id FROM worker_types WHERE worker_pool_id = $1";
    CONFIGURATION "documentation_configuration" =
        "SELECT worker_configuration_id FROM worker_configurations \
         WHERE worker_configuration_id = $1";
}

/// With the tarball.
pub fn documentation_get(
    tx: &mut Tx<'_>,
    subject: &Subject,
) -> Result<Option<(Record, Vec<u8>)>, StoreError> {
    tx.row(&GET, &key(subject), |row| {
        Ok((record(row)?, STANDARD.decode(row.text(9)?)?))
    })
}

pub fn documentation_record(
    tx: &mut Tx<'_>,
    subject: &Subject,
) -> Result<Option<Record>, StoreError> {
    tx.row(&RECORD, &key(subject), record)
}

/// Configurations first, each kind by id.
pub fn documentation_list(
    tx: &mut Tx<'_>,
    after: Option<(&str, &str)>,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let (kind, subject) = after.unwrap_or_default();
    let values = [kind.into(), subject.into(), limit.into()];
    tx.rows(&LIST, &values, record)
}

/// Takes the place of what was there, but for when that was made.
pub fn documentation_put(
    tx: &mut Tx<'_>,
    record: &Record,
    tarball: &[u8],
) -> Result<(), StoreError> {
    let text = STANDARD.encode(tarball);
    let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    tx.execute(
        &PUT,
        &[
            record.subject.kind().into(),
            record.subject.id().into(),
            (&record.title).into(),
            (&record.digest).into(),
            bytes(record.packed_bytes).into(),
            bytes(record.unpacked_bytes).into(),
            record.n_files.into(),
            record.created.into(),
            record.last_modified.into(),
            (&text).into(),
        ],
    )
    .map(drop)
}

/// `false` if there was none. Whoever deletes what is documented calls this in the same transaction.
pub fn documentation_delete(tx: &mut Tx<'_>, subject: &Subject) -> Result<bool, StoreError> {
    Ok(tx.execute(&DELETE, &key(subject))? > 0)
}

/// What documents nothing that is there. Returns how many; as many as the limit means: ask again.
pub fn documentation_delete_orphans(tx: &mut Tx<'_>, limit: u32) -> Result<u64, StoreError> {
    let kinds = [Subject::WORKER_TYPE, Subject::CONFIGURATION];
    let values = [kinds[0].into(), kinds[1].into(), limit.into()];
    tx.execute(&DELETE_ORPHANS, &values)
}

/// The configuration that a worker type belongs to, if it does.
pub fn documentation_configuration_of(
    tx: &mut Tx<'_>,
    worker_type: &PoolId,
) -> Result<Option<ConfigurationId>, StoreError> {
    let values = [worker_type.as_str().into()];
    tx.row(&CONFIGURATION_OF, &values, |row| {
        Ok(row.text(0)?.parse()?)
    })
}

/// Whether there is what would be documented.
pub fn documentation_subject_exists(
    tx: &mut Tx<'_>,
    subject: &Subject,
) -> Result<bool, StoreError> {
    match subject {
        Subject::Configuration(id) => {
            let found = tx.row(&CONFIGURATION, &[id.as_str().into()], |_| Ok(()))?;
            Ok(found.is_some())
        }
        Subject::WorkerType(id) => Ok(crate::pool_get(tx, id)?.is_some()),
    }
}

fn key(subject: &Subject) -> [crate::value::Value<'_>; 2] {
    [subject.kind().into(), subject.id().into()]
}

fn record(row: &Row<'_>) -> Result<Record, BadRow> {
    let subject = match row.text(0)? {
        Subject::CONFIGURATION => Subject::Configuration(row.text(1)?.parse()?),
        Subject::WORKER_TYPE => Subject::WorkerType(row.text(1)?.parse()?),
        other => return Err(BadRow(format!("nothing of kind {other:?} is documented"))),
    };
    Ok(Record {
        subject,
        title: row.text(2)?.to_owned(),
        digest: row.text(3)?.to_owned(),
        packed_bytes: row.number(4)?,
        unpacked_bytes: row.number(5)?,
        n_files: row.number(6)?,
        created: row.time(7)?,
        last_modified: row.time(8)?,
    })
}
