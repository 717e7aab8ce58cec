//! How an edit of a worker configuration is carried out: compiled, judged, and written whole or not at all.
//!
//! An edit is a function from what is there to what shall be there. Nothing is held while it is compiled and while
//! providers are asked; who was overtaken meanwhile starts over on what is there then, so that no edit is lost.

use std::sync::Arc;

use domain::Version;
use domain::audit::EntityType;
use domain::configuration::{
    Action, Compilation, Configuration, Market, Problems, StoredConfiguration, VersionRecord,
};
use domain::documentation::Subject;
use domain::id::ConfigurationId;
use serde_json::json;

use super::super::super::call::Call;
use super::super::super::error::{ApiError, Code};
use super::super::super::reply::Reply;
use super::cache::usable;
use super::judge::{Before, Judged, judge};
use super::market::market;
use super::wire::ConfigurationReply;
use super::write;
use crate::app::App;

/// Who is overtaken so often is told to come back later.
const MAX_TRIES: usize = 20;

/// What shall be there.
pub(super) enum Next {
    Is(Configuration),
    IsNot,
}

type NextOf = dyn Fn(Option<&Configuration>) -> Result<Next, ApiError> + Send + Sync;

pub(super) struct Edit {
    id: ConfigurationId,
    action: Action,
    next: Box<NextOf>,
    /// The version that the caller has read; without it, the edit is made on whatever is there.
    seen: Option<Version>,
    reason: String,
    adopts: bool,
}

/// What is there after an edit.
pub(super) struct Edited(StoredConfiguration);

impl Edit {
    pub(super) fn new(
        id: ConfigurationId,
        action: Action,
        next: impl Fn(Option<&Configuration>) -> Result<Next, ApiError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            id,
            action,
            next: Box::new(next),
            seen: None,
            reason: String::new(),
            adopts: false,
        }
    }

    pub(super) fn seen(mut self, version: Option<i64>) -> Self {
        self.seen = version.map(Version);
        self
    }

    pub(super) fn because(mut self, reason: String) -> Self {
        self.reason = reason;
        self
    }

    pub(super) fn adopting(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }
}

impl Edited {
    pub(super) fn reply(&self) -> Result<Reply, ApiError> {
        Reply::json(&ConfigurationReply::from(&self.0))
    }

    pub(super) fn into_stored(self) -> StoredConfiguration {
        self.0
    }
}

pub(super) async fn carry_out(call: &Call, edit: Edit) -> Result<Edited, ApiError> {
    for _ in 0..MAX_TRIES {
        if let Some(edited) = attempt(call, &edit).await? {
            return Ok(edited);
        }
    }
    let text = format!(
        "The worker configuration was changed by others {MAX_TRIES} times while this edit was made. Nothing was changed \
         by it; try again."
    );
    Err(ApiError::conflict(text))
}

/// `None`: somebody else was faster.
async fn attempt(call: &Call, edit: &Edit) -> Result<Option<Edited>, ApiError> {
    let id = edit.id.clone();
    let read = call.app.engine.store.read("configuration_get", move |tx| {
        store::configuration_get(tx, &id)
    });
    let known = read.await?;
    refuse_old(edit, known.as_ref())?;
    let before = match &known {
        Some(known) => Some(usable(&call.app, known).await?),
        None => None,
    };
    let configuration = before.as_ref().map(|(configuration, _)| configuration);
    let compilation = before.as_ref().and_then(|(_, known)| known.as_ref().ok());
    let next = match (edit.next)(configuration)? {
        Next::Is(next) => next,
        Next::IsNot => return remove(call, edit, known, configuration).await,
    };
    let document = next.to_document();
    let market = market(&call.app);
    if let (Some(known), Some(compilation)) = (&known, compilation)
        && known.document == document
        && market.is_same_for(&compilation.market, &next.named_providers())
    {
        return Ok(Some(Edited(known.clone())));
    }
    let after = compile(&call.app, compilation.cloned(), next, Arc::new(market));
    let mut after = after.await?;
    let was = configuration.map(|configuration| Before {
        configuration,
        compilation: compilation.map(|compilation| &**compilation),
    });
    let judged = judge(&call.app, was, &after).await?;
    after.complete(judged.completed.clone());
    let after = Arc::new(after);
    let stored = StoredConfiguration {
        id: edit.id.clone(),
        document,
        market: after.market.to_json(),
        created: known.as_ref().map_or(call.now, |known| known.created),
        last_modified: call.now,
        version: known
            .as_ref()
            .map_or(Version::FIRST, |known| known.version.next()),
    };
    let written = write(call, edit, known, stored, judged).await?;
    Ok(written.map(|stored| {
        call.app.compilations.put(&stored.id, stored.version, after);
        Edited(stored)
    }))
}

