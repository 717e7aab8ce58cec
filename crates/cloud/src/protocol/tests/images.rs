//! Images of a provider that an operator wrote: its requests fit their schemas, and its answers are
//! checked.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::launch::Cause;
use serde_json::Map;

use super::*;
use crate::protocol::images::MAX_IMAGE_PAGES;
use crate::tests::images::token;
use crate::{Checksum, ImageError, ImageUpload, Retry, UploadProgress, UploadState};

/// A response, or the cause and the body of a refusal.
type ScriptedAnswer = Result<Value, (Option<Cause>, Value)>;

/// Gives these answers, and checks and records the requests.
#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<ScriptedAnswer>>,
    asked: Mutex<Vec<(&'static str, Value)>>,
}

#[async_trait]
impl Transport for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let question: Value = serde_json::from_slice(&question).unwrap();
        let schema = format!(
            "fleetwright/v1/provider-{}-request.json",
            operation.as_str()
        );
        context("racks").schemas.check(&schema, &question).unwrap();
        self.asked
            .lock()
            .unwrap()
            .push((operation.as_str(), question));
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(Ok(body)) => Ok(Answer {
                done: true,
                body: body.to_string().into_bytes(),
                outline: String::new(),
                cause: None,
                log: None,
            }),
            Some(Err((cause, body))) => Ok(Answer {
                done: false,
                body: body.to_string().into_bytes(),
                outline: "status 404".to_owned(),
                cause,
                log: None,
            }),
            None => Err(Failure::Lost("cut".to_owned())),
        }
    }
}

type Target = ProtocolProvider<Scripted>;

/// A provider that takes images, and gives these answers then.
async fn target(answers: impl IntoIterator<Item = Value>) -> Target {
    let target = Target::new_over(context("racks"), Scripted::default());
    let described = json!({"images": {"formats": ["raw", "tar"]}});
    let all = std::iter::once(described).chain(answers).map(Ok);
    target.transport.answers.lock().unwrap().extend(all);
    target.setup().await.unwrap();
    target
}

async fn upload(target: &Target, format: &str) -> Result<UploadState, ImageError> {
    let upload = ImageUpload {
        token: &token("token-1"),
        name: "debian 12",
        format,
        path: Some(Path::new("/var/lib/image.raw")),
        location: Some("s3://bucket/image.raw"),
        checksum: &Checksum {
            sha256: "ab".repeat(32),
            size_bytes: 7,
        },
        region: Some("moon"),
        options: &Map::from_iter([("speed".to_owned(), json!(7))]),
        metadata: &BTreeMap::from([("image".to_owned(), "debian-12".to_owned())]),
        progress: &Arc::new(UploadProgress::default()),
    };
    target.upload_image(&upload).await
}

