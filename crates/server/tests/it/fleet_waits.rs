//! Why tasks wait: one true cause each, what would change it, by when, and the accounts of waits.

use std::sync::Arc;

use cloud::LaunchOutcome;
use domain::launch::Cause;
use serde_json::{Value, json};
use server::background::WaitAccounts;
use server::background::driver::BackgroundTask;

use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};
use crate::queue_samples::task_id;

const SECOND_MS: i64 = 1_000;
/// Tasks of these tests wait at most half a day.
const DEADLINE_S: i64 = 720 * 60;

impl Fleet {
    async fn explain_task(&self, number: u32) -> Value {
        let path = format!("fleetwright:/explain/task/{}", task_id(number));
        self.get(&path).await.expect(200)
    }

    /// The cause of the task's wait, and in how many seconds it changes at the latest. Each answer
    /// has a reason and something that would change it, and its parts sum to the total.
    pub(crate) async fn why(&self, number: u32) -> (String, i64) {
        let explained = self.explain_task(number).await;
        let cause = explained["cause"].as_str().unwrap().to_owned();
        let reason = explained["reason"].as_str().unwrap();
        assert!(reason.len() > 10, "{cause}: {reason}");
        let changes = explained["changes"].as_array().unwrap();
        assert!(!changes.is_empty(), "{cause} has no change");
        let latest: domain::time::Timestamp =
            explained["latest"].as_str().unwrap().parse().unwrap();
        let sum = |list: &str| {
            let parts = explained[list].as_array().unwrap().iter();
            parts.map(|part| part["ms"].as_i64().unwrap()).sum::<i64>()
        };
        assert_eq!(explained["totalMs"], sum("waits"));
        assert_eq!(explained["totalMs"], sum("causes"));
        (cause, latest.millis_since(self.now()) / SECOND_MS)
    }

    /// A pool of this kind of machine in which one task waits, after a decision.
    async fn waiting_in(&self, name: &str, definition: Value) -> u32 {
        self.make_pool(name, definition).await;
        let number = self.tasks(name, 1).await;
        self.round().await;
        number
    }

    /// Publishes the events, and charges the waits in them.
    async fn charge_waits(&self) {
        self.events().await;
        let mut accounts = WaitAccounts::new(Arc::clone(&self.app));
        accounts.activate().await.unwrap();
    }

    async fn waits(&self, query: &str) -> Value {
        let path = format!("fleetwright:/waits?{query}");
        self.get(&path).await.expect(200)
    }

    /// Each cause of all waits with its seconds.
    async fn waits_by_cause(&self) -> Vec<(String, i64)> {
        let report = self.waits("by=cause").await;
        let rows = report["rows"].as_array().unwrap().iter();
        let seconds = |row: &Value| row["ms"].as_i64().unwrap() / SECOND_MS;
        rows.map(|row| (row["key"].as_str().unwrap().to_owned(), seconds(row)))
            .collect()
    }
}

fn one_machine(name: &str, max: u32) -> Value {
    pool("one", 0, max, &[machine(name)])
}

fn owned(cause: &str, seconds: i64) -> (String, i64) {
    (cause.to_owned(), seconds)
}

fleet_on_sqlite_first!(tasks_without_a_usable_pool_wait_for_a_person, |fleet| {
    let stray = fleet.tasks("pp/stray", 1).await;
    assert_eq!(fleet.why(stray).await, owned("unknown-queue", DEADLINE_S));

    let mut unused = machine("unused");
    unused["workerManager"]["initialWeight"] = json!(0);
    fleet.errors_expected.set(true);
    let unused = fleet
        .waiting_in("pp/unused", pool("one", 0, 4, &[unused]))
        .await;
    assert_eq!(
        fleet.why(unused).await,
        owned("no-launch-config", DEADLINE_S)
    );

    let lost = fleet.waiting_in("pp/lost", one_machine("l", 0)).await;
    fleet.database.raw(
        "UPDATE worker_pools SET provider_id = 'lost', config = \
         REPLACE(config, '\"maxCapacity\":0', '\"maxCapacity\":4') \
         WHERE worker_pool_id = 'pp/lost'",
    );
    assert_eq!(fleet.why(lost).await, owned("out-of-service", 60));
});

