//! What people see of an image: its builds, its uploads, and what comes next.

use domain::id::ImageName;
use domain::image::{
    BuildRecord, BuildState, BuildView, SelectedUpload, Standing, Step, UploadRecord, UploadState,
    UploadTargetId, WaitReason, image_in_use,
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

    /// What is done next about an image, and why other things wait.
    pub fn explain(&self, name: &ImageName, now: Timestamp) -> Option<Vec<Step>> {
        Some(self.view(name, now)?.steps())
    }
}

fn status(name: &ImageName, image: &ImageNode, view: Option<&OwnedView>) -> Value {
    let builds = image.builds.iter().rev();
    let builds: Vec<Value> = builds
        .map(|(number, build)| build_json(number.0, build))
        .collect();
    let steps = view.map(OwnedView::steps).unwrap_or_default();
    let definition = image.definition.as_ref();
    without_nulls([
        ("imageId", json!(name.as_str())),
        (
            "version",
            json!(definition.map(|definition| definition.version)),
        ),
        ("definitionError", json!(image.definition_error)),
        ("state", json!(state(image, &steps))),
        ("pause", json!(image.pause.as_ref().map(note_json))),
        ("request", json!(image.request.as_ref().map(note_json))),
        ("builds", json!(builds)),
        ("targets", view.map_or_else(|| json!([]), targets_json)),
        ("standing", standing_json(&image.standing)),
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
    if image.definition.is_none() {
        return if image.definition_error.is_some() {
            "unreadable"
        } else {
            "being removed"
        };
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

fn build_json(number: u64, build: &BuildNode) -> Value {
    let uploads = build.targets.iter().flat_map(|(target, node)| {
        let uploads = node.uploads.iter().rev();
        uploads.map(move |(number, upload)| upload_json(target, number.0, upload.record.as_ref()))
    });
    let uploads: Vec<Value> = uploads.collect();
    let mut fields = build.record.as_ref().map(record_json).unwrap_or_default();
    fields.insert("build".to_owned(), json!(number));
    fields.insert("uploads".to_owned(), json!(uploads));
    fields.insert("hasProvenance".to_owned(), json!(build.has_provenance));
    if let Some(pin) = &build.pin {
        fields.insert("pin".to_owned(), note_json(pin));
    }
    fields.entry("state").or_insert_with(|| json!("unreadable"));
    Value::Object(fields)
}

fn record_json(record: &BuildRecord) -> Map<String, Value> {
    let error = match &record.state {
        BuildState::Failed { error, .. } => Some(error),
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
        ("error", json!(error)),
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
    let rejected: Vec<u64> = standing.rejected.iter().map(|build| build.0).collect();
    without_nulls([
        ("promoted", json!(standing.promoted.map(|build| build.0))),
        ("candidate", json!(standing.candidate.map(|build| build.0))),
        ("rolledBack", json!(rejected)),
    ])
}

fn note_json(note: &Note) -> Value {
    json!({"since": note.at.to_string(), "by": note.by, "reason": note.reason})
}

fn step_json(step: &Step) -> Value {
    let until = match step {
        Step::Wait { until, .. } => *until,
        Step::Build { .. }
        | Step::Upload { .. }
        | Step::MarkBuildAbandoned { .. }
        | Step::MarkUploadAbandoned { .. }
        | Step::DeleteUpload { .. }
        | Step::DeleteBuild { .. }
        | Step::RemoveLeftover(_)
        | Step::ClearRequest { .. } => None,
    };
    without_nulls([("step", json!(step.to_string())), ("until", time(until))])
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
