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
use domain::configuration::{Action, Configuration};
use domain::id::ConfigurationId;
use engine::configurations::{ConfigurationError, Edit, EditResult, apply_edit};
use serde::Serialize;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use edit_scopes::EditTargets;
pub(in crate::api) use table::ENDPOINTS as CONFIGURATIONS;
use wire::{ConfigurationBody, ConfigurationReply};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationsReply {
    worker_configurations: Vec<ConfigurationReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

impl Call {
    fn configuration_id(&self) -> Result<ConfigurationId, ApiError> {
        Ok(self.parameter("workerConfigurationId").parse()?)
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
    Reply::json(&ConfigurationReply::from(
        &apply_edit(&call.app.engine, edit).await?,
    ))
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
    Reply::json(&ConfigurationReply::from(
        &apply_edit(&call.app.engine, edit).await?,
    ))
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
    let id = call.configuration_id()?;
    let stored = call.app.engine.store.read("configuration_get", move |tx| {
        store::configurations::get(tx, &id)?.ok_or(ConfigurationError::NotFound)
    });
    Reply::json(&ConfigurationReply::from(&stored.await?))
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page.after.as_ref().map(|(id,)| id.parse()).transpose()?;
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("configuration_list", move |tx| {
        store::configurations::list(tx, after.as_ref(), limit)
    });
    let mut listed = read.await?;
    let continuation_token = page.cut(&mut listed, |stored| (stored.id.to_string(),));
    Reply::json(&ConfigurationsReply {
        worker_configurations: listed.iter().map(ConfigurationReply::summary).collect(),
        continuation_token,
    })
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
