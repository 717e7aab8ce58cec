//! Finds the content of an artifact: follows links and makes URLs for downloads.

use domain::artifact::{Artifact, ArtifactName, Content};
use domain::id::TaskId;
use domain::time::MINUTE_MS;
use serde_json::json;

use super::artifact_paths;
use super::artifacts::{find, target};
use super::runs::{latest, name, run_id, runs_of};
use super::signed_url::UrlPurpose;
use crate::api::{
    call::Call,
    error::{ApiError, Code},
    reply::Reply,
};

/// Validity of a URL. A download that has begun may take longer.
const FETCH_MS: i64 = 30 * MINUTE_MS;
/// Maximum length of a chain of links.
const MAX_LINKS: usize = 100;

/// The location of an artifact's content.
pub(super) enum Place {
    At {
        storage_type: &'static str,
        url: String,
    },
    /// The artifact could not be made.
    Failed { reason: String, message: String },
}

/// The content is that of another artifact of the run.
pub(super) struct LinkTo(pub(super) String);

/// Redirects to the content.
pub(super) async fn get(mut call: Call) -> Result<Reply, ApiError> {
    let run_id = run_id(&call);
    follow(&mut call, run_id).await?.redirect()
}

pub(super) async fn get_latest(mut call: Call) -> Result<Reply, ApiError> {
    let run_id = latest_run(&mut call).await?;
    follow(&mut call, Some(run_id)).await?.redirect()
}

/// Describes where the content is.
pub(super) async fn describe(mut call: Call) -> Result<Reply, ApiError> {
    let run_id = run_id(&call);
    follow(&mut call, run_id).await?.describe()
}

pub(super) async fn describe_latest(mut call: Call) -> Result<Reply, ApiError> {
    let run_id = latest_run(&mut call).await?;
    follow(&mut call, Some(run_id)).await?.describe()
}

/// Only callers that may read the artifact learn whether the task exists.
async fn latest_run(call: &mut Call) -> Result<u32, ApiError> {
    let name = call.parameter("name").to_owned();
    authorize(call, vec![name]).await?;
    let runs = runs_of(call, &call.id("taskId")?).await?;
    latest(&runs)
}

async fn authorize(call: &mut Call, names: Vec<String>) -> Result<(), ApiError> {
    let params = call.url_params().list("names", names);
    call.authorize(params).await
}

/// Follows links to the content. Each name on the way needs its scope.
async fn follow(call: &mut Call, run_id: Option<u32>) -> Result<Place, ApiError> {
    let mut names = vec![call.parameter("name").to_owned()];
    authorize(call, names.clone()).await?;
    let mut wanted = name(call)?;
    let task_id = call.id("taskId")?;
    let missing = || ApiError::not_found("Artifact not found");
    let run_id = run_id.ok_or_else(missing)?;
    // The first name is not that of a link.
    while names.len() <= MAX_LINKS + 1 {
        let artifact = present(call, &task_id, run_id, wanted).await?;
        let to = match place(call, &artifact).await? {
            Ok(place) => return Ok(place),
            Err(LinkTo(to)) => to,
        };
        if names.contains(&to) {
            return Err(ApiError::input("Artifact leads to a link cycle"));
        }
        wanted = to.parse().map_err(|_| missing())?;
        names.push(to);
        authorize(call, names.clone()).await?;
    }
    let text = format!("Artifact leads to more than {MAX_LINKS} links");
    Err(ApiError::input(text))
}

/// An artifact that can be downloaded.
pub(super) async fn present(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    name: ArtifactName,
) -> Result<Artifact, ApiError> {
    let found = find(call, task_id.clone(), run_id, name).await?;
    let artifact = found.ok_or_else(|| ApiError::not_found("Artifact not found"))?;
    if artifact.expires < call.now {
        return Err(ApiError::new(Code::ResourceExpired, "Artifact expired"));
    }
    if !artifact.content.is_present() {
        let text = "Artifact not found: it has not been uploaded yet";
        return Err(ApiError::not_found(text));
    }
    Ok(artifact)
}

/// The location of the content; `Err` with the name if the artifact is a link. Artifacts that
/// everybody may read are at the origin of artifacts, if there is one.
pub(super) async fn place(
    call: &Call,
    artifact: &Artifact,
) -> Result<Result<Place, LinkTo>, ApiError> {
    if matches!(artifact.content, Content::File { .. } | Content::Log)
        && let Some(url) = artifact_paths::url(call, artifact).await?
    {
        let storage_type = artifact.content.storage_type();
        return Ok(Ok(Place::At { storage_type, url }));
    }
    Ok(place_of(call, artifact))
}

/// As `place`, for callers who are at the origin of artifacts or may not be led there.
pub(super) fn place_of(call: &Call, artifact: &Artifact) -> Result<Place, LinkTo> {
    let storage_type = artifact.content.storage_type();
    let at = |url| Ok(Place::At { storage_type, url });
    match &artifact.content {
        Content::File { .. } | Content::Log => {
            let until = call.now.plus_millis(FETCH_MS);
            at(target(artifact).sign(&call.app, UrlPurpose::Download, until))
        }
        Content::Reference { url } => at(url.clone()),
        Content::Link { artifact } => Err(LinkTo(artifact.clone())),
        Content::Error { reason, message } => Ok(Place::Failed {
            reason: reason.clone(),
            message: message.clone(),
        }),
    }
}

impl Place {
    /// Redirects the client to the content.
    pub(super) fn redirect(self) -> Result<Reply, ApiError> {
        match self {
            Self::At { storage_type, url } => {
                let body = json!({"storageType": storage_type, "url": url});
                Reply::redirect(&url, storage_type, &body)
            }
            Self::Failed { reason, message } => {
                Reply::never_made(&json!({"reason": reason, "message": message}))
            }
        }
    }

    fn describe(self) -> Result<Reply, ApiError> {
        Reply::json(&match self {
            Self::At { storage_type, url } => json!({"storageType": storage_type, "url": url}),
            Self::Failed { reason, message } => {
                json!({"storageType": "error", "reason": reason, "message": message})
            }
        })
    }
}
