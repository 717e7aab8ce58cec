//! The contract of all providers that make machines, as one test suite.
//!
//! A provider's tests implement [`Fixture`] and call [`contract`]. The suite uses only the traits.

use std::collections::BTreeSet;

use access::Secret;
use domain::Version;
use domain::id::{LaunchToken, WorkerGroup, WorkerId, WorkerKey};
use domain::launch_config::{LaunchConfig, id_of, split_off};
use domain::pool::{Pool, PoolDefinition};
use domain::worker::{NewWorker, StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Map, Value, json};

use super::conformance::a_conformance_run_finds_no_fault;
pub(crate) use super::fixture::Fixture;
use crate::{
    IdentityClaim, LaunchError, LaunchOrder, LaunchedMachine, Machines, Proof, ProofRefused,
    Sighting, ValidateError, Verification, VerifyError, place,
};

/// Looks until a cloud has done what it was asked, at most.
const MAX_LOOKS: usize = 1_000;

/// Runs all checks. Each leaves the cloud empty for the next one.
pub(crate) async fn contract(fixture: &dyn Fixture) {
    set_up_twice_is_set_up(fixture).await;
    validation_writes_defaults_and_refuses_with_pointers(fixture).await;
    every_launch_config_gets_a_bid(fixture).await;
    a_conformance_run_finds_no_fault(fixture, pool(fixture, fixture.config())).await;
    places_are_stable_and_valid_and_fit_a_launch_config(fixture).await;
    launched_machines_are_seen_and_listed_and_end(fixture).await;
    many_end_by_one_call_and_a_foreign_one_spoils_none(fixture).await;
    an_unknown_machine_is_not_found_and_ends_with_success(fixture).await;
    machines_of_others_are_left_alone(fixture).await;
    a_refusal_has_its_cause(fixture).await;
    only_the_right_proof_registers_and_only_once(fixture).await;
}

/// One pool with its launch configs, and the orders to launch them.
struct Order<'a> {
    fixture: &'a dyn Fixture,
    pool: Pool,
    launch_config: LaunchConfig,
    token: LaunchToken,
    root_url: String,
    bid_data: Map<String, Value>,
}

impl<'a> Order<'a> {
    /// Orders for the fixture's first launch config. `token` identifies the launch.
    async fn new(fixture: &'a dyn Fixture, token: &str) -> Self {
        let mut config = valid(fixture, fixture.config()).await;
        let mut launch_configs = launch_configs(&mut config);
        let pool = pool(fixture, config);
        Self {
            fixture,
            launch_config: launch_config(&pool, 0, launch_configs.remove(0)),
            pool,
            token: token.parse().expect("the token is a slugid"),
            root_url: fixture.root_url(),
            bid_data: Map::new(),
        }
    }

    fn order(&self, machines: u32) -> LaunchOrder<'_> {
        LaunchOrder {
            token: &self.token,
            pool: &self.pool,
            launch_config: &self.launch_config,
            machines,
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &self.bid_data,
            pool_data: &Value::Null,
            root_url: &self.root_url,
            now: self.fixture.now(),
        }
    }

    async fn launch(&self, machines: u32) -> Vec<Worker> {
        let launched = self.machines().launch(&self.order(machines)).await;
        let launched = launched.expect("the fixture's config can be launched");
        launched.into_iter().map(|it| self.row(it)).collect()
    }

    fn row(&self, launched: LaunchedMachine) -> Worker {
        row(self.fixture, &self.pool, &self.launch_config, launched)
    }

    fn machines(&self) -> &'a dyn Machines {
        machines(self.fixture)
    }

    async fn wait_alive(&self, workers: &[Worker]) {
        self.wait_for(workers, &Sighting::Alive).await;
    }

    /// Looks until all have this sighting.
    async fn wait_for(&self, workers: &[Worker], wanted: &Sighting) {
        let mut last = Vec::new();
        for _ in 0..MAX_LOOKS {
            last = self
                .machines()
                .look(workers)
                .await
                .expect("the call succeeds");
            let seen = |worker: &Worker| {
                last.iter()
                    .any(|(key, it)| *key == worker.key && it == wanted)
            };
            if workers.iter().all(seen) {
                return;
            }
            self.fixture.settle().await;
        }
        panic!("not all were seen {wanted:?}: {last:?}");
    }

    /// Ends them repeatedly until they have ended: the background task that ends workers does not
    /// remember its earlier calls.
    async fn end(&self, workers: &[Worker]) {
        for _ in 0..MAX_LOOKS {
            for worker in workers {
                self.machines()
                    .end(worker)
                    .await
                    .expect("ending succeeds, also repeatedly");
            }
            let seen = self
                .machines()
                .look(workers)
                .await
                .expect("the call succeeds");
            if seen.len() >= workers.len() && seen.iter().all(|(_, it)| has_ended(it)) {
                return;
            }
            self.fixture.settle().await;
        }
        panic!(
            "not all have ended: {:?}",
            self.machines().look(workers).await
        );
    }

    async fn owns(&self, wanted: &[Worker]) {
        let wanted = keys(wanted);
        let mut last = BTreeSet::new();
        for _ in 0..MAX_LOOKS {
            let owned = self
                .machines()
                .owned()
                .await
                .expect("the call succeeds")
                .machines;
            let mine = owned
                .into_iter()
                .filter(|it| it.token.as_ref() == Some(&self.token));
            last = mine.map(|it| (it.machine.group, it.machine.id)).collect();
            if last == wanted {
                return;
            }
            self.fixture.settle().await;
        }
        assert_eq!(last, wanted, "the machines with the token {}", self.token);
    }
}

