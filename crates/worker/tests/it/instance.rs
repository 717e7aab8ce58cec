//! A worker on an EC2 instance, with a simulated metadata service.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use worker::aws::{Metadata, MetadataError};
use worker::{Kind, Proof, Stops, Worker};

use crate::fleet::{GROUP, POOL, PROVIDER};
use crate::http::{Answer, RequestHandler, TestRequest, TestServer, serve};
use crate::world::{World, machine};

/// The data of the metadata service.
struct Instance {
    user_data: String,
    document: String,
    ends: Mutex<bool>,
    n_unready: Mutex<u32>,
}

impl RequestHandler for Instance {
    async fn answer(self: Arc<Self>, request: TestRequest) -> Answer {
        let header = |name: &str| request.headers.get(name).map(|it| it.to_str().unwrap());
        let line = (request.method.as_str(), request.resource.as_str());
        if line == ("PUT", "/latest/api/token") {
            assert!(header("X-aws-ec2-metadata-token-ttl-seconds").is_some());
            let mut n_unready = self.n_unready.lock().unwrap();
            if *n_unready > 0 {
                *n_unready -= 1;
                return Some((503, String::new()));
            }
            return Some((200, "token".to_owned()));
        }
        if header("X-aws-ec2-metadata-token") != Some("token") {
            return Some((401, String::new()));
        }
        match line.1 {
            "/latest/user-data" => Some((200, self.user_data.clone())),
            "/latest/dynamic/instance-identity/document" => Some((200, self.document.clone())),
            "/latest/dynamic/instance-identity/signature" => Some((200, "sig\nned".to_owned())),
            "/latest/meta-data/spot/termination-time" if *self.ends.lock().unwrap() => {
                Some((200, "2026-09-21T14:13:20Z".to_owned()))
            }
            _ => Some((404, String::new())),
        }
    }
}

fn instance(root_url: &str) -> Instance {
    let user_data = json!({"rootUrl": root_url, "workerPoolId": POOL, "providerId": PROVIDER,
        "workerGroup": GROUP, "launchConfigId": "lc", "workerConfig": {}});
    let document =
        json!({"instanceId": "w1", "region": "us-west-2", "availabilityZone": "us-west-2a"});
    Instance {
        user_data: user_data.to_string(),
        document: document.to_string(),
        ends: Mutex::new(false),
        n_unready: Mutex::new(1),
    }
}

async fn metadata(instance: Arc<Instance>) -> (Metadata, TestServer) {
    let listening = serve(instance).await;
    (Metadata::at(&listening.url).unwrap(), listening)
}

#[tokio::test]
async fn an_instance_works_for_its_pool_until_aws_stops_it() {
    let world = World::new().await;
    let instance = Arc::new(instance(&world.fleet.url()));
    let (metadata, _listening) = metadata(Arc::clone(&instance)).await;
    let identity = metadata
        .identity(world.folder.path().join("work"))
        .await
        .unwrap();
    assert_eq!(identity.to_string(), "host/w1 of pool demo/linux");
    assert_eq!(identity.kind, Kind::Launched);
    let Proof::Document {
        document,
        signature,
    } = &identity.proof
    else {
        panic!("{:?}", identity.proof);
    };
    assert_eq!(
        (document.as_str(), signature.as_str()),
        (instance.document.as_str(), "sig\nned")
    );
    let worker = Worker {
        identity,
        machine: machine(),
        stops: Stops::default(),
        drain_grace: Duration::ZERO,
        notices: Some(metadata),
    };
    let working = tokio::spawn(worker.run());
    let (outcome, log) = world
        .outcome_of(json!({"command": "echo $TASKCLUSTER_WORKER_LOCATION"}))
        .await;
    assert_eq!(outcome, "completed");
    let line = log.lines().nth(2).unwrap();
    let location: Value = serde_json::from_str(line).unwrap();
    assert_eq!(location["availabilityZone"], "us-west-2a");
    *instance.ends.lock().unwrap() = true;
    working.await.unwrap().unwrap();
    assert!(world.fleet.look(|state| state.is_removed));
}

#[tokio::test]
async fn an_invalid_instance_has_its_reason() {
    let folder = || "work".into();
    let (described, _listening) = metadata(Arc::new(Instance {
        user_data: "#!/bin/sh".to_owned(),
        ..instance("http://127.0.0.1:1")
    }))
    .await;
    let problem = described.identity(folder()).await.unwrap_err();
    assert!(problem.to_string().contains("the user data"), "{problem}");
    let (named, _listening) = metadata(Arc::new(Instance {
        document: json!({"instanceId": "not/an/id", "region": "r", "availabilityZone": "z"})
            .to_string(),
        ..instance("http://127.0.0.1:1")
    }))
    .await;
    let problem = named.identity(folder()).await.unwrap_err();
    assert!(matches!(problem, MetadataError::Identity(_)), "{problem}");
    for url in ["", "169.254.169.254", "https://x"] {
        assert!(Metadata::at(url).is_err(), "{url}");
    }
}
