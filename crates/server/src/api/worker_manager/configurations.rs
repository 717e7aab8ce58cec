//! Worker configurations: create, update, delete, show.

mod edit_scopes;
mod evaluate;
mod history;
mod plan;
mod provider_catalog;
mod rules;
mod table;
mod wire;
mod worker_types;

use domain::Version;
use domain::audit::EntityType;
use domain::configuration::{Action, Configuration, StoredConfiguration};
use domain::id::ConfigurationId;
use engine::configurations::{ConfigurationError, Edit, EditResult, apply_edit};

use crate::api::{call::Call, error::ApiError, reply::Reply};
use edit_scopes::EditTargets;
pub(in crate::api) use table::ENDPOINTS as CONFIGURATIONS;
use wire::{ConfigurationBody, configuration_json};
pub(super) use worker_types::worker_type;

impl Call {
    fn configuration_id(&self) -> Result<ConfigurationId, ApiError> {
        self.id("workerConfigurationId")
    }
}

async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: ConfigurationBody = call.body()?;
    let wanted = parse(&call, &body)?;
    edit_scopes::authorize_edit(&mut call, &EditTargets::whole(&wanted, body.adopt_pools)).await?;
    let next = move |known: Option<&Configuration>| match known {
        // The same definition again is a repeated request whose reply was lost.
        Some(known) if known.to_document() != wanted.to_document() => Err(ApiError::conflict(
            "A different worker configuration of this name exists. Update it instead, or choose \
             another name.",
        )),
        Some(_) | None => Ok(EditResult::Replace(wanted.clone())),
    };
    let mut edit = edit(&call, id, Action::Created, next);
    (edit.reason, edit.adopts) = (body.reason, body.adopt_pools);
    applied(&call, edit).await
}

async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: ConfigurationBody = call.body()?;
    let wanted = parse(&call, &body)?;
    let targets = EditTargets::whole(&wanted, body.adopt_pools);
    let warrant = edit_scopes::authorize_edit(&mut call, &targets).await?;
    let next = move |known: Option<&Configuration>| match known {
        Some(known) => {
            warrant.check(&targets.clone().and_worker_types(known))?;
            Ok(EditResult::Replace(wanted.clone()))
        }
        None => Err(no_such_configuration()),
    };
    let mut edit = edit(&call, id, Action::Updated, next);
    edit.seen = body.version.map(Version);
    (edit.reason, edit.adopts) = (body.reason, body.adopt_pools);
    applied(&call, edit).await
}

/// Its pools lose their providers and launch configs and are deleted after their last workers. Its
/// versions are kept.
async fn delete(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    // A caller that may not change it does not learn whether it exists.
    let warrant = edit_scopes::authorize_edit(&mut call, &EditTargets::default()).await?;
    let next = move |known: Option<&Configuration>| match known {
        Some(known) => {
            warrant.check(&EditTargets::default().and_worker_types(known))?;
            Ok(EditResult::Delete)
        }
        None => Err(no_such_configuration()),
    };
    let mut edit = edit(&call, id, Action::Deleted, next);
    edit.seen = wire::seen(&call)?.map(Version);
    apply_edit(&call.app.engine, edit).await?;
    Reply::done()
}

async fn show(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&configuration_json(&load(&call).await?))
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let read = call.scan("configuration_list", move |tx| {
        store::configurations::list(tx, after.as_ref(), limit)
    });
    let (name, show) = ("workerConfigurations", wire::configuration_summary);
    page.reply(name, read.await?, |listed| (listed.id.to_string(),), show)
}

/// The configuration in the route.
async fn load(call: &Call) -> Result<StoredConfiguration, ApiError> {
    let id = call.configuration_id()?;
    let read = call.read("configuration_get", move |tx| {
        store::configurations::get(tx, &id)?.ok_or(ConfigurationError::NotFound)
    });
    read.await
}

async fn applied(call: &Call, edit: Edit<ApiError>) -> Result<Reply, ApiError> {
    let stored = apply_edit(&call.app.engine, edit).await?;
    Reply::json(&configuration_json(&stored))
}

/// An edit in the name of the caller.
fn edit(
    call: &Call,
    id: ConfigurationId,
    action: Action,
    next: impl Fn(Option<&Configuration>) -> Result<EditResult, ApiError> + Send + Sync + 'static,
) -> Edit<ApiError> {
    let audit = call.audit(
        EntityType::WorkerConfiguration,
        id.as_str(),
        action.as_str(),
    );
    Edit {
        id,
        action,
        next: Box::new(next),
        audit,
        seen: None,
        reason: String::new(),
        adopts: false,
    }
}

fn parse(call: &Call, body: &ConfigurationBody) -> Result<Configuration, ApiError> {
    if let Some(claimed) = &body.worker_configuration_id
        && claimed != call.parameter("workerConfigurationId")
    {
        return Err(ApiError::input(
            "Incorrect workerConfigurationId in request body",
        ));
    }
    Ok(Configuration::parse(&body.document()).map_err(|bad| ConfigurationError::from(&bad))?)
}

pub(super) fn no_such_configuration() -> ApiError {
    ConfigurationError::NotFound.into()
}
