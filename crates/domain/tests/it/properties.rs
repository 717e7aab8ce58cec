//! Properties that hold for every snapshot.

use domain::launch::Cause;
use domain::plan::{
    Candidate, ExternalStrategy, Health, Input, MAX_MACHINES, MAX_QUARANTINE_MS, Offer, Plan,
    Proposal, ProposedLaunch, ProposedStop, REASON_EXTERNAL, REASON_OVER_CAPACITY, Refusals,
    ServiceAnswer, Snapshot, StrategyName, Tries, Usability, weights,
};
use domain::time::SECOND_MS;
use proptest::prelude::*;

use crate::common::{
    asked_to_stop, carried_out, chances, decide, decide_with, idle, launched, offer, pool, priced,
    seconds_ago, source,
};

fn an_offer(index: usize) -> impl Strategy<Value = Offer> {
    let numbers = (
        1..5_u32,
        0..4_u8,
        proptest::option::of(0..30_u64),
        0..20_u64,
        0..9_u8,
    );
    let health = (0..8_u64, 0..4_u64, 0..4_u64, 0..4_u64, 0..4_000_i64);
    (numbers, health).prop_map(move |(numbers, health)| {
        let (capacity_each, weight, max_capacity, live, bid) = numbers;
        let (failed, registered, never_registered, starting, seconds) = health;
        let id = format!("lc-{index}");
        let base = match bid {
            0 => Offer {
                bid: Err("no".to_owned()),
                ..offer(&id)
            },
            1 => offer(&id),
            2.. => priced(&id, f64::from(bid) - 1.9),
        };
        let troubled = failed + never_registered > 0;
        let created = registered + never_registered + starting;
        Offer {
            capacity_each,
            initial_weight: f64::from(weight) / 3.0,
            max_capacity,
            live,
            health: Health {
                attempted: failed + failed / 3 + created,
                failed,
                created,
                registered,
                never_registered,
                quota: starting / 3,
                short: failed / 3,
                overdue: starting / 2,
                silent: registered / 3,
                last_failure: troubled.then(|| seconds_ago(seconds)),
            },
            ..base.tried(Tries {
                refusals: (failed > 1).then(|| Refusals {
                    in_a_row: failed.min(2),
                    cause: Cause::ALL[usize::from(bid) % Cause::ALL.len()],
                    last: seconds_ago(seconds),
                }),
                plans_without_workers: never_registered.min(2),
                last: (failed + created > 0).then(|| seconds_ago(seconds / 2)),
            })
        }
    })
}

fn a_worker(index: usize) -> impl Strategy<Value = Candidate> {
    (1..4_u32, 0..200_i64, 0..9_u8, 0..5_u8).prop_map(move |(capacity, seconds, kind, advice)| {
        let mut worker = Candidate {
            capacity,
            ..idle(&format!("w{index}"), seconds)
        };
        match kind {
            0..3 => worker.claimed = 1,
            3 => worker.idle_hold_ms = 100 * SECOND_MS,
            4 => worker.archived = true,
            5 => worker.deprovisioned = true,
            6 => worker.quarantined_since = Some(seconds_ago(seconds * 1_000)),
            7 => worker.silent = true,
            8.. => {}
        }
        worker.claimed |= u64::from(kind > 3 && kind != 7 && seconds % 3 == 0);
        match advice {
            0 => asked_to_stop(worker, "needed"),
            1 => asked_to_stop(worker, REASON_OVER_CAPACITY),
            2 => asked_to_stop(worker, "launch config archived"),
            3.. => worker,
        }
    })
}

/// Small and absurd numbers of machines.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..40_u64, any::<u64>()]
}

