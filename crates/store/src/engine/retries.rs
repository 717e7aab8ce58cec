//! Retries of transactions on PostgreSQL: one at a time for each name, and without a thread.
//!
//! If several transactions write one row at once, the database lets one of them commit. If all
//! others ran again at once, they would conflict again, and with many of them one would fail every
//! time. So from the second attempt on, transactions of one name run one after the other within a
//! process. They still compete with transactions of other names and other processes.
//!
//! An attempt occupies a thread. The waits before it do not, or a single row that somebody holds
//! would stop all transactions of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::engine::{
    attempts::MAX_ATTEMPTS, backoff, error::Result, error::StoreError, jobs::Answer, jobs::Work,
    lock::lock, session::Session, tx::Tx,
};

/// A transaction that conflicts is tried again for this time, its wait for others of its name
/// included. Callers behind a row that stays locked then get an error.
const LONGEST_RETRY: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(crate) struct RetryLocks {
    by_name: Mutex<HashMap<&'static str, RetryLock>>,
}

/// A transaction holds it while it is retried.
type RetryLock = Arc<tokio::sync::Mutex<()>>;

impl RetryLocks {
    /// The lock of all transactions of this name. The number of locks is bounded by the number of
    /// names in the program.
    fn of(&self, name: &'static str) -> RetryLock {
        Arc::clone(lock(&self.by_name).entry(name).or_default())
    }
}

/// One attempt; `None`: it conflicted with another transaction, and has changed nothing.
pub(crate) type Attempt = Box<dyn FnMut(&mut Session) -> Option<Answer> + Send>;

/// The attempts of a transaction.
pub(crate) fn attempts<T, E>(
    name: &'static str,
    mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
) -> Attempt
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    Box::new(move |session| {
        let ended = session.write_once(name, &mut f)?;
        Some(Box::new(ended))
    })
}

/// Runs a transaction until it commits, fails, or has conflicted too often or for too long. `run`
/// runs it on a thread.
pub(crate) async fn run_attempts<F>(
    locks: &RetryLocks,
    name: &'static str,
    mut attempt: Attempt,
    run: impl Fn(Work) -> F,
) -> Result<Answer>
where
    F: Future<Output = Result<Answer>>,
{
    let (mut retrying, mut end, mut attempts) = (None, None, 0);
    loop {
        attempts += 1;
        let (answer, again) = run_attempt(attempt, &run).await?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
        attempt = again;
        let end = *end.get_or_insert_with(|| Instant::now() + LONGEST_RETRY);
        if retrying.is_none() {
            let turn = timeout_at(end, locks.of(name).lock_owned());
            retrying = turn.await.ok();
        }
        if retrying.is_none() || attempts >= MAX_ATTEMPTS || Instant::now() >= end {
            return Err(StoreError::TooManyConflicts { name, attempts });
        }
        metrics::counter!("fleetwright_store_retries_total", "name" => name).increment(1);
        let wait = backoff::wait_before(attempts + 1, std::process::id());
        let _ = timeout(wait, std::future::pending::<()>()).await;
    }
}

async fn run_attempt<F>(
    mut attempt: Attempt,
    run: &impl Fn(Work) -> F,
) -> Result<(Option<Answer>, Attempt)>
where
    F: Future<Output = Result<Answer>>,
{
    let work = Work::Alone(Box::new(move |session| {
        let answer = attempt(session);
        Box::new((answer, attempt))
    }));
    let ended = run(work).await?;
    let ended = ended.downcast::<(Option<Answer>, Attempt)>();
    Ok(*ended.expect("the work above makes it"))
}
