//! Answers that no server gives on demand: long lists, and many machines.

use ::testing::sizes_around;
use domain::worker::{Worker, WorkerState};
use serde_json::{Value, json};

use super::fake::provider;
use crate::google::GoogleProvider;
use crate::google::compute::{MAX_PAGES, PAGE};
use crate::google::labels::LaunchLabels;
use crate::google::machines::LOOK_BATCH;
use crate::tests::values::{ROOT_URL, TestClock, edit, worker};
use crate::vendor::recorder::Recorder;
use crate::{Machines as _, Provider as _, Sighting};

/// A provider with one zone and only the recorder behind it.
async fn alone() -> (GoogleProvider, Recorder) {
    alone_with(json!({})).await
}

/// A provider with these keys in its section.
pub(super) async fn alone_with(extra: Value) -> (GoogleProvider, Recorder) {
    let recorder = Recorder::start().await;
    let provider = provider(&recorder.url, ROOT_URL, &TestClock::new(), extra);
    recorder.answer(200, json!({"access_token": "t", "expires_in": 3_600}));
    recorder.answer(200, json!({"email": "w@x", "uniqueId": "1234567890"}));
    let zone = json!({"name": "us-central1-a", "region": "x/regions/us-central1"});
    recorder.answer(200, json!({"items": [zone]}));
    provider.setup().await.unwrap();
    (provider, recorder)
}

/// Machines with our labels.
fn machines(numbers: std::ops::Range<usize>) -> Vec<Value> {
    let labels = LaunchLabels {
        root_url: ROOT_URL,
        provider_id: &"google".parse().unwrap(),
        token: &"AAAAAAAAQQCAAAAAAAAAAQ".parse().unwrap(),
        pool_id: &"a/b".parse().unwrap(),
        owner: "o",
        launch_config_id: "lc",
    };
    let labels = labels.merge_into(None);
    let one = |number: usize| {
        json!({"id": number.to_string(), "name": format!("m{number}"), "status": "RUNNING",
            "zone": "x/zones/us-central1-a", "labels": labels})
    };
    numbers.map(one).collect()
}

fn page(machines: &[Value], next: Option<usize>) -> Value {
    let next = next.map(|next| next.to_string());
    json!({"items": {"zones/us-central1-a": {"instances": machines}}, "nextPageToken": next})
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let n_page = PAGE as usize;
    for size in sizes_around("cloud::google::compute::PAGE", n_page) {
        let (provider, recorder) = alone().await;
        let all = machines(0..size);
        let n_pages = size.div_ceil(n_page).max(1);
        for number in 0..n_pages {
            let end = size.min((number + 1) * n_page);
            let next = (number + 1 < n_pages).then_some(number + 1);
            recorder.answer(200, page(&all[number * n_page..end], next));
        }
        let owned = provider.owned().await.unwrap().machines;
        assert_eq!(owned.len(), size);
        let calls = recorder.calls();
        assert_eq!(calls.len(), 3 + n_pages);
        assert!(calls[3].target.contains("maxResults=500"));
    }
}

#[tokio::test]
async fn the_number_of_pages_of_a_list_has_a_limit() {
    for n_pages in sizes_around("cloud::google::compute::MAX_PAGES", MAX_PAGES) {
        let (provider, recorder) = alone().await;
        for number in 0..n_pages.clamp(1, MAX_PAGES) {
            let next = (number + 1 < n_pages).then_some(number + 1);
            recorder.answer(200, page(&[], next));
        }
        let owned = provider.owned().await;
        assert_eq!(owned.is_ok(), n_pages <= MAX_PAGES, "{n_pages}");
    }
}

#[tokio::test]
async fn as_many_machines_are_looked_at_as_the_scan_offers() {
    for size in sizes_around("cloud::google::machines::LOOK_BATCH", LOOK_BATCH) {
        let (provider, recorder) = alone().await;
        assert_eq!(provider.look_batch(), LOOK_BATCH);
        let named = |number: usize| {
            let mut worker = worker(WorkerState::Running);
            edit(&mut worker, |it| {
                it.key.group = "us-central1-a".parse().unwrap();
                it.key.id = number.to_string().parse().unwrap();
            });
            recorder.answer(404, Value::Null);
            worker
        };
        let workers: Vec<Worker> = (0..size).map(named).collect();
        let seen = provider.look(&workers).await.unwrap();
        assert_eq!(seen.len(), size);
        assert!(seen.iter().all(|(_, it)| *it == Sighting::NotFound));
    }
}
