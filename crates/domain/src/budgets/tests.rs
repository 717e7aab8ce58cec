//! Budgets at many moments: steps, periods, clocks that are set, and what is left.

use super::*;

const DOLLAR: i64 = 1_000_000;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn noon() -> Timestamp {
    at("2026-11-30T12:00:00Z")
}

fn budget(period: BudgetPeriod, amount: i64) -> MoneyBudget {
    MoneyBudget {
        id: "fuzzing".parse().unwrap(),
        scope: BudgetScope::Pools("proj-fuzz/*".parse().unwrap()),
        period,
        amount,
        currency: Currency::Usd,
        shares: StepShares::default(),
        description: String::new(),
        created: noon(),
        last_modified: noon(),
        spending: Spending::none(noon()),
        version: Version::FIRST,
    }
}

/// With this much spent at noon, and this many machines that run for a dollar an hour.
fn spent(period: BudgetPeriod, amount: i64, micros: i64, machines: i64) -> MoneyBudget {
    MoneyBudget {
        spending: Spending {
            measured: noon(),
            micros,
            hourly: machines * DOLLAR,
            machines: u64::try_from(machines).unwrap(),
            launched: u64::try_from(machines).unwrap(),
        },
        ..budget(period, amount)
    }
}

#[test]
fn each_step_follows_at_its_share_and_includes_the_ones_before() {
    let day = budget(BudgetPeriod::Day, 10 * DOLLAR);
    let step = |micros| day.step_at(micros);
    assert_eq!(step(0), BudgetStep::Within);
    assert_eq!(step(8 * DOLLAR - 1), BudgetStep::Within);
    assert_eq!(step(8 * DOLLAR), BudgetStep::Warned);
    assert_eq!(step(9 * DOLLAR), BudgetStep::Lowered);
    assert_eq!(step(10 * DOLLAR - 1), BudgetStep::Lowered);
    assert_eq!(step(10 * DOLLAR), BudgetStep::Spent);
    assert_eq!(step(i64::MAX), BudgetStep::Spent);
    assert!(BudgetStep::ALL.is_sorted());
}

#[test]
fn a_budget_of_zero_is_spent_from_the_start() {
    let nothing = budget(BudgetPeriod::Month, 0);
    assert_eq!(nothing.check(), Ok(()));
    let room = nothing.room(noon());
    assert_eq!(
        (room.step, room.affords(None), room.affords(Some(1))),
        (BudgetStep::Spent, 0, 0)
    );
    assert!(!room.is_untouched);
}

#[test]
fn hosts_and_machines_without_a_price_do_not_keep_a_small_budget_from_its_first_machine() {
    let mut day = budget(BudgetPeriod::Day, DOLLAR);
    // A declared host for half a dollar an hour, and two that cost nothing.
    day.spending.hourly = DOLLAR / 2;
    day.spending.machines = 3;
    let dear = Some(2 * DOLLAR);
    assert_eq!(day.room(noon()).affords(dear), 1);
    let with_unpriced = day.clone().launched(std::iter::once((None, 4)));
    assert_eq!(with_unpriced.room(noon()).affords(dear), 1);
    let with_priced = day.launched(std::iter::once((Some(1), 1)));
    assert_eq!(with_priced.spending.machines, 4);
    assert_eq!(with_priced.room(noon()).affords(dear), 0);
}

#[test]
fn a_budget_that_shrinks_below_what_is_spent_is_spent_and_one_that_grows_is_not() {
    let day = spent(BudgetPeriod::Day, 10 * DOLLAR, 5 * DOLLAR, 0);
    assert_eq!(day.state(noon()).step, BudgetStep::Within);
    let shrunk = MoneyBudget {
        amount: 4 * DOLLAR,
        ..day.clone()
    };
    assert_eq!(shrunk.state(noon()).step, BudgetStep::Spent);
    assert_eq!(shrunk.state(noon()).left(shrunk.amount), 0);
    let grown = MoneyBudget {
        amount: 20 * DOLLAR,
        ..shrunk
    };
    assert_eq!(grown.state(noon()).step, BudgetStep::Within);
    assert_eq!(grown.room(noon()).left, 15 * DOLLAR);
}

#[test]
fn machines_count_as_running_on_since_the_last_measure() {
    let day = spent(BudgetPeriod::Day, 100 * DOLLAR, 5 * DOLLAR, 6);
    let later = day.state(noon().plus_millis(HOUR_MS / 2));
    assert_eq!((later.spent, later.reserved), (8 * DOLLAR, 6 * DOLLAR));
    assert_eq!(later.left(day.amount), 86 * DOLLAR);
    // Rounded up, so that no part of a unit is lost.
    assert_eq!(day.state(noon().plus_millis(1)).spent, 5 * DOLLAR + 2);
}

