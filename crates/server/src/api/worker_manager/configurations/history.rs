//! The versions of a worker configuration: lists, shows, compares and reverts to them.

use domain::Version;
use domain::configuration::{Action, Configuration};
use domain::id::ConfigurationId;
use engine::configurations::{ConfigurationError, EditResult};
use serde::Deserialize;
use store::StoreError;
use store::configuration_versions::ListedVersion;

use super::edit_scopes::EditTargets;
use super::wire::{self, version_json, version_summary};
use super::{applied, edit, edit_scopes, no_such_configuration, plan};
use crate::api::{call::Call, error::ApiError, reply::Reply};

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
    let read = call.scan("configuration_version_list", move |tx| {
        store::configuration_versions::list(tx, &id, before, limit)
    });
    let versions = read.await?;
    if versions.is_empty() && before.is_none() {
        return Err(no_such_configuration());
    }
    let key = |listed: &ListedVersion| (listed.version.0,);
    page.reply("versions", versions, key, version_summary)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let version = wire::version(call.parameter("version"))?;
    let record = record(&call, id, version).await?;
    Reply::json(&version_json(&record))
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
    call.authorize_images(&record.document).await?;
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
    applied(&call, edit).await
}

async fn record(
    call: &Call,
    id: ConfigurationId,
    version: Version,
) -> Result<domain::configuration::VersionRecord, ApiError> {
    let read = call.read("configuration_version_get", move |tx| {
        let found = store::configuration_versions::get(tx, &id, version)?;
        let oldest = match found {
            Some(_) => None,
            None => store::configuration_versions::oldest(tx, &id)?,
        };
        Ok::<_, StoreError>((found, oldest))
    });
    let (found, oldest) = read.await?;
    let days = call.app.config.worker_manager.version_retention_days;
    found.ok_or_else(|| ApiError::no_version("worker configuration", version, oldest, days))
}
