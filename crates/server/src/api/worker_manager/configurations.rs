//! Worker configurations: made, changed, deleted, shown.

mod authority;
mod evaluate;
mod history;
mod market;
mod plan;
mod rules;
mod table;
mod wire;
mod worker_types;

use domain::audit::EntityType;
use domain::configuration::{Action, Configuration};
use domain::id::ConfigurationId;
use engine::configurations::{ConfigurationError, Edit, Next, carry_out};
use serde::Serialize;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use authority::Touched;
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
    authority::warrant(&mut call, &Touched::whole(&wanted, body.adopt_pools)).await?;
    let next = move |known: Option<&Configuration>| match known {
        // The same again is a repeat of a request whose answer was lost.
        Some(known) if known.to_document() != wanted.to_document() => Err(ApiError::conflict(
            "There is a worker configuration of this name, and it is another. Update it instead, or take another name.",
        )),
        Some(_) | None => Ok(Next::Is(wanted.clone())),
    };
    let edit = edit(&call, id, Action::Created, next)
        .because(body.reason)
        .adopting(body.adopt_pools);
    Reply::json(&ConfigurationReply::from(
        &carry_out(&call.app.engine, edit).await?,
    ))
}

async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: ConfigurationBody = call.body()?;
    let wanted = parse(&call, &body)?;
    let touched = Touched::whole(&wanted, body.adopt_pools);
    let warrant = authority::warrant(&mut call, &touched).await?;
    let next = move |known: Option<&Configuration>| match known {
        Some(known) => {
            warrant.check(&touched.clone().and_worker_types(known))?;
            Ok(Next::Is(wanted.clone()))
        }
        None => Err(no_such_configuration()),
    };
    let edit = edit(&call, id, Action::Updated, next)
        .seen(body.version)
        .because(body.reason)
        .adopting(body.adopt_pools);
    Reply::json(&ConfigurationReply::from(
        &carry_out(&call.app.engine, edit).await?,
    ))
}

/// Its pools lose their providers and launch configs, and go when their last workers have; its versions stay.
async fn delete(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    // Who may not touch it at all does not learn whether it is there.
    let warrant = authority::warrant(&mut call, &Touched::default()).await?;
    let next = move |known: Option<&Configuration>| match known {
        Some(known) => {
            warrant.check(&Touched::default().and_worker_types(known))?;
            Ok(Next::IsNot)
        }
        None => Err(no_such_configuration()),
    };
    let edit = edit(&call, id, Action::Deleted, next).seen(wire::seen(&call)?);
    carry_out(&call.app.engine, edit).await?;
    Reply::done()
}

async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let stored = call.app.engine.store.read("configuration_get", move |tx| {
        store::configurations::get(tx, &id)?.ok_or(ConfigurationError::NotThere)
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
    next: impl Fn(Option<&Configuration>) -> Result<Next, ApiError> + Send + Sync + 'static,
) -> Edit<ApiError> {
    let audit = call.audit(
        EntityType::WorkerConfiguration,
        id.as_str(),
        action.as_str(),
    );
    Edit::new(id, action, audit, next)
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
    ConfigurationError::NotThere.into()
}
