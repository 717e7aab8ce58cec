//! Budgets: they stop launches in time, say so everywhere, and end no machine.

use std::sync::Arc;

use domain::budgets::MoneyBudget;
use domain::plan::Bid;
use engine::budgets::MAX_BUDGETS;
use engine::fleet;
use serde_json::{Value, json};
use server::background::Budgets;
use server::background::driver::BackgroundTask;
use testing::sizes_around;

use crate::database::Database;
use crate::fleet_two_processes::{both_at_once, second};
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, pool,
};
use crate::queue_samples::task_id;
use crate::samples::static_worker;

const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Fleet {
    async fn set_budget(&self, id: &str, scope: (&str, &str), per: &str, limit: f64) -> Value {
        let body = json!({scope.0: scope.1, "per": per, "limit": limit});
        self.put(&format!("/budget/{id}"), body).await.expect(200)
    }

    async fn budget(&self, id: &str) -> Value {
        self.get(&format!("/budget/{id}")).await.expect(200)
    }

    async fn measure_budgets(&self) {
        let done = Budgets(Arc::clone(&self.app.engine)).activate().await;
        done.unwrap();
    }

    /// A pool of this provider whose machines cost so much an hour.
    async fn priced_pool(&self, id: &str, provider: &str, price: f64) {
        let bid = Bid {
            price: Some(price),
            ..Bid::plain("moon".to_owned())
        };
        let cloud = match provider {
            "one" => &self.one,
            _ => &self.three,
        };
        cloud.fake.set_bid(&"a".parse().unwrap(), Some(bid));
        let definition = pool(provider, 0, 40, &[machine("a")]);
        self.make_pool(id, definition).await;
    }

    /// The steps that were announced, with their budgets.
    async fn budget_steps(&self) -> Vec<String> {
        let events = self.events().await;
        let steps = events
            .iter()
            .filter(|row| row.topic.ends_with("/budget-step"));
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        steps
            .map(|row| {
                format!(
                    "{} {}",
                    word(&row.payload["budgetId"]),
                    word(&row.payload["step"])
                )
            })
            .collect()
    }

    async fn plan_text(&self) -> String {
        let explained = self.explain_pool(POOL).await;
        explained["now"]["text"].as_str().unwrap().to_owned()
    }
}

fn number(budget: &Value, key: &str) -> f64 {
    budget[key].as_f64().unwrap()
}

fleet_test!(
    forty_tasks_under_a_budget_of_a_dollar_get_what_it_pays_for_and_more_when_it_is_raised,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.1).await;
        fleet
            .set_budget("dollar", ("workerPools", POOL), "day", 1.0)
            .await;
        fleet.tasks(POOL, 40).await;
        fleet.round().await;
        // Each machine reserves an hour.
        assert_eq!(fleet.machines().len(), 10);
        let text = fleet.plan_text().await;
        let why = "an hour of it costs $0.10: budget dollar has $0 left";
        assert!(text.contains(why), "{text}");
        let explained = fleet.explain_pool(POOL).await;
        let budget = &explained["budgets"][0];
        assert_eq!(
            (&budget["left"], &budget["machines"]),
            (&json!(0.0), &json!(10))
        );
        // The explanation has the rest once, beside its decisions.
        let sentence = budget["text"].as_str().unwrap();
        for part in [
            "budget dollar (pp/ee): $0 of $1 a day are spent",
            "$1 are reserved for the next hour of 10 machines, $0 are left",
            "the next day begins at 2026-09-22T00:00:00.000Z, or raise the budget",
        ] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        let plans = explained["plans"].as_array().unwrap();
        for decision in plans.iter().chain([&explained["now"]]) {
            let text = decision["text"].as_str().unwrap();
            assert!(!text.contains("a day are spent"), "{text}");
        }
        let stored = fleet.plans(POOL).await.remove(0);
        assert!(
            stored.plan.to_string().contains("budget dollar"),
            "{}",
            stored.plan
        );
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 10);

        for worker in fleet.register_all(POOL).await {
            fleet.claim_with(&worker).await;
        }
        fleet.listen_ms(HOUR_MS);
        fleet.measure_budgets().await;
        let budget = fleet.budget("dollar").await;
        assert_eq!(
            (&budget["step"], &budget["left"]),
            (&json!("spent"), &json!(0.0))
        );
        assert!((number(&budget, "spent") - 1.0).abs() < 0.01, "{budget}");
        assert_eq!(
            fleet.budget_steps().await,
            ["dollar warned", "dollar lowered", "dollar spent"]
        );
        fleet.measure_budgets().await;
        assert_eq!(fleet.budget_steps().await, [""; 0]);
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 10);
        assert!(fleet.plan_text().await.contains("budget dollar"));
        // All machines go on.
        let states = fleet.states(POOL).await;
        assert!(states.contains("running"), "{states}");
        assert!(!states.contains("stop"), "{states}");

        let raised = fleet
            .set_budget("dollar", ("workerPools", POOL), "day", 3.0)
            .await;
        assert_eq!(raised["step"], "within");
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 20);
        assert!(number(&fleet.budget("dollar").await, "left") < 0.1);
    }
);

