//! Bids for a quantity: several bids for one launch config, and the need in the request for them.

use std::sync::{Arc, Mutex};

use cloud::LaunchOutcome;
use domain::plan::Bid;
use domain::worker::WorkerState;
use serde_json::{Value, json};

use crate::database::assert_snapshot;
use crate::fleet_bids::offers;
use crate::fleet_several::two_places;
use crate::fleet_world::{Fleet, POOL, fleet_test, pool};

/// This many machines of one kind at this price, with its name as the data.
fn kind(name: &str, available: u64, price: f64) -> Bid {
    let data = json!({"kind": name});
    Bid {
        price: Some(price),
        available: Some(available),
        data: data.as_object().unwrap().clone(),
        ..Bid::plain(name.to_owned())
    }
}

fn large(name: &str, units: u32, price: f64) -> Bid {
    Bid {
        capacity_each: Some(units),
        ..kind(name, 1, price)
    }
}

impl Fleet {
    /// A pool of the strategy with the launch configs `a` of the cloud `one` and `b` of `two`.
    async fn pool_of(&self, strategy: &str) {
        let machines = two_places().map(|(machine, _)| machine);
        let mut definition = pool("one", 0, 99, &machines);
        definition["config"]["strategy"] = json!(strategy);
        self.make_pool(POOL, definition).await;
        self.move_to(&["one", "two"]).await;
    }

    fn offer_of_one(&self, bids: Vec<Bid>) {
        self.one.fake.set_bids(&"a".parse().unwrap(), Some(bids));
    }

    fn offer_of_two(&self, bids: Vec<Bid>) {
        self.two.fake.set_bids(&"b".parse().unwrap(), Some(bids));
    }

    /// The launches, as `<config> <machines>x<units> at <price>`.
    async fn launches_by_size(&self) -> Vec<String> {
        let launches = self.launches(POOL).await.into_iter();
        let text = launches.map(|it| {
            let (config, machines, each) = (&it.launch_config_id, it.machines, it.capacity_each);
            format!("{config} {machines}x{each} at {:?}", it.price)
        });
        text.collect()
    }
}

fn counts(explained: &Value) -> String {
    let text = explained["text"].as_str().unwrap().lines();
    text.filter(|line| line.contains("needed:")).collect()
}

fleet_test!(the_conversation_of_rfc_124, |fleet| {
    fleet.pool_of("balanced").await;
    // "EC2 Provider: 2 running, 2 pending. GCP Provider: 1 running."
    fleet.offer_of_one(vec![kind("m3.medium", 2, 2.0)]);
    fleet.offer_of_two(Vec::new());
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    fleet.register_all(POOL).await;
    fleet.offer_of_one(Vec::new());
    fleet.offer_of_two(vec![kind("medium", 1, 2.5)]);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.register_all(POOL).await;
    fleet.offer_of_one(vec![kind("m3.medium", 2, 2.0)]);
    fleet.offer_of_two(Vec::new());
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    let running = fleet.workers_in(POOL, "running").await;
    let starting = fleet.workers_in(POOL, "requested").await;
    assert_eq!((running.len(), starting.len()), (3, 2));
    // "I can offer you 5 m3.medium instances for $2/h or 1 i5.8xlarge for $20/h."
    fleet.offer_of_one(vec![
        kind("m3.medium", 5, 2.0),
        large("i5.8xlarge", 5, 20.0),
    ]);
    // "I can offer you a medium instance for $2.5/h."
    fleet.offer_of_two(vec![kind("medium", 1, 2.5)]);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&orders);
    fleet.one.fake.decide_with(move |order| {
        let order = (order.machines, order.capacity_each, json!(order.bid_data));
        seen.lock().unwrap().push(order);
        LaunchOutcome::Made
    });
    // "Queue, how many pending tasks?" "10."
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    // "Can any of you provide me bids for creating five capacity?"
    let request = |fake: &cloud::FakeCloud, id: &str| fake.last_request(&id.parse().unwrap());
    assert_eq!(request(&fleet.one.fake, "a").unwrap().units, 5);
    assert_eq!(request(&fleet.two.fake, "b").unwrap().units, 5);
    // "I picked the 5 m3.medium instances bid. Here's the details you gave me."
    assert_eq!(
        *orders.lock().unwrap(),
        [(5, 1, json!({"kind": "m3.medium"}))]
    );
    let explained = fleet.explain_pool(POOL).await;
    let plan = &explained["plans"][0];
    let counted = "because 5 more units are needed: 10 tasks wait; 3 units run, 2 start";
    assert!(counts(plan).contains(counted), "{}", counts(plan));
    assert_snapshot!(offers(plan), @r"
    one m3.medium a | 2.000 | 2.000 | 1 | 5 | 5 | taken
    one i5.8xlarge a | 20.000 | 4.000 | null | 1 | 0 | not needed: dearer
    two medium b | 2.500 | 2.500 | 1 | 1 | 0 | not needed: dearer
    ");
    let workers = fleet.workers(POOL).await;
    let new = workers
        .iter()
        .filter(|worker| worker.state == WorkerState::Requested);
    assert_eq!(new.filter(|worker| worker.price == Some(2.0)).count(), 7);
});

