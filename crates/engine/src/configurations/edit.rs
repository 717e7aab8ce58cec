//! How an edit of a worker configuration is carried out: compiled, judged, and written whole or not at all.
//!
//! An edit is a function from what is there to what shall be there. Nothing is held while it is compiled and while
//! providers are asked; who was overtaken meanwhile starts over on what is there then, so that no edit is lost.

use std::sync::Arc;

use domain::Version;
use domain::audit::AuditEntry;
use domain::configuration::{
    Action, Compilation, Configuration, Market, StoredConfiguration, VersionRecord,
};
use domain::documentation::Subject;
use domain::id::ConfigurationId;
use serde_json::json;

use super::cache::usable;
use super::judge::{Before, Judged, judge};
use super::market::market;
use super::{ConfigurationError, write};
use crate::Engine;

/// Who is overtaken so often is told to come back later.
const MAX_TRIES: usize = 20;

/// What shall be there.
pub enum Next {
    Is(Configuration),
    IsNot,
}

/// From what is there to what shall be there, or why that may not be.
type NextOf<E> = dyn Fn(Option<&Configuration>) -> Result<Next, E> + Send + Sync;

pub struct Edit<E> {
    id: ConfigurationId,
    action: Action,
    next: Box<NextOf<E>>,
    /// Who makes it, and when.
    audit: AuditEntry,
    /// The version that the caller has read; without it, the edit is made on whatever is there.
    seen: Option<Version>,
    reason: String,
    adopts: bool,
}

impl<E> Edit<E> {
    pub fn new(
        id: ConfigurationId,
        action: Action,
        audit: AuditEntry,
        next: impl Fn(Option<&Configuration>) -> Result<Next, E> + Send + Sync + 'static,
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
    pub fn seen(mut self, version: Option<i64>) -> Self {
        self.seen = version.map(Version);
        self
    }

    #[must_use]
    pub fn because(mut self, reason: String) -> Self {
        self.reason = reason;
        self
    }

    #[must_use]
    pub fn adopting(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }
}

/// Makes an edit, and returns what is there after it.
pub async fn carry_out<E: From<ConfigurationError>>(
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

/// `None`: somebody else was faster.
async fn attempt<E: From<ConfigurationError>>(
    engine: &Arc<Engine>,
    edit: &Edit<E>,
) -> Result<Option<StoredConfiguration>, E> {
    let known = read(engine, &edit.id).await?;
    refuse_old(edit.seen, known.as_ref())?;
    let before = match &known {
        Some(known) => Some(usable(engine, known).await?),
        None => None,
    };
    let configuration = before.as_ref().map(|(configuration, _)| configuration);
    let compilation = before.as_ref().and_then(|(_, known)| known.as_ref().ok());
    let written = match (edit.next)(configuration)? {
        Next::Is(next) => {
            let before = configuration.map(|configuration| Before {
                configuration,
                compilation,
            });
            replace(engine, edit, known, before, next).await
        }
        Next::IsNot => remove(engine, edit, known, configuration).await,
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
    before: Option<Before<'_>>,
    next: Configuration,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let now = edit.audit.created;
    let document = next.to_document();
    let market = market(engine);
    let compilation = before.and_then(|before| before.compilation);
    if let (Some(known), Some(compilation)) = (&known, compilation)
        && known.document == document
        && market.is_same_for(&compilation.market, &next.named_providers())
    {
        return Ok(Some(known.clone()));
    }
    let after = compile(engine, compilation.cloned(), next, Arc::new(market));
    let mut after = after.await?;
    let judged = judge(engine, before, &after).await?;
    after.complete(judged.completed.clone());
    let after = Arc::new(after);
    let stored = StoredConfiguration {
        id: edit.id.clone(),
        document,
        market: after.market.to_json(),
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

fn refuse_old(
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

/// Compiles beside other work.
pub(super) async fn compile(
    engine: &Engine,
    before: Option<Arc<Compilation>>,
    next: Configuration,
    market: Arc<Market>,
) -> Result<Compilation, ConfigurationError> {
    let compiling = engine.compilations.in_turn(move || match before {
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
    judged: Judged,
) -> Result<Option<StoredConfiguration>, ConfigurationError> {
    let (action, reason, adopts) = (edit.action, edit.reason.clone(), edit.adopts);
    let mut audit = edit.audit.clone();
    let client_id = audit.client_id.clone();
    let seen = known.map(|known| known.version);
    let written = engine.change("configuration_write", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let mut stored = stored.clone();
        let there = store::configurations::get(tx, &stored.id)?.map(|there| there.version);
        if there != seen {
            return Ok::<_, ConfigurationError>(None);
        }
        match seen {
            Some(seen) => store::configurations::update(tx, &stored, seen)?,
            None => {
                // Versions go on where a deleted configuration of this name ended.
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
        write::pools(change, &stored.id, &judged, adopts)?;
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
        return Err(ConfigurationError::NotThere);
    };
    let audit = edit.audit.clone();
    let judged = Judged::nothing_left_of(before);
    let stored = known.clone();
    let written = engine.change("configuration_delete", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let there = store::configurations::get(tx, &known.id)?.map(|there| there.version);
        if there != Some(known.version) {
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
        write::pools(change, &known.id, &judged, false)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(true)
    });
    Ok(written.await?.then_some(stored))
}
