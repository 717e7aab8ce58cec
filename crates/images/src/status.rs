//! The status of an image for people: its builds, its uploads, and the next steps.

use domain::id::ImageName;
use domain::image::{
    BuildDecision, BuildNumber, BuildRecord, BuildState, BuildView, SelectedUpload, Standing, Step,
    UploadRecord, UploadState, UploadTargetId, WaitReason, image_in_use,
};
use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::image_tree::{BuildNode, ImageNode, ImageTree, Note, OwnedView};

impl ImageTree {
    /// All that is known of an image; `None`: the tree has no such image.
    pub fn status(&self, name: &ImageName, now: Timestamp) -> Option<Value> {
        let view = self.view(name, now);
        self.image(name, |image| status(name, image, view.as_ref()))
    }
}

/// The status of an image whose definition is not in the tree yet.
pub fn status_before_mirror(name: &ImageName, version: i64) -> Value {
    const STEP: &str = "wait: a server copies the definition into the tree first";
    json!({
        "imageId": name.as_str(),
        "version": version,
        "state": "waiting",
        "builds": [],
        "targets": [],
        "standing": {"rolledBack": [], "passedOver": []},
        "nextBuild": {"action": "wait", "step": STEP},
        "nextSteps": [{"action": "wait", "step": STEP}],
    })
}

fn status(name: &ImageName, image: &ImageNode, view: Option<&OwnedView>) -> Value {
    let builds = image.builds.iter().rev();
    let builds: Vec<Value> = builds
        .map(|(number, build)| build_json(*number, build, &image.standing))
        .collect();
    let steps = view.map(OwnedView::steps).unwrap_or_default();
    let definition = image.definition.as_ref();
    without_nulls([
        ("imageId", json!(name.as_str())),
        (
            "version",
            json!(definition.map(|definition| definition.version)),
        ),
        ("definitionError", json!(image.problem())),
        ("state", json!(state(image, &steps))),
        ("pause", json!(image.pause.as_ref().map(note_json))),
        ("request", json!(image.request.as_ref().map(note_json))),
        ("builds", json!(builds)),
        ("targets", view.map_or_else(|| json!([]), targets_json)),
        ("standing", standing_json(&image.standing)),
        (
            "nextBuild",
            json!(view.and_then(OwnedView::next_build).as_ref().map(step_json)),
        ),
        (
            "nextSteps",
            json!(steps.iter().map(step_json).collect::<Vec<_>>()),
        ),
    ])
}

/// The most important fact, in a word or two.
fn state(image: &ImageNode, steps: &[Step]) -> &'static str {
    let waits = |of: fn(&WaitReason) -> bool| {
        steps
            .iter()
            .any(|step| matches!(step, Step::Wait { reason, .. } if of(reason)))
    };
    if image.problem().is_some() {
        return "unreadable";
    }
    if image.is_removed {
        return "being removed";
    }
    if image.running().is_some() {
        return "building";
    }
    if waits(|it| matches!(it, WaitReason::Uploading { .. })) {
        return "uploading";
    }
    if waits(|it| {
        matches!(
            it,
            WaitReason::PausedInDefinition | WaitReason::Paused { .. }
        )
    }) {
        return "paused";
    }
    if waits(|it| matches!(it, WaitReason::BuildFailed { .. })) {
        return "build failed";
    }
    if waits(|it| matches!(it, WaitReason::BuildCancelled { .. })) {
        return "build cancelled";
    }
    if waits(|it| matches!(it, WaitReason::UploadFailed { .. })) {
        return "upload failed";
    }
    if waits(|it| matches!(it, WaitReason::NoBuilder { .. })) {
        return "no builder";
    }
    if steps
        .iter()
        .any(|step| matches!(step, Step::Build { .. } | Step::Upload { .. }))
    {
        return "waiting";
    }
    "ready"
}

