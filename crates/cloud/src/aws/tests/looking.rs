//! Machines on moto: look, list, end and prices.

use serde_json::{Value, json};

use super::moto::{FIRST_TOKEN, OnMoto, SECOND_TOKEN, THIRD_TOKEN, simple};
use super::proxy::InjectedFailure;
use crate::aws::parameters::Parameters;
use crate::aws::responses::EmptyResponse;
use crate::aws::{AwsConfig, AwsProvider};
use crate::tests::suite::{Fixture as _, contract};
use crate::tests::values::{context_at, edit};
use crate::{CloudError, LaunchOrder, Machines as _, Provider as _, Region, Sighting};

#[tokio::test]
async fn ec2_keeps_the_contract_of_all_providers() {
    let Some(moto) = OnMoto::start("contract").await else {
        return;
    };
    contract(&moto).await;
}

#[tokio::test]
async fn one_unknown_machine_does_not_hide_the_others() {
    let Some(moto) = OnMoto::start("split").await else {
        return;
    };
    let mut workers = moto.launch(FIRST_TOKEN, 3).await.unwrap();
    for id in ["i-0123456789abcdef0", "no-instance-id"] {
        let mut unknown = workers[0].clone();
        edit(&mut unknown, |it| it.key.id = id.parse().unwrap());
        workers.push(unknown);
    }
    moto.provider.end(&workers[1]).await.unwrap();
    let seen = moto.seen(&workers).await;
    assert_eq!((&seen[0], &seen[2]), (&Sighting::Alive, &Sighting::Alive));
    assert!(matches!(seen[1], Sighting::Ended(_)), "{:?}", seen[1]);
    assert_eq!(seen[3..], [Sighting::NotFound, Sighting::NotFound]);
    let asked = moto.proxy.calls("DescribeInstances");
    assert!(asked.last().unwrap().values().any(|it| it == "instance-id"));
}

#[tokio::test]
async fn a_region_that_fails_hides_only_its_own_machines() {
    let Some(moto) = OnMoto::start("regions").await else {
        return;
    };
    let mut east = simple();
    east["region"] = json!("us-east-1");
    east["launchConfig"]["Placement"] = json!({"AvailabilityZone": "us-east-1a"});
    let mut workers = moto.launch(FIRST_TOKEN, 1).await.unwrap();
    workers.extend(
        moto.launch_by(&moto.provider, SECOND_TOKEN, 1, east)
            .await
            .unwrap(),
    );
    assert_eq!(
        moto.seen(&workers).await,
        [Sighting::Alive, Sighting::Alive]
    );
    moto.refuse("DescribeInstances", 503, "RequestLimitExceeded");
    let seen = moto.provider.look(&workers).await.unwrap();
    assert_eq!(seen.len(), 1, "one region was throttled");
    for _ in 0..2 {
        moto.refuse("DescribeInstances", 503, "RequestLimitExceeded");
    }
    let blind = moto.provider.look(&workers).await.unwrap_err();
    assert!(matches!(blind, CloudError::Throttled(_)), "{blind}");
}

#[tokio::test]
async fn a_region_that_cannot_be_listed_hides_no_other_and_is_named() {
    let Some(moto) = OnMoto::start("denied").await else {
        return;
    };
    let west = moto.launch(FIRST_TOKEN, 1).await.unwrap();
    // The regions are asked in their order, so the first one fails.
    moto.refuse("DescribeInstances", 403, "UnauthorizedOperation");
    let listing = moto.provider.owned().await.unwrap();
    let listed: Vec<_> = listing.machines.iter().map(|it| &it.machine.id).collect();
    assert_eq!(listed, [&west[0].key.id]);
    let (closed, why) = listing.missing.first_key_value().unwrap();
    assert_eq!((closed.as_str(), listing.missing.len()), ("us-east-1", 1));
    assert!(matches!(why, CloudError::Credentials(_)), "{why}");

    // Only a launch in that region has to wait for it.
    let mut east = simple();
    east["region"] = json!("us-east-1");
    for (content, is_covered) in [(simple(), true), (east, false)] {
        let group = moto.provider.group(&moto.pool(&content).1);
        assert_eq!(listing.covers(group.as_ref()), is_covered, "{group:?}");
    }
    for _ in 0..4 {
        moto.refuse("DescribeInstances", 500, "InternalError");
    }
    let blind = moto.provider.owned().await.unwrap_err();
    assert!(matches!(blind, CloudError::Unavailable(_)), "{blind}");
}

