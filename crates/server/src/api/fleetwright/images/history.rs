//! The versions of an image's definition: lists, shows, compares and reverts to them.

use domain::Version;
use domain::image::{ImageAction, ImageVersion, definition_changes};
use engine::images::{self, ImageError};
use serde::Deserialize;
use serde_json::json;
use store::StoreError;
use store::image_versions::ListedImageVersion;

use super::wire::{self, change_json, image_json, version_json, version_summary};
use super::{check_secrets, edit, params, parse, refused};
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
    let id = call.image_id()?;
    let page = call.page::<(i64,)>()?;
    let before = page.after.map(|(version,)| Version(version));
    let limit = page.limit_and_one();
    let read = call.scan("image_version_list", move |tx| {
        store::image_versions::list(tx, &id, before, limit)
    });
    let versions = read.await?;
    if versions.is_empty() && before.is_none() {
        return Err(ImageError::NotFound.into());
    }
    let key = |listed: &ListedImageVersion| (listed.version.0,);
    page.reply("versions", versions, key, version_summary)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let record = record(&call, wire::version(call.parameter("version"))?).await?;
    Reply::json(&version_json(&record))
}

pub(super) async fn difference(call: Call) -> Result<Reply, ApiError> {
    let from = record(&call, wire::version(call.parameter("from"))?).await?;
    let to = record(&call, wire::version(call.parameter("to"))?).await?;
    let changes = definition_changes(&parse(&from.document)?, &parse(&to.document)?);
    let changes: Vec<_> = changes.iter().map(change_json).collect();
    Reply::json(&json!({
        "imageId": from.id.as_str(),
        "from": from.version.0,
        "to": to.version.0,
        "changes": changes,
    }))
}

/// Makes an old version the newest.
pub(super) async fn revert(mut call: Call) -> Result<Reply, ApiError> {
    let body: RevertBody = call.body()?;
    // A caller that may not change it does not learn which versions exist.
    let params_known = call.url_params().list("providers", Vec::new());
    let params_known = params_known.list("secrets", Vec::new());
    call.authorize(params_known).await?;
    let record = record(&call, Version(body.to)).await?;
    let definition = parse(&record.document)?;
    call.authorize(params(&call, &record.document)).await?;
    let problems = check_secrets(&call, &definition.name, &record.document);
    if !problems.is_empty() {
        return Err(refused(&problems));
    }
    let reason = match body.reason.as_str() {
        "" => format!("to version {}", body.to),
        reason => format!("to version {}: {reason}", body.to),
    };
    let seen = body.version.map(Version);
    let edit = edit(&call, definition, ImageAction::Reverted, seen, reason);
    let stored = images::update(&call.app.engine, edit).await?;
    Reply::json(&image_json(&stored))
}

async fn record(call: &Call, version: Version) -> Result<ImageVersion, ApiError> {
    let id = call.image_id()?;
    let read = call.read("image_version_get", move |tx| {
        let found = store::image_versions::get(tx, &id, version)?;
        let oldest = match found {
            Some(_) => None,
            None => store::image_versions::oldest(tx, &id)?,
        };
        Ok::<_, StoreError>((found, oldest))
    });
    let (found, oldest) = read.await?;
    let days = call.app.config.worker_manager.version_retention_days;
    found.ok_or_else(|| ApiError::no_version("image", version, oldest, days))
}
