//! Budgets (I22): no launch is decided that its budgets cannot pay.

use std::sync::Arc;

use domain::budgets::{MoneyBudget, Spending, micros_of};
use domain::launch::Launch;
use domain::time::HOUR_MS;
use domain::worker::WorkerState;
use http::Method;
use serde_json::json;
use server::background::Budgets;
use store::StoreError;

use crate::checks::is_unexpected;
use crate::clouds::Mutant;
use crate::picture::Picture;
use crate::world::{Process, World};

/// Each with its scope.
const BUDGETS: [(&str, &str, &str); 3] = [
    ("all", "workerPools", "*"),
    ("slow", "workerPools", "p/c"),
    ("two", "providerId", "two"),
];

impl World {
    /// In some worlds money is short.
    pub(crate) fn has_budgets(&self) -> bool {
        self.seed % 7 == 3
    }

    /// Somebody sets a budget, or removes it. An hour of a machine costs half of a dollar, a tenth,
    /// or nothing.
    pub(crate) async fn change_budget(&self) {
        let budget = *self.chance.pick(&BUDGETS).expect("there are some");
        if self.chance.percent(80) {
            self.set_budget(budget).await;
            return;
        }
        let (id, ..) = budget;
        self.note(format!("budget {id} is removed"));
        self.ask(Method::DELETE, &format!("/budget/{id}"), None)
            .await;
    }

    /// Those of the beginning.
    pub(crate) async fn make_budgets(&self) {
        for budget in BUDGETS {
            if self.has_budgets() && self.chance.percent(70) {
                self.set_budget(budget).await;
            }
        }
    }

    async fn set_budget(&self, (id, key, scope): (&str, &str, &str)) {
        let path = format!("/budget/{id}");
        let tenths = self.chance.below(25);
        let limit: f64 = format!("{}.{}", tenths / 10, tenths % 10)
            .parse()
            .expect("it is a number");
        self.note(format!("budget {id} is ${limit} a day"));
        let body = json!({key: scope, "per": "day", "limit": limit});
        self.ask(Method::PUT, &path, Some(&body)).await;
    }

    /// Before a decision, as every quarter of a minute.
    pub(crate) async fn measure_budgets_in(&self, process: &Process) {
        if self.has_budgets() && self.mutant != Some(Mutant::ForgetsMoney) {
            process.run(Budgets(Arc::clone(&process.app.engine))).await;
        }
    }

    /// A plausible mistake: what was launched under a budget since its measure does not count.
    pub(crate) async fn forget_money(&self) {
        let now = self.now();
        let written = self.observer.write("forget_money", move |tx| {
            for budget in store::budgets::list_all(tx)? {
                let spending = Spending::none(now);
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

    /// I22: with the launches of this step, the money that is spent and reserved is within each
    /// budget; or the launch is that of the only machine that costs anything.
    pub(crate) async fn check_budgets(&self, before: &Picture, after: &Picture) {
        let launches = after.launches.values();
        let new: Vec<&Launch> = launches
            .filter(|launch| !before.launches.contains_key(&launch.token))
            .collect();
        if !self.has_budgets() || new.is_empty() {
            return;
        }
        let now = self.now();
        let read = self.observer.read("budgets", move |tx| {
            let mut measured = Vec::new();
            for budget in store::budgets::list_all(tx)? {
                let since = budget.period.span(now).start;
                let mut rows = store::budgets::spent_by(tx, since, now)?;
                rows.extend(store::budgets::to_come(tx)?);
                measured.push(budget.measured(&rows, now));
            }
            Ok::<_, StoreError>(measured)
        });
        for budget in read.await.expect("the observer's database works") {
            for launch in &new {
                self.check_budget(&budget, launch, after);
            }
        }
    }

    fn check_budget(&self, budget: &MoneyBudget, launch: &Launch, after: &Picture) {
        let now = self.now();
        let owner = after.pools.get(&launch.pool_id);
        let owner = owner.map_or("", |pool| pool.definition.owner.as_str());
        let is_limited = budget
            .scope
            .has(&launch.pool_id, owner, &launch.provider_id);
        let is_of_period = budget.period.span(now).contains(launch.created);
        if !is_limited || !is_of_period || launch.created < budget.last_modified {
            return;
        }
        // Machines that appear although their launches were given up reserve nothing.
        let unexpected = after
            .workers
            .values()
            .filter(|worker| worker.state != WorkerState::Stopped && is_unexpected(worker));
        let unexpected: i64 = unexpected
            .filter_map(|worker| worker.price.map(micros_of))
            .sum();
        let Spending { micros, hourly, .. } = budget.spending;
        // Spent since the launch.
        let since = now.millis_since(launch.created).max(0);
        let since = i64::try_from(i128::from(hourly) * i128::from(since) / i128::from(HOUR_MS));
        let since = since.expect("it is a small sum");
        let price = launch.price.map_or(0, micros_of);
        let has_others = hourly - unexpected > price;
        let is_beyond = micros + hourly > budget.amount + since + unexpected;
        if price > 0 && has_others && is_beyond {
            self.problem(format!("I22: {launch:?} is beyond {}", budget.text(now)));
        } else if micros > budget.amount + since {
            self.problem(format!("I22: {launch:?} begins after {}", budget.text(now)));
        }
    }
}