#[tokio::test]
async fn a_stopped_machine_is_ended_when_it_is_seen() {
    let Some(moto) = OnMoto::start("stopped").await else {
        return;
    };
    let workers = moto.launch(FIRST_TOKEN, 1).await.unwrap();
    let stop = Parameters::default().with_list("InstanceId", [workers[0].key.id.as_str()]);
    let _done: EmptyResponse = moto
        .provider
        .ec2
        .call("us-west-2", "StopInstances", &stop)
        .await
        .unwrap();
    assert_eq!(moto.seen(&workers).await, [Sighting::Ending]);
    let seen = moto.seen(&workers).await;
    assert!(matches!(seen[0], Sighting::Ended(_)), "{seen:?}");
}

#[tokio::test]
async fn a_throttled_end_is_an_error_and_the_next_one_works() {
    let Some(moto) = OnMoto::start("end").await else {
        return;
    };
    let workers = moto.launch(FIRST_TOKEN, 1).await.unwrap();
    moto.refuse("TerminateInstances", 503, "RequestLimitExceeded");
    let throttled = moto.provider.end(&workers[0]).await.unwrap_err();
    assert!(matches!(throttled, CloudError::Throttled(_)), "{throttled}");
    moto.proxy
        .next("TerminateInstances", InjectedFailure::LoseAnswer);
    let lost = moto.provider.end(&workers[0]).await.unwrap_err();
    assert!(matches!(lost, CloudError::Unavailable(_)), "{lost}");
    moto.provider.end(&workers[0]).await.unwrap();
    let n_calls = moto.proxy.calls("TerminateInstances").len();
    moto.provider.end(&workers[0]).await.unwrap();
    // A machine that has ended is not ended again.
    assert_eq!(moto.proxy.calls("TerminateInstances").len(), n_calls);
    assert_eq!(moto.owned().await, []);
}

#[tokio::test]
async fn each_of_several_instance_types_has_a_bid_and_the_chosen_one_is_launched() {
    let Some(moto) = OnMoto::start("types").await else {
        return;
    };
    let mut several = simple();
    let asked = several["launchConfig"].as_object_mut().unwrap();
    asked.remove("InstanceType");
    asked.remove("InstanceMarketOptions");
    several["instanceTypes"] = json!([
        {"instanceType": "m5.large"},
        {"instanceType": "m5.xlarge", "capacityPerInstance": 3},
    ]);
    let (pool, config) = moto.pool(&several);
    let bids = moto.provider.bids(&config, None, moto.now()).unwrap();
    let facts = bids
        .iter()
        .map(|bid| (bid.place.as_str(), bid.capacity_each, bid.price));
    assert_eq!(
        facts.collect::<Vec<_>>(),
        [
            ("us-west-2a m5.large on-demand", None, Some(0.096)),
            ("us-west-2a m5.xlarge on-demand", Some(3), Some(0.192)),
        ]
    );
    for (token, bid) in [(FIRST_TOKEN, &bids[1]), (SECOND_TOKEN, &bids[0])] {
        let made = moto
            .provider
            .launch(&LaunchOrder {
                token: &token.parse().unwrap(),
                pool: &pool,
                launch_config: &config,
                machines: 1,
                capacity_each: bid.capacity_each.unwrap_or(1),
                max_price: None,
                price: bid.price,
                bid_data: &bid.data,
                pool_data: &Value::Null,
                root_url: &moto.root_url,
                now: moto.now(),
            })
            .await;
        assert_eq!(made.unwrap().len(), 1);
        let call = moto.proxy.calls("RunInstances").pop().unwrap();
        assert_eq!(json!(call["InstanceType"]), bid.data["instanceType"]);
    }
}