fn refuse_old(edit: &Edit, known: Option<&StoredConfiguration>) -> Result<(), ApiError> {
    match (edit.seen, known) {
        (Some(seen), Some(known)) if seen != known.version => {
            let text = format!(
                "The worker configuration is at version {} and not at {}: somebody changed it meanwhile. Nothing was \
                 changed; read it again and repeat the edit on that.",
                known.version.0, seen.0
            );
            Err(ApiError::conflict(text))
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Compiles beside other work.
pub(super) async fn compile(
    app: &App,
    before: Option<Arc<Compilation>>,
    next: Configuration,
    market: Arc<Market>,
) -> Result<Compilation, ApiError> {
    let compiling = app.compilations.in_turn(move || match before {
        Some(before) => before.succeed(next, market),
        None => Compilation::new(next, market),
    });
    compiling.await?.map_err(|problems| refused(&problems))
}

/// Everything that is wrong, in one error.
pub(super) fn refused(problems: &Problems) -> ApiError {
    let lines: Vec<String> = problems
        .to_string()
        .lines()
        .map(|line| format!("* {line}"))
        .collect();
    let text = format!(
        "The worker configuration cannot be used; nothing was changed:\n{}",
        lines.join("\n")
    );
    match problems.is_outage() {
        true => ApiError::new(Code::ProviderSetupFailed, text),
        false => ApiError::input(text),
    }
}

async fn write(
    call: &Call,
    edit: &Edit,
    known: Option<StoredConfiguration>,
    stored: StoredConfiguration,
    judged: Judged,
) -> Result<Option<StoredConfiguration>, ApiError> {
    let (action, reason, adopts) = (edit.action, edit.reason.clone(), edit.adopts);
    let mut audit = call.audit(
        EntityType::WorkerConfiguration,
        edit.id.as_str(),
        action.as_str(),
    );
    let client_id = audit.client_id.clone();
    let seen = known.map(|known| known.version);
    let written = call.change("configuration_write", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let mut stored = stored.clone();
        let there = store::configuration_get(tx, &stored.id)?.map(|there| there.version);
        if there != seen {
            return Ok::<_, ApiError>(None);
        }
        match seen {
            Some(seen) => store::configuration_update(tx, &stored, seen)?,
            None => {
                // Versions go on where a deleted configuration of this name ended.
                let last = store::configuration_version_list(tx, &stored.id, None, 1)?;
                if let Some(last) = last.first() {
                    stored.version = last.version.next();
                }
                if !store::configuration_insert(tx, &stored)? {
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
        store::configuration_version_insert(tx, &record)?;
        write::pools(change, &stored.id, &judged, adopts)?;
        audit.detail = json!({"version": stored.version.0, "reason": reason});
        store::audit_insert(change.tx, &audit)?;
        Ok(Some(stored))
    });
    written.await
}

async fn remove(
    call: &Call,
    edit: &Edit,
    known: Option<StoredConfiguration>,
    before: Option<&Configuration>,
) -> Result<Option<Edited>, ApiError> {
    let (Some(known), Some(before)) = (known, before) else {
        return Err(super::no_such_configuration());
    };
    let audit = call.audit(EntityType::WorkerConfiguration, edit.id.as_str(), "deleted");
    let judged = Judged::nothing_left_of(before);
    let stored = known.clone();
    let written = call.change("configuration_delete", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let there = store::configuration_get(tx, &known.id)?.map(|there| there.version);
        if there != Some(known.version) {
            return Ok::<_, ApiError>(false);
        }
        store::configuration_delete(tx, &known.id, known.version)?;
        store::documentation_delete(tx, &Subject::Configuration(known.id.clone()))?;
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
        store::configuration_version_insert(tx, &record)?;
        write::pools(change, &known.id, &judged, false)?;
        store::audit_insert(change.tx, &audit)?;
        Ok(true)
    });
    Ok(written.await?.then_some(Edited(stored)))
}
