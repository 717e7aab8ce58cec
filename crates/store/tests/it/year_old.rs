//! A database as a large fleet leaves it after a year: no statement reads all of a table that
//! grows, unless a list says why.

use std::collections::{BTreeMap, BTreeSet};

use domain::cost::{CostGrouping, CostScope};
use domain::time::{DAY_MS, Timestamp};
use domain::waits::Grouping;
use store::year_old::YearOld;
use store::{
    Explanation, Joins, Store, budgets, claimed_tasks, configurations, cost_reports,
    image_rollouts, images, launch_configs, launches, overrides, pending_tasks, plans, pools,
    queue_workers, wait_accounts, workers,
};

use crate::samples::pool_id;
use crate::world::{Database, on_both, read};

const NOW_MS: i64 = 1_795_000_000_000;

/// Tables with fewer rows, in a database of this size, do not grow.
const FEW_ROWS: u64 = 200;

pub(crate) fn year() -> YearOld {
    YearOld {
        now: Timestamp::from_millis(NOW_MS),
        divisor: 20,
        seed: 7,
    }
}

/// Tables that are empty or small in every fleet.
const SMALL: [&str; 10] = [
    "event_readers",
    "event_stream",
    "observed_time",
    "processes",
    "revisions",
    "schema_migrations",
    "sqlite_sequence",
    "task_releases",
    "database_identity",
    "tree_owners",
];

/// Statements that may read all of a table, and why.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "a report, which sums over all accounts or all machines that run",
        &[
            "budget_spent_by_accounts",
            "budget_spent_by_machines",
            "cost_accrued",
            "cost_accrued_of_provider",
            "cost_charged",
            "cost_charged_of_provider",
            "cost_first_open",
            "cost_open",
            "cost_open_by_launch_config",
            "cost_open_by_launch_config_of",
            "cost_open_by_owner",
            "cost_open_by_owner_of",
            "cost_open_by_pool",
            "cost_open_by_pool_of",
            "cost_open_by_provider",
            "cost_open_by_provider_of",
            "cost_open_of",
            "cost_sum",
            "cost_sum_by_day",
            "cost_sum_by_day_of",
            "cost_sum_by_launch_config",
            "cost_sum_by_launch_config_of",
            "cost_sum_by_owner",
            "cost_sum_by_owner_of",
            "cost_sum_by_pool",
            "cost_sum_by_pool_of",
            "cost_sum_by_provider",
            "cost_sum_by_provider_of",
            "cost_sum_of",
            "error_cause_list_most",
            "error_cause_list_newest",
            "error_cause_pools_with_errors",
            "wait_account_pools",
            "wait_sum_by_cause",
            "wait_sum_by_cause_of",
            "wait_sum_by_owner",
            "wait_sum_by_owner_of",
            "wait_sum_by_pool",
            "wait_sum_by_pool_of",
        ],
    ),
    (
        "PostgreSQL expects few workers after the filters, and reads all that are live",
        &["all_worker_list"],
    ),
    (
        "it reads an index in its order, up to a limit",
        &[
            "audit_delete_before",
            "cost_oldest_hour",
            "launch_config_list_expirable",
            "offering_news_oldest",
            "recorded_run_first_too_many",
            "recorded_run_oldest",
            "recorded_worker_first_too_many",
            "task_wait_oldest",
        ],
    ),
    (
        "it reads all of a partial index, which has few rows: launches without an outcome, events \
         without a position, notices that are not sent, tasks that wait for other tasks, workers in \
         quarantine",
        &[
            "budget_machines_to_come",
            "event_last_waiting",
            "event_waiting",
            "event_waiting_sizes",
            "launch_config_delete_expirable",
            "launch_failures_between",
            "launch_health_between",
            "launch_pending_between",
            "launch_pending_by_offering",
            "launch_pending_providers",
            "launch_survivors",
            "launch_unsettled_providers",
            "notice_sent",
            "notice_update",
            "outbox_depth",
            "outbox_oldest_waiting",
            "pool_resources_is_used",
            "pool_resources_list_unused",
            "queue_worker_count_quarantined",
            "task_count_announced",
        ],
    ),
    (
        "it counts all that is live, for a metric each half minute, for a limit of a provider, or \
         for a person who asks about a task",
        &[
            "provider_worker_counts",
            "queue_worker_totals",
            "task_count_pending_total",
            "task_wait_sharers",
            "worker_count_by_state",
            "worker_live_machines",
        ],
    ),
    (
        "it counts all that is live, once a minute for the series, or for the status, which is read \
         once a second at most",
        &[
            "pool_wait_list",
            "series_count_costs",
            "series_count_requested",
            "series_count_tasks",
            "series_count_workers",
            "series_list_maxima",
        ],
    ),
    (
        "it tidies a table that is small because of that, every few minutes",
        &[
            "offering_news_delete_before",
            "pool_news_delete_orphans",
            "pool_wait_delete_orphans",
            "series_list_unused",
            "series_thin_maxima",
            "wait_boundary_crowded",
        ],
    ),
    (
        "it looks for accounts without rows, once a day, after rows of a day were deleted",
        &["cost_account_delete_unused", "wait_account_delete_unused"],
    ),
    (
        "PostgreSQL expects a hundred pools in the list, and reads the launches that were refused \
         once for all of them",
        &["started_worker_list_refused"],
    ),
];

