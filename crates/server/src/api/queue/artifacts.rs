//! Artifacts: created by the worker of a run, and listed.

use domain::artifact::{Artifact, ArtifactName, Content};
use domain::time::{MINUTE_MS, Timestamp};
use engine::artifacts;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::runs::{known_run, latest, name, run_id, runs_of};
use super::signed_url::{Target, UrlPurpose};
use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// An upload must begin within this time.
const UPLOAD_MS: i64 = 45 * MINUTE_MS;
/// Maximum error of the workers' clocks.
const LATE_MS: i64 = 15 * MINUTE_MS;
/// The type of artifacts whose worker did not give one.
const UNKNOWN_TYPE: &str = "application/binary";

/// The body of createArtifact.
#[derive(Deserialize)]
#[serde(
    tag = "storageType",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
enum ArtifactBody {
    S3 {
        content_type: String,
        content_length: Option<u64>,
    },
    Object {},
    Reference {
        url: String,
        content_type: String,
    },
    Link {
        artifact: String,
        content_type: Option<String>,
    },
    Error {
        reason: String,
        message: String,
    },
}

pub(super) async fn create(call: Call) -> Result<Reply, ApiError> {
    let name = name(&call)?;
    let expires = expires(&call)?;
    let (content_type, content) = content(&call)?;
    let (task_id, now) = (call.id("taskId")?, call.now);
    let run_id = run_id(&call).ok_or_else(|| ApiError::input("Run not found"))?;
    let asked = Artifact {
        task_id,
        run_id,
        name,
        content_type,
        expires,
        created: now,
        content,
    };
    let artifact = artifacts::create_artifact(&call.app.engine, asked).await?;
    let storage_type = artifact.content.storage_type();
    match artifact.content {
        Content::File { .. } => {
            let until = now.plus_millis(UPLOAD_MS);
            Reply::json(&json!({
                "storageType": storage_type,
                "putUrl": target(&artifact).sign(&call.app, UrlPurpose::Upload, until),
                "expires": until.to_string(),
                "contentType": artifact.content_type,
            }))
        }
        Content::Log | Content::Reference { .. } | Content::Link { .. } | Content::Error { .. } => {
            Reply::json(&json!({ "storageType": storage_type }))
        }
    }
}

/// An upload is complete once it has been answered, so there are no uploads to finish.
pub(super) async fn finish(call: Call) -> Result<Reply, ApiError> {
    let missing = || {
        ApiError::not_found(format!(
            "Artifact with taskId `{}`, runId {}, name `{}` not found",
            call.parameter("taskId"),
            call.parameter("runId"),
            call.parameter("name"),
        ))
    };
    let task_id = call.id("taskId")?;
    let (Some(run_id), Ok(name)) = (run_id(&call), name(&call)) else {
        return Err(missing());
    };
    find(&call, task_id, run_id, name)
        .await?
        .ok_or_else(missing)?;
    Err(ApiError::input("Only object artifacts can be finished"))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let task_id = call.id("taskId")?;
    let runs = runs_of(&call, &task_id).await?;
    let (run_id, _) = known_run(&call, &task_id, &runs)?;
    list_of(&call, run_id).await
}

pub(super) async fn list_latest(call: Call) -> Result<Reply, ApiError> {
    let runs = runs_of(&call, &call.id("taskId")?).await?;
    list_of(&call, latest(&runs)?).await
}

async fn list_of(call: &Call, run_id: u32) -> Result<Reply, ApiError> {
    let task_id = call.id("taskId")?;
    let page = call.page::<(String,)>()?;
    let after: Option<ArtifactName> = page
        .after
        .as_ref()
        .map(|(name,)| name.parse())
        .transpose()
        .map_err(|_| ApiError::input("Invalid continuation token"))?;
    let limit = page.limit_and_one();
    let read = call.read("artifact_list", move |tx| {
        store::artifacts::list(tx, &task_id, run_id, after.as_ref(), limit)
    });
    let key = |artifact: &Artifact| (artifact.name.to_string(),);
    page.reply("artifacts", read.await?, key, document)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let run_id = run_id(&call);
    show_of(&call, run_id).await
}

