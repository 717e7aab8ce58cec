//! Compiled worker configurations, kept so that an edit does only what it touches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::Version;
use domain::configuration::{Compilation, Configuration, Market, StoredConfiguration};
use domain::id::ConfigurationId;
use store::StoreError;

use super::super::super::error::ApiError;
use crate::app::App;

/// Of so many configurations the last version is kept.
const MAX_KEPT: usize = 64;

#[derive(Default)]
pub struct Compilations(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: BTreeMap<ConfigurationId, (Version, Arc<Compilation>)>,
    /// The one used last comes last.
    order: Vec<ConfigurationId>,
}

impl Compilations {
    fn get(&self, id: &ConfigurationId, version: Version) -> Option<Arc<Compilation>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, compilation) = kept.by_id.get(id)?;
        if *known != version {
            return None;
        }
        let compilation = Arc::clone(compilation);
        kept.touch(id);
        Some(compilation)
    }

    pub(super) fn put(
        &self,
        id: &ConfigurationId,
        version: Version,
        compilation: Arc<Compilation>,
    ) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_id.insert(id.clone(), (version, compilation));
        kept.touch(id);
        if kept.order.len() > MAX_KEPT {
            let oldest = kept.order.remove(0);
            kept.by_id.remove(&oldest);
        }
    }
}

impl Kept {
    fn touch(&mut self, id: &ConfigurationId) {
        self.order.retain(|known| known != id);
        self.order.push(id.clone());
    }
}

/// What follows from a stored configuration, by what the providers presented when it was stored.
pub(super) async fn compiled(
    app: &App,
    stored: &StoredConfiguration,
) -> Result<Arc<Compilation>, ApiError> {
    if let Some(known) = app.compilations.get(&stored.id, stored.version) {
        return Ok(known);
    }
    let (document, market) = (stored.document.clone(), stored.market.clone());
    let compile = move || {
        let configuration = Configuration::parse(&document).map_err(|bad| bad.to_string())?;
        let market = Market::from_json(&market).map_err(|bad| bad.to_string())?;
        Compilation::new(configuration, Arc::new(market)).map_err(|bad| bad.to_string())
    };
    let compilation = beside(compile).await?.map_err(|problem| {
        // It was good when it was written.
        ApiError::from(StoreError::Corrupt {
            table: "worker_configurations",
            key: stored.id.to_string(),
            reason: problem,
        })
    })?;
    let compilation = Arc::new(compilation);
    app.compilations
        .put(&stored.id, stored.version, Arc::clone(&compilation));
    Ok(compilation)
}

/// Computes for a while without holding up what else this thread has to do.
pub(super) async fn beside<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(compute)
        .await
        .map_err(|problem| ApiError::from(std::io::Error::other(problem)))
}
