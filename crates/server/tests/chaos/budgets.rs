//! Budgets (I22): nothing is launched that a budget cannot pay.

use std::sync::Arc;

use cloud::FakeSettings;
use domain::budgets::{MoneyBudget, Spending, micros_of};
use domain::id::{PoolId, ProviderId};
use domain::launch::Launch;
use domain::worker::{Worker, WorkerState};
use http::Method;
use serde_json::json;
use server::background::Budgets;
use store::StoreError;

use crate::checks::is_unexpected;
use crate::clouds::Mutant;
use crate::picture::Picture;
use crate::run::Kind;
use crate::world::World;

/// Each with its scope.
const BUDGETS: [(&str, &str, &str); 4] = [
    ("all", "workerPools", "p/*"),
    ("b", "workerPools", "p/b"),
    ("one", "providerId", "one"),
    ("two", "providerId", "two"),
];
/// Of a hundred steps, this many begin with another budget.
const CHANGED: u32 = 25;
/// In dollars a day.
const LIMITS: [f64; 6] = [0.0, 0.2, 0.4, 0.7, 1.0, 1.5];
/// In dollars an hour.
const PRICE: f64 = 0.2;

impl Kind {
    /// Where money is short, one cloud sets a price for all of its machines. In the other one, some
    /// have no known price.
    pub(crate) fn settings_of(self, cloud: &str) -> FakeSettings {
        let is_priced = self == Self::ShortOfMoney && cloud == "one";
        FakeSettings {
            price: is_priced.then_some(PRICE),
            ..FakeSettings::default()
        }
    }
}

impl World {
    /// Somebody may change a budget, and a process measures them all.
    pub(crate) async fn mind_the_money(self: &Arc<Self>) {
        if self.chance.percent(CHANGED) {
            self.change_a_budget().await;
            self.check().await;
        }
        if let Some(process) = self.any_process() {
            process.run(Budgets(Arc::clone(&process.app.engine))).await;
        }
        if self.mutant == Some(Mutant::ForgetsMachines) {
            self.forget_machines().await;
        }
    }

    async fn change_a_budget(&self) {
        let (id, key, scope) = *self.chance.pick(&BUDGETS).expect("there are some");
        let path = format!("/budget/{id}");
        if self.chance.percent(20) {
            self.note(format!("budget {id} is removed"));
            self.ask(Method::DELETE, &path, None).await;
            return;
        }
        let limit = self.chance.pick(&LIMITS).expect("there are some");
        self.note(format!("budget {id} is ${limit} a day"));
        let body = json!({key: scope, "per": "day", "limit": limit});
        if let Some(answer) = self.ask(Method::PUT, &path, Some(&body)).await {
            answer.expect(200);
        }
    }

    /// A plausible mistake: machines that run or are to come reserve nothing.
    async fn forget_machines(&self) {
        let written = self.observer.write("forget_machines", |tx| {
            for budget in store::budgets::list_all(tx)? {
                let spending = Spending {
                    micros: budget.spending.micros,
                    ..Spending::none(budget.spending.measured)
                };
                store::budgets::update(tx, &MoneyBudget { spending, ..budget })?;
            }
            Ok::<_, StoreError>(())
        });
        written.await.expect("the observer's database works");
    }

    /// From here on nothing limits the work that is left.
    pub(crate) async fn remove_budgets(&self) {
        let written = self.observer.write("remove_budgets", |tx| {
            for budget in store::budgets::list_all(tx)? {
                store::budgets::delete(tx, &budget)?;
            }
            Ok::<_, StoreError>(())
        });
        written.await.expect("the observer's database works");
    }

    /// I22: whatever is launched in a step, the money that was spent before it and that its
    /// machines reserve after it is within each budget; or the launch is that of the only machine
    /// that costs anything.
    pub(crate) async fn check_budgets(&self, before: &Picture, after: &Picture) {
        let now = self.now();
        let read = self.observer.read("budgets", move |tx| {
            let budgets = store::budgets::list_all(tx)?.into_iter();
            let measured = budgets.map(|budget| {
                let since = budget.period.span(now).start;
                let mut rows = store::budgets::spent_by(tx, since, now)?;
                rows.extend(store::budgets::to_come(tx)?);
                Ok(budget.measured(&rows, now))
            });
            measured.collect::<Result<Vec<_>, StoreError>>()
        });
        let measured = read.await.expect("the observer's database works");
        let known = std::mem::replace(&mut self.state().budgets, measured.clone());
        for budget in measured {
            let is_same = |known: &&MoneyBudget| {
                known.id == budget.id && known.last_modified == budget.last_modified
            };
            if let Some(known) = known.iter().find(is_same) {
                self.check_budget(known, &budget, (before, after));
            }
        }
    }

    fn check_budget(
        &self,
        known: &MoneyBudget,
        budget: &MoneyBudget,
        (before, after): (&Picture, &Picture),
    ) {
        let limits = |pool: &PoolId, provider: &ProviderId| budget.scope.has(pool, "", provider);
        // Machines that appear although their launches were given up reserve nothing.
        let given_up = |worker: &&Worker| {
            limits(&worker.key.pool_id, &worker.provider_id)
                && worker.state != WorkerState::Stopped
                && is_unexpected(worker)
        };
        let given_up = after.workers.values().filter(given_up);
        let given_up: i64 = given_up
            .filter_map(|worker| worker.price.map(micros_of))
            .sum();
        let reserved = budget.spending.hourly - given_up;
        // Some machines turn out to have run for longer or shorter than was known.
        let spent = known.spending.micros.min(budget.spending.micros);
        let is_new = |launch: &&Launch| {
            !before.launches.contains_key(&launch.token)
                && limits(&launch.pool_id, &launch.provider_id)
        };
        for launch in after.launches.values().filter(is_new) {
            let price = launch.price.map_or(0, micros_of);
            let has_others = reserved > price;
            let is_beyond = price > 0 && has_others && spent + reserved > budget.amount;
            if is_beyond || spent >= budget.amount {
                let text = budget.text(self.now());
                self.problem(format!("I22: {launch:?} is beyond {text}"));
            }
        }
    }
}
