//! Runs transactions on a session: retries them after conflicts, and rolls them back after errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::{
    error::Result, error::StoreError, failure::Failure, session::Connection, session::Session,
    sqlite::Mode, stopwatch::Stopwatch, tx::Tx,
};

/// Maximum number of attempts of a transaction that conflicts with others.
pub const MAX_ATTEMPTS: u32 = 20;

/// The body of a transaction: it keeps its result, and returns whether it succeeded.
///
/// The code around it takes this instead of a closure of any type, so it is compiled once. Only
/// `write` and `read` are compiled for each transaction.
type Work<'w> = &'w mut dyn FnMut(&mut Tx<'_>) -> bool;

/// How one attempt to run a transaction ended.
enum Attempt {
    /// The result that the work kept is valid.
    Finished(Success),
    /// The transaction failed, whatever the work returned.
    Failed(StoreError),
    /// This statement conflicted with another transaction.
    Conflict(&'static str),
}

/// Whether the work succeeded.
type Success = bool;

impl Session {
    /// Runs the closure until it commits, fails, or has conflicted too often.
    pub(crate) fn write<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut kept = None;
        let ended = self.run_write(name, &mut |tx| keep(&mut kept, f(tx)));
        settle(ended, kept)
    }

    /// One attempt to run and commit the closure. `None`: it conflicted with another transaction.
    pub(crate) fn write_once<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let mut kept = None;
        let mut has_conflict = false;
        let ended = self.measured(name, |session| {
            let ended = session.attempt_write(name, &mut |tx| keep(&mut kept, f(tx)));
            has_conflict = ended.is_none();
            ended.unwrap_or(Ok(false))
        });
        (!has_conflict).then(|| settle(ended, kept))
    }

    /// Like `write`, but the commit also survives a power failure.
    pub(crate) fn write_durably<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut kept = None;
        self.set_durable(true)?;
        let ended = self.run_write(name, &mut |tx| keep(&mut kept, f(tx)));
        // Whether the change is made is known by now. Without this, later commits are only slower.
        if let Err(error) = self.set_durable(false) {
            tracing::warn!(error = %error, "commits go on to wait for the disk: {error}");
        }
        settle(ended, kept)
    }

    /// Runs the closure once, on one snapshot.
    pub(crate) fn read<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut f, mut kept) = (Some(f), None);
        let ended = self.run_read(name, &mut |tx| match f.take() {
            Some(f) => keep(&mut kept, f(tx)),
            None => false,
        });
        settle(ended, kept)
    }

    fn run_write(&mut self, name: &'static str, work: Work<'_>) -> Result<Success> {
        self.measured(name, |session| {
            if let Some(ended) = session.attempt_write(name, work) {
                return ended;
            }
            for attempt in 2..=MAX_ATTEMPTS {
                metrics::counter!("fleetwright_store_retries_total", "name" => name).increment(1);
                session.backoff.wait_before_attempt(attempt);
                if let Some(ended) = session.attempt_write(name, work) {
                    return ended;
                }
            }
            Err(StoreError::TooManyConflicts {
                name,
                attempts: MAX_ATTEMPTS,
            })
        })
    }

    /// `None`: it conflicted with another transaction.
    fn attempt_write(&mut self, name: &'static str, work: Work<'_>) -> Option<Result<Success>> {
        match self.attempt(Mode::Write, name, work) {
            Attempt::Finished(success) => Some(Ok(success)),
            Attempt::Failed(error) => Some(Err(error)),
            Attempt::Conflict(statement) => {
                metrics::counter!(
                    "fleetwright_store_conflicts_total", "name" => name, "statement" => statement
                )
                .increment(1);
                None
            }
        }
    }

    fn run_read(&mut self, name: &'static str, work: Work<'_>) -> Result<Success> {
        self.measured(name, |session| {
            match session.attempt(Mode::Read, name, work) {
                Attempt::Finished(success) => Ok(success),
                Attempt::Failed(error) => Err(error),
                Attempt::Conflict(_) => Err(StoreError::TooManyConflicts { name, attempts: 1 }),
            }
        })
    }

    fn measured(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self) -> Result<Success>,
    ) -> Result<Success> {
        let stopwatch = Stopwatch::start();
        let engine = self.engine_name();
        if let Connection::Postgres(postgres) = &mut self.connection {
            let _of_migrations = postgres.take_trips();
        }
        let ended = run(self);
        if let Connection::Postgres(postgres) = &mut self.connection {
            self.counter.trips(postgres.take_trips());
        }
        self.counter.transaction_took(name, &stopwatch);
        let outcome = if matches!(ended, Ok(true)) {
            "ok"
        } else {
            "error"
        };
        metrics::histogram!(
            "fleetwright_store_seconds", "engine" => engine, "outcome" => outcome
        )
        .record(stopwatch.seconds());
        metrics::histogram!("fleetwright_transaction_seconds", "name" => name)
            .record(stopwatch.seconds());
        ended
    }

    fn attempt(&mut self, mode: Mode, name: &'static str, work: Work<'_>) -> Attempt {
        self.counter.transaction(name);
        if let Err(failure) = self.begin(mode) {
            return match failure {
                Failure::Conflict(_) => Attempt::Conflict("begin"),
                Failure::Lost(_)
                | Failure::NotMigrated(_)
                | Failure::Full(_)
                | Failure::Other(_) => Attempt::Failed(self.error("begin", failure)),
            };
        }
        let mut tx = Tx::new(self);
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut tx)));
        let (conflict, has_failed) = (tx.conflict(), tx.has_failed());
        let touches = std::mem::take(&mut tx.touches);
        let Ok(success) = outcome else {
            self.abandon_connection();
            return Attempt::Failed(StoreError::Panicked { name });
        };
        match (success, conflict) {
            // A read runs once, and its own error says more than `TooManyConflicts`.
            (false, Some(_)) if mode == Mode::Read => {
                self.rollback();
                Attempt::Finished(false)
            }
            (_, Some(statement)) => {
                self.rollback();
                Attempt::Conflict(statement)
            }
            (false, None) => {
                self.rollback();
                Attempt::Finished(false)
            }
            (true, None) if has_failed && mode == Mode::Write => {
                self.rollback();
                Attempt::Failed(StoreError::IgnoredFailure { name })
            }
            (true, None) => {
                let finished = self.finish(mode, name);
                // Also if the result of the commit is not known.
                match &mut self.group {
                    Some(group) => group.push(touches),
                    None => self.touched.add(&touches),
                }
                finished
            }
        }
    }

    fn finish(&mut self, mode: Mode, name: &'static str) -> Attempt {
        let ended = self.note_work(name).and_then(|()| match mode {
            Mode::Read => self.end_read(),
            Mode::Write => self.commit(),
        });
        match ended {
            Ok(()) => Attempt::Finished(true),
            // The closure has read everything, so a failed commit does not matter.
            Err(_) if mode == Mode::Read => {
                self.rollback();
                Attempt::Finished(true)
            }
            Err(Failure::Conflict(_)) => {
                let statement = self.take_failed().unwrap_or("commit");
                self.rollback();
                Attempt::Conflict(statement)
            }
            Err(Failure::Lost(source)) => {
                Attempt::Failed(StoreError::OutcomeUnknown { name, source })
            }
            Err(failure @ (Failure::NotMigrated(_) | Failure::Full(_) | Failure::Other(_))) => {
                let statement = self.take_failed().unwrap_or("commit");
                self.rollback();
                Attempt::Failed(self.error(statement, failure))
            }
        }
    }
}

fn keep<T, E>(kept: &mut Option<Result<T, E>>, result: Result<T, E>) -> Success {
    let success = result.is_ok();
    *kept = Some(result);
    success
}

fn settle<T, E: From<StoreError>>(
    ended: Result<Success>,
    kept: Option<Result<T, E>>,
) -> Result<T, E> {
    ended?;
    kept.expect("a transaction that finished has kept its result")
}
