//! Which image machines of a target start from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::number::{BuildNumber, UploadNumber};
use super::standing::Standing;
use super::upload_record::UploadRecord;
use super::upload_target::UploadTargetId;
use super::view::BuildView;
use crate::time::{MINUTE_MS, Timestamp};

/// For this long after another image took its place, an image is kept: the launch configs of pools
/// are made again within seconds, and launches that were under way have ended by then.
pub const LEFT_IMAGE_MS: i64 = 15 * MINUTE_MS;

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
    in_use_before(None, builds, target, standing)
}

/// As if the uploads that became ready from this moment on were not there.
fn in_use_before(
    moment: Option<Timestamp>,
    builds: &[BuildView],
    target: &UploadTargetId,
    standing: &Standing,
) -> ImageInUse {
    let was_there = |(_, upload): &(UploadNumber, &UploadRecord)| {
        moment.is_none_or(|moment| upload.state_time < moment)
    };
    let ready = builds.iter().filter(|build| build.ready().is_some());
    let uploads = ready.filter_map(|build| {
        let (number, record) = ready_uploads(build, target).into_iter().find(was_there)?;
        selected(build, number, record)
    });
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

/// The image from which machines of a target started while this build was the newest promoted one.
pub(super) fn image_before(
    builds: &[BuildView],
    target: &UploadTargetId,
    standing: &Standing,
    build: BuildNumber,
) -> Option<SelectedUpload> {
    image_in_use(builds, target, &standing_before(standing, build)).in_use
}

/// The standing while this build was the newest promoted one.
fn standing_before(standing: &Standing, build: BuildNumber) -> Standing {
    Standing {
        promoted: Some(build),
        rejected: &standing.rejected - &standing.replaced.keys().copied().collect(),
        ..Standing::default()
    }
}

/// The images that launch configs may still name, since a decision or another upload took their
/// place a moment ago. Each with the moment from which on no launch config names it any more.
pub fn images_left(
    builds: &[BuildView],
    target: &UploadTargetId,
    standing: &Standing,
    now: Timestamp,
) -> Vec<(SelectedUpload, Timestamp)> {
    let may_be_named = |since: &Timestamp| now.millis_since(*since).abs() < LEFT_IMAGE_MS;
    let ready = builds.iter().filter(|build| build.ready().is_some());
    let uploads = ready.flat_map(|build| {
        let uploads = ready_uploads(build, target).into_iter();
        uploads.map(|(_, upload)| (upload.state_time, build.number))
    });
    let moments: BTreeSet<(Timestamp, BuildNumber)> =
        uploads.filter(|(at, _)| may_be_named(at)).collect();
    let mut left = Vec::new();
    for (build, at) in &standing.replaced {
        let before = standing_before(standing, *build);
        // If an upload replaced an image before the decision, it is left since that upload.
        for (moment, _) in moments.iter().filter(|(moment, _)| moment < at) {
            let image = in_use_before(Some(*moment), builds, target, &before).in_use;
            left.extend(image.map(|image| (image, *moment)));
        }
        let image = in_use_before(None, builds, target, &before).in_use;
        left.extend(image.map(|image| (image, *at)));
    }
    // A late upload takes the place of an older build's without any decision. Before the first one,
    // only another form of the same build can have been in use.
    for (moment, build) in moments {
        let ImageInUse { in_use, canary } = in_use_before(Some(moment), builds, target, standing);
        let images = in_use.into_iter().chain(canary);
        let images = images.filter(|image| standing.promoted.is_some() || image.build == build);
        left.extend(images.map(|image| (image, moment)));
    }
    left.retain(|(_, since)| may_be_named(since));
    left.sort_by_key(|(_, since)| std::cmp::Reverse(*since));
    left.into_iter()
        .map(|(image, since)| (image, since.plus_millis(LEFT_IMAGE_MS)))
        .collect()
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

/// The newest first.
fn ready_uploads<'a>(
    build: &'a BuildView,
    target: &UploadTargetId,
) -> Vec<(UploadNumber, &'a UploadRecord)> {
    let uploads = build.uploads_to(target).into_iter();
    uploads
        .filter_map(|upload| Some((upload.number, upload.ready()?)))
        .collect()
}

fn selected(
    build: &BuildView,
    upload: UploadNumber,
    record: &UploadRecord,
) -> Option<SelectedUpload> {
    Some(SelectedUpload {
        build: build.number,
        upload,
        external_id: record.external_id.clone()?,
    })
}
