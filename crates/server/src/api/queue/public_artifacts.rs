//! Public artifacts by their paths, on an origin of their own.
//!
//! There, pages of tasks may use styles and scripts, and relative links lead to other artifacts of
//! the run. The API and the pages of the server are of another origin, so scripts of tasks cannot
//! act in their name. Credentials are ignored: callers read what the role `anonymous` may read.

use domain::artifact::{Artifact, ArtifactName, Content};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderMap, HeaderValue};

use super::artifact_content::{LinkTo, place_of, present};
use super::artifact_paths::{PUBLIC, everybody_may_read, has_path, path};
use super::runs::{name, run_id};
use super::{file_headers, files, log_stream};
use crate::api::call::Call;
use crate::api::endpoint::{Endpoint, Verb::Get};
use crate::api::error::{ApiError, Code};
use crate::api::fleetwright::on;
use crate::api::reply::Reply;

/// Pages of tasks are of no origin, so they share no cookies and no storage with others of this
/// host, whatever their port.
const SANDBOX: &str = "sandbox allow-scripts allow-forms allow-modals allow-popups \
    allow-popups-to-escape-sandbox allow-downloads";
/// Cookies and storage of a host that has nothing else are those of pages of tasks.
const SANDBOX_OF_OWN_HOST: &str = "sandbox allow-scripts allow-forms allow-modals allow-popups \
    allow-popups-to-escape-sandbox allow-downloads allow-same-origin";

/// Not among the published endpoints, which are all at the address of the API.
pub(in crate::api) const PUBLIC_ARTIFACT: &[Endpoint] =
    &[on("publicArtifact", Get, "/<taskId>/<runId>/<name>")
        .runs(|call| Box::pin(show(call)))
        .wildcard("name")];

async fn show(call: Call) -> Result<Reply, ApiError> {
    let name = name(&call)?;
    let is_public = name.as_str().starts_with(PUBLIC);
    if !is_public || !everybody_may_read(&call, &name).await? {
        return Err(refused(&call, &name));
    }
    let task_id = call.id("taskId")?;
    let run_id = run_id(&call).ok_or_else(|| ApiError::not_found("Artifact not found"))?;
    let artifact = present(&call, &task_id, run_id, name).await?;
    match &artifact.content {
        Content::File {
            uploaded: Some(uploaded),
            ..
        } => {
            let encoding = uploaded.encoding.as_deref();
            files::stored(&call, &artifact, encoding, headers(&call, &artifact)).await
        }
        Content::Log => log_stream::of_artifact(&call, &artifact, headers(&call, &artifact)).await,
        // `present` has refused files that were not uploaded.
        Content::File { uploaded: None, .. }
        | Content::Reference { .. }
        | Content::Link { .. }
        | Content::Error { .. } => match place_of(&call, &artifact) {
            Ok(place) => place.redirect(),
            Err(LinkTo(to)) => follow(&call, &artifact, &to),
        },
    }
}

/// Leads to the target of a link, whose relative links then are those of its own path. The target
/// is checked as any other path.
fn follow(call: &Call, link: &Artifact, to: &str) -> Result<Reply, ApiError> {
    let missing = || ApiError::not_found("Artifact not found");
    let target: ArtifactName = to.parse().map_err(|_| missing())?;
    if !has_path(&target) {
        return Err(refused(call, &target));
    }
    let location = path(&link.task_id, link.run_id, &target);
    let body = serde_json::json!({"storageType": "link", "url": location});
    Reply::redirect(&location, "link", &body)
}

fn refused(call: &Call, name: &ArtifactName) -> ApiError {
    let (root_url, task_id) = (&call.app.engine.root_url, call.parameter("taskId"));
    let run_id = call.parameter("runId");
    let text = format!(
        "{name} cannot be read here. This address has only artifacts whose names begin with \
         {PUBLIC} and that the role anonymous may read (queue:get-artifact:{name}), and it accepts \
         no credentials. Ask the API: \
         {root_url}/api/queue/v1/task/{task_id}/runs/{run_id}/artifacts/{name}"
    );
    ApiError::new(Code::InsufficientScopes, text)
}

/// As elsewhere, with a policy that lets pages show. Browsers may keep a copy, which they compare
/// by its entity tag.
fn headers(call: &Call, artifact: &Artifact) -> HeaderMap {
    let mut headers = file_headers::headers(artifact);
    let app = &call.app;
    let origin = app.config.artifact_origin().unwrap_or_default();
    // A name of the server that leads here shares its cookies, whatever the configured origin.
    let is_shared =
        app.hosts.shares_host_with(&origin) || app.hosts.has_name(&call.auth_request.host);
    let policy = match is_shared {
        true => SANDBOX,
        false => SANDBOX_OF_OWN_HOST,
    };
    if !file_headers::is_pdf(artifact) {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    }
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers
}
