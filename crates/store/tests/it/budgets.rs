//! Budgets: a plan reads those that limit its pool.

use domain::Version;
use domain::budgets::{BudgetPeriod, BudgetScope, MoneyBudget, Spending, StepShares};
use domain::cost::Currency;
use store::budgets;

use crate::samples::{at, pool};
use crate::world::{on_both, read, write};

fn budget(id: &str, scope: BudgetScope) -> MoneyBudget {
    MoneyBudget {
        id: id.parse().unwrap(),
        scope,
        period: BudgetPeriod::Day,
        amount: 5_000_000,
        currency: Currency::Usd,
        shares: StepShares::default(),
        description: String::new(),
        created: at(5),
        last_modified: at(5),
        spending: Spending::none(at(5)),
        version: Version::FIRST,
    }
}

on_both!(a_plan_reads_the_budgets_that_limit_its_pool, |database| {
    let store = database.migrated().await;
    let given = pool("a/b", "aws");
    let pools_of = |text: &str| BudgetScope::Pools(text.parse().unwrap());
    let owned_by = |text: &str| BudgetScope::Owner(text.to_owned());
    let made_by = |text: &str| BudgetScope::Provider(text.parse().unwrap());
    let all = [
        budget("1-other-pool", pools_of("a/bb")),
        budget("2-pool", pools_of("a/b")),
        budget("3-siblings", pools_of("a/*")),
        budget("4-others", pools_of("aa/*")),
        budget("5-all", pools_of("*")),
        budget("6-owner", owned_by("ops@example.com")),
        budget("7-other-owner", owned_by("a/b")),
        budget("8-provider", made_by("aws")),
        budget("9-other-provider", made_by("google")),
    ];
    let expected: Vec<MoneyBudget> = all
        .iter()
        .filter(|budget| budget.scope.concerns(&given))
        .cloned()
        .collect();
    assert_eq!(expected.len(), 5);
    let limiting = async || {
        let given = given.clone();
        read(&store, move |tx| budgets::list_limiting(tx, &given)).await
    };
    assert!(limiting().await.is_empty());
    for budget in all {
        assert!(write(&store, move |tx| budgets::insert(tx, &budget)).await);
    }
    assert_eq!(limiting().await, expected);
});
