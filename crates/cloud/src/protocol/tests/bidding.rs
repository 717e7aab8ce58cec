//! Good and bad bidders: each answer concerns the launch configs that it is about, and no other.

use ::testing::sizes_around;
use domain::plan::Bid;

use super::*;

/// Answers requests for bids with this function of the requested launch configs.
struct Bidder<F>(F);

#[async_trait]
impl<F> Transport for Bidder<F>
where
    F: Fn(&[Value]) -> Option<Result<Value, Failure>> + Send + Sync,
{
    fn kind(&self) -> &'static str {
        "bidder"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        assert_eq!(operation, Operation::Bids);
        let question: Value = serde_json::from_slice(&question).unwrap();
        let Some(answer) = (self.0)(question["launchConfigs"].as_array().unwrap()) else {
            return std::future::pending().await;
        };
        Ok(Answer {
            done: true,
            body: answer?.to_string().into_bytes(),
            outline: String::new(),
            cause: None,
            log: None,
        })
    }
}

/// The bids for this many launch configs, `lc-0` and so on, after one round.
async fn bids<F>(count: usize, answer: F) -> Vec<Result<Bid, String>>
where
    F: Fn(&[Value]) -> Option<Result<Value, Failure>> + Send + Sync,
{
    let provider = ProtocolProvider::new_over(context("racks"), Bidder(answer));
    let pool = some_pool();
    let numbered = |number: usize| LaunchConfig {
        id: format!("lc-{number:05}").parse().unwrap(),
        ..config_of(&pool, json!({}))
    };
    let configs: Vec<_> = (0..count).map(numbered).collect();
    let ask = || {
        configs
            .iter()
            .map(|config| provider.first_bid(config, now()))
            .collect()
    };
    let _: Vec<Result<Bid, String>> = ask();
    assert_eq!(provider.wants_refresh(), count > 0);
    let _ = provider.ask_for_bids().await;
    ask()
}

/// The words of plans about the bids in this answer.
async fn answered(count: usize, answer: Value) -> Vec<String> {
    let bids = bids(count, |_| Some(Ok(answer.clone()))).await;
    let texts = bids
        .into_iter()
        .map(|bid| match bid.and_then(|bid| bid.checked(now())) {
            Ok(bid) => bid
                .price
                .map_or("bid".to_owned(), |price| format!("${price}")),
            Err(why) => why,
        });
    texts.collect()
}

#[tokio::test]
async fn everything_that_a_bid_says_is_known() {
    let answer = json!({"bids": [{"price": 0.5, "utility": 2, "place": "row 7", "available": 3,
        "capacityPerInstance": 2, "reliability": 0.9, "readySeconds": 40.5, "expires": "2099-01-01T00:00:00Z",
        "data": {"ticket": [1, 2]}}]});
    let bid = bids(1, |_| Some(Ok(answer.clone())))
        .await
        .remove(0)
        .unwrap();
    let expected = Bid {
        price: Some(0.5),
        utility: 2.0,
        place: "row 7".to_owned(),
        available: Some(3),
        capacity_each: Some(2),
        reliability: Some(0.9),
        ready_ms: Some(40_500),
        expires: Some("2099-01-01T00:00:00.000Z".parse().unwrap()),
        data: json!({"ticket": [1, 2]}).as_object().unwrap().clone(),
    };
    assert_eq!(bid, expected);
}

#[tokio::test]
async fn a_bidder_without_an_opinion_and_one_of_before_work_still() {
    assert_eq!(answered(2, json!({"bids": []})).await, ["bid", "bid"]);
    let former = json!({"bids": [{"price": 1}, {"refusal": "sold out"}, {}]});
    assert_eq!(answered(3, former).await, ["$1", "sold out", "bid"]);
}

#[tokio::test]
async fn a_bad_bid_has_its_reason_and_the_others_go_on() {
    let cases = [
        (
            json!({"price": -1}),
            "its bid is invalid: /price must be >= 0",
        ),
        (
            json!({"price": 1e7}),
            "its bid is invalid: /price must be <= 1000000",
        ),
        (
            json!({"price": "low"}),
            "its bid is invalid: /price must be number",
        ),
        (
            json!({"utility": 0}),
            "its bid is invalid: /utility must be > 0",
        ),
        (
            json!({"reliability": 2}),
            "its bid is invalid: /reliability must be <= 1",
        ),
        (
            json!({"readySeconds": -1}),
            "its bid is invalid: /readySeconds must be >= 0",
        ),
        (
            json!({"expires": "soon"}),
            "its bid is invalid: /expires must match format \"date-time\"",
        ),
        (
            json!({"expires": "2020-01-01T00:00:00Z"}),
            "its bid expired at 2020-01-01T00:00:00.000Z",
        ),
        (
            json!({"prize": 1}),
            "its bid is invalid: must NOT have additional properties",
        ),
        (json!(7), "its bid is invalid: must be object"),
    ];
    for (bad, expected) in cases {
        let answer = json!({"bids": [{"price": 1}, bad, {"price": 3}]});
        let found = answered(3, answer).await;
        assert_eq!([&*found[0], &*found[2]], ["$1", "$3"], "{bad}");
        assert!(found[1].starts_with(expected), "{bad}: {}", found[1]);
    }
}

