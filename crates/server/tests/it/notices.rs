//! Notices of errors by cause: at once, then at intervals, never too often, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use domain::time::{HOUR_MS, MINUTE_MS};
use serde_json::{Value, json};
use server::background::Notifier;
use server::background::driver::BackgroundTask;
use server::config::{Config, Hook};
use server::notify::{Channel, WebhookChannel};

use crate::database::{on_both, on_sqlite_first};
use crate::receivers::{Inbox, Posted, Reaction};
use crate::samples::pool;
use crate::world::{ROOT_URL, World};

/// More than the first error of a cause waits for others.
const GATHER_MS: i64 = 30_000;
const SECRET: &str = "0123456789abcdef";

pub(crate) async fn with_pool(world: &World, id: &str, changes: Value) {
    let mut wanted = pool("static", json!({}));
    for (key, value) in changes.as_object().unwrap() {
        wanted[key] = value.clone();
    }
    let path = format!("/worker-pool/{}", id.replace('/', "%2F"));
    world.put(&path, wanted).await.expect(200);
}

/// A worker reports an error, and the event about it is published.
pub(crate) async fn report(
    world: &World,
    pool: &str,
    worker: &str,
    title: &str,
    text: &str,
) -> Value {
    let body = json!({"kind": "worker-error", "title": title, "description": text,
        "extra": {"code": "disk", "apiToken": "T0P-SECRET"}, "workerGroup": "rack", "workerId": worker});
    let path = format!("/worker-pool-errors/{}", pool.replace('/', "%2F"));
    let reported = world.post(&path, body).await.expect(200);
    world.events().await;
    reported
}

pub(crate) fn hook(inbox: &Inbox, pools: &[&str]) -> Arc<dyn Channel> {
    let hook = Hook {
        url: Secret::new(format!("http://{}/hook/T0P-SECRET", inbox.address)),
        host: "127.0.0.1".to_owned(),
        is_private: true,
        secret: Some(Secret::new(SECRET)),
        pools: pools.iter().map(|&glob| glob.to_owned()).collect(),
        time_limit: Duration::from_secs(120),
    };
    Arc::new(WebhookChannel::new(hook, ROOT_URL).unwrap())
}

/// A notifier that listens from now on.
async fn telling(world: &World, channel: Arc<dyn Channel>) -> Notifier {
    let mut task = Notifier::new(Arc::clone(&world.app), channel);
    task.activate().await.unwrap();
    task
}

/// The notices that are sent after errors have been gathered.
async fn after(world: &World, task: &mut Notifier, inbox: &Inbox, millis: i64) -> Vec<Posted> {
    task.activate().await.unwrap();
    world.clock.advance_ms(millis);
    task.activate().await.unwrap();
    inbox.take()
}

fn counts(posted: &[Posted]) -> Vec<(String, u64, u64)> {
    let rows = posted.iter().map(|posted| {
        let body = &posted.body;
        let pool = body["workerPoolId"].as_str().unwrap().to_owned();
        (
            pool,
            body["count"].as_u64().unwrap(),
            body["further"]["errors"].as_u64().unwrap(),
        )
    });
    rows.collect()
}

fn one(pool: &str, count: u64) -> Vec<(String, u64, u64)> {
    vec![(pool.to_owned(), count, 0)]
}

on_sqlite_first!(one_cause_on_many_machines_is_one_notice, |world| {
    let inbox = Inbox::open().await;
    with_pool(world, "a/b", json!({})).await;
    let mut task = telling(world, hook(&inbox, &["*"])).await;
    let mut last = Value::Null;
    for number in 0..20 {
        let worker = format!("host-{number}");
        let text = format!(
            "{worker} has {number} bytes left, task {}",
            world.app.engine.random.slugid()
        );
        last = report(world, "a/b", &worker, "Disk full", &text).await;
        world.clock.advance_ms(1_000);
    }
    task.activate().await.unwrap();
    assert!(inbox.take().is_empty(), "others may follow");
    let posted = after(world, &mut task, &inbox, GATHER_MS).await;
    assert_eq!(counts(&posted), one("a/b", 20));
    let body = &posted[0].body;
    assert_eq!(body["firstAt"], "2026-09-21T14:13:20.000Z");
    assert_eq!(body["lastAt"], "2026-09-21T14:13:39.000Z");
    assert_eq!(body["sample"]["errorId"], last["errorId"]);
    assert!(
        after(world, &mut task, &inbox, GATHER_MS).await.is_empty(),
        "it was told"
    );
});