fleet_on_sqlite_first!(
    a_budget_of_zero_launches_nothing_and_the_pool_says_why,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.1).await;
        fleet
            .set_budget("none", ("workerPools", "*"), "month", 0.0)
            .await;
        assert_eq!(
            fleet.budget_steps().await,
            ["none warned", "none lowered", "none spent"]
        );
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 0);
        let text = fleet.plan_text().await;
        assert!(text.contains("budget none is spent"), "{text}");
        let budget = fleet.budget("none").await;
        let why = "budget none (every pool): $0 of $0 a month are spent, nothing is launched; the \
                   next month begins at 2026-10-01T00:00:00.000Z";
        let text = budget["text"].as_str().unwrap();
        assert!(text.starts_with(why), "{text}");
        fleet.delete("/budget/none").await.expect(200);
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 3);
    }
);

fleet_on_sqlite_first!(
    a_declared_host_does_not_keep_a_small_budget_from_its_first_machine,
    |fleet| {
        let bid = Bid {
            price: Some(2.0),
            ..Bid::plain("moon".to_owned())
        };
        fleet.one.fake.set_bid(&"a".parse().unwrap(), Some(bid));
        fleet
            .spread(0, 9, &[(machine("a"), "one"), (machine("b"), "static")])
            .await;
        let host = fleet.put("/workers/pp%2Fee/g/w1", static_worker());
        host.await.expect(200);
        fleet
            .set_budget("small", ("workerPools", POOL), "day", 1.0)
            .await;
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        let text = fleet.plan_text().await;
        assert_eq!(fleet.machines().len(), 1, "{text}");
        fleet.measure_budgets().await;
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 1, "{text}");
        // The host and the machine.
        assert_eq!(fleet.budget("small").await["machines"], json!(2));
    }
);

fleet_test!(
    a_budget_that_shrinks_below_what_is_spent_stops_launches_and_no_machine,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.5).await;
        fleet
            .set_budget("day", ("owner", "ops@example.com"), "day", 50.0)
            .await;
        fleet.busy(POOL, 4).await;
        fleet.listen_ms(HOUR_MS);
        let shrunk = fleet
            .set_budget("day", ("owner", "ops@example.com"), "day", 1.0)
            .await;
        assert_eq!(shrunk["step"], "spent", "{shrunk}");
        assert!((number(&shrunk, "spent") - 2.0).abs() < 0.01, "{shrunk}");
        fleet.tasks(POOL, 4).await;
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 4);
        assert_eq!(fleet.workers_in(POOL, "running").await.len(), 4);
        // Tomorrow's money.
        fleet.listen_ms(DAY_MS);
        fleet.measure_budgets().await;
        assert_eq!(
            fleet.budget("day").await["step"],
            "spent",
            "four machines ran on"
        );
    }
);

fleet_on_sqlite_first!(a_budget_of_a_provider_leaves_the_others_alone, |fleet| {
    fleet.priced_pool(POOL, "one", 0.1).await;
    fleet.priced_pool("pp/free", "three", 0.1).await;
    fleet
        .set_budget("azure", ("providerId", "one"), "hour", 0.2)
        .await;
    fleet.tasks(POOL, 5).await;
    fleet.tasks("pp/free", 5).await;
    fleet.round().await;
    assert_eq!(fleet.one.fake.n_machines(), 2);
    assert_eq!(fleet.three.fake.n_machines(), 5);
    let missing = fleet.put(
        "/budget/other",
        json!({"providerId": "nosuch", "per": "day", "limit": 1}),
    );
    assert_eq!(missing.await.status, 404);
});

