//! The fake cloud passes the contract, and fails as scripted.

mod images;
mod places;

use std::sync::Arc;

use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::pool::Pool;
use futures_util::FutureExt as _;
use serde_json::json;

use super::*;
use crate::tests::suite::{self, Fixture, contract};
use crate::tests::values::{Case, ROOT_URL, TestClock, context_at, edit, worker};
use crate::{Proof, ValidateError};
use domain::worker::{StoredWorker, WorkerState};

const TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
const OTHER_TOKEN: &str = "BBBBBBBBQQCBBBBBBBBBBQ";

/// A fake cloud with its clock, and one pool.
struct World {
    clock: Arc<TestClock>,
    cloud: FakeCloud,
}

impl World {
    fn new() -> Self {
        Self::with(FakeSettings::default())
    }

    fn with(settings: FakeSettings) -> Self {
        let clock = TestClock::new();
        let cloud = FakeCloud::new(context_at("fake", &clock), settings);
        Self { clock, cloud }
    }

    fn pool(&self) -> Pool {
        suite::pool(self, json!({}))
    }

    fn launch_config(&self, content: Value) -> LaunchConfig {
        suite::launch_config(&self.pool(), 0, content.as_object().unwrap().clone())
    }

    fn small(&self) -> LaunchConfig {
        self.launch_config(json!({"region": "moon", "workerManager": {"launchConfigId": "small"}}))
    }

    async fn launch(
        &self,
        config: &LaunchConfig,
        token: &str,
        machines: u32,
    ) -> Result<Vec<Worker>, LaunchError> {
        let (pool, token) = (self.pool(), token.parse().unwrap());
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: config,
            machines,
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: self.cloud.now(),
        };
        let launched = self.cloud.launch(&order).await?;
        let row = |launched| suite::row(self, &pool, config, launched);
        Ok(launched.into_iter().map(row).collect())
    }

    async fn seen(&self, worker: &Worker) -> Sighting {
        let seen = self.cloud.look(std::slice::from_ref(worker)).await.unwrap();
        seen.into_iter().next().unwrap().1
    }
}

#[async_trait]
impl Fixture for World {
    fn provider(&self) -> &dyn Provider {
        &self.cloud
    }

    fn id(&self) -> ProviderId {
        "fake".parse().unwrap()
    }

    fn root_url(&self) -> String {
        ROOT_URL.to_owned()
    }

    fn now(&self) -> Timestamp {
        self.cloud.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 10, "lifecycle": {}, "launchConfigs": [
            {"workerConfig": {}, "bootSeconds": 3},
            {"workerConfig": {}, "stock": 0, "price": 0.5},
        ]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        Some("/launchConfigs/0/region")
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["launchConfigs"][1]["stock"] = json!(-1);
        (config, "/launchConfigs/1/stock")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        let content = json!({"workerConfig": {}, "stock": 0});
        Some((content, Cause::Capacity))
    }

    fn proof(&self, worker: &Worker) -> Proof {
        Proof::Token(self.cloud.identity_token(&worker.key))
    }

    async fn foreigner(&self) -> Option<Worker> {
        let worker = worker(WorkerState::Running);
        self.cloud.add_foreign(worker.key.clone());
        Some(worker)
    }

    async fn foreigner_lives(&self, worker: &Worker) -> bool {
        let machines = self.cloud.machines();
        machines.iter().any(|machine| machine.key == worker.key)
    }

    async fn settle(&self) {
        self.clock.advance_ms(1_000);
    }
}

#[tokio::test]
async fn the_fake_cloud_keeps_the_contract() {
    contract(&World::new()).await;
}

#[tokio::test]
async fn the_contract_holds_also_with_delays_stale_answers_and_duplicates() {
    let world = World::new();
    world.cloud.set_lag_ms(5_000);
    world.cloud.set_stop_ms(7_000);
    world.cloud.set_repeats_itself(true);
    contract(&world).await;
}

#[tokio::test]
async fn a_lost_answer_leaves_machines_that_are_found_by_their_token() {
    let world = World::new();
    world.cloud.next_launches([LaunchOutcome::AnswerLost]);
    let lost = world.launch(&world.small(), TOKEN, 2).await;
    assert!(matches!(lost, Err(LaunchError::Unknown(_))));
    let token: LaunchToken = TOKEN.parse().unwrap();
    let owned = world.cloud.owned().await.unwrap().machines;
    assert_eq!(owned.len(), 2);
    assert!(
        owned
            .iter()
            .all(|machine| machine.token.as_ref() == Some(&token))
    );
    let again = world.launch(&world.small(), TOKEN, 2).await.unwrap();
    assert_eq!(again.len(), 2);
    assert_eq!(world.cloud.n_machines(), 2);
    assert_eq!(world.cloud.n_launch_calls(&token), 2);
    assert_eq!(world.cloud.n_made_by(&token), 2);
}

