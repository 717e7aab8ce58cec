//! The statistics from which PostgreSQL plans its statements.

use crate::engine::{error::Result, statement::statements, table::Table, tx::Tx};

static TABLE: Table = Table::unlisted("(statistics)", 1);

statements! { TABLE;
    ANALYZE "database_analyze" = "ANALYZE";
}

/// Counts again. PostgreSQL plans badly for about a minute after very many rows were written at
/// once. SQLite does not need it: it plans from the indexes alone.
pub fn gather(tx: &mut Tx<'_>) -> Result<()> {
    tx.execute(&ANALYZE, ()).map(drop)
}