#[tokio::test]
async fn the_data_of_a_bid_is_limited() {
    // `{"d":"…"}`
    for size in [0_usize, 8, 4_095, 4_096, 4_097, 40_960] {
        let data = match size {
            0 => json!({}),
            _ => json!({"d": "x".repeat(size.saturating_sub(8))}),
        };
        let size = data.to_string().len();
        let found = answered(1, json!({"bids": [{"data": data}]}))
            .await
            .remove(0);
        let expected = format!("its bid has {size} bytes of data, and 4096 are the limit");
        assert_eq!(found, if size <= 4_096 { "bid" } else { &expected });
    }
}

#[tokio::test]
async fn bids_with_names_may_come_in_any_order_and_each_counts_once() {
    let answer = json!({"bids": [
        {"launchConfigId": "lc-00001", "price": 1},
        {"launchConfigId": "lc-00000", "workerPoolId": "a/b", "price": 0},
        {"launchConfigId": "lc-00002", "price": 2},
        {"launchConfigId": "lc-00002", "price": 3},
        {"launchConfigId": "lc-00003", "workerPoolId": "other/pool", "price": 4},
        {"price": 9},
    ]});
    let missing = "racks made no bid for it; it bid for lc-00003, which it was not asked about";
    let expected = ["$0", "$1", "racks made 2 bids for it", missing, missing];
    assert_eq!(answered(5, answer).await, expected);
    let some = json!({"bids": [{"launchConfigId": "lc-00000", "price": 1}]});
    assert_eq!(answered(2, some).await, ["$1", "racks made no bid for it"]);
    let foreign = json!({"bids": [{"launchConfigId": "theirs", "price": 1}]});
    let expected = "racks made no bid for it; it bid for theirs, which it was not asked about";
    assert_eq!(answered(1, foreign).await, [expected]);
}

#[tokio::test]
async fn too_many_or_too_few_bids_count_for_nothing() {
    let some = |count: usize| json!({"bids": vec![json!({"price": 1}); count]});
    assert_eq!(
        answered(1, some(2)).await,
        ["racks answered with 2 bids for 1 launch configs"]
    );
    assert_eq!(
        answered(2, some(1)).await,
        vec!["racks answered with 1 bids for 2 launch configs"; 2]
    );
    for count in sizes_around("cloud::protocol::bidding::MAX_BIDS", 1_000) {
        let expected = match count {
            0 => "bid".to_owned(),
            1 => "$1".to_owned(),
            2..=1_000 => format!("racks answered with {count} bids for 1 launch configs"),
            _ => format!("racks answered with {count} bids, and 1000 are the limit"),
        };
        assert_eq!(answered(1, some(count)).await, [expected]);
    }
}

#[tokio::test]
async fn an_answer_without_bids_says_why() {
    let no_array = answered(1, json!({"bids": 7})).await.remove(0);
    let start = "racks did not answer the request for bids: the response to bids invalid type";
    assert!(no_array.starts_with(start), "{no_array}");
    let failed = async |failure: fn() -> Failure| {
        let bids = bids(1, |_| Some(Err(failure()))).await;
        bids.into_iter().map(Result::unwrap_err).collect::<Vec<_>>()
    };
    let lost = || Failure::Lost("no answer within 1 s".to_owned());
    let expected = ["racks did not answer the request for bids: no answer within 1 s"];
    assert_eq!(failed(lost).await, expected);
    let refused = || Failure::Refused {
        cause: Cause::Quota,
        message: "enough".to_owned(),
    };
    assert_eq!(
        failed(refused).await,
        ["racks refuses to bid (quota): enough"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_concerns_the_launch_configs_of_its_request_only() {
    // The second of three requests is never answered.
    let found = bids(2 * BID_BATCH + 1, |asked| {
        let is_second = asked[0]["launchConfigId"] == "lc-00100";
        let bids = vec![json!({"price": 1}); asked.len()];
        (!is_second).then(|| Ok(json!({"bids": bids})))
    })
    .await;
    let late = Err("racks did not answer the request for bids within 30 s".to_owned());
    for (number, bid) in found.into_iter().enumerate() {
        let price = bid.map(|bid| bid.price);
        match number / BID_BATCH {
            1 => assert_eq!(price, late, "{number}"),
            _ => assert_eq!(price, Ok(Some(1.0)), "{number}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bidder_that_never_answers_is_not_asked_for_ever() {
    let start = tokio::time::Instant::now();
    let found = bids(5 * BID_BATCH, |_| None).await;
    assert_eq!(start.elapsed().as_secs(), 90);
    let late = "racks did not answer the request for bids within 30 s";
    let unasked = "racks answers too slowly to be asked for all bids";
    for (number, bid) in found.into_iter().enumerate() {
        let expected = if number < 3 * BID_BATCH {
            late
        } else {
            unasked
        };
        assert_eq!(bid, Err(expected.to_owned()), "{number}");
    }
}