pub(super) async fn show_latest(call: Call) -> Result<Reply, ApiError> {
    let runs = runs_of(&call, &call.id("taskId")?).await?;
    let run_id = latest(&runs)?;
    show_of(&call, Some(run_id)).await
}

async fn show_of(call: &Call, run_id: Option<u32>) -> Result<Reply, ApiError> {
    let missing = || ApiError::not_found("Artifact not found");
    let run_id = run_id.ok_or_else(missing)?;
    let found = find(call, call.id("taskId")?, run_id, name(call)?).await?;
    Reply::json(&document(&found.ok_or_else(missing)?))
}

pub(super) async fn find(
    call: &Call,
    task_id: domain::id::TaskId,
    run_id: u32,
    name: ArtifactName,
) -> Result<Option<Artifact>, ApiError> {
    let read = call.read("artifact_get", move |tx| {
        store::artifacts::get(tx, &task_id, run_id, &name)
    });
    read.await
}

pub(super) fn target(artifact: &Artifact) -> Target {
    Target {
        task_id: artifact.task_id.clone(),
        run_id: artifact.run_id,
        name: artifact.name.clone(),
    }
}

fn expires(call: &Call) -> Result<Timestamp, ApiError> {
    let text = call.body["expires"].as_str().unwrap_or_default();
    let expires: Timestamp = text
        .parse()
        .map_err(|bad| ApiError::input(format!("`expires` cannot be used: {bad}")))?;
    if expires < call.now.plus_millis(-LATE_MS) {
        return Err(ApiError::input("Expires must be in the future"));
    }
    Ok(expires)
}

/// The type and the content that the body asks for.
fn content(call: &Call) -> Result<(String, Content), ApiError> {
    let unknown = || UNKNOWN_TYPE.to_owned();
    let (content_type, content) = match asked(call)? {
        ArtifactBody::S3 {
            content_type,
            content_length,
        } => {
            call.app.engine.artifacts.required_folder()?;
            let limit = call.app.config.artifacts.max_bytes;
            if content_length.is_some_and(|length| length > limit) {
                let text = format!("An artifact cannot be larger than {limit} bytes");
                return Err(ApiError::input(text));
            }
            let file = Content::File {
                declared_bytes: content_length,
                uploaded: None,
            };
            (content_type, file)
        }
        ArtifactBody::Object {} => {
            let text = "This server has no object service: use the storage type `s3`, whose \
                        `putUrl` takes the file";
            return Err(ApiError::input(text));
        }
        ArtifactBody::Reference { url, content_type } => {
            check_reference(&url)?;
            (content_type, Content::Reference { url })
        }
        ArtifactBody::Link {
            artifact,
            content_type,
        } => (
            content_type.unwrap_or_else(unknown),
            Content::Link { artifact },
        ),
        ArtifactBody::Error { reason, message } => (unknown(), Content::Error { reason, message }),
    };
    // It goes into a header when the artifact is fetched.
    if HeaderValue::from_str(&content_type).is_err() {
        return Err(ApiError::input(
            "`contentType` must be a content type, such as text/plain",
        ));
    }
    Ok((content_type, content))
}

/// Clients that open the artifact are redirected there, including browsers.
fn check_reference(url: &str) -> Result<(), ApiError> {
    let is_web = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    match reqwest::Url::parse(url) {
        Ok(parsed) if is_web(&parsed) => Ok(()),
        Ok(_) | Err(_) => Err(ApiError::input(
            "`url` must be an absolute URL that begins with http:// or https://",
        )),
    }
}

fn asked(call: &Call) -> Result<ArtifactBody, ApiError> {
    let mut body = call.body.clone();
    if let Some(members) = body.as_object_mut() {
        members.remove("expires");
    }
    ArtifactBody::deserialize(body)
        .map_err(|problem| ApiError::input(format!("The body does not fit: {problem}")))
}

fn document(artifact: &Artifact) -> Value {
    without_nulls(json!({
        "storageType": artifact.content.storage_type(),
        "name": artifact.name.as_str(),
        "expires": artifact.expires.to_string(),
        "contentType": artifact.content_type,
        "contentLength": artifact.content.length(),
    }))
}
