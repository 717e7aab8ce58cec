//! The scopes that the endpoints of artifacts, logs, task queues and the queue's workers need.

use serde_json::json;

use crate::authorization::{Case, case, case_with};

const CREATE: &[&str] = &["queue:create-artifact:fN1SbArXTPSVFNUvaOlinQ/0"];
const GET: &[&str] = &["queue:get-artifact:public/a"];
const LIST: &[&str] = &["queue:list-artifacts:fN1SbArXTPSVFNUvaOlinQ:0"];
const LIST_LATEST: &[&str] = &["queue:list-artifacts:fN1SbArXTPSVFNUvaOlinQ"];
const READ_LOG: &[&str] = &["queue:get-artifact:public/logs/live.log"];

/// Everything of the queue but tasks.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = artifact_cases();
    cases.extend(view_cases());
    cases
}

fn artifact_cases() -> Vec<Case> {
    let error = json!({"storageType": "error", "reason": "file-missing-on-worker", "message": "",
        "expires": "2026-10-01T00:00:00.000Z"});
    let artifact = "queue:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifacts/public/a";
    let upload = json!({"uploadId": "fN1SbArXTPSVFNUvaOlinQ"});
    vec![
        case_with("createArtifact", artifact, error, CREATE),
        case_with("finishArtifact", artifact, upload, CREATE),
        case("getArtifact", artifact, GET),
        case(
            "getLatestArtifact",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/artifacts/public/a",
            GET,
        ),
        case(
            "listArtifacts",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifacts",
            LIST,
        ),
        case(
            "listLatestArtifacts",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/artifacts",
            LIST_LATEST,
        ),
        case(
            "artifactInfo",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifact-info/public/a",
            LIST,
        ),
        case(
            "latestArtifactInfo",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/artifact-info/public/a",
            LIST_LATEST,
        ),
        case(
            "artifact",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifact-content/public/a",
            GET,
        ),
        case(
            "latestArtifact",
            "queue:/task/fN1SbArXTPSVFNUvaOlinQ/artifact-content/public/a",
            GET,
        ),
    ]
}

pub(crate) fn log_cases() -> Vec<Case> {
    vec![
        case(
            "appendLog",
            "fleetwright:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/log?offset=0",
            CREATE,
        ),
        case(
            "taskLog",
            "fleetwright:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/log",
            READ_LOG,
        ),
        case(
            "latestTaskLog",
            "fleetwright:/task/fN1SbArXTPSVFNUvaOlinQ/log",
            READ_LOG,
        ),
    ]
}

fn view_cases() -> Vec<Case> {
    let worker = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
    vec![
        case(
            "listProvisioners",
            "queue:/provisioners",
            &["queue:list-provisioners"],
        ),
        case(
            "getProvisioner",
            "queue:/provisioners/pp",
            &["queue:get-provisioner:pp"],
        ),
        case(
            "listWorkerTypes",
            "queue:/provisioners/pp/worker-types",
            &["queue:list-worker-types:pp"],
        ),
        case(
            "getWorkerType",
            "queue:/provisioners/pp/worker-types/ee",
            &["queue:get-worker-type:pp/ee"],
        ),
        case(
            "listTaskQueues",
            "queue:/task-queues",
            &["queue:list-task-queues"],
        ),
        case(
            "getTaskQueue",
            "queue:/task-queues/pp%2Fee",
            &["queue:get-task-queue:pp/ee"],
        ),
        case(
            "listWorkers",
            "queue:/provisioners/pp/worker-types/ee/workers",
            &["queue:list-workers:pp/ee"],
        ),
        case("getWorker", worker, &["queue:get-worker:pp/ee/g/w"]),
        case_with(
            "quarantineWorker",
            worker,
            json!({"quarantineUntil": "2026-10-01T00:00:00.000Z"}),
            &["queue:quarantine-worker:pp/ee/g/w"],
        ),
        case_with(
            "declareWorker",
            "queue:/provisioners/pp/worker-types/ee/g/w",
            json!({"expires": "2026-10-01T00:00:00.000Z"}),
            &["queue:declare-worker:pp/ee/g/w#expires"],
        ),
    ]
}