on_sqlite_first!(
    the_same_cause_is_reported_again_after_an_hour_with_its_count,
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        report(world, "a/b", "h1", "Disk full", "no room").await;
        assert_eq!(
            counts(&after(world, &mut task, &inbox, GATHER_MS).await),
            one("a/b", 1)
        );
        for worker in ["h2", "h3"] {
            report(world, "a/b", worker, "Disk full", "no room").await;
        }
        assert!(
            after(world, &mut task, &inbox, HOUR_MS - 1)
                .await
                .is_empty()
        );
        let posted = after(world, &mut task, &inbox, 1).await;
        assert_eq!(counts(&posted), one("a/b", 2));
        assert_eq!(posted[0].body["toldBefore"], 1);
        assert_eq!(posted[0].body["since"], "2026-09-21T14:13:20.000Z");
        // Hours later, the next error is reported at once, as a new one.
        assert!(
            after(world, &mut task, &inbox, 2 * HOUR_MS)
                .await
                .is_empty()
        );
        report(world, "a/b", "h1", "Disk full", "no room").await;
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(posted[0].body["toldBefore"], 0);
    }
);

on_both!(
    causes_that_arise_together_share_a_notice_that_begins_with_the_most_frequent,
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        let words = [
            "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        ];
        for word in words {
            report(world, "a/b", "h", "Trouble", word).await;
        }
        report(world, "a/b", "h", "Trouble", "four").await;
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(counts(&posted), [("a/b".to_owned(), 2, 10)]);
        let body = &posted[0].body;
        assert_eq!(body["sample"]["description"], "four");
        assert_eq!(body["further"]["causes"], 10);
        // Ten are described; of the last there is only the number.
        assert_eq!(body["further"]["described"].as_array().unwrap().len(), 9);
    }
);

on_sqlite_first!(
    many_pools_in_trouble_at_once_share_a_notice_and_few_do_not,
    |world| {
        let inbox = Inbox::open().await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        for pool in ["a/b", "a/c", "a/d", "a/e"] {
            with_pool(world, pool, json!({})).await;
        }
        for pool in ["a/b", "a/c"] {
            report(world, pool, "h", "Trouble", "x").await;
        }
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(posted.len(), 2, "{posted:?}");
        for pool in ["a/b", "a/c", "a/d", "a/e"] {
            report(world, pool, "h", "Other trouble", "y").await;
        }
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(posted.len(), 1);
        assert_eq!(posted[0].body["further"]["errors"], 3);
    }
);

fn two_an_hour(config: &mut Config) {
    config.notify.max_per_hour = 2;
}

on_sqlite_first!(
    causes_above_the_limit_are_summed_up_later,
    |config| {
        super::two_an_hour(config);
    },
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        let mut n_sent = 0;
        for word in ["one", "two", "three", "four", "five"] {
            report(world, "a/b", "h", "Trouble", word).await;
            n_sent += after(world, &mut task, &inbox, GATHER_MS).await.len();
        }
        assert_eq!(n_sent, 2);
        assert!(
            after(world, &mut task, &inbox, HOUR_MS - 5 * GATHER_MS)
                .await
                .is_empty()
        );
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(
            counts(&posted),
            [("a/b".to_owned(), 1, 2)],
            "the three that were held back"
        );
    }
);

on_both!(a_restart_neither_loses_nor_repeats_anything, |world| {
    let inbox = Inbox::open().await;
    with_pool(world, "a/b", json!({})).await;
    report(world, "a/b", "h", "Old", "before anybody listened").await;
    drop(telling(world, hook(&inbox, &["*"])).await);
    report(world, "a/b", "h", "Trouble", "while nobody listened").await;
    let mut task = telling(world, hook(&inbox, &["*"])).await;
    report(world, "a/b", "h", "Trouble", "while nobody listened").await;
    drop(task);
    task = telling(world, hook(&inbox, &["*"])).await;
    assert_eq!(
        counts(&after(world, &mut task, &inbox, GATHER_MS).await),
        one("a/b", 2)
    );
    drop(task);
    task = telling(world, hook(&inbox, &["*"])).await;
    assert!(after(world, &mut task, &inbox, GATHER_MS).await.is_empty());
});

