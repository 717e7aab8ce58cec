//! Version 2 of the protocol: requests with the need, and several bids for a launch config.

use std::sync::Arc;

use ::testing::sizes_around;
use domain::plan::{BidRequest, MAX_BIDS};
use domain::time::Clock as _;

use super::*;
use crate::tests::values::{TestClock, context_at};

/// A provider of this version that notes the requests for bids, and answers with these bids.
#[derive(Default)]
struct Seller {
    version: Option<u32>,
    bids: Mutex<Vec<Value>>,
    asked: Mutex<Vec<Value>>,
}

#[async_trait]
impl Transport for Arc<Seller> {
    fn kind(&self) -> &'static str {
        "seller"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let mut question: Value = serde_json::from_slice(&question).unwrap();
        let schema = format!(
            "fleetwright/v1/provider-{}-request.json",
            operation.as_str()
        );
        context("racks")
            .schemas
            .validate(&schema, &mut question)
            .unwrap();
        let body = match (operation == Operation::Setup, self.version) {
            (true, None) => json!({}),
            (true, Some(version)) => json!({"version": version}),
            (false, _) => {
                let config = &question["launchConfigs"][0];
                let asked = json!([question["version"], config["need"]["units"]]);
                self.asked.lock().unwrap().push(asked);
                json!({"bids": *self.bids.lock().unwrap()})
            }
        };
        Ok(Answer {
            done: true,
            body: body.to_string().into_bytes(),
            outline: String::new(),
            cause: None,
            log: None,
        })
    }
}

struct Market {
    seller: Arc<Seller>,
    provider: ProtocolProvider<Arc<Seller>>,
    clock: Arc<TestClock>,
    config: LaunchConfig,
}

impl Market {
    async fn open(version: Option<u32>) -> Self {
        let seller = Arc::new(Seller {
            version,
            ..Seller::default()
        });
        let clock = TestClock::new();
        let context = context_at("racks", &clock);
        let provider = ProtocolProvider::new_over(context, Arc::clone(&seller));
        provider.setup().await.unwrap();
        let config = config_of(&some_pool(), json!({}));
        Self {
            seller,
            provider,
            clock,
            config,
        }
    }

    fn offer(&self, bids: &[(&str, u32, f64)]) {
        let bid = |(place, units, price): &(&str, u32, f64)| {
            json!({"launchConfigId": self.config.id.as_str(), "place": place,
                "capacityPerInstance": units, "price": price, "data": {"kind": place}})
        };
        *self.seller.bids.lock().unwrap() = bids.iter().map(bid).collect();
    }

    /// The places of the bids for this need, or why there are none.
    fn bids(&self, units: u64) -> Result<Vec<String>, String> {
        let now = self.clock.now();
        let request = BidRequest { units, by: now };
        let bids = self.provider.bids(&self.config, Some(&request), now)?;
        Ok(bids.into_iter().map(|bid| bid.place).collect())
    }

    /// Asks for bids if plans want it.
    async fn refresh(&self) -> bool {
        let wants = self.provider.wants_refresh();
        if wants {
            self.provider.refresh().await.unwrap();
        }
        wants
    }

    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut *self.seller.asked.lock().unwrap())
    }
}

fn awaited(units: u64) -> Result<Vec<String>, String> {
    Err(format!(
        "its bids for {units} units are not known yet, and racks is asked for them"
    ))
}

