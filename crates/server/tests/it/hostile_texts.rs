//! Texts that workers, tasks, clouds and people write: every page shows them as text.

use access::slugid;
use domain::error_report::ErrorReport;
use domain::time::Timestamp;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;

use crate::fleet_world::{POOL, fleet_on_sqlite_first, plain_pool};
use crate::pages_for_people::Browser;
use crate::queue_samples::task_id;

const EVIL: &str = "<script>alert(1)</script>\"'<img src=x onerror=alert(2)>&lt;b&gt;";
const ESCAPED: &str = "&lt;script&gt;alert(1)&lt;/script&gt;";
/// As an element, as the end of an attribute, and as an element that was escaped once.
const BROKEN_OUT: [&str; 4] = ["<script>alert", "<img", "\"'<", ">&lt;b&gt;"];
const TASK: u32 = 900;

fn error(now: Timestamp) -> ErrorReport {
    let extra = json!({"code": EVIL, EVIL: EVIL, "workerId": EVIL});
    ErrorReport {
        pool_id: POOL.parse().unwrap(),
        error_id: slugid::v4(&mut StdRng::seed_from_u64(1)).parse().unwrap(),
        reported: now,
        kind: EVIL.to_owned(),
        title: EVIL.to_owned(),
        description: EVIL.to_owned(),
        extra: extra.as_object().unwrap().clone(),
        launch_config_id: None,
    }
}

fleet_on_sqlite_first!(texts_of_others_are_texts_on_each_page, |fleet| {
    let mut definition = plain_pool(3);
    definition["description"] = json!(EVIL);
    fleet.make_pool(POOL, definition).await;
    let (worker, _) = fleet.busy(POOL, 1).await.remove(0);
    let deadline = fleet.now().plus_seconds(3_600).to_string();
    let metadata = json!({"name": EVIL, "description": EVIL, "owner": "a@b.c",
        "source": "https://x.example"});
    let task = json!({"taskQueueId": POOL, "deadline": deadline, "metadata": metadata,
        "tags": {"kind": EVIL}});
    fleet.created(TASK, task).await;
    let error = error(fleet.now());
    let written = fleet.write(move |tx| store::worker_errors::insert(tx, &error));
    assert!(written.await);
    let until = fleet.now().plus_seconds(1_800).to_string();
    let pause = json!({"workerPoolId": POOL, "pause": true, "reason": EVIL, "until": until});
    fleet.put("/override/evil", pause).await.expect(200);
    let key = &worker.key;
    let at = format!("{}/{}", key.group.as_str(), key.id.as_str());
    let quarantine = json!({"quarantineUntil": until, "quarantineInfo": EVIL});
    let path = format!("queue:/provisioners/pp/worker-types/ee/workers/{at}");
    fleet.put(&path, quarantine).await.expect(200);
    let role = json!({"description": EVIL, "scopes": ["a:b"]});
    fleet.put("auth:/roles/evil", role).await.expect(200);

    let browser = Browser::of(fleet, &fleet.root()).await;
    let task = task_id(TASK);
    let evil = "%3Cscript%3Ealert(1)%22%27%3Cimg%20src%3Dx%3E";
    // Whether the page has the text at all.
    for (page, shows) in [
        ("/".to_owned(), true),
        ("/pools/pp/ee".to_owned(), true),
        ("/waiting".to_owned(), false),
        ("/start-up".to_owned(), false),
        ("/health".to_owned(), false),
        ("/errors".to_owned(), true),
        ("/workers".to_owned(), false),
        (format!("/workers/pp/ee/{at}"), true),
        (format!("/tasks/{task}"), true),
        (format!("/groups/{task}"), true),
        ("/rules".to_owned(), false),
        ("/money".to_owned(), false),
        ("/providers".to_owned(), false),
        ("/events".to_owned(), false),
        (format!("/?q={evil}"), true),
        (format!("/workers?q={evil}"), false),
        (format!("/events?client={evil}"), false),
        (format!("/pools/pp/ee?range={evil}"), true),
        (format!("/errors?pool={evil}"), false),
        (format!("/pools/{evil}/x"), false),
        (format!("/tasks/{evil}"), false),
    ] {
        let shown = browser.get(fleet, &page).await;
        for part in BROKEN_OUT {
            assert!(!shown.text.contains(part), "{page}: {part}\n{}", shown.text);
        }
        assert!(
            !shows || shown.text.contains(ESCAPED),
            "{page}: {}",
            shown.text
        );
    }
});