/// A snapshot with correctly counted capacity, and the maximum that it could launch.
pub(crate) fn a_snapshot() -> impl Strategy<Value = Snapshot> {
    let offers = (0..6_usize).prop_flat_map(|n| (0..n).map(an_offer).collect::<Vec<_>>());
    let workers = (0..9_usize).prop_flat_map(|n| (0..n).map(a_worker).collect::<Vec<_>>());
    let limits = (0..12_u64, 0..60_u64, -4..8_i8, any::<(bool, bool, bool)>());
    let numbers = (0..80_u64, 0..12_u64, 0..8_u64, 0..8_u64, 0..8_u64, 0..8_u64);
    let rooms = proptest::collection::vec(proptest::option::of(0..30_u64), 1..4);
    let places = (rooms, any::<[u8; 6]>());
    (offers, workers, limits, numbers, places).prop_map(
        |(mut offers, workers, limits, numbers, places)| {
            let (rooms, picks) = places;
            let sources: Vec<_> = (0..)
                .zip(rooms)
                .map(|(n, room): (u8, _)| source(&format!("cloud-{n}"), room))
                .collect();
            for (offer, pick) in offers.iter_mut().zip(picks) {
                let source = &sources[usize::from(pick) % sources.len()];
                offer.provider_id = source.provider_id.clone();
            }
            let (min, max, ratio, (is_weighted, is_literal, has_max_price)) = limits;
            let mut snapshot = pool(min, max);
            snapshot.settings.scaling_ratio = f64::from(ratio) / 4.0;
            if is_weighted {
                snapshot.settings.scaling_ratio = snapshot.settings.scaling_ratio.abs();
            } else {
                snapshot.settings.strategy = StrategyName::AwsProvisioner;
                snapshot.settings.literal = is_literal;
            }
            if has_max_price {
                snapshot.settings.max_price = 3.0;
            }
            let (pending, claimed, requested, intended, stopping, overdue) = numbers;
            snapshot.demand.pending = pending;
            let capacity = &mut snapshot.capacity;
            (capacity.requested, capacity.intended) = (requested, intended);
            (capacity.stopping, capacity.overdue) = (stopping, overdue);
            for worker in &workers {
                let draining = worker
                    .advice
                    .as_ref()
                    .is_some_and(|advice| advice.terminate);
                let place = match (worker.quarantined_since, draining, worker.silent) {
                    (Some(_), _, _) => &mut capacity.quarantined,
                    (None, true, _) => &mut capacity.draining,
                    (None, false, true) => &mut capacity.silent,
                    (None, false, false) => &mut capacity.running,
                };
                *place += u64::from(worker.capacity);
            }
            let n_busy = workers.iter().filter(|worker| worker.is_busy()).count();
            snapshot.demand.claimed = claimed.max(n_busy as u64);
            Snapshot {
                offers,
                workers,
                sources,
                ..snapshot
            }
        },
    )
}

/// How many machines there are of each offer in the plan.
fn awarded(plan: &Plan, offer: &Offer) -> u64 {
    let of = |award: &&domain::plan::Award| award.launch_config_id == offer.launch_config_id;
    plan.awards
        .iter()
        .filter(of)
        .map(|award| u64::from(award.machines))
        .sum()
}

/// Whether it could give a machine on request. (For `weighted`, whose offers need no price.)
fn is_well(snapshot: &Snapshot, offer: &Offer) -> bool {
    let index = snapshot
        .offers
        .iter()
        .position(|other| other == offer)
        .unwrap();
    chances(snapshot)[index] > 0.0
}

