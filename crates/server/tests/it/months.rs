//! Months of a fleet, with retentions of days: the number of rows of every table levels off.
//!
//! Each day has a pool, workers, a queue, a client and a launch config of its own, which only live
//! for that day.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::image::ImageDefinition;
use domain::time::HOUR_MS;
use engine::images::use_build;
use serde_json::json;
use server::background::driver::BackgroundTask;
use server::background::{
    ArtifactCleanup, Budgets, Costs, EventPublisher, Housekeeping, Learner, Notifier, Outcomes,
    Overrides, QueueClaims, QueueDeadlines, QueueHousekeeping, QueueReleases, WaitAccounts,
};
use server::config::Config;

use crate::configurations::{BUILD, build, zones};
use crate::database::Database;
use crate::documentation;
use crate::fleet_learned::{in_region, learning_pool};
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, pool};
use crate::image_samples::referring;
use crate::notices::{hook, report};
use crate::queue_samples::task_id;
use crate::receivers::Inbox;
use crate::samples::DAY_MS;
use crate::world::KEEPING;

const MONTH: u32 = 30;
/// More than steps of budgets are kept.
const MONTHS: u32 = 5;
/// Its machines boot from builds of an image, of which each day brings one.
const IMAGED: &str = "images/one";
/// Without those that depend on others.
const TASKS_OF_DAY: u32 = 7;
/// Numbers of tasks that depend on the first task of their day.
const FIRST_DEPENDENT: u32 = 10_000;
const SCAN_MS: i64 = 20_000;
/// Deadlines of the day, and its overrides, are over by then.
const EVENING_MS: i64 = 13 * HOUR_MS;

/// Tables that these months do not fill, or only for moments: the tree, roles, and the rows of
/// tasks and machines that wait for the next look at them.
const UNUSED: &[&str] = &[
    "claimed_tasks",
    "metered_runs",
    "offering_news",
    "pool_news",
    "points",
    "pool_resources",
    "processes",
    "recorded_gaps",
    "relays",
    "roles",
    "secrets",
    "series",
    "series_maxima",
    "series_times",
    "sessions",
    "sqlite_sequence",
    "task_releases",
    "tree_nodes",
    "database_identity",
    "tree_owners",
];

/// Every bound is reached in the first months.
fn short(config: &mut Config) {
    zones(config);
    config.worker_manager.error_retention_days = 3;
    config.worker_manager.audit_retention_days = 10;
    config.worker_manager.version_retention_days = 10;
    config.worker_manager.cost_retention_days = 32;
    config.fleet.history_days = 10;
    config.fleet.recording_days = 5;
}

struct Months<'f> {
    fleet: &'f Fleet,
    day: u32,
    /// One of so many days is like that; nothing happens on the others.
    every: u32,
    waits: WaitAccounts,
    artifacts: ArtifactCleanup,
    notifier: Notifier,
    image: ImageDefinition,
    /// The most rows of each table in each month.
    most: Vec<BTreeMap<String, u64>>,
}

async fn activate(mut task: impl BackgroundTask) {
    task.activate().await.unwrap();
}

