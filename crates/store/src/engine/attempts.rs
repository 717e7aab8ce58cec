//! Runs transactions on a session: retries them after conflicts, and rolls them back after errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::{
    error::Result, error::StoreError, failure::Failure, lock::lock, session::Connection,
    session::Session, sqlite::Mode, stopwatch::Stopwatch, tx::Tx,
};

/// Maximum number of attempts of a transaction that conflicts with others.
pub const MAX_ATTEMPTS: u32 = 20;

/// Result of one attempt to run a transaction.
enum AttemptResult<R> {
    Finished(R),
    /// This statement conflicted with another transaction.
    Conflict(&'static str),
}

impl Session {
    /// Runs the closure until it commits, fails, or has conflicted too often.
    pub(crate) fn write<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| {
            let mut run = |session: &mut Self| match session.attempt(Mode::Write, name, &mut f) {
                AttemptResult::Finished(result) => Some(result),
                AttemptResult::Conflict(statement) => {
                    metrics::counter!(
                        "fleetwright_store_conflicts_total",
                        "name" => name,
                        "statement" => statement
                    )
                    .increment(1);
                    None
                }
            };
            if let Some(result) = run(session) {
                return result;
            }
            let retry_lock = session.retry_locks.of(name);
            let _guard = lock(&retry_lock);
            for attempt in 2..=MAX_ATTEMPTS {
                metrics::counter!("fleetwright_store_retries_total", "name" => name).increment(1);
                session.backoff.wait_before_attempt(attempt);
                if let Some(result) = run(session) {
                    return result;
                }
            }
            Err(StoreError::TooManyConflicts {
                name,
                attempts: MAX_ATTEMPTS,
            }
            .into())
        })
    }

    /// Runs the closure once, on one snapshot.
    pub(crate) fn read<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| match session.attempt(Mode::Read, name, f) {
            AttemptResult::Finished(result) => result,
            AttemptResult::Conflict(_) => {
                Err(StoreError::TooManyConflicts { name, attempts: 1 }.into())
            }
        })
    }

    fn measured<T, E>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let stopwatch = Stopwatch::start();
        let engine = self.engine_name();
        if let Connection::Postgres(postgres) = &mut self.connection {
            let _of_migrations = postgres.take_trips();
        }
        let result = run(self);
        if let Connection::Postgres(postgres) = &mut self.connection {
            self.counter.trips(postgres.take_trips());
        }
        self.counter.transaction_took(name, &stopwatch);
        let outcome = if result.is_ok() { "ok" } else { "error" };
        metrics::histogram!(
            "fleetwright_store_seconds", "name" => name, "engine" => engine, "outcome" => outcome
        )
        .record(stopwatch.seconds());
        result
    }

    fn attempt<T, E: From<StoreError>>(
        &mut self,
        mode: Mode,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> AttemptResult<Result<T, E>> {
        self.counter.transaction(name);
        if let Err(failure) = self.begin(mode) {
            return match failure {
                Failure::Conflict(_) => AttemptResult::Conflict("begin"),
                Failure::Lost(_) | Failure::NotMigrated(_) | Failure::Other(_) => {
                    AttemptResult::Finished(Err(self.error("begin", failure).into()))
                }
            };
        }
        let mut tx = Tx::new(self);
        let outcome = catch_unwind(AssertUnwindSafe(|| f(&mut tx)));
        let (conflict, has_failed) = (tx.conflict(), tx.has_failed());
        let touches = std::mem::take(&mut tx.touches);
        let is_conflict = conflict.is_some();
        match outcome {
            Err(_panic) => {
                self.abandon_connection();
                AttemptResult::Finished(Err(StoreError::Panicked { name }.into()))
            }
            Ok(Err(error)) if !is_conflict => {
                self.rollback();
                AttemptResult::Finished(Err(error))
            }
            Ok(Ok(_)) if has_failed && !is_conflict && mode == Mode::Write => {
                self.rollback();
                AttemptResult::Finished(Err(StoreError::IgnoredFailure { name }.into()))
            }
            Ok(Ok(value)) if !is_conflict => {
                let finished = self.finish(mode, name, value);
                // Also if the result of the commit is not known.
                match &mut self.group {
                    Some(group) => group.push(touches),
                    None => self.touched.add(&touches),
                }
                finished
            }
            // A read runs once, and its own error says more than `TooManyConflicts`.
            Ok(Err(error)) if mode == Mode::Read => {
                self.rollback();
                AttemptResult::Finished(Err(error))
            }
            Ok(_) => {
                self.rollback();
                AttemptResult::Conflict(conflict.unwrap_or("unknown"))
            }
        }
    }

    fn finish<T, E: From<StoreError>>(
        &mut self,
        mode: Mode,
        name: &'static str,
        value: T,
    ) -> AttemptResult<Result<T, E>> {
        let ended = self.note_work(name).and_then(|()| match mode {
            Mode::Read => self.end_read(),
            Mode::Write => self.commit(),
        });
        match ended {
            Ok(()) => AttemptResult::Finished(Ok(value)),
            // The closure has read everything, so a failed commit does not matter.
            Err(_) if mode == Mode::Read => {
                self.rollback();
                AttemptResult::Finished(Ok(value))
            }
            Err(Failure::Conflict(_)) => {
                let statement = self.take_failed().unwrap_or("commit");
                self.rollback();
                AttemptResult::Conflict(statement)
            }
            Err(Failure::Lost(source)) => {
                AttemptResult::Finished(Err(StoreError::OutcomeUnknown { name, source }.into()))
            }
            Err(failure @ (Failure::NotMigrated(_) | Failure::Other(_))) => {
                let statement = self.take_failed().unwrap_or("commit");
                self.rollback();
                AttemptResult::Finished(Err(self.error(statement, failure).into()))
            }
        }
    }
}