proptest! {
    #[test]
    fn a_stored_input_makes_the_same_plan_byte_by_byte(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = Input::plan(&snapshot, seed).to_json().to_string();
        let packed = Input { seed, snapshot }.pack().unwrap();
        let again = Input::unpack(&packed).unwrap().replay();
        prop_assert_eq!(again.to_json().to_string(), plan);
    }

    #[test]
    fn chances_are_in_proportion_to_the_weights_of_the_usable_offers(snapshot in a_snapshot()) {
        let is_weighted = snapshot.settings.strategy == StrategyName::Weighted;
        let weights = weights(&snapshot);
        prop_assert_eq!(weights.len(), snapshot.offers.len());
        let usable = |weight: &&domain::plan::OfferWeight| weight.usability == Usability::Usable;
        let total: f64 = weights.iter().filter(usable).map(|weight| weight.weight()).sum();
        for weight in &weights {
            prop_assert!((0.0..=1.0).contains(&weight.balance));
            prop_assert!((0.0..=1.0).contains(&weight.health));
            prop_assert_eq!(weight.reason.is_some(), !usable(&weight));
            if !is_weighted {
                continue;
            }
            let chance = weight.chance.unwrap_or(-1.0);
            let expected = if usable(&weight) && total > 0.0 { weight.weight() / total } else { 0.0 };
            prop_assert!((chance - expected).abs() < 1e-9, "{:?} {}", weight, expected);
        }
    }

    #[test]
    fn no_answer_of_a_service_exceeds_a_limit(
        snapshot in a_snapshot(),
        launches in proptest::collection::vec((0..8_usize, any_count()), 0..6),
        stops in proptest::collection::vec(0..12_usize, 0..9),
        (asked_units, age_ms, fallback) in (0..60_u64, -70_000..70_000_i64, 0..3_usize),
        seed in any::<u64>(),
    ) {
        let mut snapshot = snapshot;
        let fallback = [StrategyName::Balanced, StrategyName::Weighted, StrategyName::AwsProvisioner][fallback];
        if fallback != StrategyName::AwsProvisioner {
            snapshot.settings.scaling_ratio = snapshot.settings.scaling_ratio.abs();
        }
        snapshot.settings.strategy = StrategyName::External;
        let service: domain::id::StrategyServiceId = "brain".parse().unwrap();
        snapshot.settings.external = Some(ExternalStrategy { service: service.clone(), fallback });
        let proposal = Proposal {
            launches: launches.into_iter().map(|(n, machines)| ProposedLaunch {
        bid_number: 0,
                launch_config_id: format!("lc-{n}").parse().unwrap(),
                machines,
            }).collect(),
            stop: stops.into_iter().map(|n| ProposedStop {
                worker_group: "g".parse().unwrap(),
                worker_id: format!("w{n}").parse().unwrap(),
            }).collect(),
            ..Proposal::default()
        };
        snapshot.answer = Some(ServiceAnswer {
            service,
            asked: snapshot.now.plus_millis(age_ms),
            units: asked_units,
            outcome: Ok(proposal),
        });
        let plan = decide_with(&snapshot, seed);
        let room = snapshot.settings.max_capacity.saturating_sub(snapshot.capacity.all());
        prop_assert!(launched(&plan) <= room);
        let n_machines: u64 = plan.awards.iter().map(|award| u64::from(award.machines)).sum();
        prop_assert!(n_machines <= MAX_MACHINES);
        for source in &snapshot.sources {
            let of_source = snapshot.offers.iter().filter(|offer| offer.provider_id == source.provider_id);
            let machines: u64 = of_source.map(|offer| awarded(&plan, offer)).sum();
            prop_assert!(machines <= source.room.unwrap_or(u64::MAX));
        }
        for offer in &snapshot.offers {
            let n_machines = awarded(&plan, offer);
            let own = n_machines * u64::from(offer.capacity_each);
            prop_assert!(own == 0 || offer.live + own <= offer.max_capacity.unwrap_or(u64::MAX));
            let dead = offer.initial_weight == 0.0 || offer.bid.is_err();
            prop_assert!(!dead || n_machines == 0);
        }
        for (key, advice) in &plan.advice {
            let worker = snapshot.workers.iter().find(|worker| worker.key == *key).unwrap();
            prop_assert!(advice.reason != REASON_EXTERNAL || !worker.is_busy());
        }
        prop_assert!(plan.change.is_finite() && plan.target.is_finite());
        let input = Input { seed, snapshot };
        let again = Input::unpack(&input.pack().unwrap()).unwrap().replay();
        prop_assert_eq!(again.to_json().to_string(), plan.to_json().to_string());
    }

    #[test]
    fn no_limit_is_ever_exceeded(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = decide_with(&snapshot, seed);
        let units = launched(&plan);
        let machines: u64 = plan.awards.iter().map(|award| u64::from(award.machines)).sum();
        prop_assert!(machines <= MAX_MACHINES);
        for source in &snapshot.sources {
            let of_source = snapshot.offers.iter().filter(|offer| offer.provider_id == source.provider_id);
            let machines: u64 = of_source.map(|offer| awarded(&plan, offer)).sum();
            prop_assert!(machines <= source.room.unwrap_or(u64::MAX));
        }
        let room = snapshot.settings.max_capacity.saturating_sub(snapshot.capacity.all());
        prop_assert!(units <= room);
        for offer in &snapshot.offers {
            let own = awarded(&plan, offer) * u64::from(offer.capacity_each);
            let max = offer.max_capacity.unwrap_or(u64::MAX);
            prop_assert!(own == 0 || offer.live + own <= max);
        }
    }

    #[test]
    fn tasks_beyond_the_most_that_matter_change_nothing(
        snapshot in a_snapshot(),
        further in 0..1_000_u64,
        seed in any::<u64>(),
    ) {
        let mut snapshot = snapshot;
        let capacity = &mut snapshot.capacity;
        let running = capacity.running + capacity.draining + capacity.quarantined;
        snapshot.settings.max_capacity = snapshot.settings.max_capacity.max(running);
        snapshot.demand.pending = snapshot.settings.most_pending();
        let counted = decide_with(&snapshot, seed);
        snapshot.demand.pending += further;
        let all = decide_with(&snapshot, seed);
        let of = |plan: &Plan| (plan.change, plan.target, plan.awards.clone(), plan.advice.clone());
        prop_assert_eq!(of(&counted), of(&all));
    }

    #[test]
    fn an_unusable_offer_is_not_launched(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = decide_with(&snapshot, seed);
        for offer in &snapshot.offers {
            let n_machines = awarded(&plan, offer);
            let dead = offer.initial_weight == 0.0 || offer.bid.is_err();
            prop_assert!(!dead || n_machines == 0);
            let health = &offer.health;
            let ill = health.attempted > 0 && health.registered == 0 && health.failed > 0;
            prop_assert!(!ill || snapshot.settings.literal || n_machines <= 1);
        }
    }

    #[test]
    fn a_plan_overshoots_by_less_than_a_machine(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = decide_with(&snapshot, seed);
        let largest = plan.awards.iter().map(|award| award.capacity_each).max().unwrap_or(0);
        let units = f64::from(u32::try_from(launched(&plan)).unwrap());
        prop_assert!(units == 0.0 || units < plan.change + f64::from(largest));
    }

    #[test]
    fn the_same_seed_makes_the_same_plan(snapshot in a_snapshot(), seed in any::<u64>()) {
        prop_assert_eq!(decide_with(&snapshot, seed), decide_with(&snapshot, seed));
    }

    #[test]
    fn with_one_healthy_launch_config_all_that_is_wanted_comes(
        snapshot in a_snapshot(),
        seed in any::<u64>(),
    ) {
        let mut snapshot = snapshot;
        snapshot.settings.strategy = StrategyName::Weighted;
        snapshot.settings.scaling_ratio = snapshot.settings.scaling_ratio.abs();
        snapshot.offers = vec![offer("good")];
        snapshot.sources = vec![source("cloud", None)];
        let plan = decide_with(&snapshot, seed);
        let room = snapshot.settings.max_capacity.saturating_sub(snapshot.capacity.all());
        let after = snapshot.capacity.running + snapshot.capacity.coming() + launched(&plan);
        let told: u64 = snapshot.workers.iter()
            .filter(|worker| plan.advice.iter().any(|(key, advice)| {
                *key == worker.key && !advice.terminate && worker.quarantined_since.is_none()
            }))
            .map(|worker| u64::from(worker.capacity))
            .sum();
        let min = snapshot.settings.min_capacity.min(snapshot.settings.max_capacity);
        prop_assert!(after + told >= min || launched(&plan) == room);
    }

    #[test]
    fn while_work_waits_and_something_works_something_is_launched(
        snapshot in a_snapshot(),
        seed in any::<u64>(),
    ) {
        let mut snapshot = snapshot;
        snapshot.settings.strategy = StrategyName::Weighted;
        snapshot.settings.scaling_ratio = 1.0;
        let plan = decide_with(&snapshot, seed);
        let room = snapshot.settings.max_capacity.saturating_sub(snapshot.capacity.all());
        let viable = snapshot.offers.iter().any(|offer| {
            is_well(&snapshot, offer) && u64::from(offer.capacity_each) <= room
        });
        if plan.change > 0.0 && viable {
            prop_assert!(launched(&plan) > 0);
        }
    }

    #[test]
    fn no_busy_or_quarantined_worker_is_asked_to_stop_as_surplus(
        snapshot in a_snapshot(),
        seed in any::<u64>(),
    ) {
        let plan = decide_with(&snapshot, seed);
        for (key, advice) in &plan.advice {
            let worker = snapshot.workers.iter().find(|worker| worker.key == *key).unwrap();
            let convenient = advice.reason == REASON_OVER_CAPACITY;
            let healthy = worker.quarantined_since.is_none() && !worker.silent;
            prop_assert!(!convenient || !worker.is_busy() && healthy);
            let told = worker.advice.as_ref().is_some_and(|told| {
                told.terminate && told.reason == REASON_OVER_CAPACITY
            });
            prop_assert!(!convenient || !told, "it was asked already");
            let hold = snapshot.now.millis_since(worker.idle_since) >= worker.idle_hold_ms;
            prop_assert!(!convenient || hold);
        }
    }

    #[test]
    fn no_plan_launches_and_lets_healthy_capacity_go(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = decide_with(&snapshot, seed);
        let lets_go = plan.advice.iter().any(|(key, advice)| {
            let worker = snapshot.workers.iter().find(|worker| worker.key == *key).unwrap();
            let was_going = worker.advice.as_ref().is_some_and(|advice| advice.terminate);
            advice.reason == REASON_OVER_CAPACITY && !was_going
        });
        prop_assert!(!lets_go || plan.awards.is_empty());
    }

    #[test]
    fn what_was_carried_out_is_not_decided_again(snapshot in a_snapshot(), seed in any::<u64>()) {
        let plan = decide_with(&snapshot, seed);
        // Other draws may find machines that these did not, so only advice is compared then.
        let complete = f64::from(u32::try_from(launched(&plan)).unwrap()) >= plan.change;
        let after = decide_with(&carried_out(snapshot, &plan), seed);
        prop_assert!(after.advice.is_empty(), "{}then\n{}", plan.text(), after.text());
        if complete {
            prop_assert!(after.awards.is_empty(), "{}then\n{}", plan.text(), after.text());
        }
    }

    #[test]
    fn all_workers_stop_in_the_end_when_nothing_is_wanted(snapshot in a_snapshot()) {
        let mut snapshot = snapshot;
        snapshot.settings.min_capacity = 0;
        snapshot.settings.scaling_ratio = snapshot.settings.scaling_ratio.abs();
        (snapshot.demand.pending, snapshot.demand.claimed) = (0, 0);
        snapshot.now = snapshot.now.plus_millis(2 * MAX_QUARANTINE_MS);
        for worker in &mut snapshot.workers {
            worker.claimed = 0;
        }
        let plan = decide(&snapshot);
        prop_assert_eq!(launched(&plan), 0);
        let left = carried_out(snapshot, &plan);
        for worker in &left.workers {
            let goes = worker.advice.as_ref().is_some_and(|advice| advice.terminate);
            prop_assert!(goes || worker.silent);
        }
    }
}