impl Months<'_> {
    async fn day(&mut self) {
        let (fleet, day) = (self.fleet, self.day);
        let (made, queue) = (format!("day/pool-{day}"), format!("lost/queue-{day}"));
        let mut definition = learning_pool(4, &["east"]);
        definition["config"]["shadowStrategy"] = json!("aws-provisioner");
        fleet.make_pool(&made, definition).await;
        let mut edited = in_region("west");
        edited["workerManager"]["launchConfigId"] = json!(format!("config-{day}"));
        fleet.change_pool(POOL, pool("one", 0, 4, &[edited])).await;
        fleet.tasks(&queue, 1).await;
        let first = task_id(1 + TASKS_OF_DAY * (day / self.every));
        let after = json!({"taskQueueId": queue, "dependencies": [first],
            "deadline": fleet.now().plus_millis(12 * HOUR_MS).to_string()});
        fleet.created(FIRST_DEPENDENT + day, after).await;
        self.edit().await;
        self.write_of_day().await;
        self.work(&made).await;
        activate(Budgets(Arc::clone(&fleet.app.engine))).await;
        self.work(POOL).await;
        self.begin_canary().await;
        self.count().await;
        self.end_canary().await;
        let budget = format!("/budget/day-{day}");
        fleet.delete(&budget).await.expect(200);
        fleet.delete_pool(&made).await;
        fleet.pass_ms(EVENING_MS);
        fleet.scan().await;
        self.keep_house().await;
        self.count().await;
        fleet.pass_ms(i64::from(self.every) * DAY_MS - EVENING_MS - 5 * MINUTE_MS);
        self.keep_house().await;
        self.count().await;
        self.day += self.every;
    }

    /// People change rules, images, budgets, overrides and clients.
    async fn edit(&self) {
        let (fleet, day) = (self.fleet, self.day);
        let tomorrow = fleet.now().plus_millis(DAY_MS).to_string();
        let client = json!({"expires": tomorrow, "description": "", "deleteOnExpiration": true});
        let path = format!("auth:/clients/day-{day}");
        fleet.put(&path, client).await.expect(200);
        let mut rules = build();
        rules["description"] = json!(format!("day {day}"));
        fleet.post(BUILD, rules).await.expect(200);
        let image = json!({"description": format!("day {day}"), "build": {"command": ["make"]},
            "formats": ["raw"], "uploads": [{"providerId": "one"}]});
        let path = format!("fleetwright:/image/image-{}", day / self.every % 2);
        fleet.put(&path, image).await.expect(200);
        fleet.delete(&path).await.expect(200);
        let until = fleet.now().plus_millis(HOUR_MS).to_string();
        let body = json!({"workerPoolId": "worker-manager/build-opt", "pause": true,
            "reason": "prices", "until": until});
        fleet
            .put(&format!("/override/day-{day}"), body)
            .await
            .expect(200);
        let purge = json!({"cacheName": format!("cache-{day}")});
        let path = format!("purge-cache:/purge-cache/{}", POOL.replace('/', "%2F"));
        fleet.post(&path, purge).await.expect(204);
    }

    /// A budget and a page for the pool of the day, and an error of a cause of its own.
    async fn write_of_day(&self) {
        let (fleet, day) = (self.fleet, self.day);
        let budget = json!({"workerPools": format!("day/pool-{day}"), "per": "day", "limit": 1.5,
            "warnAtPercent": 1});
        let path = format!("/budget/day-{day}");
        fleet.put(&path, budget).await.expect(200);
        let path = format!("/worker-type/day%2Fpool-{day}/documentation");
        documentation::put(fleet, &path, &[]).await;
        // Numbers in a title do not tell causes apart.
        let letter = |digit: char| char::from_digit(digit.to_digit(10).unwrap() + 10, 36).unwrap();
        let name: String = day.to_string().chars().map(letter).collect();
        let title = format!("Disk {name} is full");
        report(fleet, POOL, "host", &title, "no room").await;
    }

    /// The builds of the day before and of this day.
    fn builds(&self) -> [u64; 2] {
        let number = u64::from(self.day / self.every) + 1;
        [number, number + 1]
    }

    /// The build of this day gets a share of the machines.
    async fn begin_canary(&self) {
        self.fleet.roll_out(&self.image, &self.builds()).await;
        self.work(IMAGED).await;
        let rollout = self.fleet.roll_out(&self.image, &self.builds()).await;
        assert!(rollout.canary.is_some(), "{:?}", rollout.standing);
    }

    /// A person uses that build.
    async fn end_canary(&self) {
        let fleet = self.fleet;
        let facts = fleet.facts(&self.image, &self.builds()).await;
        let decision = fleet.decision(self.builds()[1]);
        use_build(&fleet.app.engine, facts, decision).await.unwrap();
        fleet.roll_out(&self.image, &self.builds()).await;
    }

    /// Workers take two tasks. One ends and has an artifact, the other is lost with its machine.
    async fn work(&self, pool: &str) {
        let fleet = self.fleet;
        fleet.tasks(pool, 2).await;
        fleet.round().await;
        let workers = fleet.register_all(pool).await;
        let [worker, lost, ..] = &workers[..] else {
            panic!("{} workers of {pool} on day {}", workers.len(), self.day);
        };
        let claim = fleet.claim_with(worker).await;
        fleet.claim_with(lost).await;
        fleet.listen_ms(MINUTE_MS);
        let task = claim["status"]["taskId"].as_str().unwrap();
        let path = format!("queue:/task/{task}/runs/0/artifacts/public%2Flog");
        let expires = fleet.now().plus_millis(HOUR_MS).to_string();
        let artifact = json!({"storageType": "reference", "url": "https://x.example",
            "contentType": "text/plain", "expires": expires});
        fleet.post(&path, artifact).await.expect(200);
        fleet.complete(&claim).await;
        fleet.leave(worker).await;
        for other in &workers {
            fleet.kill(&other.key);
        }
        fleet.listen_ms(MINUTE_MS);
        fleet.scan().await;
        fleet.end().await;
    }

    async fn keep_house(&mut self) {
        let (app, engine) = (&self.fleet.app, &self.fleet.app.engine);
        activate(Overrides(Arc::clone(engine))).await;
        activate(Budgets(Arc::clone(engine))).await;
        activate(QueueClaims(Arc::clone(engine))).await;
        activate(QueueDeadlines(Arc::clone(engine))).await;
        activate(QueueReleases(Arc::clone(engine))).await;
        activate(EventPublisher(Arc::clone(app))).await;
        self.notifier.activate().await.unwrap();
        activate(Learner::new(Arc::clone(engine), SCAN_MS)).await;
        self.waits.activate().await.unwrap();
        activate(Outcomes(Arc::clone(app))).await;
        activate(Costs(Arc::clone(engine))).await;
        let queue = QueueHousekeeping::new(Arc::clone(engine));
        queue.in_batches(KEEPING).await.unwrap();
        self.artifacts.activate().await.unwrap();
        let house = Housekeeping::new(Arc::clone(app));
        house.in_batches(KEEPING).await.unwrap();
    }

    async fn count(&mut self) {
        let most = &mut self.most[(self.day / MONTH) as usize];
        for (table, rows) in self.fleet.app.engine.store.count_rows().await.unwrap() {
            let before = most.entry(table).or_default();
            *before = rows.max(*before);
        }
    }
}