fleet_on_sqlite_first!(a_task_waits_for_the_tasks_that_it_depends_on, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let first = fleet.tasks(POOL, 1).await;
    let deadline = fleet.now().plus_millis(60 * MINUTE_MS).to_string();
    let second = json!({"taskQueueId": POOL, "dependencies": [task_id(first)],
        "deadline": deadline});
    fleet.created(1_000, second).await;
    fleet.pass_ms(5 * SECOND_MS);
    let explained = fleet.explain_task(1_000).await;
    let reason = explained["reason"].as_str().unwrap();
    assert!(reason.contains(&task_id(first)), "{reason}");
    assert_eq!(explained["waitedMs"], 5_000);
    assert_eq!(fleet.why(1_000).await, owned("dependencies", 3_595));
});

fleet_on_sqlite_first!(
    a_task_waits_for_the_planner_and_then_for_its_machine,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.round().await;
        fleet.pass_ms(SECOND_MS);
        let number = fleet.tasks(POOL, 1).await;
        assert_eq!(fleet.why(number).await, owned("deciding", 30));
        fleet.pass_ms(31 * SECOND_MS);
        let late = owned("planner-late", DEADLINE_S - 31);
        assert_eq!(fleet.why(number).await, late);

        // The answer of the cloud is lost.
        fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.round().await;
        assert_eq!(fleet.why(number).await, owned("asked", 30));
        let reason = fleet.explain_task(number).await["reason"].to_string();
        let text = "and the answer leaves open whether it made any: \u{201c}the request was lost";
        assert!(reason.contains(text), "{reason}");

        let other = fleet.waiting_in("pp/other", one_machine("o", 4)).await;
        fleet.pass_ms(10 * SECOND_MS);
        assert_eq!(fleet.why(other).await, owned("booting", 1_790));
        fleet.register_all("pp/other").await;
        assert_eq!(fleet.why(other).await, owned("claim", 300));
    }
);

fleet_on_sqlite_first!(a_task_waits_for_the_limits_of_its_pool, |fleet| {
    let mut frugal = one_machine("f", 4);
    frugal["config"]["scalingRatio"] = json!(0);
    let frugal = fleet.waiting_in("pp/frugal", frugal).await;
    assert_eq!(fleet.why(frugal).await, owned("busy", DEADLINE_S));

    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.busy(POOL, 1).await;
    fleet.pass_ms(SECOND_MS);
    let full = fleet.tasks(POOL, 1).await;
    fleet.round().await;
    // The running task ends by its deadline.
    assert_eq!(fleet.why(full).await, owned("maximum", DEADLINE_S - 1));

    let dear = json!({"strategy": "aws-provisioner", "maxPrice": 0.5});
    let mut definition = one_machine("d", 4);
    for (key, value) in dear.as_object().unwrap() {
        definition["config"][key] = value.clone();
    }
    fleet.one.fake.set_price(&"d".parse().unwrap(), 2.0);
    let dear = fleet.waiting_in("pp/dear", definition).await;
    assert_eq!(fleet.why(dear).await, owned("price", DEADLINE_S));
});

fleet_on_sqlite_first!(a_task_waits_while_its_pool_is_paused, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let until = fleet.now().plus_millis(10 * MINUTE_MS).to_string();
    let pause = json!({"workerPoolId": POOL, "pause": true, "reason": "prices are up",
        "until": until});
    fleet.put("/override/freeze", pause).await.expect(200);
    let number = fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.why(number).await, owned("paused", 600));
    let reason = fleet.explain_task(number).await["reason"].to_string();
    assert!(reason.contains("prices are up"), "{reason}");
});

