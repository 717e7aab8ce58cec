//! Tokens by each kind of credentials, and calls of Resource Manager with limits.

use std::process::Command;

use ::testing::sizes_around;
use serde_json::json;

use super::site::{OnAzure, single};
use crate::azure::arm::{Arm, MAX_POLLS};
use crate::azure::error::AZURE;
use crate::azure::groups::{MAX_GROUPS, ResourceGroups};
use crate::signing::http::Http;
use crate::vendor::Rest;
use crate::vendor::recorder::Recorder;

#[tokio::test]
async fn a_managed_identity_needs_no_secret() {
    let settings = json!({"tenant": null, "client_id": null});
    let azure = OnAzure::with(settings).await;
    azure.launch(single(&json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_certificate_signs_for_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9",
        ])
        .args([
            "-subj",
            "/CN=client",
            "-keyout",
            &path("key"),
            "-out",
            &path("certificate"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let both = format!("{}{}", read("certificate"), read("key"));
    std::fs::write(path("both"), both).unwrap();
    let azure = OnAzure::with(json!({"certificate_file": path("both")})).await;
    azure.launch(single(&json!({}))).await.unwrap();
}

fn arm(recorder: &Recorder) -> Arm {
    let rest = Rest::new(&AZURE, &recorder.url, Http::default(), None);
    Arm::new(rest, "s-1".to_owned())
}

#[tokio::test]
async fn the_number_of_pages_of_a_list_has_a_limit() {
    const LIMIT: usize = 20;
    for n_pages in sizes_around("cloud::azure::arm::MAX_PAGES", LIMIT) {
        let recorder = Recorder::start().await;
        for number in 0..n_pages.max(1) {
            let next = format!("{}/next", recorder.url);
            let next = if number + 1 < n_pages {
                json!(next)
            } else {
                json!(null)
            };
            recorder.answer(200, json!({"value": [number], "nextLink": next}));
        }
        let arm = arm(&recorder);
        let read = arm
            .pages_at_most(LIMIT, &arm.paths.all_machines(), &[])
            .await;
        assert_eq!(read.is_ok(), n_pages <= LIMIT, "{n_pages}");
        assert_eq!(recorder.calls().len(), n_pages.clamp(1, LIMIT));
    }
}

#[tokio::test]
async fn a_next_page_elsewhere_is_not_asked_for() {
    let recorder = Recorder::start().await;
    let evil = json!({"value": [], "nextLink": "http://127.0.0.1:1/evil"});
    recorder.answer(200, evil);
    let arm = arm(&recorder);
    let read = arm.list(&arm.paths.all_machines(), &[]).await;
    assert!(read.is_err());
}

#[tokio::test]
async fn the_number_of_polls_of_an_operation_has_a_limit() {
    for n_polls in sizes_around("cloud::azure::arm::MAX_POLLS", MAX_POLLS) {
        let recorder = Recorder::start().await;
        let operation = format!("{}/operations/1", recorder.url);
        let headers = [
            ("azure-asyncoperation", operation.as_str()),
            ("retry-after", "0"),
        ];
        recorder.answer_with(201, &headers, json!({}));
        for _ in 1..n_polls.max(1) {
            let goes_on = json!({"status": "InProgress"});
            recorder.answer_with(200, &[("retry-after", "0")], goes_on);
        }
        recorder.answer(200, json!({"status": "Succeeded"}));
        let arm = arm(&recorder);
        let begun = arm.put(&arm.paths.group("x"), json!({})).await.unwrap();
        let ended = arm.wait_for(&begun).await;
        assert_eq!(ended.is_ok(), n_polls <= MAX_POLLS, "{n_polls}");
        assert_eq!(recorder.calls().len(), 1 + n_polls.clamp(1, MAX_POLLS));
    }
}

#[test]
fn a_limited_number_of_groups_is_remembered() {
    for count in sizes_around("cloud::azure::groups::MAX_GROUPS", MAX_GROUPS) {
        let groups = ResourceGroups::default();
        for number in 0..count {
            groups.entry(&format!("g{number}"));
        }
        assert_eq!(groups.n_known(), count.min(MAX_GROUPS));
    }
}