fleet_test!(
    machines_of_different_sizes_count_as_what_they_are,
    |fleet| {
        fleet.pool_of("weighted").await;
        fleet.offer_of_two(Vec::new());
        // One large machine for four tasks costs less than four small ones, and one small one is
        // enough for the fifth.
        fleet.offer_of_one(vec![kind("small", 9, 1.0), large("large", 4, 3.0)]);
        fleet.tasks(POOL, 5).await;
        fleet.round().await;
        let mut launched = fleet.launches_by_size().await;
        launched.sort();
        assert_eq!(launched, ["a 1x1 at Some(1.0)", "a 1x4 at Some(3.0)"]);
        let workers = fleet.workers(POOL).await;
        let mut sizes: Vec<_> = workers.iter().map(|it| (it.capacity, it.price)).collect();
        sizes.sort_by_key(|(capacity, _)| *capacity);
        assert_eq!(sizes, [(1, Some(1.0)), (4, Some(3.0))]);
        // All five tasks have a worker, so the next plan starts none.
        fleet.round().await;
        assert_eq!(fleet.workers(POOL).await.len(), 2);
        let present = fleet.explain_pool(POOL).await;
        assert_eq!(present["now"]["offers"][0]["taken"], 0);
    }
);

fleet_test!(what_is_learned_is_kept_by_kind_of_machine, |fleet| {
    fleet.pool_of("balanced").await;
    fleet.offer_of_two(Vec::new());
    fleet.offer_of_one(vec![kind("cheap", 9, 1.0), kind("dear", 9, 4.0)]);
    fleet
        .one
        .fake
        .decide_with(|order| match order.bid_data["kind"] == "cheap" {
            true => LaunchOutcome::Refused(domain::launch::Cause::Capacity),
            false => LaunchOutcome::Made,
        });
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    assert_eq!(fleet.workers(POOL).await.len(), 0);
    // The other kind of the same launch config is used at once.
    fleet.round().await;
    let workers = fleet.workers(POOL).await;
    let prices: Vec<_> = workers.iter().map(|worker| worker.price).collect();
    assert_eq!(prices, [Some(4.0); 3]);
    let explained = fleet.explain_pool(POOL).await;
    let offers = offers(&explained["plans"][0]);
    let lines: Vec<&str> = offers.lines().collect();
    let shut_off = "one cheap a | 1.000 | 1.000 | null | 0 | 0 | shut off: capacity, next try";
    assert!(lines[0].starts_with(shut_off), "{offers}");
    assert_eq!(
        lines[1],
        "one dear a | 4.000 | 4.000 | null | 9 | 3 | taken"
    );
    let nothing = "two  b | - | - | null | 0 | 0 | its provider makes no bid for it now";
    assert_eq!(lines[2], nothing);
    let offerings: Vec<_> = workers.iter().map(|it| it.terms.offering.clone()).collect();
    assert!(
        offerings
            .iter()
            .flatten()
            .all(|it| it.as_str() == "one dear")
    );
});
