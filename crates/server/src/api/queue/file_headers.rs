//! The headers of a file's reply.

use domain::artifact::{Artifact, ArtifactName};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

/// The content type and the last part of the name.
pub(super) fn headers(artifact: &Artifact) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name, text: &str| {
        // Types were checked when the artifact was made, and names are sanitised here.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, &artifact.content_type);
    let file_name = file_name(&artifact.name);
    set(
        CONTENT_DISPOSITION,
        &format!("inline; filename=\"{file_name}\""),
    );
    headers
}

fn file_name(name: &ArtifactName) -> String {
    let last = name.as_str().rsplit('/').next().unwrap_or_default();
    let harmless = |character: char| match character {
        '"' | '\\' => '_',
        other => other,
    };
    last.chars().map(harmless).collect()
}