#[tokio::test]
async fn a_need_that_grew_is_asked_about_and_plans_wait_for_the_answer() {
    let market = Market::open(Some(2)).await;
    market.offer(&[("small", 1, 2.0)]);
    let first = Err("its bid is not known yet, and racks is asked for it".to_owned());
    assert_eq!(market.bids(1), first);
    assert!(market.refresh().await);
    assert_eq!(market.asked(), [json!([2, 1])]);
    // An equal or a smaller need is no reason to ask.
    for units in [1, 0] {
        assert_eq!(market.bids(units), Ok(vec!["small".to_owned()]));
        assert!(!market.refresh().await);
    }
    // A larger one is, but not at once after the last request.
    assert_eq!(market.bids(5), Ok(vec!["small".to_owned()]));
    assert!(!market.refresh().await);
    market.clock.advance_ms(10_000);
    assert_eq!(market.bids(5), awaited(5));
    market.offer(&[("small", 1, 2.0), ("large", 5, 9.0)]);
    assert!(market.refresh().await);
    assert_eq!(market.asked(), [json!([2, 5])]);
    assert_eq!(
        market.bids(5),
        Ok(vec!["small".to_owned(), "large".to_owned()])
    );
}

#[tokio::test]
async fn plans_wait_until_the_request_is_answered() {
    let market = Market::open(Some(2)).await;
    market.offer(&[("small", 1, 2.0)]);
    let _ = market.bids(1);
    market.refresh().await;
    market.clock.advance_ms(10_000);
    assert_eq!(market.bids(5), awaited(5));
    // The request is on its way.
    let now = market.clock.now();
    assert_eq!(market.provider.bids.wanted(now, 100).len(), 1);
    assert_eq!(market.bids(5), awaited(5));
}

#[tokio::test]
async fn plans_wait_for_a_while_only() {
    let market = Market::open(Some(2)).await;
    market.offer(&[("small", 1, 2.0)]);
    let _ = market.bids(1);
    market.refresh().await;
    market.clock.advance_ms(10_000);
    assert_eq!(market.bids(5), awaited(5));
    market.clock.advance_ms(14_999);
    assert_eq!(market.bids(5), awaited(5));
    market.clock.advance_ms(1);
    assert_eq!(market.bids(5), Ok(vec!["small".to_owned()]));
    // It is still asked, and a look changes no need.
    let now = market.clock.now();
    assert!(market.provider.bids(&market.config, None, now).is_ok());
    assert!(market.refresh().await);
    assert_eq!(market.asked().last(), Some(&json!([2, 5])));
}

#[tokio::test]
async fn a_provider_of_version_1_learns_no_need_and_makes_one_bid() {
    for version in [None, Some(1)] {
        let market = Market::open(version).await;
        market.offer(&[("small", 1, 2.0)]);
        let _ = market.bids(5);
        market.refresh().await;
        assert_eq!(market.asked(), [json!([1, null])]);
        assert_eq!(market.bids(9), Ok(vec!["small".to_owned()]));
        market.clock.advance_ms(60_000);
        assert_eq!(market.bids(99), Ok(vec!["small".to_owned()]));
        assert!(!market.refresh().await);
        market.offer(&[("small", 1, 2.0), ("large", 5, 9.0)]);
        market.provider.refresh().await.unwrap();
        market.clock.advance_ms(240_000);
        market.provider.refresh().await.unwrap();
        assert_eq!(market.bids(5), Err("racks made 2 bids for it".to_owned()));
    }
}

#[tokio::test]
async fn bids_of_version_2_are_limited_and_the_good_ones_count() {
    let limit = "domain::plan::bid::MAX_BIDS";
    for count in sizes_around(limit, MAX_BIDS)
        .into_iter()
        .filter(|count| *count > 0)
    {
        let market = Market::open(Some(2)).await;
        market.offer(&vec![("small", 1, 2.0); count]);
        let _ = market.bids(1);
        market.refresh().await;
        let expected = match count <= MAX_BIDS {
            true => Ok(count),
            false => Err(format!(
                "racks made {count} bids for it, and {MAX_BIDS} are the limit"
            )),
        };
        assert_eq!(market.bids(1).map(|bids| bids.len()), expected);
    }
    let market = Market::open(Some(2)).await;
    market.offer(&[("small", 1, -2.0), ("large", 5, 9.0)]);
    let _ = market.bids(1);
    market.refresh().await;
    assert_eq!(market.bids(1), Ok(vec!["large".to_owned()]));
}