/// The statements of a list with reasons.
pub(crate) fn names(list: &[(&str, &[&'static str])]) -> BTreeSet<&'static str> {
    let names = list.iter().flat_map(|(_, names)| *names);
    names.copied().collect()
}

pub(crate) fn check_names(names: &BTreeSet<&str>, explained: &[Explanation]) {
    let known: BTreeSet<&str> = explained.iter().map(|it| it.statement).collect();
    let unknown: Vec<_> = names.difference(&known).collect();
    assert!(unknown.is_empty(), "no statements: {unknown:?}");
}

pub(crate) async fn explain(store: &Store, joins: Joins) -> Vec<Explanation> {
    let explained = store.explain_statements(joins, year().now);
    explained.await.unwrap()
}

async fn tables_that_grow(store: &Store) -> BTreeSet<String> {
    let rows = store.count_rows().await.unwrap().into_iter();
    let grows = rows.filter(|(_, count)| *count >= FEW_ROWS);
    grows.map(|(table, _)| table).collect()
}

on_both!(
    year_old statements_do_not_read_all_of_a_table_that_grows,
    |database| {
        let store = database.open();
        let grows = tables_that_grow(&store).await;
        let explained = explain(&store, Joins::Lookups).await;
        assert!(explained.len() > 400, "{}", explained.len());
        let allowed = names(ALLOWED);
        let mut found = String::new();
        for explanation in &explained {
            let scans = full_scans(explanation, &grows);
            if !scans.is_empty() && !allowed.contains(explanation.statement) {
                found += &format!("{}: {}\n", explanation.statement, scans.join("; "));
            }
        }
        assert!(
            found.is_empty(),
            "these read all of a table; add an index, or a reason to ALLOWED:\n{found}"
        );
        check_names(&allowed, &explained);
    }
);

// A round plans its looks for their values, and PostgreSQL may then join tables in any way. Only
// two of them could then read the workers and claims of all other pools.
#[tokio::test]
async fn a_look_at_some_pools_reads_no_others_when_postgres_joins_whole_tables() {
    let Some(database) = Database::year_old_postgres() else {
        return;
    };
    let store = database.open();
    let grows = tables_that_grow(&store).await;
    let explained = explain(&store, Joins::Reads).await;
    // Limits on claims, too, would let PostgreSQL read all claims of the queue for each worker, and
    // limits on workers, too, all workers of the pool for each that is quarantined.
    let unlimited = [
        "worker_supply_quarantined_between",
        "worker_supply_fresh_between",
        "worker_supply_silent_between",
    ];
    let looks = explained.iter().filter(|it| {
        let is_look = it.statement.ends_with("_between");
        is_look && !names(ALLOWED).contains(it.statement) && !unlimited.contains(&it.statement)
    });
    let mut n_looks = 0;
    for look in looks {
        n_looks += 1;
        let scans = full_scans(look, &grows);
        assert_eq!(scans, Vec::<String>::new(), "{}", look.statement);
    }
    assert!(n_looks > 8, "{n_looks}");
}

// An index that begins with the queue and the time of the claim has the smallest time first, and
// looks quick: but a worker of a large pool may be the last of thousands in it.
on_both!(
    year_old a_machine_is_charged_by_the_claims_of_its_own_worker,
    |database| {
        let store = database.open();
        let explained = explain(&store, Joins::Lookups).await;
        let due = explained.iter().find(|it| it.statement == "meter_list_due");
        let plan = due.unwrap().lines.join("\n");
        assert!(plan.contains("claimed_tasks_of_worker"), "{plan}");
        assert!(!plan.contains("claimed_tasks_of_queue"), "{plan}");
    }
);

// A page of pools has tens of thousands of workers; sorting them takes longer than reading them.
// PostgreSQL sorts, or groups with a hash table, as it expects few or many.
on_both!(
    year_old workers_are_counted_from_an_index_and_sqlite_does_not_sort_them,
    |database| {
        let store = database.open();
        let explained = explain(&store, Joins::Lookups).await;
        for (name, index) in [
            ("worker_supply_between", "workers_supply"),
            ("worker_counts_by_launch_config", "workers_counted"),
        ] {
            let counted = explained.iter().find(|it| it.statement == name);
            let plan = counted.unwrap().lines.join("\n");
            assert!(plan.contains(index), "{name}: {plan}");
            assert!(!plan.contains("FOR GROUP BY"), "{name}: {plan}");
        }
    }
);

#[test]
fn full_scans_are_found_in_the_plans_of_both_databases() {
    let grows = ["workers", "tasks"].map(str::to_owned).into();
    let scans = |lines: &[&str]| {
        let explanation = Explanation {
            statement: "one",
            sql: "SELECT w.state FROM workers AS w CROSS JOIN pools AS p".to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        full_scans(&explanation, &grows).len()
    };
    for full in [
        &["SCAN w"] as &[&str],
        &["SCAN tasks USING COVERING INDEX tasks_expiring"],
        &[
            "Sort  (cost=1)",
            "  ->  Seq Scan on workers w  (cost=1 rows=2)",
            "   Filter: (a = 1)",
        ],
        &[
            "Index Only Scan using workers_pkey on workers w  (cost=1)",
            "  Heap Fetches: 1",
        ],
        &[
            "Bitmap Heap Scan on tasks",
            "  ->  Bitmap Index Scan on tasks_expiring  (cost=1)",
        ],
    ] {
        assert_eq!(scans(full), 1, "{full:?}");
    }
    for bounded in [
        &[
            "SCAN p",
            "SEARCH w USING INDEX workers_newest (worker_pool_id=?)",
        ] as &[&str],
        &["SCAN v VIRTUAL TABLE INDEX 1:", "SCAN CONSTANT ROW"],
        &["Seq Scan on pools p  (cost=1)"],
        &[
            "Index Scan using workers_pkey on workers w  (cost=1)",
            "  Index Cond: (a = 1)",
        ],
        &[
            "Bitmap Heap Scan on tasks",
            "  ->  Bitmap Index Scan on x  (cost=1)",
            "   Index Cond: (a)",
        ],
    ] {
        assert_eq!(scans(bounded), 0, "{bounded:?}");
    }
}

/// The lines of a plan that read all of a table or of an index.
fn full_scans(explanation: &Explanation, grows: &BTreeSet<String>) -> Vec<String> {
    let lines: Vec<&str> = explanation.lines.iter().map(|line| line.trim()).collect();
    let aliases = aliases(&explanation.sql);
    let is_full = |(number, line): &(usize, &&str)| {
        let next = lines.get(number + 1).copied().unwrap_or_default();
        match line.strip_prefix("SCAN ") {
            Some(rest) if rest.contains("VIRTUAL TABLE") => false,
            Some(rest) => {
                let alias = rest.split(' ').next().unwrap_or_default();
                grows.contains(aliases.get(alias).copied().unwrap_or(alias))
            }
            None if line.contains("Bitmap Index Scan on ") => !next.starts_with("Index Cond"),
            None if line.contains("Scan") && !line.contains("Bitmap Heap Scan") => {
                let table = line.split(" on ").nth(1).unwrap_or_default();
                let table = table.split(' ').next().unwrap_or_default();
                grows.contains(table) && !next.starts_with("Index Cond")
            }
            None => false,
        }
    };
    let full = lines.iter().enumerate().filter(is_full);
    full.map(|(_, line)| line.split("  (cost").next().unwrap_or_default().to_owned())
        .collect()
}

/// The table of each alias.
fn aliases(sql: &str) -> BTreeMap<&str, &str> {
    let words: Vec<&str> = sql
        .split([' ', '(', ')', ',', '\n'])
        .filter(|word| !word.is_empty())
        .collect();
    let aliases = words.windows(3).filter(|three| three[1] == "AS");
    aliases.map(|three| (three[2], three[0])).collect()
}

on_both!(year_old every_table_has_rows_after_a_year, |database| {
    let store = database.open();
    let rows = store.count_rows().await.unwrap();
    let empty = rows.iter().filter(|(table, count)| {
        let is_small = SMALL.contains(&table.as_str());
        **count == 0 && !is_small
    });
    let empty: Vec<_> = empty.map(|(table, _)| table).collect();
    assert!(empty.is_empty(), "fill them in src/year_old/: {empty:?}");
    assert_eq!(rows["workers"], 250_000 / 20);
    assert_eq!(rows["pending_tasks"], 500_000 / 20);
    assert_eq!(rows["tasks"], 1_600_000 / 20);
});

on_both!(year_old the_rows_of_a_year_are_read_like_any_other, |database| {
    let store = database.open();
    let now = year().now;
    let counts = read(&store, move |tx| {
        let pool = pool_id("year/pool-0");
        let kept = pools::get(tx, &pool)?.unwrap();
        let rollout = image_rollouts::get(tx, &"image-1".parse().unwrap())?;
        assert!(rollout.unwrap().standing.promoted.is_some());
        let waiting = pending_tasks::next(tx, &pool, now, 100)?.items;
        assert!(
            waiting
                .iter()
                .all(|task| task.definition.task_queue_id == pool)
        );
        let claimed = claimed_tasks::list(tx, &pool, None, 100)?.items;
        let group = "zone-1".parse().unwrap();
        let live = workers::list_live(tx, kept.provider_ids().next().unwrap(), &group, None, 100)?;
        let since = now.start_of(DAY_MS).plus_millis(-30 * DAY_MS);
        let costs = cost_reports::lines(tx, CostGrouping::Pool, &CostScope::All, since, now)?;
        let days = (DAY_MS, since, now);
        let waits = wait_accounts::sums(tx, Grouping::Pool, days, None)?;
        Ok([
            waiting.len(),
            claimed.len(),
            live.len(),
            launch_configs::list(tx, &pool, true, None, 100)?.len(),
            launches::list(tx, &pool, 100)?.len(),
            plans::list(tx, &pool, 100)?.len(),
            queue_workers::list(tx, &pool, None, now, None, 100)?.len(),
            budgets::list_all(tx)?.len(),
            images::list(tx, None, 100)?.len(),
            configurations::list(tx, None, 100)?.len(),
            overrides::list(tx, now, true, None, 100)?.len(),
            costs.len(),
            waits.len(),
        ])
    });
    let expected = [100, 100, 100, 26, 100, 100, 100, 10, 5, 2, 100, 40, 80];
    assert_eq!(counts.await, expected);
});
