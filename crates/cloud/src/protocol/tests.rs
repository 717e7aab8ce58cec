//! Batch sizes of requests to a protocol provider, and its answers.

mod bidding;
mod images;
mod optional;
mod quantity;

use ::testing::sizes_around;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::worker::WorkerState;

use super::bidding::BID_BATCH;
use super::*;
use crate::tests::suite::launch_config;
use crate::tests::values::{ROOT_URL, context, edit, now, pool, worker};

/// Succeeds always, and records the requests.
#[derive(Default)]
struct Recorder(Mutex<Vec<Value>>);

impl Recorder {
    /// The length of this list in each request.
    fn sizes(&self, list: &str) -> Vec<usize> {
        let asked = self.0.lock().unwrap();
        let lists = asked
            .iter()
            .filter_map(|question| question[list].as_array());
        lists.map(Vec::len).collect()
    }
}

#[async_trait]
impl Transport for Recorder {
    fn kind(&self) -> &'static str {
        "recorder"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let question: Value = serde_json::from_slice(&question).unwrap();
        let entries = |list: &str| question[list].as_array().unwrap().iter();
        let answer = match operation {
            Operation::Bids => {
                let price = |wanted: &Value| json!({"price": wanted["launchConfig"]["price"]});
                json!({"bids": entries("launchConfigs").map(price).collect::<Vec<_>>()})
            }
            Operation::Launch => {
                let made = |identity: &Value| json!({"workerGroup": identity["workerGroup"], "workerId": identity["workerId"]});
                json!({"machines": entries("identities").map(made).collect::<Vec<_>>()})
            }
            Operation::Look => {
                let seen = |worker: &Value| {
                    json!({"workerPoolId": worker["workerPoolId"], "workerGroup": worker["workerGroup"],
                        "workerId": worker["workerId"], "state": "alive"})
                };
                json!({"sightings": entries("workers").map(seen).collect::<Vec<_>>()})
            }
            Operation::Setup
            | Operation::Validate
            | Operation::Owned
            | Operation::End
            | Operation::Verify
            | Operation::UploadImage
            | Operation::FindImage
            | Operation::DeleteImage
            | Operation::OwnedImages
            | Operation::CreateWorker
            | Operation::UpdateWorker
            | Operation::PreparePool
            | Operation::ReleasePool
            | Operation::Terminate => panic!("unexpected question: {}", operation.as_str()),
        };
        self.0.lock().unwrap().push(question);
        Ok(Answer {
            done: true,
            body: answer.to_string().into_bytes(),
            outline: String::new(),
            cause: None,
            log: None,
        })
    }
}

fn provider() -> ProtocolProvider<Recorder> {
    ProtocolProvider::new_over(context("racks"), Recorder::default())
}

fn some_pool() -> Pool {
    pool(&worker(WorkerState::Running), &json!({}))
}

fn config_of(pool: &Pool, content: Value) -> LaunchConfig {
    launch_config(pool, 0, content.as_object().unwrap().clone())
}

/// The sizes of the batches of `count` items; the last may be smaller.
fn batches(count: usize, batch: usize) -> Vec<usize> {
    let starts = (0..count).step_by(batch);
    starts.map(|start| batch.min(count - start)).collect()
}

#[tokio::test]
async fn many_launch_configs_are_asked_about_in_batches_and_each_gets_its_own_bid() {
    let pool = some_pool();
    for count in sizes_around("cloud::protocol::bidding::BID_BATCH", BID_BATCH) {
        let numbered = |number: usize| config_of(&pool, json!({"price": number}));
        let launch_configs: Vec<_> = (0..count).map(numbered).collect();
        let provider = provider();
        let prices = || -> Vec<Option<f64>> {
            let price = |it| provider.first_bid(it, now()).ok()?.price;
            launch_configs.iter().map(price).collect()
        };
        assert_eq!(prices(), vec![None; count]);
        provider.ask_for_bids().await.unwrap();
        let own = |config: &LaunchConfig| config.configuration["price"].as_f64();
        assert_eq!(prices(), launch_configs.iter().map(own).collect::<Vec<_>>());
        let asked = provider.transport.sizes("launchConfigs");
        assert_eq!(asked, batches(count, BID_BATCH));
    }
}

#[tokio::test]
async fn looks_have_the_default_batch_size_until_the_provider_sets_one() {
    let most = DEFAULT_LOOK_BATCH;
    for count in sizes_around("cloud::protocol::DEFAULT_LOOK_BATCH", most) {
        let provider = provider();
        let named = |number: usize| {
            let mut worker = worker(WorkerState::Running);
            edit(&mut worker, |it| {
                it.key.id = format!("w{number}").parse().unwrap()
            });
            worker
        };
        let workers: Vec<Worker> = (0..count).map(named).collect();
        let mut seen = Vec::new();
        // In batches, like a scan.
        for some in workers.chunks(provider.look_batch()) {
            seen.extend(provider.look(some).await.unwrap());
        }
        let all = workers.iter().map(|it| (it.key.clone(), Sighting::Alive));
        assert_eq!(seen, all.collect::<Vec<_>>());
        let asked = provider.transport.sizes("workers");
        assert_eq!(asked, batches(count, DEFAULT_LOOK_BATCH));
    }
}

#[tokio::test]
async fn an_order_above_the_limit_is_cut() {
    let (pool, most) = (some_pool(), usize::try_from(MAX_MACHINES).unwrap());
    let config = config_of(&pool, json!({}));
    let token = "AAAAAAAAQQCAAAAAAAAAAQ".parse().unwrap();
    let sizes = sizes_around("cloud::protocol::MAX_MACHINES", most);
    // An order is for at least one machine.
    for count in sizes.into_iter().filter(|count| *count > 0) {
        let provider = provider();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: u32::try_from(count).unwrap(),
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &serde_json::Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: now(),
        };
        let launched = provider.launch(&order).await.unwrap();
        assert_eq!(launched.len(), count.min(most));
        let asked = provider.transport.0.lock().unwrap().remove(0);
        assert_eq!(asked["machines"], count.min(most));
    }
}

#[tokio::test]
async fn a_launch_gives_back_the_price_and_the_data_of_the_bid_that_won() {
    let (pool, token) = (some_pool(), "AAAAAAAAQQCAAAAAAAAAAQ".parse().unwrap());
    let config = config_of(&pool, json!({}));
    let provider = provider();
    let ask = async |price: Option<f64>, data: Value| {
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: 1,
            capacity_each: 1,
            max_price: None,
            price,
            bid_data: data.as_object().unwrap(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: now(),
        };
        provider.launch(&order).await.unwrap();
        provider.transport.0.lock().unwrap().remove(0)
    };
    let asked = ask(Some(0.5), json!({"ticket": 7})).await;
    assert_eq!(asked["bid"], json!({"price": 0.5, "data": {"ticket": 7}}));
    let schemas = &provider.context.schemas;
    let schema = "fleetwright/v1/provider-launch-request.json";
    assert_eq!(schemas.check(schema, &asked), Ok(()));
    assert_eq!(
        ask(None, json!({"t": 1})).await["bid"],
        json!({"data": {"t": 1}})
    );
    // A provider whose bids carry no data gets the request of before.
    assert_eq!(ask(Some(0.5), json!({})).await.get("bid"), None);
}
