//! Tests of the harness: it must find each of these deliberate mistakes.

use std::sync::Arc;

use cloud::{LaunchOrder, Machines};
use domain::Version;
use domain::facts::Facts;
use domain::launch::{Launch, LaunchState, StoredLaunch};
use engine::fleet::{self, PlannedLaunch};
use serde_json::Map;
use store::StoreError;

use crate::clouds::Mutant;
use crate::picture::Picture;
use crate::run::{Kind, run};
use crate::world::{CLOUDS, Process, ROOT_URL, World};

/// Seeds to try at most for each mutant.
const SEEDS: u64 = 200;

/// A mutant's own calls to a cloud have no other time limit.
const ANSWER_LIMIT: std::time::Duration = std::time::Duration::from_millis(20);

/// At least one seed must find it, and report this invariant. The first seed saves time.
async fn is_found(mutant: Mutant, first_seed: u64, invariant: &str) {
    is_found_in(Kind::Usual, mutant, first_seed, invariant).await;
}

#[expect(clippy::print_stdout, reason = "it is the first seed to write here")]
async fn is_found_in(kind: Kind, mutant: Mutant, first_seed: u64, invariant: &str) {
    let mut others = Vec::new();
    for seed in first_seed..first_seed + SEEDS {
        let ran = run(kind, seed, Some(mutant), None).await;
        if ran
            .problems
            .iter()
            .any(|problem| problem.starts_with(invariant))
        {
            println!("found by the seed {seed}");
            return;
        }
        others.extend(ran.problems);
    }
    panic!("{mutant:?} is not found in {SEEDS} seeds; these were: {others:#?}");
}

#[tokio::test]
async fn a_provider_that_ignores_tokens_is_found() {
    is_found(Mutant::IgnoresTokens, 0, "I2").await;
}

#[tokio::test]
async fn a_provider_that_believes_everybody_is_found() {
    is_found(
        Mutant::BelievesEverybody,
        0,
        "a wrong claim got credentials",
    )
    .await;
}

#[tokio::test]
async fn a_provider_that_treats_unseen_machines_as_lost_is_found() {
    is_found(Mutant::TakesTheUnseenForGone, 0, "I4").await;
}

#[tokio::test]
async fn a_provider_that_ends_foreign_machines_is_found() {
    is_found(Mutant::EndsForeignMachines, 0, "I14").await;
}

#[tokio::test]
async fn a_provider_that_forgets_to_end_is_found() {
    is_found(Mutant::ForgetsToEnd, 0, "I11").await;
}

#[tokio::test]
async fn deciding_on_old_facts_without_a_turn_is_found() {
    is_found(Mutant::PlansOnOldFacts, 0, "I").await;
}

#[tokio::test]
async fn a_provider_that_treats_a_silent_region_as_empty_is_found() {
    is_found(Mutant::TakesTheSilentForGone, 0, "I4").await;
}

#[tokio::test]
async fn asking_again_at_once_after_a_refusal_is_found() {
    is_found(Mutant::ForgetsRefusals, 0, "I9: asked again").await;
}

#[tokio::test]
async fn a_provider_that_lists_nothing_is_found() {
    is_found(Mutant::ListsNothing, 0, "I11").await;
}

#[tokio::test]
async fn serving_one_batch_of_those_who_wait_is_found() {
    is_found(Mutant::ServesOneBatch, 0, "queue: tasks wait").await;
}

#[tokio::test]
async fn launching_withdrawn_workers_after_a_freeze_is_found() {
    is_found(Mutant::LaunchesAfterThawing, 0, "I2: no row").await;
}

#[tokio::test]
async fn counting_signs_from_before_the_clocks_were_set_back_is_found() {
    is_found(Mutant::CountsSignsAhead, 0, "I8").await;
}

#[tokio::test]
async fn launching_workers_that_could_not_be_stored_is_found() {
    is_found(Mutant::LaunchesUnwritten, 0, "I2").await;
}

#[tokio::test]
async fn charging_a_second_twice_is_found() {
    is_found(Mutant::ChargesASecondTwice, 0, "I20").await;
}

#[tokio::test]
async fn taking_the_runs_of_a_part_for_all_of_them_is_found() {
    is_found(Mutant::TakesPartsForAll, 0, "I20").await;
}

