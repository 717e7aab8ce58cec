//! Checks whether this process works: the database accepts writes, and the time is known.
//!
//! Checks run on request and periodically, but at most every few seconds, because every client may
//! request them.

use std::time::Duration;

use api_client::with_causes;
use domain::time::Clock;
use store::Store;
use tokio::sync::Mutex;

/// How long a result is reused.
const FRESH_MS: i64 = 5_000;
/// Time limit of a write to the database.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// When the database was last asked, and why it does not accept writes.
#[derive(Default)]
pub struct HealthMonitor(Mutex<Option<(i64, Result<(), String>)>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Why the database does not accept writes.
    pub database: Result<(), String>,
    /// Why the time may be wrong.
    pub doubt: Option<String>,
    /// Facts about the clock that people should know.
    pub warnings: Vec<String>,
}

impl HealthMonitor {
    pub async fn check(&self, store: &Store, clock: &dyn Clock) -> Health {
        let database = self.check_database(store, clock).await;
        Health {
            database,
            doubt: clock.doubt(),
            warnings: clock.warnings(),
        }
    }

    async fn check_database(&self, store: &Store, clock: &dyn Clock) -> Result<(), String> {
        // Concurrent requests wait for the same result.
        let mut last = self.0.lock().await;
        let steady_ms = clock.steady_ms();
        if let Some((at, result)) = &*last
            && (0..FRESH_MS).contains(&steady_ms.saturating_sub(*at))
        {
            return result.clone();
        }
        let result = write(store, clock).await;
        if let Err(problem) = &result {
            tracing::error!(error = %problem, "cannot write to the database: {problem}");
        }
        *last = Some((steady_ms, result.clone()));
        result
    }
}

async fn write(store: &Store, clock: &dyn Clock) -> Result<(), String> {
    let now = clock.now();
    let writing = store.write("write_probe", move |tx| {
        store::probe::write(tx, std::process::id(), now)
    });
    match tokio::time::timeout(WRITE_LIMIT, writing).await {
        Ok(written) => written.map_err(|problem| with_causes(&problem)),
        Err(_) => Err(format!("it took longer than {WRITE_LIMIT:?}")),
    }
}
