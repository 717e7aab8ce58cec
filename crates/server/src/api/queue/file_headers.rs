//! The headers of a file's reply.

use domain::artifact::{Artifact, ArtifactName};
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

/// A page of a task runs nothing, sends no form, and is of no origin: it has nothing of the server
/// whose address it shows.
const POLICY: &str = "default-src 'none'; form-action 'none'; frame-ancestors 'none'; \
    base-uri 'none'; sandbox; report-uri /__cspreport__";

const PDF_POLICY: &str = "default-src 'none'; form-action 'none'; frame-ancestors 'none'; \
    base-uri 'none'; report-uri /__cspreport__";

/// The content type, the last part of the name, and what a browser may do with it.
pub(super) fn headers(artifact: &Artifact) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name, text: &str| {
        // Types were checked when the artifact was made, and names are sanitised here.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, &artifact.content_type);
    let policy = if is_pdf(artifact) { PDF_POLICY } else { POLICY };
    set(CONTENT_SECURITY_POLICY, policy);
    let file_name = file_name(&artifact.name);
    set(
        CONTENT_DISPOSITION,
        &format!("inline; filename=\"{file_name}\""),
    );
    headers
}

/// Chromium shows no PDF in a sandbox; its viewer is not of our origin either.
pub(super) fn is_pdf(artifact: &Artifact) -> bool {
    let essence = artifact.content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/pdf")
}

fn file_name(name: &ArtifactName) -> String {
    let last = name.as_str().rsplit('/').next().unwrap_or_default();
    let harmless = |character: char| match character {
        '"' | '\\' => '_',
        other => other,
    };
    last.chars().map(harmless).collect()
}