#[tokio::test]
async fn charging_a_second_to_nobody_is_found() {
    is_found(Mutant::ChargesASecondToNobody, 0, "I20").await;
}

#[tokio::test]
async fn using_the_clock_of_the_own_machine_is_found() {
    is_found_in(Kind::WrongClocks, Mutant::UsesItsOwnClock, 0, "I21").await;
}

#[tokio::test]
async fn working_without_knowing_the_time_is_found() {
    is_found_in(Kind::WrongClocks, Mutant::ActsInDoubt, 0, "I21").await;
}

#[tokio::test]
async fn ending_claims_at_once_after_a_step_of_the_time_is_found() {
    is_found_in(Kind::WrongClocks, Mutant::EndsAfterAStep, 0, "I21").await;
}

#[tokio::test]
async fn forgetting_the_machines_under_a_budget_is_found() {
    is_found_in(Kind::ShortOfMoney, Mutant::ForgetsMachines, 0, "I22").await;
}

impl World {
    /// A plausible mistake: the facts are planned and launched without a turn.
    pub(crate) async fn launch_without_a_turn(&self, process: &Arc<Process>, facts: &Facts) {
        let Ok(Some((_, plan))) = fleet::preview(&process.app.engine, facts.clone()).await else {
            return;
        };
        let mut launches = Vec::new();
        for award in &plan.awards {
            let found = facts
                .launch_configs
                .iter()
                .find(|known| known.id == award.launch_config_id);
            let config = found.expect("an award is for a launch config").clone();
            let launch = Launch::from_stored(StoredLaunch {
                token: self.fresh_token(),
                pool_id: facts.pool.id.clone(),
                provider_id: config.provider_id(&facts.pool).clone(),
                launch_config_id: config.id.clone(),
                offering: None,
                machines: award.machines,
                capacity_each: award.capacity_each,
                max_price: award.max_price,
                price: award.price,
                state: LaunchState::Open,
                asked: None,
                made: 0,
                plan: 0,
                created: facts.horizon.now,
                last_modified: facts.horizon.now,
                version: Version::FIRST,
            });
            launches.push(PlannedLaunch {
                launch,
                launch_config: config,
                bid_data: Arc::default(),
            });
        }
        let intents: Vec<Launch> = launches
            .iter()
            .map(|planned| planned.launch.clone())
            .collect();
        let written = process.app.engine.store.write("no_turn", move |tx| {
            let mut intents = intents.iter();
            intents.try_for_each(|launch| store::launches::insert(tx, launch))
        });
        let written: Result<(), StoreError> = written.await;
        let does_not_care = self.mutant == Some(Mutant::LaunchesUnwritten);
        if written.is_ok() != does_not_care {
            fleet::start_launches(&process.app.engine, &facts.pool, launches);
        }
    }

    /// A plausible mistake of a process that continues after freezing: it makes launches that were
    /// withdrawn while it was frozen.
    pub(crate) async fn launch_what_was_withdrawn(&self) {
        let picture = Picture::take(&self.observer, self.now()).await;
        for launch in picture.launches.values() {
            let is_withdrawn = matches!(launch.state, LaunchState::Withdrawn { .. });
            if !is_withdrawn || launch.asked.is_some() {
                continue;
            }
            let pool = picture.pools.get(&launch.pool_id);
            let mut configs = picture.configs.iter();
            let config = configs.find(|config| {
                config.pool_id == launch.pool_id && config.id == launch.launch_config_id
            });
            let place = CLOUDS
                .iter()
                .position(|(id, _)| *id == launch.provider_id.as_str());
            if let (Some(pool), Some(launch_config), Some(place)) = (pool, config, place) {
                let order = LaunchOrder {
                    token: &launch.token,
                    pool,
                    launch_config,
                    machines: launch.machines,
                    capacity_each: launch.capacity_each,
                    max_price: launch.max_price,
                    price: launch.price,
                    bid_data: &Map::new(),
                    pool_data: &serde_json::Value::Null,
                    root_url: ROOT_URL,
                    now: self.now(),
                };
                // A cloud may never answer.
                let launched = self.clouds[place].launch(&order);
                let _ = tokio::time::timeout(ANSWER_LIMIT, launched).await;
            }
        }
    }
}
