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

use super::compilation_cache::{PreviousState, Purpose};
use super::provider_catalog::provider_catalog;
use super::validate_pools::{DesiredPools, validate_pools};
use super::{ConfigurationError, write_pools};
use crate::Engine;

/// After this many concurrent changes, the caller gets an error.
const MAX_TRIES: usize = 20;

pub enum EditResult {
    Replace(Configuration),
    Delete,
}

/// Computes the result from the current configuration, or refuses the edit.
type EditFunction<E> = dyn Fn(Option<&Configuration>) -> Result<EditResult, E> + Send + Sync;

pub struct Edit<E> {
    pub id: ConfigurationId,
    pub action: Action,
    pub next: Box<EditFunction<E>>,
    /// The caller and the time.
    pub audit: AuditEntry,
    /// The version that the caller has read; without it, the edit applies to any version.
    pub seen: Option<Version>,
    pub reason: String,
    pub adopts: bool,
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
    let before = PreviousState::load(engine, Purpose::Edit, &edit.id, edit.seen).await?;
    let configuration = before.as_ref().map(|before| &before.configuration);
    let written = match (edit.next)(configuration)? {
        EditResult::Replace(next) => replace(engine, edit, before, next).await,
        EditResult::Delete => remove(engine, edit, before).await,
    };
    Ok(written?)
}

async fn replace<E>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
    before: Option<PreviousState>,
    next: Configuration,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let now = edit.audit.created;
    let document = next.to_document();
    let market = provider_catalog(engine);
    let compilation = before
        .as_ref()
        .and_then(|before| before.compilation.clone());
    if let (Some(before), Some(compilation)) = (&before, &compilation)
        && before.stored.document == document
        && market.is_same_for(&compilation.catalog, &next.named_providers())
    {
        return Ok(Some(before.stored.clone()));
    }
    let mut after = compile(engine, Purpose::Edit, compilation, next, Arc::new(market)).await?;
    let judged = validate_pools(engine, Purpose::Edit, before.as_ref(), &after).await?;
    let known = before.map(|before| before.stored);
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

/// Compiles on another thread, within the limit.
pub(super) async fn compile(
    engine: &Engine,
    purpose: Purpose,
    before: Option<Arc<Compilation>>,
    next: Configuration,
    market: Arc<ProviderCatalog>,
) -> Result<Compilation, ConfigurationError> {
    let compiling = engine
        .compilations
        .run_limited(purpose, move || match before {
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
    let seen = known.map(|known| known.version);
    let written = engine.change_alone("configuration_write", audit.created, move |change| {
        let tx = &mut *change.tx;
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
        let record = version_record(&stored, action, &reason, &audit);
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
    before: Option<PreviousState>,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let before = before.ok_or(ConfigurationError::NotFound)?;
    let audit = edit.audit.clone();
    let judged = DesiredPools::without_pools_of(&before.configuration);
    let (known, stored) = (before.stored.clone(), before.stored);
    let written = engine.change_alone("configuration_delete", audit.created, move |change| {
        let tx = &mut *change.tx;
        let current = store::configurations::get(tx, &known.id)?.map(|current| current.version);
        if current != Some(known.version) {
            return Ok::<_, ConfigurationError>(false);
        }
        store::configurations::delete(tx, &known.id, known.version)?;
        store::documentation::delete(tx, &Subject::Configuration(known.id.clone()))?;
        let record = VersionRecord {
            version: known.version.next(),
            ..version_record(&known, Action::Deleted, "", &audit)
        };
        store::configuration_versions::insert(tx, &record)?;
        write_pools::write_pools(change, &known.id, &judged, false)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(true)
    });
    Ok(written.await?.then_some(stored))
}

fn version_record(
    stored: &StoredConfiguration,
    action: Action,
    reason: &str,
    audit: &AuditEntry,
) -> VersionRecord {
    VersionRecord {
        id: stored.id.clone(),
        version: stored.version,
        action,
        document: stored.document.clone(),
        market: stored.market.clone(),
        client_id: audit.client_id.clone(),
        reason: reason.to_owned(),
        created: audit.created,
    }
}