#[test]
fn a_new_period_begins_with_nothing_spent_and_counts_the_machines_that_run_on() {
    let midnight = at("2026-12-01T00:00:00Z");
    for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
        let all = spent(period, 20 * DOLLAR, 20 * DOLLAR, 2);
        let before = all.state(midnight.plus_millis(-1));
        assert_eq!(
            (before.step, before.span.end),
            (BudgetStep::Spent, midnight)
        );
        let after = all.state(midnight);
        assert_eq!((after.step, after.spent), (BudgetStep::Within, 0));
        let later = all.state(midnight.plus_millis(HOUR_MS));
        assert_eq!((later.spent, later.reserved), (2 * DOLLAR, 2 * DOLLAR));
    }
    let hour = spent(BudgetPeriod::Hour, DOLLAR, DOLLAR, 0);
    assert_eq!(hour.state(noon()).step, BudgetStep::Spent);
    assert_eq!(
        hour.state(noon().plus_millis(HOUR_MS)).step,
        BudgetStep::Within
    );
}

#[test]
fn a_clock_that_is_set_back_frees_no_money() {
    let day = spent(BudgetPeriod::Day, 10 * DOLLAR, 10 * DOLLAR, 1);
    // Within the period, and into the one before.
    for back in [HOUR_MS, 24 * HOUR_MS, 40 * 24 * HOUR_MS] {
        let state = day.state(noon().plus_millis(-back));
        assert_eq!(
            (state.step, state.spent),
            (BudgetStep::Spent, 10 * DOLLAR),
            "{back}"
        );
    }
}

#[test]
fn a_clock_that_is_set_forward_begins_the_period_of_its_time() {
    let month = spent(BudgetPeriod::Month, 10 * DOLLAR, 10 * DOLLAR, 1);
    let wrong = month.state(at("2027-02-03T00:00:00Z"));
    // All machines count as running since the first of that month.
    assert_eq!((wrong.spent, wrong.step), (48 * DOLLAR, BudgetStep::Spent));
    // Set right again: what was measured before holds.
    assert_eq!(month.state(noon()).spent, 10 * DOLLAR);
}

#[test]
fn machines_reserve_an_hour_and_a_plan_takes_no_more_than_is_left() {
    let day = spent(BudgetPeriod::Day, 10 * DOLLAR, 5 * DOLLAR, 2);
    let mut room = day.room(noon());
    assert_eq!(room.left, 3 * DOLLAR);
    assert_eq!(
        (room.affords(Some(DOLLAR)), room.affords(Some(2 * DOLLAR))),
        (3, 1)
    );
    room.take(Some(DOLLAR), 2);
    assert_eq!((room.left, room.affords(Some(DOLLAR))), (DOLLAR, 1));
    room.take(Some(DOLLAR), 1);
    assert_eq!(room.affords(Some(1)), 0);
    let launched = day.launched([(Some(DOLLAR), 2), (Some(DOLLAR), 1), (None, 1)].into_iter());
    assert_eq!(launched.spending.machines, 6);
    assert_eq!(launched.room(noon()).left, 0);
}

#[test]
fn the_first_machine_may_cost_more_in_an_hour_than_is_left() {
    let day = budget(BudgetPeriod::Day, DOLLAR);
    let mut room = day.room(noon());
    assert_eq!(room.affords(Some(7 * DOLLAR)), 1);
    room.take(Some(7 * DOLLAR), 1);
    assert_eq!((room.left, room.affords(Some(7 * DOLLAR))), (0, 0));
    let busy = spent(BudgetPeriod::Day, 8 * DOLLAR, 0, 1);
    assert_eq!(busy.room(noon()).affords(Some(8 * DOLLAR)), 0);
    // Without a price it cannot be measured, so it stops when all is spent.
    assert_eq!(busy.room(noon()).affords(None), u64::MAX);
}

#[test]
fn the_maximum_is_lowered_at_its_share_and_not_below_one() {
    let max = |day: &MoneyBudget, max: u64| day.lowered(max, noon()).map(|(max, _)| max);
    let within = spent(BudgetPeriod::Day, 10 * DOLLAR, 8 * DOLLAR, 0);
    assert_eq!(max(&within, 10), None);
    let low = spent(BudgetPeriod::Day, 10 * DOLLAR, 9 * DOLLAR, 0);
    assert_eq!(
        [0, 1, 2, 3, 11].map(|most| max(&low, most)),
        [None, None, Some(1), Some(1), Some(5)]
    );
    let provider = MoneyBudget {
        scope: BudgetScope::Provider("aws".parse().unwrap()),
        ..low.clone()
    };
    assert_eq!(max(&provider, 10), None);
    let (_, text) = low.lowered(10, noon()).unwrap();
    assert_eq!(
        text,
        "maxCapacity 5 instead of 10: at least 90 % of budget fuzzing is spent"
    );
    let mut one = low;
    one.spending.machines = 1;
    assert!(
        one.text(noon())
            .contains("for the next hour of 1 machine, ")
    );
}