async fn set_up_twice_is_set_up(fixture: &dyn Fixture) {
    for _ in 0..2 {
        fixture.provider().setup().await.expect("set-up works");
    }
}

async fn validation_writes_defaults_and_refuses_with_pointers(fixture: &dyn Fixture) {
    let config = valid(fixture, fixture.config()).await;
    if let Some(pointer) = fixture.default_pointer() {
        assert_eq!(fixture.config().pointer(pointer), None, "{pointer}");
        assert!(config.pointer(pointer).is_some(), "no default at {pointer}");
    }
    assert_eq!(
        valid(fixture, config.clone()).await,
        config,
        "defaults are written once"
    );
    let (mut wrong, pointer) = fixture.wrong_config();
    let invalid = match validate(fixture, &mut wrong).await {
        Err(ValidateError::Invalid(invalid)) => invalid,
        other => panic!("the invalid config is not refused as invalid: {other:?}"),
    };
    let named = invalid
        .problems
        .iter()
        .any(|error| error.pointer == pointer);
    assert!(named, "no error at {pointer}: {invalid}");
}

async fn every_launch_config_gets_a_bid(fixture: &dyn Fixture) {
    let mut config = valid(fixture, fixture.config()).await;
    let contents = launch_configs(&mut config);
    let pool = pool(fixture, config);
    for (content, position) in contents.into_iter().zip(0..) {
        let launch_config = launch_config(&pool, position, content);
        let mut bid = machines(fixture).first_bid(&launch_config, fixture.now());
        if bid.is_err() && machines(fixture).wants_refresh() {
            machines(fixture)
                .refresh()
                .await
                .expect("the provider works");
            bid = machines(fixture).first_bid(&launch_config, fixture.now());
        }
        assert_eq!(bid.map(|_| ()), Ok(()), "{position}");
    }
}

async fn places_are_stable_and_valid_and_fit_a_launch_config(fixture: &dyn Fixture) {
    let provider = fixture.provider();
    let (places, fills) = (
        provider.places().expect("the places are known"),
        provider.fills(),
    );
    assert_eq!(provider.places(), Ok(places.clone()));
    place::check(&places, &fills).expect("the places are valid");
    // The first and the last place are enough: some clouds call a service for each.
    for place in places.first().into_iter().chain(places.last()) {
        let mut config = fixture.config();
        let launch_config = &mut config["launchConfigs"][0];
        for (name, pointer) in &fills {
            if let Some(value) = place.get(name) {
                put(launch_config, pointer, value);
            }
        }
        valid(fixture, config).await;
    }
}

/// Sets the value, and makes the objects around it.
pub(crate) fn put(mut within: &mut Value, pointer: &str, value: &str) {
    for key in pointer.split('/').skip(1) {
        within = &mut within[key.replace("~1", "/").replace("~0", "~")];
    }
    *within = json!(value);
}

async fn launched_machines_are_seen_and_listed_and_end(fixture: &dyn Fixture) {
    let order = Order::new(fixture, "AAAAAAAAQQCAAAAAAAAAAQ").await;
    let workers = order.launch(2).await;
    assert_eq!(workers.len(), 2);
    assert_ne!(workers[0].key, workers[1].key);
    order.wait_alive(&workers).await;
    order.owns(&workers).await;
    order.end(&workers[..1]).await;
    order.wait_alive(&workers[1..]).await;
    order.end(&workers).await;
    order.owns(&[]).await;
}

