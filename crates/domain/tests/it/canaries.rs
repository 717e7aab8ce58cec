//! Canaries get their share of the machines of the launch config beside them.

use domain::plan::{Bid, CanaryOffer, CanaryRoom, Health, Input, Offer, Snapshot, StrategyName};

use crate::common::{offer, pool, seconds_ago};

fn canary(id: &str, of: &str, share: f64) -> Offer {
    let of = of.parse().unwrap();
    Offer {
        canary: Some(CanaryOffer {
            of,
            share,
            room: None,
        }),
        ..offer(id)
    }
}

fn waiting(n_tasks: u64, offers: Vec<Offer>) -> Snapshot {
    let mut snapshot = pool(0, 10_000);
    snapshot.demand.pending = n_tasks;
    snapshot.offers = offers;
    snapshot
}

/// How many machines each launch config gets with this seed.
fn machines(snapshot: &Snapshot, seed: u64) -> Vec<(String, u32)> {
    let plan = Input::plan(snapshot, seed);
    let awards = plan.awards.into_iter();
    awards
        .map(|award| (award.launch_config_id.to_string(), award.machines))
        .collect()
}

#[test]
fn a_canary_gets_its_share_on_average_and_no_more_than_one_machine_beside_it() {
    for strategy in [StrategyName::Weighted, StrategyName::Balanced] {
        for (n_tasks, share) in [(1, 0.1), (7, 0.25), (40, 0.5), (10, 1.0), (10, 0.0)] {
            let mut snapshot = waiting(n_tasks, vec![offer("a"), canary("b", "a", share)]);
            snapshot.settings.strategy = strategy;
            let mut total = 0.0;
            for seed in 0..400 {
                let all = machines(&snapshot, seed);
                let of = |id: &str| all.iter().find(|(it, _)| it == id).map_or(0, |(_, n)| *n);
                assert_eq!(u64::from(of("a") + of("b")), n_tasks);
                let exact = share * n_tasks as f64;
                assert!((f64::from(of("b")) - exact).abs() < 1.0, "{all:?}");
                total += f64::from(of("b"));
            }
            let mean = total / 400.0;
            assert!((mean - share * n_tasks as f64).abs() < 0.1, "{mean}");
        }
    }
}

#[test]
fn a_canary_that_cannot_be_used_leaves_all_machines_to_the_image_in_use() {
    let sold_out = Offer {
        bid: Err("waits for image a".to_owned()),
        ..canary("b", "a", 0.5)
    };
    let failed = Health {
        attempted: 3,
        failed: 3,
        last_failure: Some(seconds_ago(1)),
        ..Health::default()
    };
    let ill = Offer {
        health: failed,
        ..canary("b", "a", 0.5)
    };
    let of_another = canary("b", "gone", 0.5);
    for beside in [sold_out, ill, of_another] {
        let snapshot = waiting(10, vec![offer("a"), beside]);
        for seed in 0..20 {
            assert_eq!(machines(&snapshot, seed), [("a".to_owned(), 10)]);
        }
    }
}

#[test]
fn a_canary_gets_no_machines_while_the_image_in_use_gets_none() {
    let none = Offer {
        bid: Err("out of service".to_owned()),
        ..offer("a")
    };
    let snapshot = waiting(10, vec![none, canary("b", "a", 0.5)]);
    assert_eq!(machines(&snapshot, 1), []);
}

#[test]
fn two_canaries_beside_one_launch_config_share_its_machines() {
    let offers = vec![offer("a"), canary("b", "a", 0.5), canary("c", "a", 0.5)];
    let snapshot = waiting(40, offers);
    let plan = Input::plan(&snapshot, 3);
    assert_eq!(
        plan.awards.iter().map(|award| award.machines).sum::<u32>(),
        40
    );
    let texts: Vec<String> = machines(&snapshot, 3)
        .iter()
        .map(|(id, n)| format!("{id} {n}"))
        .collect();
    assert_eq!(texts, ["a 10", "b 20", "c 10"]);
    let reason = "b: 20 of the machines of a, as its canary";
    assert!(
        plan.reasons.iter().any(|line| line == reason),
        "{:?}",
        plan.reasons
    );
}

#[test]
fn the_price_of_a_canary_is_that_of_its_own_bid() {
    let bid = Bid {
        price: Some(0.5),
        ..Bid::plain(String::new())
    };
    let dear = Offer {
        bid: Ok(bid),
        ..canary("b", "a", 1.0)
    };
    let plan = Input::plan(&waiting(2, vec![offer("a"), dear]), 1);
    assert_eq!(plan.awards.len(), 1);
    assert_eq!(
        (plan.awards[0].machines, plan.awards[0].price),
        (2, Some(0.5))
    );
}

#[test]
fn a_canary_whose_machines_do_not_register_keeps_its_share_until_the_verdict() {
    let broken = Health {
        attempted: 5,
        created: 5,
        never_registered: 5,
        last_failure: Some(seconds_ago(1)),
        ..Health::default()
    };
    let broken = Offer {
        health: broken,
        ..canary("b", "a", 0.5)
    };
    let snapshot = waiting(10, vec![offer("a"), broken]);
    let expected = [("a".to_owned(), 5), ("b".to_owned(), 5)];
    assert_eq!(machines(&snapshot, 1), expected);
}

#[test]
fn until_a_machine_started_well_no_more_start_than_there_is_room_for() {
    let limited = |id: &str, of: &str, room: u64| {
        let mut offer = canary(id, of, 0.5);
        let image = "linux".parse().unwrap();
        let canary = offer.canary.as_mut().unwrap();
        canary.room = Some(CanaryRoom {
            image,
            machines: room,
        });
        offer
    };
    for (room, expected) in [(0, 0), (1, 1), (19, 19), (20, 20), (21, 20), (200, 20)] {
        let snapshot = waiting(40, vec![offer("a"), limited("b", "a", room)]);
        let plan = Input::plan(&snapshot, 3);
        let of = |id: &str| {
            let mut awards = plan.awards.iter();
            let award = awards.find(|award| award.launch_config_id.as_str() == id);
            award.map_or(0, |award| award.machines)
        };
        // The rest starts from the image in use.
        assert_eq!((of("a"), of("b")), (40 - expected, expected), "{room}");
        let text = format!(
            "b: {expected} instead of 20 machines as a canary: no machine of this canary has claimed \
             a task yet"
        );
        assert_eq!(plan.reasons.contains(&text), room < 20, "{room}");
    }
    // All launch configs of the canary share it.
    let offers = vec![
        offer("a"),
        offer("c"),
        limited("b", "a", 6),
        limited("d", "c", 6),
    ];
    let mut snapshot = waiting(80, offers);
    snapshot.settings.strategy = StrategyName::Weighted;
    let all = machines(&snapshot, 3);
    let of_canary = all.iter().filter(|(id, _)| id == "b" || id == "d");
    assert_eq!(of_canary.map(|(_, n)| n).sum::<u32>(), 6, "{all:?}");
}
