//! Uploads and downloads artifact files, by URLs that need no credentials.

use std::sync::Arc;

use domain::artifact::{Artifact, Content};
use engine::artifacts::{ArtifactError, ExpectedFile, OpenFile, find_file};
use http::HeaderMap;

use super::file_headers::headers;
use super::file_reply;
use super::log_stream;
use super::signed_url::{Target, UrlPurpose};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Stores the file of an artifact. The reply is sent once the file is on the disk; before, the
/// artifact has no file.
pub(in crate::api) async fn upload(mut call: Call) -> Result<Reply, ApiError> {
    let target = Target::of(&call, UrlPurpose::Upload)?;
    let engine = Arc::clone(&call.app.engine);
    let expected = ExpectedFile::find(&engine, target.into_key(), call.now).await?;
    let mut body = call.raw_body(call.app.config.artifacts.max_bytes)?;
    let encoding = body.encoding().map(str::to_owned);
    let mut upload = expected.begin(&engine, body.announced()).await?;
    while let Some(piece) = body.next().await? {
        upload.write(&piece).await?;
    }
    expected.complete(&engine, upload, encoding).await?;
    Reply::done()
}

pub(in crate::api) async fn download(call: Call) -> Result<Reply, ApiError> {
    let target = Target::of(&call, UrlPurpose::Download)?;
    let artifact = find_file(&call.app.engine, target.into_key(), call.now).await?;
    match &artifact.content {
        Content::File {
            uploaded: Some(uploaded),
            ..
        } => {
            let encoding = uploaded.encoding.as_deref();
            stored(&call, &artifact, encoding, headers(&artifact)).await
        }
        Content::Log => log_stream::of_artifact(&call, &artifact, headers(&artifact)).await,
        Content::File { uploaded: None, .. }
        | Content::Reference { .. }
        | Content::Link { .. }
        | Content::Error { .. } => Err(ArtifactError::NoFile.into()),
    }
}

/// The stored file of an artifact.
pub(super) async fn stored(
    call: &Call,
    artifact: &Artifact,
    encoding: Option<&str>,
    headers: HeaderMap,
) -> Result<Reply, ApiError> {
    let folder = call.app.engine.artifacts.required_folder()?;
    let path = folder.artifact(&artifact.task_id, artifact.run_id, &artifact.name);
    let Some(file) = OpenFile::open(&path).await? else {
        tracing::error!(task.id = %artifact.task_id, artifact.name = %artifact.name,
            "the file of an artifact is missing: {}; do all servers share the folder?",
            path.display());
        return Err(ArtifactError::NoFile.into());
    };
    file_reply::reply(file, encoding, headers, &call.conditions).await
}
