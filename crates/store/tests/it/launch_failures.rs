//! Failures of launches, by launch config and cause.

use domain::launch::{Cause, Launch, LaunchState, StoredLaunch};
use domain::launch_failures::{FailureCause, LaunchFailures};
use store::launch_failures;
use store::launch_health::HealthWindow;
use store::{Store, launches};

use crate::launches::{launch, token};
use crate::samples::{at, pool_id};
use crate::world::{on_both, read, write};

fn refused(cause: Cause, problem: &str) -> LaunchState {
    LaunchState::Refused {
        cause,
        problem: problem.to_owned(),
    }
}

/// A launch of three machines that was settled at this moment.
fn settled(number: u8, config: &str, state: LaunchState, made: u32, moment: i64) -> Launch {
    Launch::from_stored(StoredLaunch {
        state,
        made,
        last_modified: at(moment),
        ..launch(number, "a/b", config, LaunchState::Open).into_stored()
    })
}

async fn insert(store: &Store, launches: Vec<Launch>) {
    write(store, move |tx| {
        for launch in &launches {
            launches::insert(tx, launch)?;
            launches::update(tx, launch)?;
        }
        Ok(())
    })
    .await;
}

fn window(since: i64) -> HealthWindow {
    HealthWindow {
        since: at(since),
        until: at(1_000_000),
        launched_before: at(0),
        registered_before: at(0),
    }
}

async fn failures(store: &Store, window: HealthWindow) -> Vec<LaunchFailures> {
    let of_pool = read(store, move |tx| {
        launch_failures::between(tx, &window, &pool_id("a/b"), &pool_id("a/b"))
    });
    let of_all = read(store, move |tx| {
        launch_failures::between(tx, &window, &pool_id("a/a"), &pool_id("a/z"))
    });
    let of_pool = of_pool.await;
    assert_eq!(of_pool, of_all.await, "both statements return the same");
    of_pool
}

/// `lc capacity x3 2000-2500 since 2000: text`
fn line(failure: &LaunchFailures) -> String {
    let since = failure.since.map(|since| since.as_millis().to_string());
    format!(
        "{} {} x{} {}-{} since {}: {}",
        failure.launch_config_id,
        failure.cause,
        failure.machines,
        failure.first.as_millis(),
        failure.last.as_millis(),
        since.as_deref().unwrap_or("-"),
        failure.example,
    )
}

fn lines(failures: &[LaunchFailures]) -> Vec<String> {
    failures.iter().map(line).collect()
}

on_both!(
    refusals_are_counted_by_cause_with_the_newest_as_example,
    |database| {
        let store = database.migrated().await;
        insert(
            &store,
            vec![
                settled(1, "lc", refused(Cause::Capacity, "old"), 0, 2_000),
                settled(2, "lc", LaunchState::Accepted, 3, 2_100),
                settled(3, "lc", refused(Cause::Capacity, "none left"), 0, 2_200),
                settled(4, "lc", refused(Cause::Quota, "64 vCPUs"), 0, 2_300),
                settled(5, "lc", refused(Cause::Throttled, "slow"), 0, 2_400),
                // It made one machine of three.
                settled(6, "lc", LaunchState::Accepted, 1, 2_500),
                settled(7, "other", refused(Cause::Lost, "x"), 0, 2_000),
            ],
        )
        .await;
        assert_eq!(
            lines(&failures(&store, window(1_000)).await),
            [
                "lc capacity x8 2000-2500 since 2200: ",
                "lc quota x3 2300-2300 since 2300: 64 vCPUs",
                "lc throttled x3 2400-2400 since 2400: slow",
                "other lost x3 2000-2000 since 2000: x",
            ]
        );
        // The window begins and ends with the last event of a launch.
        let late = failures(&store, window(2_400)).await;
        let late_lines = ["lc capacity x2 2500-2500 since 2500: "];
        let throttled = "lc throttled x3 2400-2400 since 2400: slow";
        assert_eq!(lines(&late), [late_lines[0], throttled]);
        let early = HealthWindow {
            until: at(2_050),
            ..window(1_000)
        };
        assert_eq!(failures(&store, early).await.len(), 2);
        // A launch that still lacks a machine counts as in the health of the launch config.
        let lacking = failures(&store, window(2_501)).await;
        assert_eq!(lines(&lacking), late_lines);
        write(&store, |tx| {
            launches::note_registered(tx, &token(6), at(2_501))?;
            for _ in 0..3 {
                launches::note_registered(tx, &token(2), at(2_501))?;
            }
            Ok(())
        })
        .await;
        assert_eq!(failures(&store, window(2_502)).await, []);
    }
);

on_both!(
    an_accepted_launch_ends_what_was_refused_before,
    |database| {
        let store = database.migrated().await;
        insert(
            &store,
            vec![
                settled(1, "lc", refused(Cause::Capacity, "none"), 0, 2_000),
                settled(2, "lc", LaunchState::Accepted, 3, 2_100),
            ],
        )
        .await;
        let found = failures(&store, window(1_000)).await;
        assert_eq!(lines(&found), ["lc capacity x3 2000-2000 since -: none"]);
    }
);

on_both!(
    machines_that_never_registered_or_never_asked_for_work_are_failures,
    |database| {
        let store = database.migrated().await;
        insert(
            &store,
            vec![settled(1, "lc", LaunchState::Accepted, 3, 2_000)],
        )
        .await;
        write(&store, |tx| {
            launches::note_registered(tx, &token(1), at(3_000))?;
            launches::note_never_registered(tx, &token(1), at(4_000))
        })
        .await;
        let causes = |launched_before, registered_before, since| HealthWindow {
            launched_before: at(launched_before),
            registered_before: at(registered_before),
            ..window(since)
        };
        let found = failures(&store, causes(0, 0, 1_000)).await;
        let once = "lc never-registered x1 4000-4000 since 4000: ";
        assert_eq!(lines(&found), [once]);
        // Another one is overdue, and the one that registered is silent.
        let found = failures(&store, causes(1_002, 3_001, 1_000)).await;
        assert_eq!(
            lines(&found),
            [
                "lc never-claimed x1 4000-4000 since 4000: ",
                "lc never-registered x2 4000-4000 since 4000: ",
            ]
        );
        // Without a recent event: it still lacks a machine.
        let found = failures(&store, causes(1_002, 0, 90_000)).await;
        assert_eq!(found[0].cause, FailureCause::NeverRegistered);
        assert_eq!(found[0].machines, 2);
    }
);

on_both!(an_example_is_cut, |database| {
    let store = database.migrated().await;
    let long = "ö".repeat(5_000);
    let state = refused(Cause::Quota, &long);
    insert(&store, vec![settled(1, "lc", state, 0, 2_000)]).await;
    let found = failures(&store, window(1_000)).await;
    assert_eq!(found[0].example, "ö".repeat(1_000));
});