#[tokio::test]
async fn a_provider_of_the_first_version_has_no_images() {
    let target = Target::new_over(context("racks"), Scripted::default());
    assert!(target.images().is_none(), "it is not set up");
    target
        .transport
        .answers
        .lock()
        .unwrap()
        .push_back(Ok(json!({"maxMachines": 7})));
    target.setup().await.unwrap();
    assert!(target.images().is_none());
    let error = upload(&target, "raw").await.unwrap_err();
    assert_eq!(error.retry(), Retry::AfterChange);
    assert_eq!(target.transport.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_upload_is_asked_for_until_it_is_ready() {
    let target = target([
        json!({"state": "pending", "status": "copying", "done": 0.5, "callAfterSeconds": 30}),
        json!({"state": "pending"}),
        json!({"state": "ready", "imageId": "image-7", "region": "moon"}),
    ])
    .await;
    assert_eq!(target.images().unwrap().image_formats(), ["raw", "tar"]);
    let pending = |status: &str, done, seconds| UploadState::Pending {
        status: status.to_owned(),
        done,
        call_after: Duration::from_secs(seconds),
    };
    assert_eq!(
        upload(&target, "raw").await,
        Ok(pending("copying", Some(0.5), 30))
    );
    assert_eq!(upload(&target, "raw").await, Ok(pending("", None, 10)));
    let UploadState::Ready(image) = upload(&target, "raw").await.unwrap() else {
        panic!("it must be ready");
    };
    assert_eq!(
        (image.external_id.as_str(), image.region.as_deref()),
        ("image-7", Some("moon"))
    );
    let asked = target.transport.asked.lock().unwrap();
    let (operation, question) = &asked[1];
    assert_eq!(*operation, "upload-image");
    for (name, value) in [
        ("token", json!("token-1")),
        ("name", json!("debian 12")),
        ("path", json!("/var/lib/image.raw")),
        ("location", json!("s3://bucket/image.raw")),
        ("sizeBytes", json!(7)),
        ("region", json!("moon")),
        ("options", json!({"speed": 7})),
        ("metadata", json!({"image": "debian-12"})),
        ("deployment", json!(ROOT_URL)),
    ] {
        assert_eq!(question[name], value, "{name}");
    }
}

#[tokio::test]
async fn images_are_found_listed_and_deleted() {
    let target = target([
        json!({"image": {"imageId": "image-7"}}),
        json!({}),
        json!({}),
        json!({"images": [{"imageId": "a", "token": "token-1"}], "continuation": "more"}),
        json!({"images": [{"imageId": "b", "ready": false, "region": "moon"}]}),
    ])
    .await;
    let found = target.find_image(None, &token("token-1")).await.unwrap();
    assert_eq!(found.unwrap().external_id, "image-7");
    assert_eq!(
        target.find_image(Some("moon"), &token("token-1")).await,
        Ok(None)
    );
    target.delete_image(None, "image-7").await.unwrap();
    let owned = target.owned_images().await.unwrap();
    let owned: Vec<_> = owned
        .iter()
        .map(|it| (it.external_id.as_str(), it.is_ready))
        .collect();
    assert_eq!(owned, [("a", true), ("b", false)]);
    let asked = target.transport.asked.lock().unwrap();
    assert_eq!(asked[5].1["continuation"], "more");
}

#[tokio::test]
async fn the_pages_of_a_list_of_images_have_a_limit() {
    for n_pages in sizes_around("cloud::protocol::images::MAX_IMAGE_PAGES", MAX_IMAGE_PAGES) {
        let n_pages = n_pages.max(1);
        let page = |number: usize| {
            let mut page = json!({"images": []});
            if number < n_pages {
                page["continuation"] = json!("more");
            }
            page
        };
        let target = target((1..=n_pages).map(page)).await;
        let listed = target.owned_images().await;
        assert_eq!(listed.is_ok(), n_pages <= MAX_IMAGE_PAGES, "{n_pages}");
    }
}

#[tokio::test]
async fn wrong_answers_and_refusals_are_told_apart() {
    let target = target([
        json!({"state": "ready"}),
        json!({"state": "gone"}),
        json!({"state": "pending", "done": 7}),
        json!({"state": "ready", "imageId": ""}),
    ])
    .await;
    let unknown = [
        "lost: the response to upload-image says ready and has no imageId",
        "lost: the response to upload-image",
        "lost: the response to upload-image",
        "lost: the response to upload-image",
        // The connection is cut.
        "lost: cut",
    ];
    for expected in unknown {
        let error = upload(&target, "raw").await.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.retry(), Retry::Later);
    }
    let error = upload(&target, "qcow2").await.unwrap_err().to_string();
    let expected = "configuration: the provider takes no images of format \"qcow2\", only raw, tar";
    assert_eq!(error, expected);
    for (cause, retry) in [
        ("quota", Retry::AfterChange),
        ("unavailable", Retry::Later),
        ("unknown", Retry::Later),
    ] {
        let body = json!({"cause": cause, "message": "why"});
        target
            .transport
            .answers
            .lock()
            .unwrap()
            .push_back(Err((None, body)));
        let error = target.delete_image(None, "image-7").await.unwrap_err();
        assert_eq!(
            (error.error.as_str(), error.retry()),
            ("why", retry),
            "{cause}"
        );
    }
    // It does not know the operation.
    target
        .transport
        .answers
        .lock()
        .unwrap()
        .push_back(Err((None, json!({}))));
    let error = target.owned_images().await.unwrap_err();
    assert!(
        error.error.starts_with("owned-images: status 404"),
        "{error}"
    );
}