async fn many_end_by_one_call_and_a_foreign_one_spoils_none(fixture: &dyn Fixture) {
    let order = Order::new(fixture, "HHHHHHHHQQCHHHHHHHHHHQ").await;
    let workers = order.launch(3).await;
    order.wait_alive(&workers).await;
    let mut unknown = workers[0].clone();
    edit(&mut unknown, |it| {
        it.key.id = fixture.unknown_id().parse().expect("it is an id")
    });
    let foreigner = fixture.foreigner().await;
    let mut some = vec![workers[0].clone(), unknown];
    some.extend(foreigner.clone());
    some.push(workers[1].clone());
    let machines = order.machines();
    assert_eq!(machines.end_many(&[]).await, []);
    assert!(machines.end_batch() >= 1);
    for _ in 0..MAX_LOOKS {
        let results = machines.end_many(&some).await;
        assert_eq!(results.len(), some.len(), "one result for each worker");
        assert_eq!((&results[0], results.last()), (&Ok(()), Some(&Ok(()))));
        assert_eq!(results[1], Ok(()), "what is not there has ended");
        let seen = machines
            .look(&workers[..2])
            .await
            .expect("the call succeeds");
        if seen.len() == 2 && seen.iter().all(|(_, it)| has_ended(it)) {
            break;
        }
        fixture.settle().await;
    }
    if let Some(foreigner) = foreigner {
        assert!(fixture.foreigner_lives(&foreigner).await);
    }
    order.wait_alive(&workers[2..]).await;
    order.end(&workers).await;
    order.owns(&[]).await;
}

async fn an_unknown_machine_is_not_found_and_ends_with_success(fixture: &dyn Fixture) {
    let order = Order::new(fixture, "CCCCCCCCQQCCCCCCCCCCCQ").await;
    let workers = order.launch(1).await;
    order.wait_alive(&workers).await;
    let mut unknown = workers[0].clone();
    edit(&mut unknown, |it| {
        it.key.id = fixture.unknown_id().parse().expect("it is an id")
    });
    let nobody = std::slice::from_ref(&unknown);
    order.wait_for(nobody, &Sighting::NotFound).await;
    order
        .machines()
        .end(&unknown)
        .await
        .expect("what is not there has ended");
    order.wait_alive(&workers).await;
    order.end(&workers).await;
}

async fn machines_of_others_are_left_alone(fixture: &dyn Fixture) {
    let Some(foreigner) = fixture.foreigner().await else {
        return;
    };
    let machines = machines(fixture);
    for _ in 0..2 {
        let owned = machines.owned().await.expect("the call succeeds").machines;
        let listed = owned
            .iter()
            .any(|it| it.machine.id == foreigner.key.id && it.token.is_some());
        assert!(!listed, "{} is listed as ours", foreigner.key);
        // The call may fail or have no effect; the machine must stay.
        let _ = machines.end(&foreigner).await;
        fixture.settle().await;
        assert!(
            fixture.foreigner_lives(&foreigner).await,
            "{} was ended",
            foreigner.key
        );
    }
}

async fn a_refusal_has_its_cause(fixture: &dyn Fixture) {
    let Some((content, wanted)) = fixture.unlaunchable() else {
        return;
    };
    let mut order = Order::new(fixture, "DDDDDDDDQQCDDDDDDDDDDQ").await;
    let content = content
        .as_object()
        .cloned()
        .expect("a launch config is an object");
    order.launch_config = launch_config(&order.pool, 1, content);
    match order.machines().launch(&order.order(1)).await {
        Err(LaunchError::Refused { cause, error }) => {
            assert_eq!(cause, wanted, "{error}");
            assert!(!error.is_empty());
        }
        other => panic!("not refused: {other:?}"),
    }
    order.owns(&[]).await;
}

async fn only_the_right_proof_registers_and_only_once(fixture: &dyn Fixture) {
    let order = Order::new(fixture, "EEEEEEEEQQCEEEEEEEEEEQ").await;
    let workers = order.launch(2).await;
    order.wait_alive(&workers).await;
    let (mut worker, other) = (workers[0].clone(), &workers[1]);
    edit(&mut worker, |it| {
        it.terms.worker_config = Some(json!({"for": "this one"}));
        it.terms.reregistration_timeout = Some(60_000);
    });
    let right = fixture.proof(&worker);
    for wrong in [
        Proof::Token(Secret::new("x")),
        Proof::StaticSecret(Secret::new("x".repeat(44))),
        Proof::Document(json!("x")),
        Proof::SignedDocument {
            document: json!("{}"),
            signature: Secret::new("x"),
        },
        fixture.proof(other),
    ] {
        let refused = verify(fixture, &order.pool, &worker, &wrong)
            .await
            .expect_err("the proof is wrong");
        assert!(!refused.detail.is_empty(), "our log contains the reason");
        assert!(!refused.message.is_empty() && refused.message != refused.detail);
    }
    let verified = verify(fixture, &order.pool, &worker, &right)
        .await
        .expect("the proof is right");
    assert_eq!(verified.lasts_ms, 60_000);
    assert_eq!(verified.worker_config, json!({"for": "this one"}));
    for state in [
        WorkerState::Running,
        WorkerState::Stopping,
        WorkerState::Stopped,
    ] {
        edit(&mut worker, |it| it.state = state);
        let again = verify(fixture, &order.pool, &worker, &right).await;
        again.expect_err("a worker registers once");
    }
    order.end(&workers).await;
}