fn build_json(number: BuildNumber, build: &BuildNode, standing: &Standing) -> Value {
    let uploads = build.targets.iter().flat_map(|(target, node)| {
        let uploads = node.uploads.iter().rev();
        uploads.map(move |(number, upload)| upload_json(target, number.0, upload.record.as_ref()))
    });
    let uploads: Vec<Value> = uploads.collect();
    let mut fields = build.record.as_ref().map(record_json).unwrap_or_default();
    fields.insert("build".to_owned(), json!(number.0));
    fields.insert("uploads".to_owned(), json!(uploads));
    let has_provenance = build.provenance.is_some();
    fields.insert("hasProvenance".to_owned(), json!(has_provenance));
    if let Some(pin) = &build.pin {
        fields.insert("pin".to_owned(), note_json(pin));
    }
    if let Some(decision) = standing.decisions.get(&number) {
        let key = match standing.rejected.contains(&number) {
            true if decision.is_passed_over => "passedOver",
            true => "rolledBack",
            false => "promoted",
        };
        fields.insert(key.to_owned(), decision_json(decision));
    }
    fields.entry("state").or_insert_with(|| json!("unreadable"));
    Value::Object(fields)
}

fn record_json(record: &BuildRecord) -> Map<String, Value> {
    let failure = match &record.state {
        BuildState::Failed { error, cause } => Some((error, cause.as_str())),
        BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
    };
    let files = record.formats.iter().map(|(format, file)| {
        without_nulls([
            ("format", json!(format.as_str())),
            (
                "sizeBytes",
                json!(file.as_ref().map(|file| file.size_bytes)),
            ),
            ("sha256", json!(file.as_ref().map(|file| &file.sha256))),
        ])
    });
    fields([
        ("state", json!(record.state.as_str())),
        ("since", json!(record.state_time.to_string())),
        ("builder", json!(record.builder)),
        ("reason", json!(record.reason)),
        ("attempt", json!(record.attempt)),
        ("started", time(record.started)),
        ("finished", time(record.finished)),
        ("error", json!(failure.map(|(error, _)| error))),
        ("cause", json!(failure.map(|(_, cause)| cause))),
        ("files", json!(files.collect::<Vec<_>>())),
    ])
}

fn upload_json(target: &UploadTargetId, number: u64, record: Option<&UploadRecord>) -> Value {
    let Some(record) = record else {
        let target = target.to_string();
        return json!({"target": target, "upload": number, "state": "unreadable"});
    };
    let error = match &record.state {
        UploadState::Failed { error, .. } => Some(error),
        UploadState::Uploading | UploadState::Ready | UploadState::Deleting => None,
    };
    without_nulls([
        ("target", json!(target.to_string())),
        ("upload", json!(number)),
        ("state", json!(record.state.as_str())),
        ("since", json!(record.state_time.to_string())),
        (
            "format",
            json!(record.format.as_ref().map(|format| format.as_str())),
        ),
        ("externalId", json!(record.external_id)),
        ("builder", json!(record.uploader)),
        ("attempt", json!(record.attempt)),
        ("started", time(record.started)),
        ("finished", time(record.finished)),
        ("error", json!(error)),
    ])
}

/// The age of the build from which new machines of a target start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAge {
    pub image: ImageName,
    pub target: UploadTargetId,
    pub age_ms: i64,
}

impl ImageTree {
    /// The ages of the builds in use, of this many images.
    pub fn ages(&self, now: Timestamp, n_images: usize) -> Vec<ImageAge> {
        let names = self.names().into_iter().take(n_images);
        let views = names.filter_map(|name| self.view(&name, now));
        views.flat_map(|view| ages(&view, now)).collect()
    }
}

fn ages(view: &OwnedView, now: Timestamp) -> Vec<ImageAge> {
    let targets = view
        .definition
        .iter()
        .flat_map(|definition| &definition.uploads);
    let ages = targets.filter_map(|target| {
        let selected = image_in_use(&view.builds, &target.id, &view.standing);
        let finished = view.build(selected.in_use?.build)?.finished?;
        Some(ImageAge {
            image: view.name.clone(),
            target: target.id.clone(),
            age_ms: now.millis_since(finished).max(0),
        })
    });
    ages.collect()
}

/// From what machines of each target start.
fn targets_json(view: &OwnedView) -> Value {
    let targets = view
        .definition
        .iter()
        .flat_map(|definition| &definition.uploads);
    let targets = targets.map(|target| {
        let selected = image_in_use(&view.builds, &target.id, &view.standing);
        without_nulls([
            ("target", json!(target.id.to_string())),
            (
                "inUse",
                json!(selected.in_use.as_ref().map(|it| selected_json(view, it))),
            ),
            (
                "canary",
                json!(selected.canary.as_ref().map(|it| selected_json(view, it))),
            ),
        ])
    });
    Value::Array(targets.collect())
}