#[test]
fn a_budget_of_a_provider_refuses_only_its_launch_configs() {
    let mut all = spent(BudgetPeriod::Day, DOLLAR, DOLLAR, 0);
    all.scope = BudgetScope::Provider("aws".parse().unwrap());
    let room = all.room(noon());
    let refusal = |provider: &str| room.refusal(&provider.parse().unwrap(), Some(1));
    assert!(
        refusal("aws")
            .unwrap()
            .starts_with("budget fuzzing is spent")
    );
    assert_eq!(refusal("azure"), None);
    let dear = spent(BudgetPeriod::Day, 2 * DOLLAR, 0, 1).room(noon());
    let why = dear
        .refusal(&"aws".parse().unwrap(), Some(2 * DOLLAR))
        .unwrap();
    assert!(
        why.starts_with("an hour of it costs $2: budget fuzzing"),
        "{why}"
    );
}

#[test]
fn what_is_no_budget_is_refused_with_what_to_do() {
    let good = budget(BudgetPeriod::Day, DOLLAR);
    assert_eq!(good.check(), Ok(()));
    let amount = |amount| {
        MoneyBudget {
            amount,
            ..good.clone()
        }
        .check()
    };
    assert_eq!(
        [amount(-1), amount(MAX_AMOUNT_MICROS + 1)],
        [Err(BadBudget::Amount); 2]
    );
    assert_eq!([amount(0), amount(MAX_AMOUNT_MICROS)], [Ok(()); 2]);
    let shares = |warn_at, lower_at, lower_to| {
        let shares = StepShares {
            warn_at,
            lower_at,
            lower_to,
        };
        MoneyBudget {
            shares,
            ..good.clone()
        }
        .check()
    };
    assert_eq!([shares(1, 1, 0), shares(100, 100, 100)], [Ok(()); 2]);
    for bad in [
        shares(0, 1, 0),
        shares(91, 90, 0),
        shares(1, 101, 0),
        shares(1, 2, 101),
    ] {
        assert_eq!(bad, Err(BadBudget::Shares));
    }
    let without_owner = MoneyBudget {
        scope: BudgetScope::Owner(" ".to_owned()),
        ..good
    };
    assert_eq!(without_owner.check(), Err(BadBudget::NoOwner));
}

#[test]
fn money_is_printed_to_the_last_unit() {
    let texts = [
        0,
        1,
        10_000,
        1_500_000,
        240 * DOLLAR,
        238_100_000,
        -2_050_000,
        i64::MAX,
    ];
    assert_eq!(
        texts.map(money),
        [
            "$0",
            "$0.000001",
            "$0.01",
            "$1.50",
            "$240",
            "$238.10",
            "-$2.05",
            "$9223372036854.775807"
        ]
    );
    assert_eq!(micros_of(0.031), 31_000);
}

#[test]
fn a_measure_counts_the_rows_of_the_scope_and_no_others() {
    let row = |pool: &str, provider: &str, owner: &str, micros| SpentBy {
        pool_id: pool.parse().unwrap(),
        provider_id: provider.parse().unwrap(),
        owner: owner.to_owned(),
        micros,
        hourly: 10 * micros,
        machines: 1,
        launched: 1,
    };
    let rows = [
        row("proj-fuzz/a", "aws", "ann", 1),
        row("proj-fuzz/b", "azure", "bob", 2),
        row("proj/c", "aws", "bob", 4),
    ];
    let sum = |scope: BudgetScope| {
        let of_scope = MoneyBudget {
            scope,
            ..budget(BudgetPeriod::Day, DOLLAR)
        };
        let spending = of_scope.measured(&rows, noon()).spending;
        assert_eq!(spending.hourly, 10 * spending.micros);
        (spending.micros, spending.machines)
    };
    assert_eq!(
        sum(BudgetScope::Pools("proj-fuzz/*".parse().unwrap())),
        (3, 2)
    );
    assert_eq!(sum(BudgetScope::Pools("*".parse().unwrap())), (7, 3));
    assert_eq!(sum(BudgetScope::Owner("bob".to_owned())), (6, 2));
    assert_eq!(sum(BudgetScope::Provider("aws".parse().unwrap())), (5, 2));
    assert_eq!(sum(BudgetScope::Owner("eve".to_owned())), (0, 0));
}

#[test]
fn a_measure_of_a_quiet_scope_is_news_in_a_new_period_only() {
    let quiet = spent(BudgetPeriod::Day, DOLLAR, 0, 0);
    let again = |hours| {
        quiet
            .clone()
            .measured(&[], noon().plus_millis(hours * HOUR_MS))
    };
    assert!(!again(1).has_news_since(&quiet));
    assert!(again(12).has_news_since(&quiet));
    assert!(again(1).has_news_since(&spent(BudgetPeriod::Day, DOLLAR, 0, 1)));
    assert!(again(1).has_news_since(&spent(BudgetPeriod::Day, DOLLAR, 1, 0)));
}
