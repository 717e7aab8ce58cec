//! Conformance runs of providers: their questions, and that they leave nothing behind.

use access::slugid;
use cloud::{Call, CloudError, LaunchOutcome};
use domain::id::WorkerGroup;
use domain::launch::Cause;
use serde_json::{Value, json};

use crate::authorization::{Case, case_with};
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, machine, plain_pool};

const TEST: &str = "/provider/one/test";
const FIRST: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
const SECOND: &str = "BBBBBBBBQQCBBBBBBBBBBQ";
const THIRD: &str = "CCCCCCCCQQCCCCCCCCCCCQ";

pub(crate) fn cases() -> Vec<Case> {
    vec![case_with(
        "testProvider",
        TEST,
        json!({"testId": FIRST}),
        &["worker-manager:provider-test:one"],
    )]
}

/// A question with its result and its answer.
fn answer<'a>(reply: &'a Value, question: &str) -> (&'a str, &'a str) {
    let mut questions = reply["questions"].as_array().unwrap().iter();
    let found = questions.find(|it| it["question"] == question);
    let found = found.unwrap_or_else(|| panic!("{question} was not asked: {reply}"));
    let text = |key: &str| found[key].as_str().unwrap();
    (text("result"), text("answer"))
}

fn failed(reply: &Value) -> Vec<&str> {
    let questions = reply["questions"].as_array().unwrap().iter();
    let failed = questions.filter(|it| it["result"] == "failed");
    failed
        .map(|it| {
            assert!(it["advice"].is_string(), "{it}");
            it["question"].as_str().unwrap()
        })
        .collect()
}

impl Fleet {
    async fn test(&self, body: Value) -> Value {
        assert!(slugid::is_slugid(body["testId"].as_str().unwrap()));
        let reply = self.post(TEST, body).await.expect(200);
        assert_eq!(reply["state"], "done", "{reply}");
        reply
    }

    /// With a machine of a launch config of the caller.
    async fn test_launch(&self, id: &str) -> Value {
        let body = json!({"testId": id, "launchConfig": machine("a"), "launch": true,
            "waitSeconds": 60});
        self.test(body).await
    }

    /// Asserts that no machine goes on and no row was written.
    async fn is_as_before(&self) {
        let left = self.machines().into_iter().filter(|it| !it.is_going);
        assert_eq!(left.count(), 0);
        assert_eq!(self.states(POOL).await, "");
        assert_eq!(self.launches(POOL).await.len(), 0);
    }
}

fleet_on_sqlite_first!(a_provider_answers_and_its_machine_leaves_nothing, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let reply = fleet.test(json!({"testId": SECOND})).await;
    assert_eq!(answer(&reply, "machines"), ("passed", "0 machines"));
    assert_eq!(answer(&reply, "config").0, "not-applicable");
    let reply = fleet.test_launch(FIRST).await;
    assert_eq!(failed(&reply), [""; 0], "{reply}");
    for question in [
        "set-up",
        "bids",
        "launch",
        "second-launch",
        "alive",
        "listed",
    ] {
        assert_eq!(answer(&reply, question).0, "passed", "{question}");
    }
    assert_eq!(answer(&reply, "gone"), ("passed", "yes"));
    assert_eq!(fleet.one.fake.n_calls(Call::Launch), 2);
    fleet.is_as_before().await;
    // The caller who asks again gets the same answers.
    let again = json!({"testId": FIRST, "continue": true});
    assert_eq!(fleet.test(again).await, reply);
    let body = json!({"testId": SECOND, "workerPoolId": POOL, "launch": true,
            "waitSeconds": 60});
    let reply = fleet.test(body).await;
    assert_eq!(failed(&reply), [""; 0], "{reply}");
    assert_eq!(answer(&reply, "config"), ("passed", "yes, 1 launch config"));
    fleet.is_as_before().await;
    let path = "auth:/audit/provider/one";
    let history = fleet.get(path).await.expect(200);
    assert_eq!(history["auditHistory"].as_array().unwrap().len(), 3);
});