on_both!(parallel of_several_processes_one_tells, |world| {
    let inbox = Inbox::open().await;
    with_pool(world, "a/b", json!({})).await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(telling(world, hook(&inbox, &["*"])).await);
    }
    for round in 1..=5 {
        let title = "x".repeat(round);
        for worker in ["h1", "h2", "h3"] {
            report(world, "a/b", worker, &title, "y").await;
        }
        for _ in 0..2 {
            let running: Vec<_> = tasks.drain(..).map(|mut task| {
                tokio::spawn(async move {
                    task.activate().await.unwrap();
                    task
                })
            }).collect();
            for task in running {
                tasks.push(task.await.unwrap());
            }
            world.clock.advance_ms(GATHER_MS);
        }
        assert_eq!(counts(&inbox.take()), one("a/b", 3));
    }
});

on_sqlite_first!(
    a_failed_receiver_gets_everything_later_and_is_logged_once,
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        report(world, "a/b", "h", "Trouble", "first").await;
        inbox.react([500, 503, 429].map(Reaction::Status));
        let refused = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(refused.len(), 1);
        assert!(
            after(world, &mut task, &inbox, 0).await.is_empty(),
            "not again at once"
        );
        report(world, "a/b", "h", "Trouble", "second").await;
        let mut attempts = Vec::new();
        for _ in 0..4 {
            attempts.extend(after(world, &mut task, &inbox, MINUTE_MS).await);
        }
        assert_eq!(attempts.len(), 4, "two failures, then both notices");
        for attempt in &attempts[..3] {
            assert_eq!(attempt.text, refused[0].text, "the same notice");
            assert_eq!(
                attempt.header("fleetwright-notice"),
                refused[0].header("fleetwright-notice")
            );
        }
        assert_eq!(attempts[3].body["sample"]["description"], "second");
        assert_eq!(world.log.lines("cannot send notices by").len(), 1);
        assert_eq!(world.log.lines("are sent again").len(), 1);
        assert!(
            !world.log.text().contains("T0P-SECRET"),
            "the address is a secret"
        );
    }
);

on_sqlite_first!(
    a_notice_that_is_refused_is_given_up_in_the_end_and_the_next_goes_out,
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        report(world, "a/b", "h", "Trouble", "first").await;
        inbox.react(vec![Reaction::Status(400); 8]);
        let mut n_refused = 0;
        for _ in 0..12 {
            n_refused += after(world, &mut task, &inbox, HOUR_MS).await.len();
        }
        assert_eq!(n_refused, 8);
        assert_eq!(world.log.lines("and is dropped").len(), 1);
        report(world, "a/b", "h", "Trouble", "second").await;
        assert_eq!(
            counts(&after(world, &mut task, &inbox, GATHER_MS).await),
            one("a/b", 1)
        );
    }
);

on_both!(
    a_notice_whose_sender_died_is_sent_by_another_under_the_same_name,
    |world| {
        let inbox = Inbox::open().await;
        with_pool(world, "a/b", json!({})).await;
        let mut task = telling(world, hook(&inbox, &["*"])).await;
        report(world, "a/b", "h", "Trouble", "x").await;
        inbox.react([Reaction::Silence]);
        task.activate().await.unwrap();
        world.clock.advance_ms(GATHER_MS);
        // Dies in the middle of sending.
        let first = tokio::select! {
            done = task.activate() => panic!("nobody answered: {done:?}"),
            first = inbox.next() => first,
        };
        drop(task);
        let mut other = telling(world, hook(&inbox, &["*"])).await;
        assert!(
            after(world, &mut other, &inbox, MINUTE_MS).await.is_empty(),
            "it may yet be sent"
        );
        let posted = after(world, &mut other, &inbox, 5 * MINUTE_MS).await;
        assert_eq!(posted.len(), 1);
        assert_eq!(posted[0].text, first.text);
    }
);