fleet_on_sqlite_first!(a_task_waits_for_the_next_try_after_refusals, |fleet| {
    // Another pool has machines of the same provider.
    fleet.make_pool("pp/other", one_machine("o", 4)).await;
    fleet.tasks("pp/other", 1).await;
    fleet.round().await;
    fleet.one.fake.refuse_launches_of("q", Cause::Quota);
    let quota = fleet.waiting_in("pp/quota", one_machine("q", 4)).await;
    fleet.pass_ms(3 * SECOND_MS);
    assert_eq!(fleet.why(quota).await, owned("quota", 7));
    let reason = fleet.explain_task(quota).await["reason"].to_string();
    assert!(reason.contains("pp/other (1 units)"), "{reason}");
    let words = "the quota of one is used up (\u{201c}quota: ";
    assert!(reason.contains(words), "{reason}");
    fleet.one.fake.refuse_launches_of("r", Cause::Capacity);
    let refused = fleet.waiting_in("pp/refused", one_machine("r", 4)).await;
    assert_eq!(fleet.why(refused).await, owned("refused", 10));
    let reason = fleet.explain_task(refused).await["reason"].to_string();
    assert!(reason.contains("capacity"), "{reason}");
    assert!(reason.contains("(\u{201c}capacity: "), "{reason}");
});

fleet_on_sqlite_first!(a_task_waits_for_workers_that_do_not_work, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    let worker = &fleet.idle(POOL, 1).await[0];
    fleet.quarantine(&worker.key, 20 * MINUTE_MS).await;
    let number = fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.why(number).await, owned("quarantined", 1_200));

    fleet.make_pool("pp/mute", one_machine("m", 1)).await;
    fleet.idle("pp/mute", 1).await;
    fleet.listen_ms(6 * MINUTE_MS);
    let number = fleet.tasks("pp/mute", 1).await;
    fleet.round().await;
    // It is ended half an hour after its last sign.
    assert_eq!(fleet.why(number).await, owned("silent", 24 * 60));
});

/// A task waits through two refusals, a pause, and a time without a server.
async fn wait_for_many_causes(fleet: &Fleet) -> u32 {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.round().await;
    let refusals = [Cause::Capacity, Cause::Quota].map(LaunchOutcome::Refused);
    fleet.one.fake.next_launches(refusals);
    let number = fleet.tasks(POOL, 1).await;
    fleet.pass_ms(2 * SECOND_MS);
    // Asks, and is refused.
    fleet.round().await;
    fleet.pass_ms(SECOND_MS);
    fleet.round().await;
    fleet.pass_ms(10 * SECOND_MS);
    // Asks again, and is refused again.
    fleet.round().await;
    fleet.pass_ms(SECOND_MS);
    fleet.round().await;
    fleet.pass_ms(4 * SECOND_MS);
    let until = fleet.now().plus_millis(60 * SECOND_MS).to_string();
    let pause = json!({"workerPoolId": POOL, "pause": true, "reason": "r", "until": until});
    fleet.put("/override/freeze", pause).await.expect(200);
    fleet.round().await;
    fleet.pass_ms(60 * SECOND_MS);
    // No server decides for five minutes; the learner of the next one notes it.
    let (since, end) = (fleet.now(), fleet.now().plus_millis(5 * MINUTE_MS));
    fleet
        .write(move |tx| {
            let gap = domain::recording::RecordedGap { since, until: end };
            store::recorded_gaps::insert(tx, &gap)
        })
        .await;
    fleet.pass_ms(5 * MINUTE_MS);
    fleet.round().await;
    fleet.pass_ms(30 * SECOND_MS);
    number
}

