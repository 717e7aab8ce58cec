//! Runs transactions on a session: again when others were in the way, and rolled back when they fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::StoreError;
use super::failure::Failure;
use super::lock::lock;
use super::session::Session;
use super::sqlite::Mode;
use super::stopwatch::Stopwatch;
use super::tx::Tx;

/// How often a transaction that lost to others runs before the caller is told.
pub const MAX_ATTEMPTS: u32 = 20;

/// What one run of a transaction came to.
enum Attempt<R> {
    Done(R),
    /// Another transaction was in the way of this statement.
    Again(&'static str),
}

impl Session {
    /// Runs the closure until it commits, fails for good, or lost too often.
    pub(crate) fn write<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| {
            let mut run = |session: &mut Self| match session.attempt(Mode::Write, name, &mut f) {
                Attempt::Done(result) => Some(result),
                Attempt::Again(statement) => {
                    metrics::counter!(
                        "fleetwright_store_conflicts_total", "name" => name, "statement" => statement
                    )
                    .increment(1);
                    None
                }
            };
            if let Some(result) = run(session) {
                return result;
            }
            let lane = session.lanes.of(name);
            let _alone = lock(&lane);
            for attempt in 2..=MAX_ATTEMPTS {
                metrics::counter!("fleetwright_store_retries_total", "name" => name).increment(1);
                session.pause.before_attempt(attempt);
                if let Some(result) = run(session) {
                    return result;
                }
            }
            Err(StoreError::Congested {
                name,
                attempts: MAX_ATTEMPTS,
            }
            .into())
        })
    }

    /// Runs the closure once on one snapshot.
    pub(crate) fn read<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| match session.attempt(Mode::Read, name, f) {
            Attempt::Done(result) => result,
            Attempt::Again(_) => Err(StoreError::Congested { name, attempts: 1 }.into()),
        })
    }

    fn measured<T, E>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let stopwatch = Stopwatch::start();
        let engine = self.engine_name();
        let result = run(self);
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
    ) -> Attempt<Result<T, E>> {
        self.counter.transaction(name);
        if let Err(failure) = self.begin(mode) {
            return match failure {
                Failure::Conflict(_) => Attempt::Again("begin"),
                Failure::Lost(_) | Failure::NotMigrated(_) | Failure::Other(_) => {
                    Attempt::Done(Err(self.error("begin", failure).into()))
                }
            };
        }
        let mut tx = Tx::new(self);
        let outcome = catch_unwind(AssertUnwindSafe(|| f(&mut tx)));
        let (conflict, spoiled) = (tx.conflict(), tx.is_spoiled());
        let again = conflict.is_some();
        match outcome {
            Err(_panic) => {
                self.give_up_connection();
                Attempt::Done(Err(StoreError::Panicked { name }.into()))
            }
            Ok(Err(error)) if !again => {
                self.rollback();
                Attempt::Done(Err(error))
            }
            Ok(Ok(_)) if spoiled && !again && mode == Mode::Write => {
                self.rollback();
                Attempt::Done(Err(StoreError::Overlooked { name }.into()))
            }
            Ok(Ok(value)) if !again => self.finish(mode, name, value),
            // A read runs once: its own error says more than "congested".
            Ok(Err(error)) if mode == Mode::Read => {
                self.rollback();
                Attempt::Done(Err(error))
            }
            Ok(_) => {
                self.rollback();
                Attempt::Again(conflict.unwrap_or("unknown"))
            }
        }
    }

    fn finish<T, E: From<StoreError>>(
        &mut self,
        mode: Mode,
        name: &'static str,
        value: T,
    ) -> Attempt<Result<T, E>> {
        match self.commit() {
            Ok(()) => Attempt::Done(Ok(value)),
            // All that was asked for has been read.
            Err(_) if mode == Mode::Read => {
                self.rollback();
                Attempt::Done(Ok(value))
            }
            Err(Failure::Conflict(_)) => {
                self.rollback();
                Attempt::Again("commit")
            }
            Err(Failure::Lost(source)) => {
                Attempt::Done(Err(StoreError::OutcomeUnknown { name, source }.into()))
            }
            Err(failure @ (Failure::NotMigrated(_) | Failure::Other(_))) => {
                self.rollback();
                Attempt::Done(Err(self.error("commit", failure).into()))
            }
        }
    }
}