fleet_on_sqlite_first!(resources_of_the_pool_are_made_and_removed, |fleet| {
    fleet.one.fake.need_groups();
    let reply = fleet.test_launch(FIRST).await;
    assert_eq!(failed(&reply), [""; 0], "{reply}");
    assert_eq!(answer(&reply, "release").0, "passed");
    assert_eq!(fleet.one.fake.groups(), []);
    let outage = CloudError::Unavailable("the network is down".to_owned());
    fleet.one.fake.fail_next(Call::PreparePool, outage);
    let body = json!({"testId": SECOND, "launchConfig": machine("a"), "launch": true});
    let reply = fleet.test(body).await;
    assert_eq!(failed(&reply), ["pool-resources"]);
});

fleet_on_sqlite_first!(a_fault_is_named_and_the_machine_is_ended, |fleet| {
    let script = [LaunchOutcome::AnswerLost];
    fleet.one.fake.next_launches(script);
    let reply = fleet.test_launch(FIRST).await;
    assert_eq!(failed(&reply), ["launch"], "{reply}");
    assert_eq!(answer(&reply, "second-launch").0, "not-applicable");
    assert_eq!(answer(&reply, "gone").0, "passed");
    fleet.is_as_before().await;

    let words = "the subnet does not exist".to_owned();
    let refused = LaunchOutcome::RefusedSaying(Cause::Configuration, words.clone());
    fleet.one.fake.next_launches([refused]);
    let reply = fleet.test_launch(SECOND).await;
    assert_eq!(failed(&reply), ["launch"]);
    assert!(answer(&reply, "launch").1.ends_with(&words), "{reply}");
    assert_eq!(answer(&reply, "gone").0, "not-applicable");
    fleet.is_as_before().await;

    fleet.one.fake.set_repeats_itself(true);
    let reply = fleet.test_launch(THIRD).await;
    assert_eq!(failed(&reply), [""; 0], "{reply}");
    fleet.one.fake.set_repeats_itself(false);
    fleet.is_as_before().await;

    let no_list = CloudError::Credentials("it may not list machines".to_owned());
    fleet.one.fake.fail_next(Call::Owned, no_list);
    let reply = fleet.test(json!({"testId": SECOND})).await;
    assert_eq!(failed(&reply), ["machines"]);
    let wrong = json!({"testId": FIRST, "launchConfig": {"workerConfig": 1}});
    let reply = fleet.test(wrong).await;
    assert_eq!(failed(&reply), ["config"], "{reply}");
});

fleet_on_sqlite_first!(one_test_of_a_provider_runs_at_a_time, |fleet| {
    let group: WorkerGroup = "fake".parse().unwrap();
    fleet.one.fake.set_hanging(&group, true);
    let body = json!({"testId": FIRST, "waitSeconds": 0});
    let reply = fleet.post(TEST, body.clone()).await.expect(200);
    assert_eq!(reply["state"], "running", "{reply}");
    let other = json!({"testId": SECOND});
    fleet.post(TEST, other.clone()).await.expect(409);
    fleet.one.fake.set_hanging(&group, false);
    let more = json!({"testId": FIRST, "continue": true, "waitSeconds": 60});
    fleet.test(more).await;
    fleet.test(other).await;
    // Only the last test of a provider is known.
    let gone = json!({"testId": FIRST, "continue": true});
    fleet.post(TEST, gone).await.expect(404);
});

fleet_on_sqlite_first!(a_test_without_sense_is_refused, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let test = |more: Value| {
        let mut body = json!({"testId": FIRST});
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        body
    };
    for (path, body, status) in [
        ("/provider/none/test", test(json!({})), 404),
        (TEST, test(json!({"workerPoolId": "no/pool"})), 404),
        (
            "/provider/two/test",
            test(json!({"workerPoolId": POOL})),
            400,
        ),
        (TEST, test(json!({"launch": true})), 400),
        (
            TEST,
            test(json!({"workerPoolId": POOL, "launchConfig": {}})),
            400,
        ),
        (TEST, json!({"testId": "short"}), 400),
    ] {
        fleet.post(path, body).await.expect(status);
    }
});