#[tokio::test]
async fn spot_prices_reach_the_bids_after_a_refresh() {
    let Some(moto) = OnMoto::start("prices").await else {
        return;
    };
    let spot = moto.pool(&simple()).1;
    let mut on_demand = simple();
    on_demand["launchConfig"]["InstanceMarketOptions"] = Value::Null;
    let mut elsewhere = simple();
    elsewhere["region"] = json!("eu-west-1");
    let (on_demand, elsewhere) = (moto.pool(&on_demand).1, moto.pool(&elsewhere).1);
    let configs = [spot, on_demand, elsewhere];
    let bids = || {
        configs
            .each_ref()
            .map(|it| moto.provider.first_bid(it, moto.now()))
    };
    let before = bids();
    let awaited = "its spot price is not known yet, and EC2 is asked for it";
    assert_eq!(before[0], Err(awaited.to_owned()));
    assert_eq!(before[1].as_ref().unwrap().price, Some(0.096));
    assert_eq!(
        before[2],
        Err("this provider does not use region eu-west-1".to_owned())
    );
    moto.refuse("DescribeSpotPriceHistory", 503, "RequestLimitExceeded");
    let throttled = moto.provider.refresh().await.unwrap_err();
    assert!(matches!(throttled, CloudError::Throttled(_)), "{throttled}");
    let history = format!(
        "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet><item>\
         <instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription>\
         <spotPrice>0.0345</spotPrice><timestamp>{}</timestamp>\
         <availabilityZone>us-west-2a</availabilityZone><novelty>1</novelty></item>\
         </spotPriceHistorySet><nextToken/></DescribeSpotPriceHistoryResponse>",
        moto.now()
    );
    let answer = InjectedFailure::Answer {
        status: 200,
        body: history,
    };
    moto.proxy.next("DescribeSpotPriceHistory", answer);
    moto.provider.refresh().await.unwrap();
    let known = bids();
    let known = known[0].as_ref().unwrap();
    assert_eq!(known.price, Some(0.0345));
    assert_eq!(known.place, "us-west-2a m5.large spot");
    let asked = moto.proxy.calls("DescribeSpotPriceHistory").pop().unwrap();
    assert_eq!(asked["InstanceType.1"], "m5.large");
    assert_eq!(asked["ProductDescription.1"], "Linux/UNIX");
    // Moto's price history is random but has EC2's form.
    moto.clock.advance_ms(6 * 60_000);
    moto.provider.refresh().await.unwrap();
}

#[tokio::test]
async fn a_region_that_the_account_may_not_use_keeps_the_provider_out_of_service() {
    let Some(moto) = OnMoto::start("setup").await else {
        return;
    };
    let config: AwsConfig = serde_json::from_value(json!({
        "access_key_id": "AKID", "secret_access_key": "hush",
        "endpoint": moto.proxy.url, "regions": ["mars-north-1"],
    }))
    .unwrap();
    let provider = AwsProvider::new(&config, context_at("aws", &moto.clock));
    let refused = provider.setup().await.unwrap_err().to_string();
    assert!(
        refused.contains("mars-north-1, which the account may not use"),
        "{refused}"
    );
    moto.refuse("DescribeRegions", 401, "AuthFailure");
    let refused = provider.setup().await.unwrap_err().to_string();
    assert!(refused.contains("AuthFailure"), "{refused}");
}

#[tokio::test]
async fn a_volume_that_outlives_its_machine_is_removed_after_an_hour() {
    let Some(moto) = OnMoto::start("leftovers").await else {
        return;
    };
    let mut content = simple();
    content["launchConfig"]["BlockDeviceMappings"] = json!([
        {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 1, "DeleteOnTermination": false}}]);
    let kept = moto.launch_by(&moto.provider, THIRD_TOKEN, 1, content.clone());
    let kept = kept.await.unwrap().remove(0);
    content["launchConfig"]["TagSpecifications"] = json!([{"ResourceType": "volume",
        "Tags": [{"Key": "fleetwright-keep", "Value": "false"}]}]);
    let machines = moto.launch_by(&moto.provider, FIRST_TOKEN, 1, content.clone());
    let machine = machines.await.unwrap().remove(0);
    let others = moto.launch_by(&moto.stranger, SECOND_TOKEN, 1, content);
    let other = others.await.unwrap().remove(0);
    let region = Region::Group("us-west-2".parse().unwrap());
    // The volumes are from now, and the clock of the test stands still.
    moto.clock.advance_ms(20 * 365 * 24 * 3_600_000);
    assert_eq!(
        moto.provider.remove_leftovers(&region).await,
        Ok(Vec::new())
    );
    moto.provider.end(&machine).await.unwrap();
    moto.provider.end(&kept).await.unwrap();
    moto.stranger.end(&other).await.unwrap();
    let removed = moto.provider.remove_leftovers(&region).await.unwrap();
    let kinds: Vec<&str> = removed.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, ["volume"]);
    assert_eq!(
        moto.provider.remove_leftovers(&region).await,
        Ok(Vec::new())
    );
    assert_eq!(
        moto.stranger.remove_leftovers(&region).await.unwrap().len(),
        1
    );
}