on_sqlite_first!(a_redirect_is_not_followed, |world| {
    let (inbox, other) = (Inbox::open().await, Inbox::open().await);
    with_pool(world, "a/b", json!({})).await;
    let mut task = telling(world, hook(&inbox, &["*"])).await;
    report(world, "a/b", "h", "Trouble", "x").await;
    inbox.react([Reaction::Redirect(format!("http://{}/", other.address))]);
    assert_eq!(after(world, &mut task, &inbox, GATHER_MS).await.len(), 1);
    assert!(other.take().is_empty());
    assert_eq!(world.log.lines("redirects are not followed").len(), 1);
    assert_eq!(
        after(world, &mut task, &inbox, MINUTE_MS).await.len(),
        1,
        "it is tried again"
    );
});

on_sqlite_first!(
    a_webhook_gets_signed_notices_of_its_pools_without_secrets,
    |world| {
        let inbox = Inbox::open().await;
        for pool in ["a/b", "b/b"] {
            with_pool(world, pool, json!({"owner": "boss@example.com"})).await;
        }
        let mut task = telling(world, hook(&inbox, &["c/*", "a/*"])).await;
        report(world, "b/b", "h", "Trouble", "x").await;
        let reported = report(world, "a/b", "h", "Trouble", "x").await;
        let posted = after(world, &mut task, &inbox, GATHER_MS).await;
        assert_eq!(counts(&posted), one("a/b", 1));
        let (posted, error_id) = (&posted[0], reported["errorId"].as_str().unwrap());
        assert_eq!(posted.body["version"], 1);
        assert_eq!(posted.body["kind"], "worker-pool-errors");
        assert_eq!(posted.body["owner"], "boss@example.com");
        assert_eq!(posted.body["cause"]["code"], "disk");
        assert_eq!(
            posted.body["sample"]["extra"],
            json!({"code": "disk", "apiToken": "(removed)", "workerGroup": "rack", "workerId": "h"})
        );
        let url =
            format!("{ROOT_URL}/api/worker-manager/v1/worker-pool-errors/a%2Fb?errorId={error_id}");
        assert_eq!(posted.body["url"], url);
        assert!(!posted.text.contains("T0P-SECRET"));
        let seconds = world.now().as_millis() / 1_000;
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET.as_bytes());
        let message = format!("{seconds}.{}", posted.text);
        let header = posted.header("fleetwright-signature");
        let tag = header.strip_prefix(&format!("t={seconds},v1=")).unwrap();
        let tag: Vec<u8> = (0..tag.len() / 2)
            .map(|at| u8::from_str_radix(&tag[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        aws_lc_rs::hmac::verify(&key, message.as_bytes(), &tag).unwrap();
    }
);

on_both!(a_flood_of_different_errors_stays_bounded, |world| {
    let inbox = Inbox::open().await;
    with_pool(world, "a/b", json!({})).await;
    let mut task = telling(world, hook(&inbox, &["*"])).await;
    for number in 0..70 {
        let word = "abcdefghij".repeat(number / 10 + 1);
        let letter = char::from(b'a' + u8::try_from(number % 10).unwrap());
        let (worker, text) = (format!("h{number}"), format!("{word} {letter}"));
        report(world, "a/b", &worker, "Trouble", &text).await;
    }
    let posted = after(world, &mut task, &inbox, GATHER_MS).await;
    assert_eq!(posted.len(), 1);
    let body = &posted[0].body;
    assert_eq!(body["count"], 20, "those that are not kept apart");
    assert_eq!(body["further"]["errors"], 50);
    assert!(
        body["advice"]
            .as_str()
            .unwrap()
            .starts_with("This pool has more kinds")
    );
    assert!(posted[0].text.len() < 100_000);
});

on_sqlite_first!(a_deleted_pool_is_not_reported, |world| {
    let inbox = Inbox::open().await;
    with_pool(world, "a/b", json!({})).await;
    let mut task = telling(world, hook(&inbox, &["*"])).await;
    report(world, "a/b", "h", "Trouble", "x").await;
    task.activate().await.unwrap();
    world
        .write(|tx| store::pools::delete(tx, &"a/b".parse().unwrap()))
        .await;
    assert!(after(world, &mut task, &inbox, GATHER_MS).await.is_empty());
});