fn selected_json(view: &OwnedView, selected: &SelectedUpload) -> Value {
    let since = view
        .builds
        .iter()
        .find_map(|build| upload_since(build, selected));
    without_nulls([
        ("build", json!(selected.build.0)),
        ("upload", json!(selected.upload.0)),
        ("externalId", json!(selected.external_id)),
        ("since", time(since)),
    ])
}

fn upload_since(build: &BuildView, selected: &SelectedUpload) -> Option<Timestamp> {
    if build.number != selected.build {
        return None;
    }
    let mut uploads = build.uploads.iter();
    let upload = uploads.find(|upload| {
        let record = upload.record.as_ref();
        let id = record.and_then(|record| record.external_id.as_ref());
        upload.number == selected.upload && id == Some(&selected.external_id)
    })?;
    Some(upload.record.as_ref()?.state_time)
}

fn standing_json(standing: &Standing) -> Value {
    let is_passed_over = |build: &&BuildNumber| {
        let decision = standing.decisions.get(build);
        decision.is_some_and(|decision| decision.is_passed_over)
    };
    let rejected = standing.rejected.iter();
    let (passed_over, rejected): (Vec<BuildNumber>, Vec<BuildNumber>) =
        rejected.partition(is_passed_over);
    without_nulls([
        ("promoted", json!(standing.promoted.map(|build| build.0))),
        ("candidate", json!(standing.candidate.map(|build| build.0))),
        ("rolledBack", json!(rejected)),
        ("passedOver", json!(passed_over)),
    ])
}

fn decision_json(decision: &BuildDecision) -> Value {
    let BuildDecision { at, by, reason, .. } = decision;
    json!({"since": at.to_string(), "by": by, "reason": reason})
}

fn note_json(note: &Note) -> Value {
    json!({"since": note.at.to_string(), "by": note.by, "reason": note.reason})
}

/// A step in words, and for programs.
fn step_json(step: &Step) -> Value {
    let StepParts {
        action,
        build,
        target,
        reason,
        until,
    } = step_parts(step);
    without_nulls([
        ("step", json!(step.to_string())),
        ("action", json!(action)),
        ("build", json!(build.map(|build| build.0))),
        ("target", json!(target.map(ToString::to_string))),
        ("reason", json!(reason)),
        ("until", time(until)),
    ])
}

struct StepParts<'a> {
    action: &'static str,
    build: Option<BuildNumber>,
    target: Option<&'a UploadTargetId>,
    reason: Option<String>,
    until: Option<Timestamp>,
}

fn step_parts(step: &Step) -> StepParts<'_> {
    let parts = |action, build, target, reason| StepParts {
        action,
        build,
        target,
        reason,
        until: None,
    };
    match step {
        Step::Build { reason, .. } => parts("build", None, None, Some(reason.to_string())),
        Step::Upload {
            build,
            target,
            reason,
            ..
        } => parts(
            "upload",
            Some(*build),
            Some(target),
            Some(reason.to_string()),
        ),
        Step::MarkBuildAbandoned { build } => parts("note-failed-build", Some(*build), None, None),
        Step::MarkUploadAbandoned { build, target, .. } => {
            parts("note-failed-upload", Some(*build), Some(target), None)
        }
        Step::DeleteUpload {
            build,
            target,
            reason,
            ..
        } => parts(
            "delete-upload",
            Some(*build),
            Some(target),
            Some(reason.to_string()),
        ),
        Step::DeleteBuild { build, reason } => {
            parts("delete-build", Some(*build), None, Some(reason.to_string()))
        }
        Step::RemoveLeftover(leftover) => {
            parts("remove-leftover", None, None, Some(leftover.to_string()))
        }
        Step::ClearRequest { .. } => parts("clear-request", None, None, None),
        Step::Wait { until, reason } => StepParts {
            until: *until,
            ..parts("wait", None, None, Some(reason.to_string()))
        },
    }
}

fn time(moment: Option<Timestamp>) -> Value {
    json!(moment.map(|moment| moment.to_string()))
}

fn without_nulls<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(fields(members))
}

fn fields<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    let known = members.into_iter().filter(|(_, value)| !value.is_null());
    known.map(|(key, value)| (key.to_owned(), value)).collect()
}
