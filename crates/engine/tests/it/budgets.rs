//! Budgets are changed only from the scope that their caller may change.

use domain::Version;
use domain::audit::EntityType;
use domain::budgets::{BudgetScope, MoneyBudget, Spending, StepShares, micros_of};
use engine::budgets::{self, BudgetError};

use crate::world::World;

fn budget(world: &World, owner: &str, dollars: f64) -> MoneyBudget {
    let now = world.now();
    MoneyBudget {
        id: "team".parse().unwrap(),
        scope: BudgetScope::Owner(owner.to_owned()),
        period: "day".parse().unwrap(),
        amount: micros_of(dollars),
        currency: "USD".parse().unwrap(),
        shares: StepShares::default(),
        description: String::new(),
        created: now,
        last_modified: now,
        spending: Spending::none(now),
        version: Version::FIRST,
    }
}

#[tokio::test]
async fn a_budget_that_got_another_scope_meanwhile_is_not_changed() {
    let world = World::new().await;
    let set = async |asked: MoneyBudget, seen: Option<&str>| {
        let seen = seen.map(|owner| BudgetScope::Owner(owner.to_owned()));
        let audit = world.audit(EntityType::Budget, "team", "set");
        budgets::set(&world.engine, asked, seen, audit).await
    };
    // Two callers see no budget of this name, and both create it.
    set(budget(&world, "a@example.com", 1.0), None)
        .await
        .unwrap();
    let other = budget(&world, "b@example.com", 2.0);
    for seen in [None, Some("c@example.com")] {
        let refused = set(other.clone(), seen).await.unwrap_err();
        assert!(matches!(refused, BudgetError::OtherScope(_)), "{refused}");
    }
    let stored = budgets::get(&world.engine, other.id.clone()).await.unwrap();
    assert_eq!(stored.scope, BudgetScope::Owner("a@example.com".to_owned()));
    // A caller that may change the present scope may do so, and the amount needs no more.
    set(other, Some("a@example.com")).await.unwrap();
    set(budget(&world, "b@example.com", 3.0), None)
        .await
        .unwrap();
    assert_eq!(world.actions(EntityType::Budget, "team").await.len(), 3);
}
