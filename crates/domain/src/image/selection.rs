//! Which image machines of a target start from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::number::{BuildNumber, UploadNumber};
use super::standing::Standing;
use super::upload_target::UploadTargetId;
use super::view::BuildView;

/// A ready upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectedUpload {
    pub build: BuildNumber,
    pub upload: UploadNumber,
    pub external_id: String,
}

/// The images from which new machines of a target start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageInUse {
    pub in_use: Option<SelectedUpload>,
    /// A share of them starts from this instead.
    pub canary: Option<SelectedUpload>,
}

/// The image in use is the highest-numbered ready upload of a ready build that was promoted.
pub fn image_in_use(
    builds: &[BuildView],
    target: &UploadTargetId,
    standing: &Standing,
) -> ImageInUse {
    let ready = builds.iter().filter(|build| build.ready().is_some());
    let uploads = ready.filter_map(|build| newest_ready(build, target));
    let mut uploads: Vec<SelectedUpload> = uploads
        .filter(|upload| !standing.rejected.contains(&upload.build))
        .collect();
    uploads.sort_by_key(|upload| upload.build);
    let is_candidate = |upload: &&SelectedUpload| standing.candidate == Some(upload.build);
    let canary = uploads.iter().find(is_candidate).cloned();
    let is_usable = |upload: &&SelectedUpload| {
        let may_be_new = standing
            .promoted
            .is_none_or(|promoted| upload.build <= promoted);
        may_be_new && !is_candidate(upload)
    };
    match uploads.iter().rfind(is_usable).cloned() {
        Some(in_use) => ImageInUse {
            in_use: Some(in_use),
            canary,
        },
        // Nothing older exists here: the candidate is better than no image.
        None => ImageInUse {
            in_use: canary,
            canary: None,
        },
    }
}

/// The build that a canary tests next: the newest ready one after the promoted, if an upload of it
/// is ready.
pub fn next_candidate(builds: &[BuildView], standing: &Standing) -> Option<BuildNumber> {
    let is_new = |number| standing.promoted.is_none_or(|promoted| number > promoted);
    let ready = builds.iter().filter(|build| {
        let has_upload = build.uploads.iter().any(|upload| upload.ready().is_some());
        let number = build.number;
        build.ready().is_some()
            && has_upload
            && is_new(number)
            && !standing.rejected.contains(&number)
    });
    ready.map(|build| build.number).max()
}

/// The ids at providers of all uploads, in order.
pub fn upload_ids(builds: &[BuildView]) -> Vec<String> {
    let uploads = builds.iter().flat_map(|build| &build.uploads);
    let ids = uploads.filter_map(|upload| upload.record.as_ref()?.external_id.clone());
    let ids: BTreeSet<String> = ids.collect();
    ids.into_iter().collect()
}

fn newest_ready(build: &BuildView, target: &UploadTargetId) -> Option<SelectedUpload> {
    let uploads = build.uploads_to(target).into_iter();
    let mut ready = uploads.filter_map(|upload| Some((upload.number, upload.ready()?)));
    let (number, record) = ready.next()?;
    Some(SelectedUpload {
        build: build.number,
        upload: number,
        external_id: record.external_id.clone()?,
    })
}
