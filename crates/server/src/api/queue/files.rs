//! Files of artifacts on their way in and out, by URLs that need no credentials.

use domain::artifact::{Artifact, Content, Uploaded, author};
use engine::artifacts::{Upload, whole_file};
use http::HeaderValue;
use http::header::CONTENT_ENCODING;

use super::super::call::Call;
use super::super::error::{ApiError, Code};
use super::super::reply::{Reply, Streamed};
use super::artifacts::find;
use super::file_headers::headers;
use super::log_stream;
use super::runs::{check_author, folder, runs_of, takes_nothing};
use super::signed_url::{Good, Target};

/// Takes the file of an artifact. It is answered when the file is on the disk; before that there is
/// none. The run may end while the file is on its way: then what it left behind is complete, and
/// stays. So the transaction that makes the file known looks again, and holds the run meanwhile.
pub(in crate::api) async fn upload(mut call: Call) -> Result<Reply, ApiError> {
    let target = Target::of(&call, Good::ForUploading)?;
    let mut artifact = awaited(&call, &target).await?;
    let path = folder(&call.app)?.artifact(&target.task_id, target.run_id, &target.name);
    let mut body = call.raw_body(call.app.config.artifacts.max_bytes)?;
    let encoding = body.encoding().map(str::to_owned);
    let mut upload = Upload::begin(path, &call.app.engine.random.slugid()).await?;
    while let Some(piece) = body.next().await? {
        upload.write(&piece).await?;
    }
    let mut complete = upload.finish().await?;
    let bytes = complete.bytes();
    artifact.content = Content::File {
        declared_bytes: None,
        uploaded: Some(Uploaded { bytes, encoding }),
    };
    let now = call.app.engine.clock.now();
    let written = call
        .app
        .engine
        .change("artifact_uploaded", now, move |change| {
            let tx = &mut *change.tx;
            store::tasks::touch(tx, &artifact.task_id)?;
            let runs = store::tasks::get_runs(tx, &artifact.task_id)?.ok_or_else(gone)?;
            let run = runs.run(artifact.run_id).ok_or_else(gone)?;
            author(run, now).map_err(takes_nothing)?;
            let known =
                store::artifacts::get(tx, &artifact.task_id, artifact.run_id, &artifact.name)?;
            // Its end may have been moved meanwhile, or it may have become something else.
            let known = known.ok_or_else(expired)?;
            if !matches!(known.content, Content::File { .. }) {
                return Err(gone());
            }
            artifact.expires = known.expires;
            store::artifacts::update(tx, &artifact)?;
            complete.put_in_place().map_err(ApiError::from)
        });
    written.await?;
    Reply::done()
}

pub(in crate::api) async fn download(call: Call) -> Result<Reply, ApiError> {
    let target = Target::of(&call, Good::ForFetching)?;
    let artifact = known(&call, &target).await?;
    match &artifact.content {
        Content::File {
            uploaded: Some(uploaded),
            ..
        } => file(&call, &artifact, uploaded.encoding.as_deref()).await,
        Content::Log => log_stream::of_artifact(&call, &artifact).await,
        Content::File { uploaded: None, .. }
        | Content::Reference { .. }
        | Content::Link { .. }
        | Content::Error { .. } => Err(gone()),
    }
}

/// The artifact whose file may be uploaded now.
async fn awaited(call: &Call, target: &Target) -> Result<Artifact, ApiError> {
    let artifact = known(call, target).await?;
    if !matches!(artifact.content, Content::File { .. }) {
        return Err(gone());
    }
    let runs = runs_of(call, &target.task_id).await?;
    let run = runs.run(target.run_id).ok_or_else(gone)?;
    check_author(call, run)?;
    Ok(artifact)
}

async fn known(call: &Call, target: &Target) -> Result<Artifact, ApiError> {
    let (task_id, name) = (target.task_id.clone(), target.name.clone());
    let found = find(call, task_id, target.run_id, name).await?;
    let artifact = found.ok_or_else(gone)?;
    if artifact.expires < call.now {
        return Err(expired());
    }
    Ok(artifact)
}

async fn file(call: &Call, artifact: &Artifact, encoding: Option<&str>) -> Result<Reply, ApiError> {
    let path = folder(&call.app)?.artifact(&artifact.task_id, artifact.run_id, &artifact.name);
    let Some((length, bytes)) = whole_file(&path, 0).await? else {
        tracing::error!(task.id = %artifact.task_id, artifact.name = %artifact.name,
            "the file of an artifact is missing: {}; do all servers share the folder?",
            path.display());
        return Err(gone());
    };
    let mut headers = headers(artifact);
    if let Some(encoding) = encoding.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(CONTENT_ENCODING, encoding);
    }
    Ok(Reply::Stream(Streamed {
        headers,
        length: Some(length),
        bytes,
    }))
}

fn gone() -> ApiError {
    ApiError::not_found("There is no file of this artifact")
}

fn expired() -> ApiError {
    ApiError::new(Code::ResourceExpired, "Artifact expired")
}
