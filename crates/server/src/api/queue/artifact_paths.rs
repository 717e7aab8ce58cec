//! The paths of public artifacts at the origin of artifacts, and who may read them there.

use domain::artifact::{Artifact, ArtifactName};
use domain::id::TaskId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::{call::Call, error::ApiError};
use crate::authentication::RequestToAuthenticate;

/// The only names that are read by path.
pub(super) const PUBLIC: &str = "public/";
/// A path has at most 32 segments, of which the task and the run are the first.
const MAX_NAME_SEGMENTS: usize = 30;
/// Kept as they are in the segments of a path.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The URL of an artifact at the origin of artifacts; `None` if it cannot be read there by
/// everybody.
pub(super) async fn url(call: &Call, artifact: &Artifact) -> Result<Option<String>, ApiError> {
    let Some(origin) = call.app.config.artifact_origin() else {
        return Ok(None);
    };
    let Artifact {
        task_id,
        run_id,
        name,
        ..
    } = artifact;
    if !has_path(name) || !everybody_may_read(call, name).await? {
        return Ok(None);
    }
    Ok(Some(format!("{origin}{}", path(task_id, *run_id, name))))
}

pub(super) fn path(task_id: &TaskId, run_id: u32, name: &ArtifactName) -> String {
    let name = utf8_percent_encode(name.as_str(), IN_PATH);
    format!("/{task_id}/{run_id}/{name}")
}

/// Clients and proxies change paths with empty segments or dots.
pub(super) fn has_path(name: &ArtifactName) -> bool {
    let mut segments = name.as_str().split('/');
    name.as_str().starts_with(PUBLIC)
        && segments.clone().count() <= MAX_NAME_SEGMENTS
        && segments.all(|segment| !["", ".", ".."].contains(&segment))
}

/// Whether callers without credentials hold the scope that `getArtifact` requires.
pub(super) async fn everybody_may_read(call: &Call, name: &ArtifactName) -> Result<bool, ApiError> {
    let scope = format!("queue:get-artifact:{name}");
    let caller = call.caller.as_ref();
    if let Some(anonymous) = caller.filter(|caller| caller.client_id.is_none()) {
        return Ok(anonymous.scopes.satisfies(&scope));
    }
    let resource = call.auth_request.resource.split('?').next();
    let request = RequestToAuthenticate {
        authorization: None,
        resource: resource.unwrap_or_default().to_owned(),
        ..call.auth_request.clone()
    };
    let anonymous = call.app.authenticator.authenticate(&request, call.now);
    Ok(anonymous.await?.scopes.satisfies(&scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_names_that_survive_a_path_have_one() {
        for (name, expected) in [
            ("public/a", true),
            ("public/report/index.html", true),
            ("public/a b%c?d#e\\f", true),
            ("public/..a/.b", true),
            ("public/", false),
            ("public", false),
            ("public/a/", false),
            ("public//a", false),
            ("public/./a", false),
            ("public/../private/a", false),
            ("private/a", false),
            ("/public/a", false),
        ] {
            assert_eq!(has_path(&name.parse().unwrap()), expected, "{name}");
        }
    }

    #[test]
    fn names_whose_path_has_too_many_segments_have_none() {
        for count in testing::sizes_around(
            "server::api::queue::artifact_paths::MAX_NAME_SEGMENTS",
            MAX_NAME_SEGMENTS,
        ) {
            let name = ["public"]
                .into_iter()
                .chain(std::iter::repeat_n("a", count));
            let name = name.take(count).collect::<Vec<_>>().join("/");
            let Ok(name) = name.parse() else { continue };
            assert_eq!(
                has_path(&name),
                (2..=MAX_NAME_SEGMENTS).contains(&count),
                "{count}"
            );
        }
    }

    #[test]
    fn paths_keep_slashes_and_hide_what_ends_a_path() {
        let task = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let name = "public/a-b_c~d.html/e f%g?h#i\\j".parse().unwrap();
        assert_eq!(
            path(&task, 3, &name),
            "/fN1SbArXTPSVFNUvaOlinQ/3/public/a-b_c~d.html/e%20f%25g%3Fh%23i%5Cj"
        );
    }
}
