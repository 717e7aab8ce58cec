//! Pools that a strategy service plans: its answers, its failures, and the fallback.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use access::Secret;
use cloud::StrategySettings;
use domain::facts::MAX_CANDIDATES;
use domain::time::Clock as _;
use domain::worker::WorkerState;
use engine::clock::SystemClock;
use engine::fleet;
use serde_json::{Value, json};
use store::Tx;

use crate::database::Database;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, machine, plain_pool};
use crate::strategy_service::{Reply, SECRET, TestStrategy};

/// Services with a breaker of their own.
const CASES: usize = 7;
/// However slow the machine is on which the test runs.
const PATIENCE_SECONDS: u64 = 30;

/// Runs one test body on each database, with a strategy service `brain`, and the same under further
/// names. As `hasty` it has a second to answer.
macro_rules! strategy_test {
    ($name:ident, |$fleet:ident, $service:ident| $body:block) => {
        test_of_strategy!(both $name, |$fleet, $service| $body);
    };
}

/// As `on_sqlite_first`, with these services.
macro_rules! strategy_on_sqlite_first {
    ($name:ident, |$fleet:ident, $service:ident| $body:block) => {
        test_of_strategy!(sqlite_first $name, |$fleet, $service| $body);
    };
}

macro_rules! test_of_strategy {
    ($lanes:ident $name:ident, |$fleet:ident, $service:ident| $body:block) => {
        async fn $name($fleet: &Fleet, $service: &TestStrategy) $body

        mod $name {
            use super::*;

            async fn run(database: Database) {
                let service = TestStrategy::open().await;
                let fleet = Fleet::open_with(database, |config| {
                    service.add_to(config, "brain", PATIENCE_SECONDS);
                    service.add_to(config, "hasty", 1);
                    for number in 0..CASES {
                        service.add_to(config, &format!("case-{number}"), PATIENCE_SECONDS);
                    }
                });
                super::$name(&fleet.await, &service).await;
            }

            crate::database::on_databases!($lanes, tokio::test);
        }
    };
}

/// A pool of this service with the fallback `weighted`.
fn served_by(name: &str, max: u32) -> Value {
    let mut definition = plain_pool(max);
    let config = &mut definition["config"];
    config["strategy"] = json!("external");
    config["externalStrategy"] = json!(name);
    config["fallbackStrategy"] = json!("weighted");
    definition
}

impl Fleet {
    /// A round, and the decisions that it leaves to the task of woken pools.
    async fn plan_all(&self) {
        self.round().await;
        self.provision().await;
    }

    /// The newest stored plan is made again with the same bytes.
    async fn expect_replay(&self, pool: &str) {
        let record = self.plans(pool).await.remove(0);
        let (id, number) = (pool.parse().unwrap(), record.number);
        let again = self
            .read(move |tx| Ok(fleet::replay(tx, &id, number)))
            .await;
        let again = again.unwrap().unwrap();
        assert_eq!(again.to_json().to_string(), record.plan.to_string());
    }

