//! Launches on moto, and their failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::launch::Cause;
use domain::launch_config::split_off;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::moto::{FIRST_TOKEN, OnMoto, SECOND_TOKEN, provider, simple};
use super::proxy::InjectedFailure;
use crate::aws::parameters::Parameters;
use crate::aws::responses::{Group, Items};
use crate::{LaunchError, Machines as _, Provider as _, Sighting};

/// Moto has its own networks only, so the networks of a real launch config are replaced by these.
#[derive(Default)]
struct Networks(BTreeMap<String, (Vec<Subnet>, String)>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnets {
    subnet_set: Items<Subnet>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnet {
    subnet_id: String,
    availability_zone: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Groups {
    security_group_info: Items<Group>,
}

impl Networks {
    async fn put_into(&mut self, moto: &OnMoto, configuration: &mut Map<String, Value>) {
        let region = configuration["region"].as_str().unwrap().to_owned();
        if !self.0.contains_key(&region) {
            let (ec2, all) = (&moto.provider.ec2, Parameters::default());
            let subnets: Subnets = ec2.call(&region, "DescribeSubnets", &all).await.unwrap();
            let groups: Groups = ec2
                .call(&region, "DescribeSecurityGroups", &all)
                .await
                .unwrap();
            let mut ids = groups.security_group_info.items.into_iter();
            let group = ids.next().unwrap().group_id.unwrap();
            self.0
                .insert(region.clone(), (subnets.subnet_set.items, group));
        }
        let (subnets, group) = &self.0[&region];
        let asked = &mut configuration["launchConfig"];
        let zone = asked["Placement"]["AvailabilityZone"].clone();
        let subnet = subnets.iter().find(|it| zone == *it.availability_zone);
        assert!(asked["SubnetId"].is_string() && asked["SecurityGroupIds"][0].is_string());
        asked["SubnetId"] = json!(subnet.unwrap().subnet_id);
        asked["SecurityGroupIds"] = json!([group]);
    }
}

#[tokio::test]
async fn a_launch_sends_its_config_and_keeps_the_reported_machine() {
    let Some(moto) = OnMoto::start("launch").await else {
        return;
    };
    let workers = moto.launch(FIRST_TOKEN, 2).await.unwrap();
    let call = moto.proxy.calls("RunInstances").pop().unwrap();
    assert_eq!((&*call["MinCount"], &*call["MaxCount"]), ("1", "2"));
    assert_eq!(call["ClientToken"], FIRST_TOKEN);
    assert_eq!(call["InstanceMarketOptions.MarketType"], "spot");
    assert_eq!(call["TagSpecification.1.ResourceType"], "instance");
    let row = &workers[0].provider_data;
    assert_eq!(workers[0].key.group.as_str(), "us-west-2");
    for (key, value) in [
        ("region", "us-west-2"),
        ("imageId", "ami-03cf127a"),
        ("instanceType", "m5.large"),
        ("availabilityZone", "us-west-2a"),
        ("architecture", "x86_64"),
        ("owner", "123456789012"),
    ] {
        assert_eq!(row[key], value, "{key} in {row}");
    }
    assert!(row["privateIp"].is_string(), "{row}");
    assert_eq!(workers[1].provider_data["amiLaunchIndex"], 1);
}

#[tokio::test]
async fn some_machines_are_better_than_none() {
    let Some(moto) = OnMoto::start("partly").await else {
        return;
    };
    moto.proxy
        .next("RunInstances", InjectedFailure::RunShort { stock: 2 });
    assert_eq!(moto.launch(FIRST_TOKEN, 5).await.unwrap().len(), 2);
    assert_eq!(moto.owned().await.len(), 2);
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_machine_is_found_by_its_token() {
    let Some(moto) = OnMoto::start("lost-answer").await else {
        return;
    };
    moto.proxy.next("RunInstances", InjectedFailure::LoseAnswer);
    let lost = moto.launch(FIRST_TOKEN, 1).await.unwrap_err();
    assert!(matches!(lost, LaunchError::Unknown(_)), "{lost}");
    let owned = moto.owned().await;
    assert_eq!(owned.len(), 1);
    assert_eq!(owned[0].1, FIRST_TOKEN.parse().ok());
    // A repeated launch gets the same machine.
    let again = moto.launch(FIRST_TOKEN, 1).await.unwrap();
    assert_eq!(again[0].key.id.to_string(), owned[0].0);
    assert_eq!(moto.owned().await, owned);
}

#[tokio::test]
async fn an_unreadable_response_is_an_unknown_outcome() {
    let Some(moto) = OnMoto::start("garbage").await else {
        return;
    };
    for (status, body) in [
        (200, "<RunInstancesResponse><instancesSet>"),
        (200, ""),
        (200, "{}"),
        (502, "<html>Bad gateway</html>"),
        (500, ""),
    ] {
        let body = body.to_owned();
        moto.proxy
            .next("RunInstances", InjectedFailure::Answer { status, body });
        let lost = moto.launch(FIRST_TOKEN, 1).await.unwrap_err();
        assert!(matches!(lost, LaunchError::Unknown(_)), "{status}: {lost}");
    }
    assert_eq!(moto.owned().await.len(), 1, "one token, one machine");
}

#[tokio::test]
async fn a_call_that_was_cut_off_may_have_arrived() {
    let Some(moto) = OnMoto::start("lost-call").await else {
        return;
    };
    moto.proxy.next("RunInstances", InjectedFailure::LoseCall);
    let lost = moto.launch(FIRST_TOKEN, 1).await.unwrap_err();
    assert!(matches!(lost, LaunchError::Unknown(_)), "{lost}");
    assert_eq!(moto.owned().await, []);
}

#[tokio::test]
async fn a_token_that_comes_back_with_another_order_is_unknown() {
    let Some(moto) = OnMoto::start("mismatch").await else {
        return;
    };
    moto.launch(FIRST_TOKEN, 1).await.unwrap();
    let refused = moto.launch(FIRST_TOKEN, 2).await.unwrap_err();
    let LaunchError::Unknown(error) = refused else {
        panic!("must be unknown: {refused}");
    };
    assert!(error.contains("IdempotentParameterMismatch"), "{error}");
    assert_eq!(moto.owned().await.len(), 1);
}

#[tokio::test]
async fn a_refused_launch_has_its_cause_and_makes_nothing() {
    let Some(moto) = OnMoto::start("refusals").await else {
        return;
    };
    for (status, code, expected) in [
        (500, "InsufficientInstanceCapacity", Cause::Capacity),
        (503, "RequestLimitExceeded", Cause::Throttled),
        (400, "VcpuLimitExceeded", Cause::Quota),
        (403, "UnauthorizedOperation", Cause::Credentials),
        (503, "Unavailable", Cause::Unavailable),
    ] {
        moto.refuse("RunInstances", status, code);
        let LaunchError::Refused { cause, error } = moto.launch(FIRST_TOKEN, 1).await.unwrap_err()
        else {
            panic!("{code} must be a refusal");
        };
        assert_eq!(cause, expected);
        let text = format!("Error calling AWS API: {code}: made up & meant");
        assert_eq!(error, text);
    }
    assert_eq!(moto.owned().await, []);
    // The next call works.
    assert_eq!(moto.launch(SECOND_TOKEN, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_by_ec2_is_an_error_of_the_launch_config() {
    let Some(moto) = OnMoto::start("bad-config").await else {
        return;
    };
    let mut configuration = simple();
    configuration["launchConfig"]["SecurityGroupIds"] = json!(["sg-0123456789abcdef0"]);
    let refused = moto
        .launch_by(&moto.provider, FIRST_TOKEN, 1, configuration)
        .await
        .unwrap_err();
    let LaunchError::Refused { cause, error } = refused else {
        panic!("must be refused: {refused}");
    };
    assert_eq!(cause, Cause::Configuration, "{error}");
    assert!(error.contains("sg-0123456789abcdef0"), "{error}");
}

#[tokio::test]
async fn a_refused_connection_is_unavailable_and_made_nothing() {
    let Some(mut moto) = OnMoto::start("nobody").await else {
        return;
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let cut_off = provider(&moto.root_url, &nobody, &moto.signer, &moto.clock);
    let regions = Arc::new(["us-west-2".to_owned()].into());
    *cut_off.regions.write().unwrap() = Some((cut_off.clock.now(), regions));
    moto.provider = cut_off;
    let LaunchError::Refused { cause, .. } = moto.launch(FIRST_TOKEN, 1).await.unwrap_err() else {
        panic!("nothing can have been made");
    };
    assert_eq!(cause, Cause::Unavailable);
    let refused = moto.provider.setup().await.unwrap_err().to_string();
    assert!(refused.contains("EC2 cannot be reached"), "{refused}");
}

#[tokio::test]
async fn no_machine_is_launched_where_it_would_not_be_found_again() {
    let Some(moto) = OnMoto::start("elsewhere").await else {
        return;
    };
    let mut configuration = simple();
    configuration["region"] = json!("eu-west-1");
    let refused = moto
        .launch_by(&moto.provider, FIRST_TOKEN, 1, configuration)
        .await
        .unwrap_err();
    let error = "this provider does not use region eu-west-1";
    assert_eq!(refused.to_string(), error);
    assert!(moto.proxy.calls("RunInstances").is_empty());
}

#[tokio::test]
async fn every_launch_config_of_a_real_fleet_starts_a_machine() {
    let Some(moto) = OnMoto::start("fleet").await else {
        return;
    };
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/community-fleet.json"
    );
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} does not exist");
        return;
    };
    let fleet: Value = serde_json::from_str(&text).unwrap();
    let pools = fleet["workerPools"].as_array().unwrap().iter();
    let (mut workers, mut networks) = (Vec::new(), Networks::default());
    for pool in pools.filter(|pool| pool["providerId"] == "community-tc-workers-aws") {
        let mut config = pool["config"].clone();
        let configs = split_off(config.as_object_mut().unwrap()).unwrap();
        for (number, mut configuration) in configs.into_iter().enumerate() {
            networks.put_into(&moto, &mut configuration).await;
            let zone = configuration["launchConfig"]["Placement"]["AvailabilityZone"].clone();
            let token = format!("{:08}QQC{:010}Q", number, workers.len());
            let provider = &moto.provider;
            let made = moto
                .launch_by(provider, &token, 1, Value::Object(configuration))
                .await
                .unwrap();
            assert_eq!(made[0].provider_data["availabilityZone"], zone);
            workers.extend(made);
        }
    }
    assert_eq!(workers.len(), 46);
    assert!(
        moto.seen(&workers)
            .await
            .iter()
            .all(|it| *it == Sighting::Alive)
    );
    for worker in &workers {
        moto.provider.end(worker).await.unwrap();
    }
    assert_eq!(moto.owned().await, []);
}