fleet_on_sqlite_first!(the_maximum_is_lowered_before_all_is_spent, |fleet| {
    fleet.priced_pool(POOL, "one", 1.0).await;
    fleet
        .set_budget("day", ("workerPools", "pp/*"), "day", 100.0)
        .await;
    fleet.busy(POOL, 24).await;
    fleet.listen_ms(4 * HOUR_MS - 10 * MINUTE_MS);
    fleet.measure_budgets().await;
    assert_eq!(fleet.budget("day").await["step"], "lowered");
    fleet.tasks(POOL, 5).await;
    let text = fleet.plan_text().await;
    assert!(
        text.contains("maxCapacity 20 instead of 40: at least 90 % of budget day is spent"),
        "{text}"
    );
    assert!(
        text.contains("room for 0 under the maximum of 20"),
        "{text}"
    );
});

fleet_on_sqlite_first!(
    a_plan_under_a_budget_is_made_again_from_its_input,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.3).await;
        fleet
            .set_budget("dollar", ("workerPools", "pp/*"), "day", 1.0)
            .await;
        fleet.tasks(POOL, 9).await;
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 3);
        let pool = POOL.parse().unwrap();
        let record = fleet.plans(POOL).await.remove(0);
        let again = fleet.read(move |tx| Ok(fleet::replay(tx, &pool, record.number)));
        let again = again.await.unwrap().unwrap();
        assert_eq!(again.to_json().to_string(), record.plan.to_string());
    }
);

fleet_test!(
    a_clock_that_is_set_announces_each_step_of_a_period_once,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.1).await;
        fleet
            .set_budget("none", ("workerPools", "*"), "day", 0.0)
            .await;
        assert_eq!(fleet.budget_steps().await.len(), 3);
        for days in [1, -1, 0, 1, -1] {
            fleet.pass_ms(days * DAY_MS);
            fleet.measure_budgets().await;
        }
        // Of the day after, once.
        assert_eq!(
            fleet.budget_steps().await,
            ["none warned", "none lowered", "none spent"]
        );
    }
);

fleet_test!(a_launch_under_a_budget_costs_one_statement_more, |fleet| {
    fleet.priced_pool(POOL, "one", 0.1).await;
    fleet
        .set_budget("all", ("workerPools", "*"), "day", 100.0)
        .await;
    fleet.tasks(POOL, 20).await;
    let ((), counts) = fleet.counted(async { drop(fleet.round().await) }).await;
    assert_eq!(fleet.machines().len(), 20);
    assert_eq!(counts.statements("budget_update"), 1);
    let ((), counts) = fleet.counted(async { drop(fleet.round().await) }).await;
    assert_eq!(counts.statements("budget_update"), 0);
});

/// The sums of a budget are made while others write; only if one of them has launched under it,
/// they are made again by the transaction that writes them.
#[tokio::test]
async fn a_budget_is_summed_again_if_a_plan_has_launched_under_it_meanwhile() {
    let fleet = Fleet::open(Database::sqlite()).await;
    fleet
        .set_budget("all", ("workerPools", "*"), "day", 100.0)
        .await;
    let store = &fleet.app.engine.store;
    let n_sums = || store.take_counts().statements("budget_spent_by_accounts");
    for (is_launched, expected) in [(false, 1), (true, 2)] {
        n_sums();
        let (go_on, waiting) = std::sync::mpsc::channel();
        let other = fleet.write(move |tx| {
            waiting.recv().unwrap();
            if is_launched {
                let budget = store::budgets::get(tx, &"all".parse().unwrap())?.unwrap();
                store::budgets::update(tx, &budget)?;
            }
            Ok(())
        });
        let summed = async {
            let mut n_before = 0;
            while n_before == 0 {
                tokio::task::yield_now().await;
                n_before = n_sums();
            }
            go_on.send(()).unwrap();
            n_before
        };
        let ((), (), n_before) = tokio::join!(other, fleet.measure_budgets(), summed);
        assert_eq!(n_before + n_sums(), expected);
    }
}