    /// The text of the newest stored plan.
    async fn newest_plan(&self, pool: &str) -> String {
        let explained = self.explain_pool(pool).await;
        explained["plans"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

strategy_on_sqlite_first!(a_service_decides_and_the_plan_says_so, |fleet, service| {
    fleet.make_pool(POOL, served_by("brain", 9)).await;
    fleet.tasks(POOL, 1).await;
    service.start(3);
    fleet.plan_all().await;
    assert_eq!(fleet.states(POOL).await, "3 requested");
    assert_eq!(service.n_requests(), 1);
    let request = service.last_request();
    assert_eq!(request["workerPoolId"], POOL);
    assert_eq!(
        (&request["demand"]["pending"], &request["room"]),
        (&json!(1), &json!(9))
    );
    assert_eq!(request["offers"][0]["launchConfigId"], "a");
    assert_eq!(request["settings"]["fallbackStrategy"], "weighted");
    let text = fleet.newest_plan(POOL).await;
    assert!(
        text.contains(
            "because the strategy service brain decides: start 3 machines, let 0 workers go\n\
             because brain: a push is coming\n"
        ),
        "{text}"
    );
    fleet.expect_replay(POOL).await;
});

strategy_on_sqlite_first!(a_service_cannot_exceed_the_maximum, |fleet, service| {
    fleet.make_pool(POOL, served_by("brain", 4)).await;
    fleet.tasks(POOL, 1).await;
    service.start(1_000_000_000);
    fleet.plan_all().await;
    fleet.plan_all().await;
    assert_eq!(fleet.states(POOL).await, "4 requested");
    let text = fleet.newest_plan(POOL).await;
    assert!(
        text.contains("capped: wanted 1000000000, room for 4 under the maximum of 4"),
        "{text}"
    );
});

strategy_on_sqlite_first!(a_service_lets_idle_workers_go, |fleet, service| {
    fleet.make_pool(POOL, served_by("brain", 4)).await;
    service.start(2);
    fleet.tasks(POOL, 2).await;
    fleet.provision().await;
    service.set(Reply::Answer(json!({"version": 1})));
    let idle = fleet.register_all(POOL).await;
    for worker in &idle {
        let claim = fleet.claim_with(worker).await;
        fleet.complete(&claim).await;
    }
    fleet.listen_ms(2 * MINUTE_MS);
    fleet.plan_all().await;
    let request = service.last_request();
    assert_eq!(request["workers"].as_array().unwrap().len(), 2, "{request}");
    assert_eq!(fleet.advice(&idle[0]).await, "stay: none");
    let key = &idle[0].key;
    let stop = json!([{"workerGroup": key.group.as_str(), "workerId": key.id.as_str()}]);
    service.set(Reply::Answer(json!({"version": 1, "stop": stop})));
    fleet.plan_all().await;
    assert_eq!(
        fleet.advice(&idle[0]).await,
        "go: let go by the strategy service"
    );
    assert_eq!(fleet.advice(&idle[1]).await, "stay: none");
});

strategy_on_sqlite_first!(
    a_wrong_answer_leaves_the_decision_to_the_fallback,
    |fleet, service| {
        let launch = |machines: Value| {
            let launches = json!([{"launchConfigId": "a", "machines": machines}]);
            Reply::Answer(json!({"version": 1, "launches": launches}))
        };
        let cases = [
            (
                launch(json!(-1)),
                "its answer is wrong: data/launches/0/machines must be >= 0",
            ),
            (
                launch(json!(0.5)),
                "its answer is wrong: data/launches/0/machines must be integer",
            ),
            (
                Reply::Says(500, "Oops".to_owned()),
                "it answered with the status 500",
            ),
            (
                Reply::Says(302, String::new()),
                "it answered with the status 302",
            ),
            (
                Reply::Says(200, "{\"version\": NaN}".to_owned()),
                "its answer is not JSON: ",
            ),
            (
                Reply::Answer(json!({"version": 2})),
                "its answer has the version 2",
            ),
            (
                Reply::Says(200, " ".repeat(10_001)),
                "its answer is longer than 10000 bytes",
            ),
        ];
        let names = (0..CASES).map(|number| format!("case-{number}"));
        let cases: Vec<_> = names.zip(cases).collect();
        assert_eq!(cases.len(), CASES);
        let hasty = ("hasty".to_owned(), (Reply::Silence, "no answer within 1 s"));
        for (name, (reply, wanted)) in cases.into_iter().chain([hasty]) {
            let pool = format!("pp/{name}");
            fleet.make_pool(&pool, served_by(&name, 9)).await;
            fleet.tasks(&pool, 2).await;
            service.set(reply);
            fleet.provision().await;
            assert_eq!(fleet.states(&pool).await, "2 requested", "{wanted}");
            let text = fleet.newest_plan(&pool).await;
            let line = format!(
                "because the fallback weighted decides without the strategy service {name}: {wanted}"
            );
            assert!(text.contains(&line), "{text}");
            fleet.expect_replay(&pool).await;
        }
    }
);

strategy_on_sqlite_first!(
    a_service_that_is_down_for_a_day_is_asked_rarely_and_work_goes_on,
    |fleet, service| {
        fleet.make_pool(POOL, served_by("brain", 9)).await;
        fleet.tasks(POOL, 1).await;
        service.set(Reply::Says(503, String::new()));
        let mut n_decisions = 0;
        for _ in 0..(24 * 60 / 2) {
            fleet.pass_ms(2 * MINUTE_MS);
            fleet.plan_all().await;
            n_decisions += 1;
        }
        let n_asked = service.n_requests();
        assert!((200..=294).contains(&n_asked), "{n_asked} of {n_decisions}");
        fleet.make_pool("pp/other", served_by("brain", 9)).await;
        fleet.tasks("pp/other", 1).await;
        fleet.provision().await;
        assert_eq!(fleet.states("pp/other").await, "1 requested");
        let text = fleet.newest_plan("pp/other").await;
        assert!(
            text.contains("times in a row and is not asked before 2026-"),
            "{text}"
        );
        assert!(text.contains("; it answered with the status 503"), "{text}");
        let lines = fleet.log.lines("the strategy service brain does not work");
        assert_eq!(lines.len(), 1, "{lines:?}");
        service.start(2);
        fleet.pass_ms(5 * MINUTE_MS);
        fleet.plan_all().await;
        assert_eq!(
            fleet
                .log
                .lines("the strategy service brain answers again")
                .len(),
            1
        );
    }
);

strategy_on_sqlite_first!(
    a_service_that_nobody_can_reach_leaves_the_decision_to_the_fallback,
    |fleet, service| {
        let mut definition = served_by("brain", 9);
        definition["config"]["fallbackStrategy"] = json!("balanced");
        fleet.make_pool(POOL, definition).await;
        fleet.tasks(POOL, 2).await;
        service.stop().await;
        fleet.provision().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
        let text = fleet.newest_plan(POOL).await;
        let line =
            "the fallback balanced decides without the strategy service brain: no response: ";
        assert!(
            text.contains(line) && text.contains("Connection refused"),
            "{text}"
        );
    }
);

strategy_on_sqlite_first!(
    an_answer_that_wants_nothing_writes_no_plan,
    |fleet, service| {
        fleet.make_pool(POOL, served_by("brain", 9)).await;
        fleet.make_pool("pp/empty", served_by("brain", 9)).await;
        fleet.make_pool("pp/own", plain_pool(9)).await;
        fleet.tasks("pp/own", 1).await;
        fleet.tasks(POOL, 1).await;
        for round in 1..=5 {
            fleet.plan_all().await;
            // One request for the pool that needs a decision; none for the others.
            assert_eq!(service.n_requests(), round);
            fleet.pass_ms(10_000);
        }
        assert_eq!(fleet.plans(POOL).await.len(), 0);
        assert_eq!(fleet.states("pp/own").await, "1 requested");
        let explained = fleet.explain_pool(POOL).await;
        let text = explained["now"]["text"].as_str().unwrap();
        let line = "because the strategy service brain decides: start 0 machines, let 0 workers go";
        assert!(text.contains(line), "{text}");
    }
);

strategy_on_sqlite_first!(a_slow_service_delays_no_other_pool, |fleet, service| {
    service.hold();
    service.start(1);
    for number in 0..20 {
        let (slow, quick) = (format!("pp/slow-{number}"), format!("pp/quick-{number}"));
        fleet.make_pool(&slow, served_by("brain", 9)).await;
        fleet.make_pool(&quick, plain_pool(9)).await;
        fleet.tasks(&slow, 1).await;
        fleet.tasks(&quick, 1).await;
    }
    let launched = async {
        while fleet.machines().len() < 20 {
            tokio::task::yield_now().await;
        }
        let n_requests = service.n_requests();
        service.let_go();
        n_requests
    };
    let (_, n_requests) = tokio::join!(fleet.provision(), launched);
    assert!(n_requests <= 8, "{n_requests}");
    assert_eq!(fleet.machines().len(), 40);
    assert_eq!(service.n_requests(), 20);
});

strategy_test!(
    an_answer_is_cut_again_by_the_facts_of_the_transaction,
    |fleet, service| {
        fleet.make_pool(POOL, served_by("brain", 9)).await;
        fleet.tasks(POOL, 1).await;
        service.hold();
        service.start(5);
        let meanwhile = async {
            while service.n_requests() == 0 {
                tokio::task::yield_now().await;
            }
            fleet.change_pool(POOL, served_by("brain", 2)).await;
            service.let_go();
        };
        tokio::join!(fleet.provision(), meanwhile);
        assert_eq!(fleet.states(POOL).await, "2 requested");
        let text = fleet.plans(POOL).await.pop().unwrap().plan.to_string();
        assert!(
            text.contains("capped: wanted 5, room for 2 under the maximum of 2"),
            "{text}"
        );
    }
);

strategy_test!(
    the_workers_of_a_large_pool_count_for_a_moment_and_until_another_plan,
    |fleet, service| {
        fleet.make_pool(POOL, plain_pool(20_000)).await;
        let [first] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
        let others = MAX_CANDIDATES as usize;
        fleet.copies(&first.key, others, WorkerState::Running).await;
        fleet.change_pool(POOL, served_by("brain", 20_000)).await;
        service.start(1);
        fleet.plan_all().await;
        // How long the answer takes, whether another process plans meanwhile, and how often the
        // workers are counted.
        for (answer_ms, has_other_plan, n_counts) in [
            (0, false, 1),
            (5_000, false, 1),
            (5_001, false, 2),
            (0, true, 2),
        ] {
            fleet.pass_ms(MINUTE_MS);
            let (n_requests, n_plans) = (service.n_requests(), fleet.plans(POOL).await.len());
            service.hold();
            fleet.tasks(POOL, 1).await;
            let meanwhile = async {
                while service.n_requests() == n_requests {
                    tokio::task::yield_now().await;
                }
                fleet.pass_ms(answer_ms);
                if has_other_plan {
                    let turn = |tx: &mut Tx<'_>| store::turns::take(tx, &format!("pool:{POOL}"));
                    fleet.write(turn).await;
                }
                service.let_go();
            };
            let planning = async { tokio::join!(fleet.provision(), meanwhile) };
            let (_, counts) = fleet.counted(planning).await;
            let case = format!("{answer_ms} {has_other_plan}");
            for statement in ["worker_supply_between", "worker_supply_overdue_between"] {
                assert_eq!(counts.statements(statement), n_counts, "{case} {statement}");
            }
            assert_eq!(fleet.plans(POOL).await.len(), n_plans + 1, "{case}");
        }
    }
);

strategy_on_sqlite_first!(
    an_answer_to_another_question_is_dropped,
    |fleet, service| {
        fleet.make_pool(POOL, served_by("brain", 9)).await;
        fleet.tasks(POOL, 1).await;
        service.hold();
        service.start(5);
        let meanwhile = async {
            while service.n_requests() == 0 {
                tokio::task::yield_now().await;
            }
            let mut other = plain_pool(9);
            other["config"]["launchConfigs"] = json!([machine("b")]);
            fleet.change_pool(POOL, other).await;
            service.let_go();
        };
        tokio::join!(fleet.provision(), meanwhile);
        // The pool is planned anew, by its own strategy.
        fleet.pass_ms(2_000);
        fleet.provision().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        assert_eq!(service.n_requests(), 1);
    }
);

strategy_on_sqlite_first!(a_pool_names_a_configured_service, |fleet, _service| {
    let path = "/worker-pool/pp%2Fee";
    let refused = fleet.put(path, served_by("nobody", 9)).await.expect(400);
    let text = refused["message"].as_str().unwrap();
    let wanted = "config.externalStrategy: there is no strategy service nobody; the configured ones \
                  are: brain, case-0, ";
    assert!(text.contains(wanted), "{text}");
    let mut unnamed = served_by("brain", 9);
    unnamed["config"]
        .as_object_mut()
        .unwrap()
        .remove("externalStrategy");
    let refused = fleet.put(path, unnamed).await.expect(400);
    let text = refused["message"].as_str().unwrap();
    assert!(
        text.contains("externalStrategy must be the name of a strategy service"),
        "{text}"
    );
    let mut circular = served_by("brain", 9);
    circular["config"]["fallbackStrategy"] = json!("external");
    let refused = fleet.put(path, circular).await.expect(400);
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("fallbackStrategy"), "{text}");
});

/// The example of the documentation, as a process.
struct Example {
    process: Child,
    url: String,
}

impl Example {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let file = root.join("docs/examples/strategy-service/strategy_service.py");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.lines().count() <= 40);
        let mut process = Command::new("python3")
            .arg(file)
            .arg("0")
            .env("STRATEGY_SECRET", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port: u16 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        let url = format!("http://127.0.0.1:{port}");
        Self { process, url }
    }

    fn settings(&self, secret: &str) -> StrategySettings {
        StrategySettings {
            url: self.url.clone(),
            secret: Some(Secret::new(secret)),
            secret_file: None,
            time_limit_seconds: 30,
            max_answer_bytes: 10_000,
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The example refuses requests that are not of this minute, so this world has the time of the
/// machine, more or less.
async fn plan_by_the_example(database: Database) {
    let example = Example::start();
    let fleet = Fleet::open_with(database, |config| {
        let mut add = |name: &str, secret: &str| {
            let settings = example.settings(secret);
            config.strategies.insert(name.parse().unwrap(), settings);
        };
        add("example", SECRET);
        add("forger", "another-secret-that-is-long-enough");
    });
    let fleet = fleet.await;
    fleet.pass_ms(SystemClock.now().millis_since(fleet.now()) - 45_000);
    fleet.make_pool(POOL, served_by("example", 9)).await;
    fleet.tasks(POOL, 3).await;
    fleet.provision().await;
    assert_eq!(fleet.states(POOL).await, "3 requested");
    let text = fleet.newest_plan(POOL).await;
    assert!(text.contains("because example: 0 units are idle"), "{text}");
    let workers = fleet.register_all(POOL).await;
    for worker in &workers {
        let claim = fleet.claim_with(worker).await;
        fleet.complete(&claim).await;
    }
    fleet.listen_ms(MINUTE_MS + 1_000);
    fleet.plan_all().await;
    let text = fleet.newest_plan(POOL).await;
    assert!(
        text.contains("asked 3 to stop: let go by the strategy service"),
        "{text}"
    );
    fleet.make_pool("pp/forged", served_by("forger", 9)).await;
    fleet.tasks("pp/forged", 2).await;
    fleet.provision().await;
    let text = fleet.newest_plan("pp/forged").await;
    assert!(
        text.contains("without the strategy service forger: it answered with the status 401"),
        "{text}"
    );
    assert_eq!(fleet.states("pp/forged").await, "2 requested");
}

mod the_example_in_python_plans_a_pool {
    use super::plan_by_the_example as run;

    crate::database::on_databases!(sqlite_first, tokio::test);
}
