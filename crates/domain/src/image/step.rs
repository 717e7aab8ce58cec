//! The steps that bring an image to its goal, with their reasons.

use super::format::ImageFormat;
use super::number::{BuildNumber, UploadNumber};
use super::upload_target::UploadTargetId;
use crate::time::Timestamp;

/// Something to do, or a reason to wait. Steps can be carried out in any order, and repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A builder takes the lock, and builds.
    Build {
        reason: BuildReason,
        /// For the record of the build.
        attempt: u32,
        n_deaths: u32,
        /// The request that the build answers, for its record.
        request: Option<Timestamp>,
        /// Builders that have the labels.
        builders: Vec<String>,
    },
    /// A builder that reaches the files takes the lock of the target, and uploads.
    Upload {
        build: BuildNumber,
        target: UploadTargetId,
        format: ImageFormat,
        /// For the record of the upload.
        target_hash: String,
        attempt: u32,
        reason: UploadReason,
        /// Builders that have the files. Empty: every builder reaches them.
        builders: Vec<String>,
    },
    /// Its builder ended: note it.
    MarkBuildAbandoned { build: BuildNumber },
    /// The uploading process ended: note it.
    MarkUploadAbandoned {
        build: BuildNumber,
        target: UploadTargetId,
        upload: UploadNumber,
    },
    /// Delete the image at the provider, then the record.
    DeleteUpload {
        build: BuildNumber,
        target: UploadTargetId,
        upload: UploadNumber,
        external_id: Option<String>,
        reason: DeleteReason,
    },
    /// Note that the build is deleted, so that its files are removed.
    DeleteBuild {
        build: BuildNumber,
        reason: DeleteReason,
    },
    /// Remove a node of the tree, without anything else.
    RemoveLeftover(Leftover),
    /// The request was answered: remove it, if it is still the same.
    ClearRequest { at: Timestamp },
    /// Nothing can be done yet about this.
    Wait {
        /// When it will be looked at again at the latest; `None`: when something changes.
        until: Option<Timestamp>,
        reason: WaitReason,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildReason {
    Requested {
        by: String,
        reason: String,
    },
    NothingReady,
    DefinitionChanged {
        build: BuildNumber,
    },
    FormatsMissing {
        build: BuildNumber,
        formats: Vec<ImageFormat>,
    },
    /// No live builder has its files, and an upload needs them.
    FilesUnreachable {
        build: BuildNumber,
        target: UploadTargetId,
    },
    TooOld {
        build: BuildNumber,
        age_ms: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadReason {
    /// The target does not have the build.
    Missing,
    /// The target has it in another form.
    TargetChanged,
    /// The last attempt failed with this error.
    Retry { error: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    ImageRemoved,
    TargetRemoved,
    /// Enough newer ones exist.
    Superseded,
    Failed,
    /// Somebody asked for it, or its deletion has begun.
    Requested,
    BuildDeleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// A build without uploads, whose record is `deleting` or cannot be read.
    Build(BuildNumber),
    /// A record that cannot be read.
    Upload {
        build: BuildNumber,
        target: UploadTargetId,
        upload: UploadNumber,
    },
    /// An upload to a provider that is not configured any more. The image there remains.
    UnknownProvider {
        build: BuildNumber,
        target: UploadTargetId,
        upload: UploadNumber,
        external_id: Option<String>,
    },
    /// All nodes of a removed image.
    Image,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The newest build is not old enough.
    BuildIsNew {
        build: BuildNumber,
    },
    /// The newest build is ready and uploaded, and builds are only made on request.
    OnlyOnRequest {
        build: BuildNumber,
    },
    PausedInDefinition,
    Paused {
        by: String,
        reason: String,
    },
    Building {
        by: String,
    },
    BuildFailed {
        build: BuildNumber,
        n_failures: u32,
        error: String,
    },
    /// A person cancelled the last build: it is made again on request, for another definition, or
    /// when the next is due.
    BuildCancelled {
        build: BuildNumber,
        error: String,
    },
    NoBuilder {
        labels: Vec<String>,
    },
    BuildersBusy {
        n_builders: usize,
    },
    BuildLimit {
        limit: usize,
    },
    Uploading {
        build: BuildNumber,
        target: UploadTargetId,
        by: String,
    },
    UploadFailed {
        build: BuildNumber,
        target: UploadTargetId,
        n_failures: u32,
        error: String,
    },
    UnknownProvider {
        target: UploadTargetId,
    },
    /// An upload or a build that should be deleted is in progress.
    InProgress {
        build: BuildNumber,
    },
    /// Another image took the place of this one a moment ago.
    MayBeNamed {
        build: BuildNumber,
        target: UploadTargetId,
    },
    /// Another build took the place of this one a while ago, which people may undo.
    MayComeBack {
        build: BuildNumber,
    },
    /// A pinned build keeps a removed image.
    Pinned {
        build: BuildNumber,
    },
}
