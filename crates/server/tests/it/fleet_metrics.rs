//! The state of pools as metrics.

use server::background::driver::BackgroundTask as _;
use server::background::{FleetMeasure, MeasureLimits};

use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, plain_pool};

/// The values of the series of this name, with their labels.
fn series(fleet: &Fleet, name: &str) -> Vec<(String, f64)> {
    let text = fleet.app.telemetry.render();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let pairs = lines.filter_map(|rest| rest.strip_prefix('{')?.split_once("} "));
    let mut found: Vec<(String, f64)> = pairs
        .map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()))
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// The value of the only series with all these parts.
fn value(fleet: &Fleet, name: &str, parts: &[&str]) -> f64 {
    let all = series(fleet, name);
    let mut with_parts = all
        .iter()
        .filter(|(labels, _)| parts.iter().all(|part| labels.contains(part)));
    let found = with_parts
        .next()
        .unwrap_or_else(|| panic!("{name} {parts:?}: {all:?}"));
    assert!(with_parts.next().is_none(), "{name} {parts:?}: {all:?}");
    found.1
}

fn assert_is(found: f64, expected: f64, name: &str) {
    assert!((found - expected).abs() < 1e-9, "{name}: {found}");
}

fleet_on_sqlite_first!(
    the_tasks_and_the_capacity_of_a_pool_are_shown_with_the_cause_of_the_wait,
    |fleet| {
        let mut measure = FleetMeasure::new(fleet.app.clone());
        fleet.make_pool(POOL, plain_pool(2)).await;
        fleet.tasks(POOL, 5).await;
        fleet.provision().await;
        fleet.clock.advance_ms(90_000);
        measure.activate().await.unwrap();
        for (name, parts, expected) in [
            ("fleetwright_tasks", &["pending"][..], 5.0),
            ("fleetwright_tasks", &["running"], 0.0),
            ("fleetwright_oldest_pending_task_seconds", &[], 90.0),
            ("fleetwright_waiting_tasks", &["cause="], 5.0),
            ("fleetwright_capacity_maximum", &[], 2.0),
            ("fleetwright_worker_pool_errors", &[], 0.0),
        ] {
            let parts: Vec<&str> = [POOL].iter().chain(parts).copied().collect();
            assert_is(value(fleet, name, &parts), expected, name);
        }
        let units = series(fleet, "fleetwright_capacity");
        let units: f64 = units.iter().map(|(_, units)| units).sum();
        assert_is(units, 2.0, "all units");
    }
);

fleet_on_sqlite_first!(a_cause_that_has_ended_is_shown_as_nothing, |fleet| {
    let mut measure = FleetMeasure::new(fleet.app.clone());
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.tasks(POOL, 1).await;
    fleet.provision().await;
    measure.activate().await.unwrap();
    assert_is(
        value(fleet, "fleetwright_waiting_tasks", &[POOL]),
        1.0,
        "one waits",
    );
    // The task is overdue then.
    fleet.clock.advance_ms(86_400_000);
    measure.activate().await.unwrap();
    for name in ["fleetwright_waiting_tasks", "fleetwright_tasks"] {
        let left: f64 = series(fleet, name).iter().map(|(_, value)| value).sum();
        assert_is(left, 0.0, name);
    }
});

fleet_on_sqlite_first!(queues_beyond_a_page_are_shown_too, |fleet| {
    let limits = MeasureLimits { page: 2, pages: 2 };
    for number in 0..5 {
        let pool = format!("{POOL}-{number}");
        fleet.make_pool(&pool, plain_pool(1)).await;
        fleet.tasks(&pool, 1).await;
    }
    let mut measure = FleetMeasure::new(fleet.app.clone());
    measure.with_limits(limits).await.unwrap();
    let oldest = series(fleet, "fleetwright_oldest_pending_task_seconds");
    assert_eq!(oldest.len(), 4, "{oldest:?}");
    assert_eq!(series(fleet, "fleetwright_capacity_maximum").len(), 4);
});
