//! Documentation of worker configurations and worker types: one tarball each, and a record that
//! describes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::documentation::{Record, Subject};
use domain::id::{ConfigurationId, PoolId};

use crate::engine::{
    BadRow, Cells, Entity, Field, FromRow, Result, Table, Tx, Value, columns, statements,
};
use crate::fleet::pools;

columns! { record: Record {
    subject: Key ["kind", "subject"],
    title: Mutable "title",
    digest: Mutable "digest",
    packed_bytes: Mutable "packed_bytes",
    unpacked_bytes: Mutable "unpacked_bytes",
    n_files: Mutable "n_files",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
} }

impl Field for Subject {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.extend([self.kind().into(), self.id().into()]);
    }
}

impl FromRow for Subject {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        match cells.next::<String>()?.as_str() {
            Self::CONFIGURATION => Ok(Self::Configuration(cells.next()?)),
            Self::WORKER_TYPE => Ok(Self::WorkerType(cells.next()?)),
            other => Err(BadRow(format!("{other:?} is not a kind of documentation"))),
        }
    }
}

static TABLE: Table = Table::of::<Record>("documentation");

statements! { TABLE;
    GET "documentation_get" =
        "SELECT {columns}, tarball FROM documentation WHERE kind = $1 AND subject = $2";
    RECORD "documentation_record" =
        "SELECT {columns} FROM documentation WHERE kind = $1 AND subject = $2";
    LIST "documentation_list" =
        "SELECT {columns} FROM documentation WHERE (kind, subject) > ($1, $2) \
         ORDER BY kind, subject LIMIT $3";
    PUT "documentation_put" =
        "INSERT INTO documentation ({written}, tarball) VALUES ({values}, {next}) \
         ON CONFLICT (kind, subject) DO UPDATE SET {excluded}, tarball = excluded.tarball";
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

/// Returns the record and the tarball.
pub fn get(tx: &mut Tx<'_>, subject: &Subject) -> Result<Option<(Record, Vec<u8>)>> {
    tx.row_with(&GET, subject, |row| {
        let mut cells = Cells::of(row);
        Ok((cells.next()?, STANDARD.decode(cells.next::<String>()?)?))
    })
}

pub fn get_record(tx: &mut Tx<'_>, subject: &Subject) -> Result<Option<Record>> {
    tx.row(&RECORD, subject)
}

/// Configurations first, each kind by id.
pub fn list(tx: &mut Tx<'_>, after: Option<(&str, &str)>, limit: u32) -> Result<Vec<Record>> {
    tx.rows(&LIST, (after.unwrap_or_default(), limit))
}

/// Replaces the documentation of the subject, but keeps its time of creation.
pub fn put(tx: &mut Tx<'_>, record: &Record, tarball: &[u8]) -> Result<()> {
    let tarball = STANDARD.encode(tarball);
    tx.run(&PUT, (record.inserted(), &tarball))
}

/// Returns `false` if the subject has no documentation. A transaction that deletes a subject must
/// call this, too.
pub fn delete(tx: &mut Tx<'_>, subject: &Subject) -> Result<bool> {
    Ok(tx.execute(&DELETE, subject)? > 0)
}

/// Deletes documentation whose subject does not exist, and returns the number of deleted rows. Call
/// it again while it returns the limit.
pub fn delete_orphans(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    let kinds = (Subject::WORKER_TYPE, Subject::CONFIGURATION);
    tx.execute(&DELETE_ORPHANS, (kinds, limit))
}

/// The configuration to which a worker type belongs, if any.
pub fn configuration_of(tx: &mut Tx<'_>, worker_type: &PoolId) -> Result<Option<ConfigurationId>> {
    tx.row(&CONFIGURATION_OF, worker_type)
}

/// Whether the pool or the configuration exists.
pub fn subject_exists(tx: &mut Tx<'_>, subject: &Subject) -> Result<bool> {
    match subject {
        Subject::Configuration(id) => tx.exists(&CONFIGURATION, id),
        Subject::WorkerType(id) => Ok(pools::get(tx, id)?.is_some()),
    }
}