fleet_test!(
    the_account_of_a_task_shows_a_restart_a_pause_and_two_refusals,
    |fleet| {
        let number = wait_for_many_causes(fleet).await;
        let worker = &fleet.register_all(POOL).await[0];
        fleet.pass_ms(3 * SECOND_MS);
        let claim = fleet.claim_with(worker).await;
        let explained = fleet.explain_task(number).await;
        assert_eq!(explained["cause"], Value::Null);
        let waits = explained["waits"].as_array().unwrap().iter();
        let waits: Vec<(String, i64)> = waits
            .map(|wait| {
                let cause = wait["cause"].as_str().unwrap().to_owned();
                (cause, wait["ms"].as_i64().unwrap() / SECOND_MS)
            })
            .collect();
        let expected = [
            ("deciding", 2),
            ("asked", 1),
            ("refused", 10),
            ("asked", 1),
            ("quota", 4),
            ("paused", 60),
            ("planner-late", 300),
            ("booting", 30),
            ("claim", 3),
        ];
        assert_eq!(
            waits,
            expected.map(|(cause, seconds)| owned(cause, seconds))
        );

        // The account has the same, once.
        fleet.charge_waits().await;
        fleet.charge_waits().await;
        fleet.complete(&claim).await;
        fleet.charge_waits().await;
        let mut accounts = fleet.waits_by_cause().await;
        accounts.sort();
        let mut expected = [
            ("asked", 2),
            ("booting", 30),
            ("claim", 3),
            ("deciding", 2),
            ("paused", 60),
            ("planner-late", 300),
            ("quota", 4),
            ("refused", 10),
        ];
        expected.sort_unstable();
        assert_eq!(
            accounts,
            expected.map(|(cause, seconds)| owned(cause, seconds))
        );
        let report = fleet.waits("by=pool&top=1").await;
        assert_eq!(report["totalMs"], 411_000);
        assert_eq!(report["rows"][0]["key"], POOL);
    }
);

fleet_test!(a_canceled_task_and_a_dependency_are_charged_too, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.round().await;
    let first = fleet.tasks(POOL, 1).await;
    let deadline = fleet.now().plus_millis(60 * MINUTE_MS).to_string();
    let second = json!({"taskQueueId": POOL, "dependencies": [task_id(first)],
        "requires": "all-resolved", "deadline": deadline});
    fleet.created(1_000, second).await;
    fleet.pass_ms(7 * SECOND_MS);
    fleet.about_task(first, "cancel").await.expect(200);
    fleet.pass_ms(4 * SECOND_MS);
    fleet.about_task(1_000, "cancel").await.expect(200);
    fleet.charge_waits().await;
    let expected = [owned("deciding", 11), owned("dependencies", 7)];
    assert_eq!(fleet.waits_by_cause().await, expected);
});

fleet_on_sqlite_first!(an_owner_sees_the_waits_of_their_pools, |fleet| {
    for name in [POOL, "pp/other"] {
        fleet.make_pool(name, plain_pool(4)).await;
        fleet.round().await;
        let number = fleet.tasks(name, 1).await;
        fleet.pass_ms(5 * SECOND_MS);
        fleet.about_task(number, "cancel").await.expect(200);
    }
    fleet.charge_waits().await;
    assert_eq!(fleet.waits("by=pool").await["totalMs"], 10_000);
    let scopes = ["fleetwright:read-waits", "fleetwright:explain:pp/other"];
    let owner = fleet.client("owner", &scopes).await;
    let seen = fleet.get("fleetwright:/waits?by=pool").by(&owner).await;
    let seen = seen.expect(200);
    assert_eq!(seen["totalMs"], 5_000);
    assert_eq!(seen["rows"][0]["key"], "pp/other");
    let scopes = ["fleetwright:read-waits"];
    let missing = fleet.get("fleetwright:/waits?workerPoolId=no%2Fsuch");
    let missing = missing.await.expect(404);
    let message = missing["message"].as_str().unwrap();
    assert!(
        message.starts_with("Pool no/such does not exist"),
        "{message}"
    );
    let stranger = fleet.client("stranger", &scopes).await;
    let seen = fleet.get("fleetwright:/waits").by(&stranger).await;
    assert_eq!(seen.expect(200)["totalMs"], 0);
});

