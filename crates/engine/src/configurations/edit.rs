//! Applies an edit to a worker configuration: compiles, validates and writes it in one transaction.
//!
//! An edit is a function from the current configuration to the next one. No lock is held while it
//! is compiled and validated by providers. If the configuration changed meanwhile, the edit starts
//! again from the new version, so that no edit is lost.

use std::sync::Arc;

use domain::Version;
use domain::audit::AuditEntry;
use domain::configuration::{
    Action, Compilation, Configuration, ProviderCatalog, StoredConfiguration, VersionRecord,
};
use domain::documentation::Subject;
use domain::id::ConfigurationId;
use serde_json::json;

use super::compilation_cache::compile_stored;
use super::provider_catalog::provider_catalog;
use super::validate_pools::{DesiredPools, PreviousState, validate_pools};
use super::{ConfigurationError, write_pools};
use crate::Engine;

/// After this many concurrent changes, the caller gets an error.
const MAX_TRIES: usize = 20;

/// The result of an edit.
pub enum EditResult {
    Replace(Configuration),
    Delete,
}

/// Computes the result from the current configuration, or refuses the edit.
type EditFunction<E> = dyn Fn(Option<&Configuration>) -> Result<EditResult, E> + Send + Sync;

pub struct Edit<E> {
    id: ConfigurationId,
    action: Action,
    next: Box<EditFunction<E>>,
    /// The caller and the time.
    audit: AuditEntry,
    /// The version that the caller has read; without it, the edit applies to any version.
    seen: Option<Version>,
    reason: String,
    adopts: bool,
}

impl<E> Edit<E> {
    pub fn new(
        id: ConfigurationId,
        action: Action,
        audit: AuditEntry,
        next: impl Fn(Option<&Configuration>) -> Result<EditResult, E> + Send + Sync + 'static,
    ) -> Self {
        Self {
            id,
            action,
            next: Box::new(next),
            audit,
            seen: None,
            reason: String::new(),
            adopts: false,
        }
    }

    #[must_use]
    pub fn expect_version(mut self, version: Option<i64>) -> Self {
        self.seen = version.map(Version);
        self
    }

    #[must_use]
    pub fn with_reason(mut self, reason: String) -> Self {
        self.reason = reason;
        self
    }

    #[must_use]
    pub fn adopt_pools(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }
}

/// Applies an edit, and returns the stored configuration after it.
pub async fn apply_edit<E: From<ConfigurationError>>(
    engine: &Arc<Engine>,
    edit: Edit<E>,
) -> Result<StoredConfiguration, E> {
    for _ in 0..MAX_TRIES {
        if let Some(edited) = attempt(engine, &edit).await? {
            return Ok(edited);
        }
    }
    let text = format!(
        "The worker configuration was changed by others {MAX_TRIES} times while this edit was made. Nothing was changed \
         by it; try again."
    );
    Err(ConfigurationError::Conflict(text).into())
}

/// `None`: the configuration was changed concurrently.
async fn attempt<E: From<ConfigurationError>>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
) -> Result<Option<StoredConfiguration>, E> {
    let known = read(engine, &edit.id).await?;
    check_version(edit.seen, known.as_ref())?;
    let before = match &known {
        Some(known) => Some(compile_stored(engine, known).await?),
        None => None,
    };
    let configuration = before.as_ref().map(|(configuration, _)| configuration);
    let compilation = before.as_ref().and_then(|(_, known)| known.as_ref().ok());
    let written = match (edit.next)(configuration)? {
        EditResult::Replace(next) => {
            let before = configuration.map(|configuration| PreviousState {
                configuration,
                compilation,
            });
            replace(engine, edit, known, before, next).await
        }
        EditResult::Delete => remove(engine, edit, known, configuration).await,
    };
    Ok(written?)
}

pub(super) async fn read(
    engine: &Engine,
    id: &ConfigurationId,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let id = id.clone();
    let read = engine.store.read("configuration_get", move |tx| {
        store::configurations::get(tx, &id)
    });
    Ok(read.await?)
}

