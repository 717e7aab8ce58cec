//! Errors of workers and providers, as they were reported.

use domain::error_report::ErrorReport;
use domain::id::{ErrorId, LaunchConfigId, PoolId};
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{AFTER_ALL, Table, statements};
use crate::tx::Tx;
use crate::value::to_json;

static TABLE: Table = Table {
    name: "worker_errors",
    key_columns: 2,
};

macro_rules! columns {
    () => {
        "worker_pool_id, error_id, reported, kind, title, description, extra, launch_config_id"
    };
}

// An absent filter is an empty text: no id is empty.
statements! { TABLE;
    INSERT "error_insert" = concat!(
        "INSERT INTO worker_errors (", columns!(), ", code) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING");
    GET "error_get" = concat!("SELECT ", columns!(),
        " FROM worker_errors WHERE worker_pool_id = $1 AND error_id = $2");
    LIST "error_list" = concat!(
        "SELECT ", columns!(), " FROM worker_errors WHERE worker_pool_id = $1 \
         AND (reported, error_id) < ($2, $3) \
         AND ($4 = '' OR launch_config_id = $4) AND ($5 = '' OR error_id = $5) \
         ORDER BY reported DESC, error_id DESC LIMIT $6");
    DELETE_OLDER "error_delete_older_than" =
        "DELETE FROM worker_errors WHERE (worker_pool_id, error_id) IN (\
         SELECT worker_pool_id, error_id FROM worker_errors \
         WHERE reported < $1 ORDER BY reported LIMIT $2)";
}

/// Which errors of a pool to list; all if nothing is given.
#[derive(Clone, Debug, Default)]
pub struct ErrorFilter {
    pub launch_config_id: Option<LaunchConfigId>,
    pub error_id: Option<ErrorId>,
}

/// `false` if this error is there already.
pub fn error_insert(tx: &mut Tx<'_>, report: &ErrorReport) -> Result<bool, StoreError> {
    let extra = to_json(&report.extra);
    let n_inserted = tx.execute(
        &INSERT,
        &[
            report.pool_id.as_str().into(),
            report.error_id.as_str().into(),
            report.reported.into(),
            (&report.kind).into(),
            (&report.title).into(),
            (&report.description).into(),
            (&extra).into(),
            report
                .launch_config_id
                .as_ref()
                .map(LaunchConfigId::as_str)
                .into(),
            report.code().into(),
        ],
    )?;
    Ok(n_inserted > 0)
}

pub fn error_get(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    error_id: &ErrorId,
) -> Result<Option<ErrorReport>, StoreError> {
    let values = [pool_id.as_str().into(), error_id.as_str().into()];
    tx.row(&GET, &values, error_report)
}

/// Newest first; `after` is the moment and id of the last one of the page before.
pub fn error_list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    filter: &ErrorFilter,
    after: Option<(Timestamp, &ErrorId)>,
    limit: u32,
) -> Result<Vec<ErrorReport>, StoreError> {
    let (reported, id) = after.map_or((i64::MAX, AFTER_ALL), |(reported, id)| {
        (reported.as_millis(), id.as_str())
    });
    let values = [
        pool_id.as_str().into(),
        reported.into(),
        id.into(),
        filter
            .launch_config_id
            .as_ref()
            .map_or("", LaunchConfigId::as_str)
            .into(),
        filter.error_id.as_ref().map_or("", ErrorId::as_str).into(),
        limit.into(),
    ];
    tx.rows(&LIST, &values, error_report)
}

/// Oldest first. As many as the limit means: ask again.
pub fn error_delete_older_than(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE_OLDER, &[before.into(), limit.into()])
}

fn error_report(row: &Row<'_>) -> Result<ErrorReport, BadRow> {
    Ok(ErrorReport {
        pool_id: row.text(0)?.parse()?,
        error_id: row.text(1)?.parse()?,
        reported: row.time(2)?,
        kind: row.text(3)?.to_owned(),
        title: row.text(4)?.to_owned(),
        description: row.text(5)?.to_owned(),
        extra: row.json(6)?,
        launch_config_id: row.optional_text(7)?.map(str::parse).transpose()?,
    })
}