fleet_on_sqlite_first!(
    a_budget_is_set_changed_listed_and_removed_with_its_history,
    |fleet| {
        let set = fleet
            .set_budget("b", ("workerPools", "pp/*"), "month", 3000.0)
            .await;
        assert_eq!(
            (&set["limit"], &set["lowerToPercent"]),
            (&json!(3000.0), &json!(50))
        );
        let again = fleet
            .set_budget("b", ("workerPools", "pp/*"), "month", 3000.0)
            .await;
        assert_eq!(set, again);
        fleet
            .set_budget("b", ("workerPools", "pp/*"), "month", 2999.5)
            .await;
        let listed = fleet.get("/budgets").await.expect(200);
        assert_eq!(listed["budgets"][0]["limit"], 2999.5);
        for (body, problem) in [
            (json!({"per": "day", "limit": 1}), "one scope"),
            (
                json!({"owner": "a", "workerPools": "*", "per": "day", "limit": 1}),
                "one scope",
            ),
            (
                json!({"workerPools": "a*", "per": "day", "limit": 1}),
                "neither a pool",
            ),
            (
                json!({"owner": "a", "per": "day", "limit": 1, "warnAtPercent": 95}),
                "in this order",
            ),
        ] {
            let refused = fleet.put("/budget/bad", body).await;
            assert_eq!(refused.status, 400, "{}", refused.text);
            assert!(refused.text.contains(problem), "{}", refused.text);
        }
        fleet.delete("/budget/b").await.expect(200);
        assert_eq!(fleet.get("/budget/b").await.status, 404);
        assert_eq!(fleet.delete("/budget/b").await.status, 404);
        let history = fleet.get("auth:/audit/budget/b").await.expect(200);
        let actions = history["auditHistory"].as_array().unwrap().iter();
        let actions: Vec<&str> = actions
            .map(|it| it["actionType"].as_str().unwrap())
            .collect();
        assert_eq!(actions.len(), 3, "{actions:?}");
    }
);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_under_one_budget_do_not_spend_it_twice() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let fleet = Fleet::open(database).await;
    let other = second(&fleet).await;
    fleet
        .set_budget("dollar", ("workerPools", "pp/*"), "day", 1.0)
        .await;
    for number in 0..20 {
        let id = format!("pp/pool-{number}");
        fleet.priced_pool(&id, "one", 0.1).await;
        fleet.tasks(&id, 3).await;
    }
    both_at_once(&fleet, &other).await;
    assert_eq!(fleet.machines().len(), 10);
    let budget = fleet.budget("dollar").await;
    assert_eq!(
        (&budget["machines"], &budget["reserved"]),
        (&json!(10), &json!(1.0))
    );
    fleet.pass_ms(15 * HOUR_MS);
    let measure = |app: &Arc<server::app::App>| {
        let mut task = Budgets(Arc::clone(&app.engine));
        tokio::spawn(async move { task.activate().await.unwrap() })
    };
    let (ours, theirs) = (measure(&fleet.app), measure(&other));
    ours.await.unwrap();
    theirs.await.unwrap();
    let mut steps = fleet.budget_steps().await;
    steps.sort_unstable();
    assert_eq!(steps, ["dollar lowered", "dollar spent", "dollar warned"]);
    other.engine.store.close().await;
}

#[tokio::test]
async fn only_so_many_budgets_exist() {
    for n_known in sizes_around("engine::budgets::MAX_BUDGETS", MAX_BUDGETS) {
        let fleet = Fleet::open(Database::sqlite()).await;
        let given = fleet
            .set_budget("a", ("workerPools", "*"), "day", 1.0)
            .await;
        assert_eq!(given["step"], "within");
        let made = fleet.write(move |tx| {
            let first = store::budgets::get(tx, &"a".parse().unwrap())?.unwrap();
            for number in 1..n_known {
                let id = format!("b{number}").parse().unwrap();
                store::budgets::insert(
                    tx,
                    &MoneyBudget {
                        id,
                        ..first.clone()
                    },
                )?;
            }
            if n_known == 0 {
                store::budgets::delete(tx, &first)?;
            }
            Ok(())
        });
        made.await;
        let body = json!({"owner": "ann", "per": "day", "limit": 1});
        let status = fleet.put("/budget/c", body).await.status;
        assert_eq!(status == 200, n_known < MAX_BUDGETS, "{n_known}: {status}");
    }
}

