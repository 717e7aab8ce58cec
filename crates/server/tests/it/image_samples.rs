//! An image of tests that need no builder: its definition, its builds, and a launch config for it.

use std::collections::BTreeMap;

use domain::image::{
    BuildFile, BuildLeft, BuildNumber, BuildView, FileReach, NewBuild, NewUpload, UploadNumber,
    UploadView,
};
use domain::time::Timestamp;
use serde_json::{Value, json};

use crate::fleet_world::machine;

/// The definition of an image with this canary.
pub(crate) fn definition(canary: &Value) -> Value {
    json!({
        "imageId": "linux",
        "build": {"command": ["make", "image"]},
        "formats": ["raw"],
        "uploads": [{"providerId": "one"}],
        "canary": canary,
    })
}

/// A ready build with an upload to the first cloud.
pub(crate) fn build(now: Timestamp, number: u64) -> BuildView {
    let new = NewBuild {
        builder: "b".to_owned(),
        builder_id: "b".to_owned(),
        attempt: 1,
        n_deaths: 0,
        fence: 1,
        build_hash: String::new(),
        reason: String::new(),
        request: None,
    };
    let file = BuildFile {
        size_bytes: 1,
        sha256: "0".repeat(64),
    };
    let left = BuildLeft {
        files: BTreeMap::from([("raw".parse().unwrap(), file)]),
        provenance: None,
        log: None,
        artifacts: None,
    };
    let upload = NewUpload {
        uploader: "b".to_owned(),
        format: "raw".parse().unwrap(),
        external_name: None,
        attempt: 1,
        fence: 1,
        target_hash: String::new(),
        token: String::new(),
    };
    let upload = upload.begin(now).succeed(format!("disk-{number}"), 1, now);
    BuildView {
        number: BuildNumber(number),
        record: Some(new.begin(now).succeed(left, 1, now).unwrap()),
        is_cancelled: false,
        files: FileReach::default(),
        uploads: vec![UploadView {
            number: UploadNumber(1),
            target: "one".parse().unwrap(),
            record: Some(upload.unwrap()),
        }],
        upload_locks: BTreeMap::new(),
    }
}

/// A launch config that refers to the image.
pub(crate) fn referring() -> Value {
    let mut config = machine("a");
    config["image"] = json!({"$image": "linux"});
    config.as_object_mut().unwrap().remove("workerManager");
    config
}
