//! The statistics from which PostgreSQL plans its statements.

use crate::engine::{
    error::Result, session::Connection, session::Session, sqlite::Mode, store::Store,
};

const NAME: &str = "database_analyze";

/// Only the tables of this schema: others may be in the database, which are not ours to wait for.
const ANALYZE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
     DO $$ BEGIN EXECUTE ( \
     SELECT 'ANALYZE ' || string_agg(quote_ident(relname), ', ') FROM pg_class \
     WHERE relkind = 'r' AND relnamespace = CAST(current_schema() AS regnamespace) \
     ); END $$";

impl Store {
    /// Counts again. PostgreSQL plans badly for about a minute after very many rows were written
    /// at once. SQLite does not need it: it plans from the indexes alone.
    pub async fn gather_statistics(&self) -> Result<()> {
        self.submit(Mode::Write, gather).await
    }
}

pub(crate) fn gather(session: &mut Session) -> Result<()> {
    session.once(NAME, Mode::Write, |session| {
        let done = match &mut session.connection {
            Connection::Sqlite(_) => Ok(()),
            Connection::Postgres(postgres) => postgres.batch(ANALYZE),
        };
        done.map_err(|failure| session.error(NAME, failure))
    })
}