fleet_on_sqlite_first!(
    a_task_that_waits_for_money_names_the_budget_and_its_next_period,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.1).await;
        fleet
            .set_budget("dollar", ("workerPools", POOL), "day", 1.0)
            .await;
        let last = fleet.tasks(POOL, 40).await;
        fleet.round().await;
        let midnight: domain::time::Timestamp = "2026-09-22T00:00:00Z".parse().unwrap();
        let seconds = midnight.millis_since(fleet.now()) / 1_000;
        assert_eq!(fleet.why(last).await, ("budget".to_owned(), seconds));
        let waits = fleet.get(&format!("fleetwright:/explain/task/{}", task_id(last)));
        let explained = waits.await.expect(200);
        assert!(
            explained["reason"]
                .as_str()
                .unwrap()
                .contains("budget dollar (pp/ee)"),
            "{explained}"
        );
    }
);

fleet_on_sqlite_first!(
    a_task_in_a_pool_whose_maximum_is_lowered_waits_for_the_budget,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.1).await;
        let body = json!({"workerPools": POOL, "per": "day", "limit": 1.0, "warnAtPercent": 1,
        "lowerAtPercent": 1, "lowerToPercent": 5});
        fleet.put("/budget/low", body).await.expect(200);
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        for worker in fleet.register_all(POOL).await {
            fleet.claim_with(&worker).await;
        }
        fleet.listen_ms(6 * MINUTE_MS);
        fleet.measure_budgets().await;
        assert_eq!(fleet.budget("low").await["step"], "lowered");
        // The maximum is 2 instead of 40, and both machines work.
        let waiting = fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.why(waiting).await.0, "budget");
    }
);

/// The changes that would end the wait of this task.
async fn ways_out(fleet: &Fleet, task: u32) -> Vec<String> {
    let path = format!("fleetwright:/explain/task/{}", task_id(task));
    let explained = fleet.get(&path).await.expect(200);
    assert_eq!(explained["cause"], "budget");
    let changes = explained["changes"].as_array().unwrap().iter();
    let what = |change: &Value| change["what"].as_str().unwrap().to_owned();
    changes.map(what).collect()
}

fleet_on_sqlite_first!(
    only_money_that_is_reserved_comes_back_with_the_end_of_a_machine,
    |fleet| {
        let frees = "a machine ends and frees what is reserved for it";
        fleet.priced_pool(POOL, "one", 0.6).await;
        fleet
            .set_budget("hour", ("workerPools", POOL), "hour", 1.0)
            .await;
        let last = fleet.tasks(POOL, 2).await;
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 1);
        let ways = ways_out(fleet, last).await;
        assert!(ways.iter().any(|way| way == frees), "{ways:?}");
        fleet
            .set_budget("hour", ("workerPools", POOL), "hour", 0.0)
            .await;
        let ways = ways_out(fleet, last).await;
        assert!(!ways.iter().any(|way| way == frees), "{ways:?}");
        assert_eq!(ways.len(), 2, "{ways:?}");
    }
);

fleet_on_sqlite_first!(
    the_metrics_of_a_budget_are_those_of_the_last_measure,
    |fleet| {
        fleet.priced_pool(POOL, "one", 0.5).await;
        fleet
            .set_budget("day", ("workerPools", POOL), "day", 10.0)
            .await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        for minutes in [7, 19] {
            fleet.pass_ms(minutes * MINUTE_MS);
            fleet.measure_budgets().await;
            let budget = fleet.budget("day").await;
            let metrics = fleet.app.telemetry.render();
            for key in ["spent", "left", "limit"] {
                let value = number(&budget, key);
                let line =
                    format!("fleetwright_budget_{key}{{budgetId=\"day\",per=\"day\"}} {value}\n");
                assert!(metrics.contains(&line), "{line}: {budget}");
            }
        }
    }
);
