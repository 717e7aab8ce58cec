//! Optional operations: a provider is asked only for those that it lists, and its data is bounded.

use domain::worker::WorkerState;

use super::*;
use crate::protocol::workers::MAX_DATA_BYTES;
use crate::tests::values::{context, pool, worker};
use crate::{PoolResourceMaker as _, WorkerOrder};

/// Lists these operations, and answers with data of this length. Records the requests.
struct Scripted {
    operations: Value,
    filler: usize,
    asked: Mutex<Vec<(&'static str, Value)>>,
}

#[async_trait]
impl Transport for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let question = serde_json::from_slice(&question).unwrap();
        self.asked
            .lock()
            .unwrap()
            .push((operation.as_str(), question));
        let data = json!({"d": "x".repeat(self.filler)});
        let answer = match operation.as_str() {
            "setup" => json!({"operations": self.operations}),
            "prepare-pool" => json!({"data": data}),
            "create-worker" | "update-worker" => json!({"providerData": data}),
            _ => json!({}),
        };
        Ok(Answer {
            done: true,
            body: answer.to_string().into_bytes(),
            outline: String::new(),
            cause: None,
            log: None,
        })
    }
}

async fn provider(operations: Value, filler: usize) -> ProtocolProvider<Scripted> {
    let scripted = Scripted {
        operations,
        filler,
        asked: Mutex::default(),
    };
    let provider = ProtocolProvider::new_over(context("racks"), scripted);
    provider.setup().await.unwrap();
    provider
}

fn asked(provider: &ProtocolProvider<Scripted>) -> Vec<&'static str> {
    let asked = provider.transport.asked.lock().unwrap();
    asked.iter().map(|(operation, _)| *operation).collect()
}

#[tokio::test]
async fn a_provider_is_asked_only_for_the_optional_operations_that_it_lists() {
    let plain = provider(json!([]), 0).await;
    assert!(plain.creator().is_none() && plain.pool_resources().is_none());
    plain.terminate().await.unwrap();
    assert_eq!(asked(&plain), ["setup"]);
    // A provider that cannot release makes nothing.
    let half = provider(json!(["prepare-pool"]), 0).await;
    assert!(half.pool_resources().is_none());
    let all = json!(["create-worker", "prepare-pool", "release-pool", "terminate"]);
    let all = provider(all, 0).await;
    assert!(all.creator().is_some() && all.pool_resources().is_some());
    all.terminate().await.unwrap();
    assert_eq!(asked(&all), ["setup", "terminate"]);
    let worker = worker(WorkerState::Running);
    let (creator, nothing) = (all.creator().unwrap(), serde_json::Map::new());
    let refused = creator.update_worker(&worker, &nothing);
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("does not list update-worker"), "{refused}");
}

#[tokio::test]
async fn requests_and_answers_fit_their_schemas_and_data_comes_back() {
    let operations = json!([
        "create-worker",
        "update-worker",
        "prepare-pool",
        "release-pool"
    ]);
    let provider = provider(operations, 1).await;
    let worker = worker(WorkerState::Running);
    let pool = pool(&worker, &json!({"maxCapacity": 3}));
    let data = provider.prepare_pool(&pool, &Value::Null).await.unwrap();
    assert_eq!(data, json!({"d": "x"}));
    provider.prepare_pool(&pool, &data).await.unwrap();
    provider.release_pool(&pool.id, &Value::Null).await.unwrap();
    let config = config_of(&pool, json!({"size": "small"}));
    let parameters = json!({"rack": 7}).as_object().unwrap().clone();
    let order = WorkerOrder {
        token: &"AAAAAAAAQQCAAAAAAAAAAQ".parse().unwrap(),
        pool: &pool,
        key: &worker.key,
        launch_config: Some(&config),
        capacity: 2,
        parameters: &parameters,
        pool_data: &data,
    };
    let creator = provider.creator().unwrap();
    assert_eq!(creator.create_worker(&order).await.unwrap(), data);
    assert_eq!(
        creator.update_worker(&worker, &parameters).await.unwrap(),
        data
    );
    let asked = provider.transport.asked.lock().unwrap();
    for (operation, question) in asked.iter() {
        let schema = format!("fleetwright/v1/provider-{operation}-request.json");
        contract::Schemas::new().check(&schema, question).unwrap();
    }
    let members = |at: usize, name: &str| asked[at].1[name].clone();
    assert_eq!(members(1, "data"), Value::Null);
    assert_eq!(members(2, "data"), data);
    assert_eq!(members(1, "config"), json!({"maxCapacity": 3}));
    assert_eq!(members(4, "poolData"), data);
    assert_eq!(members(4, "parameters"), json!({"rack": 7}));
    assert_eq!(members(4, "launchConfig"), json!({"size": "small"}));
}

#[tokio::test]
async fn the_data_of_a_provider_has_a_limit() {
    // `{"d":""}`
    let around = 8;
    for size in [MAX_DATA_BYTES, MAX_DATA_BYTES + 1] {
        let both = json!(["prepare-pool", "release-pool"]);
        let provider = provider(both, size - around).await;
        let pool = pool(&worker(WorkerState::Running), &json!({}));
        let prepared = provider.prepare_pool(&pool, &Value::Null).await;
        assert_eq!(prepared.is_ok(), size <= MAX_DATA_BYTES, "{size}");
    }
}
