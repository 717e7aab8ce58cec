//! The statistics from which PostgreSQL plans its statements.

use crate::engine::{
    error::Result, session::Connection, session::Session, sqlite::Mode, store::Lane, store::Store,
};

const NAME: &str = "database_analyze";
const NAME_OF_MISSING: &str = "database_analyze_missing";

/// Only the tables of this schema: others may be in the database, which are not ours to wait for.
const ANALYZE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
     DO $$ BEGIN EXECUTE ( \
     SELECT 'ANALYZE ' || string_agg(quote_ident(relname), ', ') FROM pg_class \
     WHERE relkind = 'r' AND relnamespace = CAST(current_schema() AS regnamespace) \
     ); END $$";

/// A table of this size was never counted: it is new, or was restored from a backup. Without
/// statistics, all indexes that begin with the same column seem equally good. Only its owner may
/// count it: for others, PostgreSQL writes a warning each time.
const ANALYZE_MISSING: &str = "SET LOCAL statement_timeout = 0; \
     DO $$ DECLARE missing TEXT; BEGIN \
     SELECT string_agg(quote_ident(relname), ', ') INTO missing FROM pg_class \
     WHERE relkind = 'r' AND relnamespace = CAST(current_schema() AS regnamespace) \
     AND reltuples < 0 AND pg_relation_size(oid) >= 262144 \
     AND pg_has_role(relowner, 'USAGE'); \
     IF missing IS NOT NULL THEN EXECUTE 'ANALYZE (SKIP_LOCKED) ' || missing; END IF; END $$";

impl Store {
    /// Counts again. PostgreSQL plans badly for about a minute after very many rows were written
    /// at once. SQLite does not need it: it plans from the indexes alone.
    pub async fn gather_statistics(&self) -> Result<()> {
        self.submit(Lane::Write, gather).await
    }

    /// Counts the tables that were never counted. PostgreSQL itself does it after a minute or more.
    pub async fn gather_missing_statistics(&self) -> Result<()> {
        let gather = |session: &mut Session| run(session, NAME_OF_MISSING, ANALYZE_MISSING);
        self.submit(Lane::Write, gather).await
    }
}

pub(crate) fn gather(session: &mut Session) -> Result<()> {
    run(session, NAME, ANALYZE)
}

fn run(session: &mut Session, name: &'static str, sql: &str) -> Result<()> {
    session.once(name, Mode::Write, |session| {
        let done = match &mut session.connection {
            Connection::Sqlite(_) => Ok(()),
            Connection::Postgres(postgres) => postgres.batch(sql),
        };
        done.map_err(|failure| session.error(name, failure))
    })
}