fleet_test!(
    charging_takes_as_many_statements_for_many_tasks_as_for_one,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.round().await;
        let mut seen = Vec::new();
        for count in [1, 10, 100] {
            let last = fleet.tasks(POOL, count).await;
            fleet.pass_ms(SECOND_MS);
            for number in last + 1 - count..=last {
                fleet.about_task(number, "cancel").await.expect(200);
            }
            fleet.events().await;
            let mut accounts = WaitAccounts::new(Arc::clone(&fleet.app));
            let counted = fleet.counted(accounts.activate()).await;
            seen.push(counted.1.all_statements());
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[1], seen[2]);
        assert_eq!(fleet.waits("").await["totalMs"], 111_000);
    }
);

fleet_test!(timelines_stay_bounded_while_tasks_wait, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.round().await;
    let number = fleet.tasks(POOL, 1).await;
    let id: domain::id::PoolId = POOL.parse().unwrap();
    let changes = 400;
    for change in 0..changes {
        fleet.pass_ms(SECOND_MS);
        let (id, now) = (id.clone(), fleet.now());
        let cause = match change % 2 {
            0 => domain::waits::WaitCause::Quota,
            _ => domain::waits::WaitCause::Refused,
        };
        fleet
            .write(move |tx| store::pool_waits::note(tx, &[(id.clone(), cause)], now))
            .await;
    }
    let mut accounts = WaitAccounts::new(Arc::clone(&fleet.app));
    accounts.activate().await.unwrap();
    let all = [(id, domain::time::Timestamp::from_millis(0))];
    let timeline = fleet
        .read(move |tx| store::pool_waits::timelines(tx, &all))
        .await;
    assert_eq!(timeline.len(), accounts.forget.kept as usize);
    fleet.about_task(number, "cancel").await.expect(200);
    fleet.charge_waits().await;
    let report = fleet.waits("by=cause").await;
    assert_eq!(report["totalMs"], 400_000);
    assert_eq!(report["causes"][0]["cause"], "quota");
});

fleet_test!(waits_that_a_wrong_clock_ended_stop_no_others, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.round().await;
    let first = fleet.tasks(POOL, 2).await - 1;
    let ahead = 8 * 60 * MINUTE_MS;
    fleet.pass_ms(ahead);
    fleet.about_task(first, "cancel").await.expect(200);
    fleet.pass_ms(5 * SECOND_MS - ahead);
    fleet.about_task(first + 1, "cancel").await.expect(200);
    fleet.charge_waits().await;
    // Each has waited for five seconds, as far as is known.
    let report = fleet.waits("by=cause").await;
    assert_eq!(report["totalMs"], 10_000);
});

fleet_test!(
    tasks_in_a_burst_wait_for_the_limit_of_their_pool_and_not_for_a_claim,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(1)).await;
        fleet.round().await;
        let first = fleet.tasks(POOL, 4).await - 3;
        fleet.round().await;
        fleet.pass_ms(30 * SECOND_MS);
        let worker = &fleet.register_all(POOL).await[0];
        fleet.pass_ms(2 * SECOND_MS);
        for _ in 0..4 {
            let claim = fleet.claim_with(worker).await;
            fleet.round().await;
            fleet.pass_ms(90 * SECOND_MS);
            fleet.complete(&claim).await;
        }
        fleet.charge_waits().await;
        let mut accounts = fleet.waits_by_cause().await;
        accounts.sort();
        // All of them wait for the machine, and three for those before them.
        let expected = [
            ("booting", 4 * 30),
            ("claim", 4 * 2),
            ("maximum", 90 + 180 + 270),
        ];
        let expected = expected.map(|(cause, seconds)| owned(cause, seconds));
        assert_eq!(accounts, expected);
        let explained = fleet.explain_task(first + 3).await;
        let mut causes = explained["causes"].as_array().unwrap().iter();
        let maximum = causes.find(|cause| cause["cause"] == "maximum");
        assert_eq!(maximum.unwrap()["ms"], 270 * SECOND_MS);
    }
);
