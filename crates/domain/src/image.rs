//! Images: their definitions, builds and uploads, and the next steps of each.
//!
//! An image is defined by people ([`ImageDefinition`]). Builders build it, and each build is
//! uploaded to the providers that the definition names. [`next_steps()`] decides what to build,
//! upload and delete, and says why.

mod backoff;
mod build_record;
mod canary;
mod content_hash;
mod definition;
mod definition_change;
mod explanation;
mod format;
mod image_request;
mod launch_variants;
mod next_steps;
mod number;
mod reader;
mod record_fields;
mod rollout;
mod selection;
mod standing;
mod step;
mod stored;
mod stored_rollout;
mod upload_record;
mod upload_target;
mod view;

pub use self::backoff::{BUILD_BACKOFF, Backoff, UPLOAD_BACKOFF};
pub use self::build_record::{
    BuildFailureCause, BuildFile, BuildLeft, BuildLog, BuildRecord, BuildState, BuildStateError,
    NewBuild, StoredBuild,
};
pub use self::canary::{
    CanaryCourse, CanaryEvidence, CanaryGroup, CanaryJudgement, CanaryMetric, CanaryStarts,
    CanaryVerdict, CoursePoint, FALSE_ALARM_RATE, GroupEvidence, MetricEvidence, RunTrial,
    START_MARGIN, StartOutcome, TASK_MARGIN, Trial, WRONG_PROMOTION_RATE, judge, most_open_starts,
};
pub use self::definition::{
    BuildMethod, CanarySettings, ElementList, ImageDefinition, ServiceSecret, Validation,
};
pub use self::definition_change::{DefinitionChange, DefinitionEffect, definition_changes};
pub use self::format::{BadFormat, ImageFormat};
pub use self::image_request::ImageRequest;
pub use self::launch_variants::{
    CanaryShare, ImageSelection, LaunchPlace, Selections, Variant, Variants, waits_for,
};
pub use self::next_steps::{next_build, next_steps};
pub use self::number::{BuildNumber, UploadNumber};
pub use self::record_fields::BadRecord;
pub use self::rollout::{RolloutStep, RolloutView, next_rollout_step};
pub use self::selection::{
    ImageInUse, LEFT_IMAGE_MS, SelectedUpload, image_in_use, images_left, next_candidate,
    upload_ids,
};
pub use self::standing::{BuildDecision, Standing};
pub use self::step::{BuildReason, DeleteReason, Leftover, Step, UploadReason, WaitReason};
pub use self::stored::{ImageAction, ImageVersion, StoredImage};
pub use self::stored_rollout::{
    CanaryRun, ImageRollout, StoredTrial, TrialRecord, TrialRun, TrialStart,
};
pub use self::upload_record::{
    NewUpload, StoredUpload, UploadRecord, UploadState, UploadStateError,
};
pub use self::upload_target::{UploadTarget, UploadTargetId};
pub use self::view::{
    BuildBudget, BuildRequest, BuildView, FileReach, HeldLock, ImagePause, ImageView, LiveBuilder,
    UploadView,
};
