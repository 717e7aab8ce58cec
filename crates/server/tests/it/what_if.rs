//! Changes that are simulated: the answer is that of the command, and the same on the page.

use domain::plan::StrategyName;
use domain::recording::{RecordedRun, RecordedWorker};
use domain::task::EndReason;
use domain::time::Timestamp;
use serde_json::{Value, json};
use simulate::recording::{Question, Recording, RecordingReader, WhatIf};
use testing::sizes_around;

use crate::authorization::{Case, case, case_with};
use crate::demo_load::demo_pool;
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test};
use crate::pages_for_people::Browser;

/// The endpoints that read what was recorded.
pub(crate) fn cases() -> Vec<Case> {
    let scopes = &["fleetwright:read-recording"];
    vec![
        case("readRecording", "fleetwright:/recording", scopes),
        case_with("whatIf", "fleetwright:/what-if", json!({}), scopes),
    ]
}

const PATH: &str = "fleetwright:/what-if";
const HOURS: i64 = 3;

/// Bursts of tasks in the last hours, and a machine for each.
async fn record(fleet: &Fleet) {
    fleet
        .make_pool(POOL, demo_pool(StrategyName::Weighted.as_str(), 2))
        .await;
    fleet.pass_ms(HOURS * 3_600_000);
    let now = fleet.now();
    fleet
        .write(move |tx| {
            let (mut runs, mut workers) = (Vec::new(), Vec::new());
            for number in 0..30_i64 {
                let minutes = number / 6 * 30 + 10;
                let since = now.plus_millis(-HOURS * 3_600_000 + minutes * 60_000);
                let started = since.plus_millis(60_000 + number % 6 * 300_000);
                runs.push(run(since, started));
                workers.push(worker(number, since, started));
            }
            store::recorded_runs::insert(tx, &runs)?;
            for worker in &workers {
                store::recorded_workers::insert(tx, worker)?;
            }
            Ok(())
        })
        .await;
}

fn run(since: Timestamp, started: Timestamp) -> RecordedRun {
    RecordedRun {
        pool_id: POOL.parse().unwrap(),
        waiting_since: since,
        started,
        resolved: started.plus_millis(240_000),
        reason: EndReason::Completed,
        priority: None,
    }
}

fn worker(number: i64, since: Timestamp, started: Timestamp) -> RecordedWorker {
    let id = format!("i-{number}");
    RecordedWorker {
        key: domain::id::WorkerKey::parse(POOL.parse().unwrap(), "east", &id).unwrap(),
        provider_id: "fake".parse().unwrap(),
        launch_config_id: None,
        capacity: 1,
        price: Some(0.5),
        created: since,
        registered: Some(since.plus_millis(60_000)),
        stopping: Some(started.plus_millis(300_000)),
        stopped: Some(started.plus_millis(320_000)),
        is_interrupted: false,
    }
}

/// The recording, as a client downloads it.
async fn download(fleet: &Fleet, since: &str, until: &str) -> Recording {
    let path = format!("fleetwright:/recording?since={since}&until={until}&limit=1000");
    let page = fleet.get(&path).await.expect(200);
    assert_eq!(page["continuationToken"], Value::Null);
    let mut reader = RecordingReader::default();
    for (number, entry) in page["entries"].as_array().unwrap().iter().enumerate() {
        reader.add_line(number + 1, &entry.to_string()).unwrap();
    }
    reader.finish().unwrap()
}

async fn ask(fleet: &Fleet, body: Value) -> Value {
    let reply = fleet.post(PATH, body).await.expect(200);
    assert_eq!(reply["state"], "done", "{reply}");
    reply
}

fleet_test!(the_answer_is_that_of_the_command, |fleet| {
    record(fleet).await;
    let change = json!({"maxCapacity": 12, "idleSeconds": 120});
    let reply = ask(fleet, json!({"change": change, "seeds": 3})).await;
    let result = &reply["result"];
    assert_eq!(result["recorded"]["tasks"], 30);
    let text = |name: &str| result[name].as_str().unwrap().to_owned();
    let recording = download(fleet, &text("since"), &text("until")).await;
    let question = Question {
        change: serde_json::from_value(change).unwrap(),
        seeds: vec![1, 2, 3],
        ..Question::default()
    };
    let what_if = WhatIf::new(&recording, question).unwrap();
    let report = what_if.run(2, &|_| (), &|| true).unwrap();
    // Both are read from text, which may round.
    let text_of_command = report.document().to_string();
    let by_command: Value = serde_json::from_str(&text_of_command).unwrap();
    assert_eq!(*result, by_command);
    assert!(
        text("sentence").starts_with("With a maximum of 12 instead of 2"),
        "{}",
        text("sentence")
    );
    // Nothing was changed by the question.
    let pool = fleet.get(&format!("/worker-pool/{POOL}")).await.expect(200);
    assert_eq!(pool["config"]["maxCapacity"], 2);
});