/// Changes any field of a worker, also where no move does.
pub(crate) fn edit(worker: &mut Worker, change: impl FnOnce(&mut StoredWorker)) {
    let mut stored = worker.clone().into_stored();
    change(&mut stored);
    *worker = Worker::from_stored(stored);
}

/// The names that a provider chooses.
fn keys(workers: &[Worker]) -> BTreeSet<(WorkerGroup, WorkerId)> {
    let key = |worker: &Worker| (worker.key.group.clone(), worker.key.id.clone());
    workers.iter().map(key).collect()
}

fn has_ended(sighting: &Sighting) -> bool {
    match sighting {
        Sighting::Ended(_) | Sighting::NotFound => true,
        Sighting::Alive | Sighting::Ending => false,
    }
}

fn machines(fixture: &dyn Fixture) -> &dyn Machines {
    fixture
        .provider()
        .machines()
        .expect("the provider makes machines")
}

async fn validate(fixture: &dyn Fixture, config: &mut Value) -> Result<(), ValidateError> {
    fixture.provider().validate(config)?;
    fixture.provider().validate_outside(config).await
}

async fn valid(fixture: &dyn Fixture, mut config: Value) -> Value {
    let judged = validate(fixture, &mut config).await;
    judged.expect("the fixture's config is valid");
    config
}

async fn verify(
    fixture: &dyn Fixture,
    pool: &Pool,
    worker: &Worker,
    proof: &Proof,
) -> Result<Verification, ProofRefused> {
    let claim = IdentityClaim {
        pool,
        worker,
        launch_config: None,
        proof,
        now: fixture.now(),
    };
    match fixture.provider().verify(&claim).await {
        Ok(verified) => Ok(verified),
        Err(VerifyError::Refused(refused)) => Err(refused),
        Err(VerifyError::Cloud(error)) => panic!("the proof cannot be checked: {error}"),
    }
}

fn launch_configs(config: &mut Value) -> Vec<Map<String, Value>> {
    let config = config.as_object_mut().expect("a config is an object");
    split_off(config).expect("its launch configs are objects")
}

/// The pool `test/pool` with this config, without launch configs.
pub(crate) fn pool(fixture: &dyn Fixture, config: Value) -> Pool {
    let Value::Object(config) = config else {
        panic!("a config is an object");
    };
    let definition = PoolDefinition {
        provider_id: fixture.id(),
        further_provider_ids: Vec::new(),
        description: "A pool for tests.".to_owned(),
        config,
        owner: "ops@example.com".to_owned(),
        email_on_error: false,
    };
    let id = "test/pool".parse().expect("it is a pool's id");
    Pool::new(id, definition, fixture.now())
}

/// The launch config with this content, like the store would return it.
pub(crate) fn launch_config(
    pool: &Pool,
    position: u32,
    configuration: Map<String, Value>,
) -> LaunchConfig {
    LaunchConfig {
        pool_id: pool.id.clone(),
        id: id_of(&pool.id, &configuration).expect("the id is valid"),
        archived: false,
        position,
        configuration,
        created: pool.created,
        last_modified: pool.created,
        version: Version::FIRST,
    }
}

/// The row of a machine after its launch.
pub(crate) fn row(
    fixture: &dyn Fixture,
    pool: &Pool,
    config: &LaunchConfig,
    launched: LaunchedMachine,
) -> Worker {
    let now = fixture.now();
    let new = NewWorker {
        key: WorkerKey {
            pool_id: pool.id.clone(),
            group: launched.group,
            id: launched.id,
        },
        provider_id: fixture.id(),
        launch_config_id: Some(config.id.clone()),
        capacity: 1,
        price: None,
        expires: now.plus_millis(Worker::DEFAULT_LIFE_MS),
        terms: Terms::default(),
        provider_data: launched.provider_data,
    };
    new.request(now)
}