async fn pass(database: Database, every: u32) {
    let fleet = Fleet::open_with(database, short).await;
    let mut waits = WaitAccounts::new(Arc::clone(&fleet.app));
    waits.forget.accounts = [(HOUR_MS, 2 * DAY_MS), (DAY_MS, 10 * DAY_MS)];
    let inbox = Inbox::open().await;
    let mut notifier = Notifier::new(Arc::clone(&fleet.app), hook(&inbox, &["*"]));
    notifier.activate().await.unwrap();
    let image = fleet.make_image(json!({"share": 0.5})).await;
    fleet
        .make_pool(IMAGED, pool("one", 0, 4, &[referring()]))
        .await;
    fleet.roll_out(&image, &[1]).await;
    let mut months = Months {
        fleet: &fleet,
        day: 0,
        every,
        waits,
        artifacts: ArtifactCleanup::new(Arc::clone(&fleet.app.engine)),
        notifier,
        image,
        most: vec![BTreeMap::new(); MONTHS as usize],
    };
    fleet
        .make_pool(POOL, pool("one", 0, 4, &[in_region("west")]))
        .await;
    fleet.put(BUILD, build()).await.expect(200);
    while months.day < MONTHS * MONTH {
        months.day().await;
    }
    let [.., before, last] = &months.most[..] else {
        panic!("there are several months");
    };
    let grown = last
        .iter()
        .filter(|(table, rows)| **rows > before[*table])
        .map(|(table, rows)| format!("{table} grew from {} to {rows}", before[table]));
    let empty = last
        .iter()
        .filter(|(table, rows)| **rows == 0 && !UNUSED.contains(&table.as_str()))
        .map(|(table, _)| format!("nothing happened in {table}"));
    let wrong: Vec<String> = grown.chain(empty).collect();
    assert!(wrong.is_empty(), "{wrong:#?} of {:#?}", months.most);
}

mod after_four_months_no_table_grows {
    use super::{Database, pass};

    async fn run(database: Database) {
        pass(database, 10).await;
    }

    crate::database::on_databases!(sqlite_first, tokio::test);
}

mod after_four_months_of_days_no_table_grows {
    mod long {
        use super::super::{Database, pass};

        #[tokio::test]
        async fn sqlite() {
            pass(Database::sqlite(), 1).await;
        }
    }
}
