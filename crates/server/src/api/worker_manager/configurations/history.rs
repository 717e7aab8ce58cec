//! The versions of a worker configuration: lists, shows, compares and reverts to them.

use domain::Version;
use domain::configuration::{Action, Configuration};
use domain::id::ConfigurationId;
use engine::configurations::{ConfigurationError, EditResult, apply_edit};
use serde::{Deserialize, Serialize};

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::super::reply::Reply;
use super::edit_scopes::EditTargets;
use super::wire::{self, ConfigurationReply, VersionReply};
use super::{edit, edit_scopes, no_such_configuration, plan};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionsReply {
    versions: Vec<VersionReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevertBody {
    /// The version to restore.
    to: i64,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    reason: String,
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let page = call.page::<(i64,)>()?;
    let before = page.after.map(|(version,)| Version(version));
    let limit = page.limit_and_one();
    let read = call
        .app
        .engine
        .store
        .scan("configuration_version_list", move |tx| {
            store::configuration_versions::list(tx, &id, before, limit)
        });
    let mut versions = read.await?;
    if versions.is_empty() && before.is_none() {
        return Err(no_such_configuration());
    }
    let continuation_token = page.cut(&mut versions, |record| (record.version.0,));
    Reply::json(&VersionsReply {
        versions: versions.iter().map(VersionReply::summary).collect(),
        continuation_token,
    })
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let version = wire::version(call.parameter("version"))?;
    let record = record(&call, id, version).await?;
    Reply::json(&VersionReply::from(&record))
}

pub(super) async fn difference(call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let from = wire::version(call.parameter("from"))?;
    let to = wire::version(call.parameter("to"))?;
    let from = record(&call, id.clone(), from).await?;
    let to = record(&call, id, to).await?;
    Reply::json(&plan::versions(&call.app, from, to).await?)
}

/// Makes an old version the newest.
pub(super) async fn revert(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: RevertBody = call.body()?;
    // A caller that may not change it does not learn which versions exist.
    edit_scopes::authorize_edit(&mut call, &EditTargets::default()).await?;
    let record = record(&call, id.clone(), Version(body.to)).await?;
    let wanted = Configuration::parse(&record.document);
    let wanted = wanted.map_err(|bad| ConfigurationError::from(&bad))?;
    let targets = EditTargets::whole(&wanted, false);
    let warrant = edit_scopes::authorize_edit(&mut call, &targets).await?;
    let reason = match body.reason.as_str() {
        "" => format!("to version {}", body.to),
        reason => format!("to version {}: {reason}", body.to),
    };
    let next = move |known: Option<&Configuration>| {
        if let Some(known) = known {
            warrant.check(&targets.clone().and_worker_types(known))?;
        }
        Ok(EditResult::Replace(wanted.clone()))
    };
    let mut edit = edit(&call, id, Action::Reverted, next);
    (edit.seen, edit.reason) = (body.version.map(Version), reason);
    Reply::json(&ConfigurationReply::from(
        &apply_edit(&call.app.engine, edit).await?,
    ))
}

async fn record(
    call: &Call,
    id: ConfigurationId,
    version: Version,
) -> Result<domain::configuration::VersionRecord, ApiError> {
    let read = call
        .app
        .engine
        .store
        .read("configuration_version_get", move |tx| {
            store::configuration_versions::get(tx, &id, version)
        });
    read.await?.ok_or_else(|| {
        let text = format!("This worker configuration has no version {}", version.0);
        ApiError::not_found(text)
    })
}