fleet_test!(only_recorded_time_is_simulated, |fleet| {
    record(fleet).await;
    let reply = ask(fleet, json!({"seeds": 1})).await;
    let moment = |name: &str| -> Timestamp { reply[name].as_str().unwrap().parse().unwrap() };
    let hours = moment("until").millis_since(moment("since")) / 3_600_000;
    // An hour more than since the first run ended.
    assert_eq!(hours, HOURS);
    let names: Vec<&Value> = reply["result"]["configurations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["strategy"])
        .collect();
    assert_eq!(names, ["present"]);
});

fleet_on_sqlite_first!(questions_that_cannot_be_answered_are_refused, |fleet| {
    let nothing = "the recording has no pool that launches workers";
    let refused = fleet.post(PATH, json!({})).await;
    refused.refused_with(400, "InputError", nothing);
    record(fleet).await;
    let now = fleet.now();
    for (body, part) in [
        (json!({"since": "2026-13-01T00:00:00Z"}), ""),
        (
            json!({"since": now.to_string(), "until": now.to_string()}),
            "must be before `until`",
        ),
        (
            json!({"since": now.plus_millis(-32 * 86_400_000).to_string()}),
            "is longer than 31 days",
        ),
        (json!({"workerPools": ["no/pool"]}), "no/pool"),
        (json!({"workerPools": ["nopool"]}), ""),
        (
            json!({"change": {"withoutProviders": ["nobody"]}}),
            "no simulated pool launches at a provider nobody",
        ),
        (
            json!({"change": {"maxCapacity": 1, "maxCapacityFactor": 2}}),
            "exclude each other",
        ),
        (json!({"change": {"maxCapacity": -1}}), ""),
        (json!({"change": {"maxCapacity": 1.5}}), ""),
        (json!({"change": {"maxCapacity": 1e300}}), ""),
        (json!({"change": {"strategy": "external"}}), ""),
        (json!({"change": {"unknown": 1}}), ""),
        (json!({"change": []}), ""),
        (json!({"seeds": 0}), ""),
        (json!({"seeds": 11}), ""),
        (json!({"waitSeconds": 61}), ""),
        (
            json!({"change": {"workerPools": {"a/b": {"providerId": 3}}}}),
            "pool a/b: providerId",
        ),
        (
            json!({"change": {"workerConfigurations": {"it": {"rules": "all"}}}}),
            "worker configuration it: ",
        ),
    ] {
        let answer = fleet.post(PATH, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(part), "{body}: {}", answer.text);
    }
});

fleet_on_sqlite_first!(as_many_seeds_as_asked_for_are_simulated, |fleet| {
    record(fleet).await;
    for size in sizes_around("server::api::fleetwright::what_if::MAX_SEEDS", 10) {
        let answer = fleet.post(PATH, json!({"seeds": size})).await;
        if !(1..=10).contains(&size) {
            assert_eq!(answer.status, 400);
            continue;
        }
        let reply = answer.expect(200);
        let seeds = &reply["result"]["configurations"][0]["seeds"];
        assert_eq!(seeds.as_array().unwrap().len(), size);
    }
});

fleet_on_sqlite_first!(a_caller_who_does_not_wait_asks_again, |fleet| {
    record(fleet).await;
    let body = json!({"change": {"maxCapacity": 5}, "waitSeconds": 0,
        "until": fleet.now().to_string()});
    let first = fleet.post(PATH, body.clone()).await.expect(200);
    assert!(first["result"].is_null() || first["state"] == "done");
    let mut patient = body;
    patient["waitSeconds"] = json!(60);
    let last = fleet.post(PATH, patient).await.expect(200);
    assert_eq!(last["state"], "done");
});

fleet_on_sqlite_first!(the_page_shows_what_the_api_answers, |fleet| {
    record(fleet).await;
    let until = fleet.now().start_of(600_000);
    let since = until.plus_millis(-6 * 3_600_000);
    let body = json!({"workerPools": [POOL], "since": since.to_string(),
        "until": until.to_string(), "change": {"maxCapacity": 12}});
    let reply = ask(fleet, body).await;
    let sentence = reply["result"]["sentence"].as_str().unwrap().to_owned();
    let browser = Browser::of(fleet, &fleet.root()).await;
    let path = format!("/what-if?range=6h&max=12&pool={}", POOL.replace('/', "%2F"));
    let page = loop {
        let page = browser.get(fleet, &path).await;
        assert_eq!(page.status, 200);
        if !page.text.contains("Simulating") {
            break page.text;
        }
    };
    assert!(page.contains(&sentence), "{sentence} is not in {page}");
    assert!(page.contains("Measures of the fleets"));
    let command =
        format!("fleetwright simulate recorded --last 6h --pool {POOL} --max-capacity 12");
    assert!(page.contains(&command));
});

fleet_on_sqlite_first!(a_page_says_what_is_wrong_with_a_question, |fleet| {
    let browser = Browser::of(fleet, &fleet.root()).await;
    for (query, part) in [
        ("", "Choose a change"),
        ("max=many", "is not a number"),
        ("max=1", "no pool that launches workers"),
        ("max=1&pool=a%3Cb", "No answer"),
        ("strategy=%22%3E%3Cscript%3E", "No answer"),
    ] {
        let page = browser.get(fleet, &format!("/what-if?{query}")).await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains(part), "{query}: {}", page.text);
        assert!(!page.text.contains("<script>"), "{query}");
    }
    let stranger = fleet
        .client("looks", &["worker-manager:list-providers"])
        .await;
    let page = Browser::of(fleet, &stranger)
        .await
        .get(fleet, "/what-if?max=1")
        .await;
    assert!(
        page.text
            .contains("lacks the scope fleetwright:read-recording")
    );
    // A recorded time without tasks says how runs are recorded.
    fleet
        .make_pool(POOL, demo_pool(StrategyName::Weighted.as_str(), 2))
        .await;
    let page = loop {
        let page = browser.get(fleet, "/what-if?max=1").await;
        if !page.text.contains("Simulating") {
            break page.text;
        }
    };
    assert!(page.contains("`fleet.recording_days`"), "{page}");
});