async fn replace<E>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
    known: Option<StoredConfiguration>,
    before: Option<PreviousState<'_>>,
    next: Configuration,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let now = edit.audit.created;
    let document = next.to_document();
    let market = provider_catalog(engine);
    let compilation = before.and_then(|before| before.compilation);
    if let (Some(known), Some(compilation)) = (&known, compilation)
        && known.document == document
        && market.is_same_for(&compilation.catalog, &next.named_providers())
    {
        return Ok(Some(known.clone()));
    }
    let after = compile(engine, compilation.cloned(), next, Arc::new(market));
    let mut after = after.await?;
    let judged = validate_pools(engine, before, &after).await?;
    after.complete(judged.completed.clone());
    let after = Arc::new(after);
    let stored = StoredConfiguration {
        id: edit.id.clone(),
        document,
        market: after.catalog.to_json(),
        created: known.as_ref().map_or(now, |known| known.created),
        last_modified: now,
        version: known
            .as_ref()
            .map_or(Version::FIRST, |known| known.version.next()),
    };
    let written = write(engine, edit, known, stored, judged).await?;
    if let Some(stored) = &written {
        engine.compilations.put(&stored.id, stored.version, after);
    }
    Ok(written)
}

fn check_version(
    seen: Option<Version>,
    known: Option<&StoredConfiguration>,
) -> Result<(), ConfigurationError> {
    match (seen, known) {
        (Some(seen), Some(known)) if seen != known.version => {
            let text = format!(
                "The worker configuration is at version {} and not at {}: somebody changed it meanwhile. Nothing was \
                 changed; read it again and repeat the edit on that.",
                known.version.0, seen.0
            );
            Err(ConfigurationError::Conflict(text))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Compiles on another thread, within the limit.
pub(super) async fn compile(
    engine: &Engine,
    before: Option<Arc<Compilation>>,
    next: Configuration,
    market: Arc<ProviderCatalog>,
) -> Result<Compilation, ConfigurationError> {
    let compiling = engine.compilations.run_limited(move || match before {
        Some(before) => before.succeed(next, market),
        None => Compilation::new(next, market),
    });
    compiling
        .await?
        .map_err(|problems| ConfigurationError::from(&problems))
}

async fn write<E>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
    known: Option<StoredConfiguration>,
    stored: StoredConfiguration,
    judged: DesiredPools,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let (action, reason, adopts) = (edit.action, edit.reason.clone(), edit.adopts);
    let mut audit = edit.audit.clone();
    let client_id = audit.client_id.clone();
    let seen = known.map(|known| known.version);
    let written = engine.change("configuration_write", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let mut stored = stored.clone();
        let current = store::configurations::get(tx, &stored.id)?.map(|current| current.version);
        if current != seen {
            return Ok::<_, ConfigurationError>(None);
        }
        match seen {
            Some(seen) => store::configurations::update(tx, &stored, seen)?,
            None => {
                // Versions continue after those of a deleted configuration of this name.
                let last = store::configuration_versions::list(tx, &stored.id, None, 1)?;
                if let Some(last) = last.first() {
                    stored.version = last.version.next();
                }
                if !store::configurations::insert(tx, &stored)? {
                    return Err(tx.lost_race().into());
                }
            }
        }
        let record = VersionRecord {
            id: stored.id.clone(),
            version: stored.version,
            action,
            document: stored.document.clone(),
            market: stored.market.clone(),
            client_id: client_id.clone(),
            reason: reason.clone(),
            created: now,
        };
        store::configuration_versions::insert(tx, &record)?;
        write_pools::write_pools(change, &stored.id, &judged, adopts)?;
        audit.detail = json!({"version": stored.version.0, "reason": reason});
        store::audit::insert(change.tx, &audit)?;
        Ok(Some(stored))
    });
    written.await
}

async fn remove<E>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
    known: Option<StoredConfiguration>,
    before: Option<&Configuration>,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let (Some(known), Some(before)) = (known, before) else {
        return Err(ConfigurationError::NotFound);
    };
    let audit = edit.audit.clone();
    let judged = DesiredPools::without_pools_of(before);
    let stored = known.clone();
    let written = engine.change("configuration_delete", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let current = store::configurations::get(tx, &known.id)?.map(|current| current.version);
        if current != Some(known.version) {
            return Ok::<_, ConfigurationError>(false);
        }
        store::configurations::delete(tx, &known.id, known.version)?;
        store::documentation::delete(tx, &Subject::Configuration(known.id.clone()))?;
        let record = VersionRecord {
            id: known.id.clone(),
            version: known.version.next(),
            action: Action::Deleted,
            document: known.document.clone(),
            market: known.market.clone(),
            client_id: audit.client_id.clone(),
            reason: String::new(),
            created: now,
        };
        store::configuration_versions::insert(tx, &record)?;
        write_pools::write_pools(change, &known.id, &judged, false)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(true)
    });
    Ok(written.await?.then_some(stored))
}
