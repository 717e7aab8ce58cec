//! Single workers that people create at a provider of their own (`createWorker`).

use cloud::{ExecSettings, ProviderConfig};
use serde_json::{Value, json};
use server::background::driver::BackgroundTask as _;
use server::background::{MachineTermination, Scan};
use server::config::Config;

use crate::database::on_both;
use crate::samples::{key, pool};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const WORKER: &str = "/workers/pp%2Fee/dc1/blade-7";

/// It wants to know the rack of a worker, and notes it.
const PROGRAM: &str = r#"
question=$(cat)
rack=$(printf %s "$question" | sed -n 's/.*"parameters":{"rack":\([0-9]*\)}.*/\1/p')
case "$1" in
  setup) echo '{"operations": ["create-worker", "update-worker", "prepare-pool", "release-pool"]}' ;;
  prepare-pool) echo '{"data": {"vlan": 12}}' ;;
  bids) echo '{"bids": []}' ;;
  owned) echo '{"machines": []}' ;;
  create-worker|update-worker)
    case "$1 $question" in create-worker*'"poolData":{"vlan":12}'*|update-worker*) ;; *) exit 9 ;; esac
    case "$rack" in
      "") echo '{"cause": "configuration", "message": "which rack?"}'; exit 1 ;;
      *) echo "{\"providerData\": {\"rack\": $rack}}" ;;
    esac ;;
  look) echo '{"sightings": [{"workerPoolId": "pp/ee", "workerGroup": "dc1",
    "workerId": "blade-7", "state": "gone"}]}' ;;
  *) echo '{}' ;;
esac"#;

fn with_program(config: &mut Config) {
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", PROGRAM, "program"]
            .map(str::to_owned)
            .to_vec(),
        time_limit_seconds: 20,
        env: Default::default(),
        region: None,
    };
    let shell = ("shell".parse().unwrap(), ProviderConfig::Exec(settings));
    config.providers.0.push(shell);
}

fn racks() -> Value {
    let launch_config =
        json!({"workerConfig": {"a": 1}, "workerManager": {"launchConfigId": "lc"}});
    let config = json!({"minCapacity": 0, "maxCapacity": 4, "launchConfigs": [launch_config]});
    pool("shell", config)
}

fn in_rack(number: u64) -> Value {
    json!({"expires": "2026-12-01T00:00:00.000Z", "capacity": 2, "providerInfo": {"rack": number}})
}

impl World {
    async fn rack_of_worker(&self) -> Value {
        let worker = self.worker(&key("pp/ee", "dc1", "blade-7")).await;
        worker.unwrap().provider_data["rack"].clone()
    }
}

on_both!(
    a_provider_makes_changes_and_ends_a_single_worker,
    |config| { super::with_program(config) },
    |world| {
        world.put(POOL, racks()).await.expect(200);
        let made = world.put(WORKER, in_rack(7)).await.expect(200);
        assert_eq!(
            (&made["state"], &made["providerId"], &made["launchConfigId"]),
            (&json!("requested"), &json!("shell"), &json!("lc"))
        );
        assert_eq!(world.rack_of_worker().await, 7);
        // A repeated request changes nothing, and another one conflicts.
        let again = world.put(WORKER, in_rack(7)).await.expect(200);
        assert_eq!(again, made);
        let mut larger = in_rack(7);
        larger["capacity"] = json!(3);
        world
            .put(WORKER, larger)
            .await
            .refused(409, "RequestConflict", "Worker already exists");
        world.post(WORKER, in_rack(8)).await.expect(200);
        assert_eq!(world.rack_of_worker().await, 8);
        // It registers once, with the proof that the request offered.
        let worker = key("pp/ee", "dc1", "blade-7");
        let shell = "shell".parse().unwrap();
        let token = cloud::identity_token(&world.app.engine.keyring, &shell, &worker);
        let proof = json!({"workerPoolId": "pp/ee", "providerId": "shell", "workerGroup": "dc1",
            "workerId": "blade-7", "workerIdentityProof": {"token": token.expose()}});
        let registered = world
            .post("/worker/register", proof.clone())
            .anonymously()
            .await
            .expect(200);
        assert_eq!(registered["workerConfig"], json!({"a": 1}));
        let twice = world.post("/worker/register", proof).anonymously().await;
        assert_eq!(twice.status, 400);
        // It ends as a launched one.
        world.delete(WORKER).await.expect(200);
        assert_eq!(world.get(WORKER).await.expect(200)["state"], "stopping");
        for mut ending in MachineTermination::each(&world.app.engine) {
            ending.activate().await.unwrap();
        }
        for mut scan in Scan::each(&world.app.engine) {
            scan.activate().await.unwrap();
        }
        assert_eq!(world.get(WORKER).await.expect(200)["state"], "stopped");
    }
);

on_both!(
    a_provider_may_refuse_a_single_worker,
    |config| { super::with_program(config) },
    |world| {
        world.put(POOL, racks()).await.expect(200);
        let mut wrong = in_rack(7);
        wrong["providerInfo"] = json!({"shelf": 7});
        world
            .put(WORKER, wrong.clone())
            .await
            .refused(400, "InputError", "which rack?");
        assert_eq!(world.get(WORKER).await.status, 404);
        wrong["providerInfo"] = json!({"shelf": "x".repeat(65_536)});
        let answer = world.put(WORKER, wrong).await;
        answer.refused_with(400, "InputError", "65536 are the limit");
        let mut named = in_rack(7);
        named["launchConfigId"] = json!("nosuch");
        let answer = world.put(WORKER, named).await;
        answer.refused_with(400, "InputError", "no active launch config nosuch");
        // Providers that make no single workers refuse them.
        let other = pool(
            "aws",
            json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": []}),
        );
        world.put("/worker-pool/pp%2Fff", other).await.expect(200);
        let answer = world.put("/workers/pp%2Fff/dc1/blade-7", in_rack(7)).await;
        answer.refused_with(400, "InputError", "not supported for this provider");
    }
);