#[tokio::test]
async fn a_lost_call_makes_nothing_and_looks_the_same() {
    let world = World::new();
    world.cloud.next_launches([LaunchOutcome::CallLost]);
    let lost = world.launch(&world.small(), TOKEN, 2).await;
    assert!(matches!(lost, Err(LaunchError::Unknown(_))));
    assert_eq!(world.cloud.owned().await.unwrap().machines, []);
    assert_eq!(world.cloud.n_calls(Call::Launch), 1);
}

#[tokio::test]
async fn every_refusal_has_the_cause_that_was_scripted() {
    let world = World::new();
    for cause in Cause::ALL {
        world.cloud.next_launches([LaunchOutcome::Refused(cause)]);
        match world.launch(&world.small(), TOKEN, 1).await {
            Err(LaunchError::Refused { cause: told, .. }) => assert_eq!(told, cause),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.cloud.n_machines(), 0);
    assert_eq!(
        world.launch(&world.small(), TOKEN, 1).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn a_throttled_cloud_refuses_also_a_token_that_it_knows() {
    let world = World::new();
    world.launch(&world.small(), TOKEN, 1).await.unwrap();
    world.cloud.next_launches([
        LaunchOutcome::Refused(Cause::Throttled),
        LaunchOutcome::Refused(Cause::Capacity),
    ]);
    assert!(world.launch(&world.small(), TOKEN, 1).await.is_err());
    // Not for lack of stock: the machines of this token exist.
    assert_eq!(
        world.launch(&world.small(), TOKEN, 1).await.unwrap().len(),
        1
    );
    assert_eq!(world.cloud.n_machines(), 1);
}

#[tokio::test]
async fn stock_is_limited_by_launch_config_and_region_and_in_total() {
    let world = World::with(FakeSettings {
        stock: Some(5),
        ..FakeSettings::default()
    });
    world.cloud.set_stock("small", 3);
    world.cloud.set_stock("moon", 4);
    let large = world.launch_config(json!({"region": "moon", "size": "large"}));
    let elsewhere = world.launch_config(json!({"region": "mars"}));
    let bids = |config: &LaunchConfig| {
        let bid = world.cloud.first_bid(config, world.cloud.now());
        bid.unwrap().available
    };
    assert_eq!(bids(&world.small()), Some(3));
    let made = world.launch(&world.small(), TOKEN, 9).await.unwrap();
    assert_eq!((made.len(), bids(&world.small())), (3, Some(0)));
    assert_eq!(world.launch(&large, OTHER_TOKEN, 9).await.unwrap().len(), 1);
    assert_eq!(
        world
            .launch(&elsewhere, "CCCCCCCCQQCCCCCCCCCCCQ", 9)
            .await
            .unwrap()
            .len(),
        1
    );
    world.cloud.end(&made[0]).await.unwrap();
    world.cloud.end(&made[0]).await.unwrap();
    assert_eq!(bids(&world.small()), Some(1));
    world.cloud.kill(&made[1].key);
    assert_eq!((bids(&world.small()), bids(&elsewhere)), (Some(2), Some(2)));
}

#[tokio::test]
async fn a_launch_may_make_fewer_machines_than_ordered() {
    let world = World::new();
    world
        .cloud
        .next_launches([LaunchOutcome::Partial(2), LaunchOutcome::Partial(0)]);
    assert_eq!(
        world.launch(&world.small(), TOKEN, 5).await.unwrap().len(),
        2
    );
    assert!(world.launch(&world.small(), OTHER_TOKEN, 5).await.is_err());
}

#[tokio::test]
async fn a_machine_starts_in_its_time_or_never_or_dies() {
    let world = World::with(FakeSettings {
        boot_seconds: 30,
        ..FakeSettings::default()
    });
    world.cloud.next_launches([
        LaunchOutcome::Made,
        LaunchOutcome::NeverUp,
        LaunchOutcome::Dying(60_000),
    ]);
    let mut workers = Vec::new();
    for token in [TOKEN, OTHER_TOKEN, "CCCCCCCCQQCCCCCCCCCCCQ"] {
        workers.extend(world.launch(&world.small(), token, 1).await.unwrap());
    }
    let up = || {
        workers
            .iter()
            .map(|it| world.cloud.is_up(&it.key))
            .collect::<Vec<_>>()
    };
    assert_eq!(up(), [false, false, false]);
    world.clock.advance_ms(30_000);
    assert_eq!(up(), [true, false, true]);
    world.clock.advance_ms(30_000);
    assert_eq!(up(), [true, false, false]);
    assert_eq!(world.seen(&workers[1]).await, Sighting::Alive);
    assert!(matches!(world.seen(&workers[2]).await, Sighting::Ended(_)));
    assert_eq!(world.cloud.n_machines(), 2);
    assert_eq!(world.cloud.machines().len(), 2);
}

#[tokio::test]
async fn a_stale_cloud_does_not_find_new_machines_and_still_shows_ended_ones() {
    let world = World::new();
    world.cloud.set_lag_ms(10_000);
    let worker = world
        .launch(&world.small(), TOKEN, 1)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(world.seen(&worker).await, Sighting::NotFound);
    assert_eq!(world.cloud.owned().await.unwrap().machines, []);
    world.clock.advance_ms(10_000);
    assert_eq!(world.seen(&worker).await, Sighting::Alive);
    world.cloud.kill(&worker.key);
    assert_eq!(world.seen(&worker).await, Sighting::Alive);
    assert_eq!(world.cloud.owned().await.unwrap().machines.len(), 1);
    world.clock.advance_ms(10_000);
    assert!(matches!(world.seen(&worker).await, Sighting::Ended(_)));
}

#[tokio::test]
async fn a_machine_that_ends_slowly_is_seen_ending_and_later_forgotten() {
    let world = World::new();
    world.cloud.set_stop_ms(60_000);
    let worker = world
        .launch(&world.small(), TOKEN, 1)
        .await
        .unwrap()
        .remove(0);
    world.cloud.end(&worker).await.unwrap();
    assert_eq!(world.seen(&worker).await, Sighting::Ending);
    world.clock.advance_ms(59_999);
    // A second call does not restart the time.
    world.cloud.end(&worker).await.unwrap();
    world.clock.advance_ms(1);
    assert!(matches!(world.seen(&worker).await, Sighting::Ended(_)));
    world.clock.advance_ms(3_600_000);
    assert_eq!(world.seen(&worker).await, Sighting::NotFound);
    assert_eq!(world.cloud.n_made_by(&TOKEN.parse().unwrap()), 0);
}

#[tokio::test]
async fn an_answer_comes_when_the_clock_says_so() {
    let world = World::new();
    world.cloud.set_answer_delay_ms(5_000);
    let config = world.small();
    let mut answer = Box::pin(world.launch(&config, TOKEN, 1));
    assert!(answer.as_mut().now_or_never().is_none());
    assert_eq!(
        world.cloud.n_machines(),
        1,
        "the machine exists before the response"
    );
    world.clock.advance_ms(4_999);
    world.cloud.clock_moved();
    assert!(answer.as_mut().now_or_never().is_none());
    world.clock.advance_ms(1);
    world.cloud.clock_moved();
    assert_eq!(answer.await.unwrap().len(), 1);
}

#[tokio::test]
async fn each_call_fails_as_scripted_and_then_works_again() {
    let world = World::new();
    let worker = world
        .launch(&world.small(), TOKEN, 1)
        .await
        .unwrap()
        .remove(0);
    let busy = || CloudError::Throttled("later".to_owned());
    for call in [Call::Look, Call::Owned, Call::End, Call::Refresh] {
        world.cloud.fail_next(call, busy());
    }
    let workers = std::slice::from_ref(&worker);
    assert_eq!(world.cloud.look(workers).await, Err(busy()));
    assert_eq!(world.cloud.owned().await, Err(busy()));
    assert_eq!(world.cloud.end(&worker).await, Err(busy()));
    assert_eq!(world.cloud.refresh().await, Err(busy()));
    assert_eq!(world.seen(&worker).await, Sighting::Alive);
    world.cloud.refresh().await.unwrap();
    world.cloud.end(&worker).await.unwrap();
    assert_eq!(world.cloud.n_calls(Call::End), 2);
    // A script that was cleared has no effect.
    world.cloud.fail_next(Call::Owned, busy());
    world.cloud.decide_with(|_| LaunchOutcome::CallLost);
    assert!(world.launch(&world.small(), OTHER_TOKEN, 1).await.is_err());
    world.cloud.behave();
    assert!(world.launch(&world.small(), OTHER_TOKEN, 1).await.is_ok());
    assert_eq!(world.cloud.owned().await.unwrap().machines.len(), 1);
}

#[tokio::test]
async fn bids_have_prices_from_the_launch_config_the_settings_or_the_script() {
    let world = World::with(FakeSettings {
        price: Some(0.25),
        ..FakeSettings::default()
    });
    let plain = world.small();
    let priced = world.launch_config(json!({"region": "mars", "price": 0.5}));
    let scripted = world.launch_config(json!({"price": 0.5, "x": 1}));
    let silent = world.launch_config(json!({"x": 2}));
    world.cloud.set_price(&scripted.id, 2.0);
    world.cloud.set_silent(&silent.id, Some("sold out"));
    let bids = |configs: Vec<LaunchConfig>| {
        let configs = configs.into_iter();
        let bids = configs.map(|it| world.cloud.first_bid(&it, world.cloud.now()));
        bids.collect::<Vec<_>>()
    };
    let told = bids(vec![plain, priced, scripted, silent.clone()]);
    let of = |bid: &Result<Bid, String>| bid.clone().map(|bid| (bid.place, bid.price));
    assert_eq!(
        told.iter().map(of).collect::<Vec<_>>(),
        [
            Ok(("moon".to_owned(), Some(0.25))),
            Ok(("mars".to_owned(), Some(0.5))),
            Ok(("fake".to_owned(), Some(2.0))),
            Err("sold out".to_owned()),
        ]
    );
    world.cloud.set_silent(&silent.id, None);
    assert!(bids(vec![silent])[0].is_ok());
}

#[tokio::test]
async fn a_scripted_bid_is_made_as_it_is_and_others_say_what_is_configured() {
    let world = World::new();
    let bid = |config: &LaunchConfig| world.cloud.first_bid(config, world.cloud.now()).unwrap();
    let config = world.launch_config(json!({"bootSeconds": 40, "reliability": 0.9}));
    let usual = bid(&config);
    assert_eq!(
        (usual.ready_ms, usual.reliability),
        (Some(40_000), Some(0.9))
    );
    let nonsense = Bid {
        price: Some(-7.0),
        utility: f64::NEG_INFINITY,
        reliability: Some(9.0),
        ready_ms: Some(-1),
        expires: Some(Timestamp::from_millis(0)),
        data: json!({"a": 1}).as_object().unwrap().clone(),
        ..Bid::plain("nowhere".to_owned())
    };
    world.cloud.set_bid(&config.id, Some(nonsense.clone()));
    assert_eq!(bid(&config), nonsense);
    world.cloud.set_bid(&config.id, None);
    assert_eq!(bid(&config), usual);
}

#[tokio::test]
async fn a_worker_of_another_pool_with_the_same_name_is_not_found_and_not_ended() {
    let world = World::new();
    let mut worker = world
        .launch(&world.small(), TOKEN, 1)
        .await
        .unwrap()
        .remove(0);
    edit(&mut worker, |it| {
        it.key.pool_id = "another/pool".parse().unwrap()
    });
    assert_eq!(world.seen(&worker).await, Sighting::NotFound);
    world.cloud.end(&worker).await.unwrap();
    assert_eq!(world.cloud.n_machines(), 1);
}

#[test]
fn each_kind_of_config_is_checked_by_its_own_schema() {
    let mut config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [],
        "lifecycle": {"queueInactivityTimeout": 2}});
    for accepts in [
        AcceptedConfig::Aws,
        AcceptedConfig::Azure,
        AcceptedConfig::Fake,
        AcceptedConfig::Google,
    ] {
        let world = World::with(FakeSettings {
            accepts,
            ..FakeSettings::default()
        });
        let invalid = world.cloud.validate(&mut config).unwrap_err();
        assert_eq!(invalid.schema, accepts.schema());
        let message = ValidateError::from(invalid).to_string();
        assert!(
            message.contains("queueInactivityTimeout must be >= 1200"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_worker_proves_itself_once() {
    let world = World::new();
    let worker = worker(WorkerState::Requested);
    let case = |state| Case {
        proof: Proof::Token(world.cloud.identity_token(&worker.key)),
        worker: Worker::from_stored(StoredWorker {
            state,
            ..worker.clone().into_stored()
        }),
        config: json!({}),
    };
    let verified = case(WorkerState::Requested).verify(&world.cloud).await;
    assert!(verified.is_ok());
    let refused = case(WorkerState::Running)
        .verify(&world.cloud)
        .await
        .unwrap_err();
    assert_eq!(refused.message, "Token validation error");
}

/// A benchmark keeps a fleet of this size here; quadratic cost would show at once.
#[tokio::test]
async fn a_hundred_thousand_machines_are_cheap() {
    let world = World::new();
    let config = world.small();
    let mut workers = Vec::new();
    for number in 0..1_000 {
        let token = format!("{number:08}QQCAAAAAAAAAAQ");
        workers.extend(world.launch(&config, &token, 100).await.unwrap());
    }
    assert_eq!(world.cloud.n_machines(), 100_000);
    for batch in workers.chunks(world.cloud.look_batch()) {
        let seen = world.cloud.look(batch).await.unwrap();
        assert!(seen.iter().all(|(_, it)| *it == Sighting::Alive));
    }
    let keys: Vec<WorkerKey> = workers.iter().map(|worker| worker.key.clone()).collect();
    keys.iter().for_each(|key| world.cloud.kill(key));
    assert_eq!(world.cloud.n_machines(), 0);
}
