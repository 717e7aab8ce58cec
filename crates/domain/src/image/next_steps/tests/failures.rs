//! The next build after a build without success.

use testing::sizes_around;

use super::*;
use crate::image::BUILD_BACKOFF;
use crate::image::build_record::{BuildFailureCause, BuildState};
use crate::image::next_steps::builds::FREE_DEATHS;
use crate::image::step::WaitReason;
use crate::image::view::BuildRequest;
use crate::time::MINUTE_MS;

#[test]
fn failures_delay_the_next_build_longer_and_longer_up_to_six_hours() {
    let mut world = world();
    let mut delays = Vec::new();
    for _ in 0..12 {
        take(&mut world, "build", Fate::Failure);
        let steps = world.steps();
        let wait = steps.iter().find_map(|step| {
            let Step::Wait { until, .. } = step else {
                return None;
            };
            *until
        });
        let until = wait.unwrap();
        delays.push(until.millis_since(world.now) / MINUTE_MS);
        world.now = until.plus_millis(-1);
        assert!(!world.texts().iter().any(|it| it.starts_with("build")));
        world.now = until;
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]);
    // Another definition is tried at once.
    take(&mut world, "build", Fate::Failure);
    world.definition = Some(definition(|it| it["environment"] = json!({"A": "1"})));
    assert_eq!(world.texts().last().unwrap(), "build: no build is ready");
    take(&mut world, "build", Fate::Success);
    settle(&mut world);
    // The failures before the success are removed.
    assert_eq!(numbers(&world.ready()).len(), world.builds.len());
}

#[test]
fn a_dead_builder_is_replaced_at_once_but_not_again_and_again() {
    let mut world = world();
    take(&mut world, "build", Fate::Death);
    assert_eq!(
        world.texts(),
        [
            "note that 1 failed: its builder ended",
            "build: no build is ready"
        ]
    );
    // The note does not wait for the replacement.
    take(&mut world, "build", Fate::Long);
    assert_eq!(
        world.texts(),
        [
            "note that 1 failed: its builder ended",
            "wait: b1 builds it"
        ]
    );
    take(&mut world, "note", Fate::Success);
    assert_eq!(world.texts(), ["wait: b1 builds it"]);
    world.build_lock = None;
    take(&mut world, "note", Fate::Success);
    let record = world.record(2).clone();
    assert!(matches!(
        record.state,
        BuildState::Failed {
            cause: BuildFailureCause::BuilderDied,
            ..
        }
    ));
}

#[test]
fn deaths_of_builders_delay_the_next_build_from_the_third_in_a_row_on() {
    let free = usize::try_from(FREE_DEATHS).unwrap();
    for n_deaths in sizes_around("domain::image::next_steps::builds::FREE_DEATHS", free) {
        let mut world = world();
        let mut delay_ms = 0;
        for _ in 0..n_deaths {
            take(&mut world, "build", Fate::Death);
            take(&mut world, "note", Fate::Success);
            let until = wait_of_build(&world);
            delay_ms = until.map_or(0, |until| until.millis_since(world.now));
            world.now = world.now.plus_millis(delay_ms);
            settle_cleanup(&mut world);
        }
        let n_delaying = u32::try_from(n_deaths.saturating_sub(free)).unwrap();
        assert_eq!(delay_ms, BUILD_BACKOFF.delay_ms(n_delaying), "{n_deaths}");
    }
    // A failure of the build itself after two deaths is its first.
    let mut world = world();
    for fate in [Fate::Death, Fate::Death, Fate::Failure] {
        take(&mut world, "build", fate);
        if fate == Fate::Death {
            take(&mut world, "note", Fate::Success);
        }
    }
    let until = wait_of_build(&world).unwrap();
    assert_eq!(until.millis_since(world.now), MINUTE_MS);
}

#[test]
fn an_orderly_stop_of_its_builder_is_no_failure_of_a_build() {
    let mut world = world();
    for _ in 0..20 {
        take(&mut world, "build: no build is ready", Fate::Stop);
        assert_eq!(world.texts().last().unwrap(), "build: no build is ready");
        settle_cleanup(&mut world);
    }
    // Nor does it reset the delay after failures of the build.
    for minutes in [1, 2] {
        take(&mut world, "build", Fate::Failure);
        settle_cleanup(&mut world);
        let until = wait_of_build(&world).unwrap();
        assert_eq!(until.millis_since(world.now), minutes * MINUTE_MS);
        world.now = until;
        take(&mut world, "build", Fate::Stop);
        settle_cleanup(&mut world);
    }
}

#[test]
fn a_build_that_a_person_cancelled_waits_for_a_request_another_definition_or_the_next_age() {
    let cancelled = || {
        let mut world = world();
        take(&mut world, "build", Fate::Failure);
        world.builds.get_mut(&BuildNumber(1)).unwrap().is_cancelled = true;
        world
    };
    let mut world = cancelled();
    let age = world.definition.as_ref().unwrap().rebuild_age_ms().unwrap();
    let due = world.now.plus_millis(age);
    let text = format!(
        "wait until {due}: build 1 was cancelled (exit code 1); a request or another definition builds it \
         at once"
    );
    assert_eq!(world.texts(), std::slice::from_ref(&text));
    world.now = due.plus_millis(-1);
    assert_eq!(world.texts(), [text]);
    world.now = due;
    assert_eq!(world.texts(), ["build: no build is ready"]);

    let mut world = cancelled();
    world.definition = Some(definition(|it| it["environment"] = json!({"A": "1"})));
    assert_eq!(world.texts(), ["build: no build is ready"]);

    // The request that the build was made for is answered; another one is not.
    let mut world = super::world();
    world.request = Some(request(&world, "try"));
    take(&mut world, "build", Fate::Failure);
    world.builds.get_mut(&BuildNumber(1)).unwrap().is_cancelled = true;
    take(&mut world, "clear the request", Fate::Success);
    assert!(wait_of_build(&world).is_some());
    world.now = world.now.plus_millis(1);
    world.request = Some(request(&world, "again"));
    assert_eq!(world.texts(), ["build: ann asked for it: again"]);

    // A builder that ends before it could end the build changes nothing.
    let mut world = super::world();
    take(&mut world, "build", Fate::Death);
    world.builds.get_mut(&BuildNumber(1)).unwrap().is_cancelled = true;
    take(&mut world, "note", Fate::Success);
    assert!(wait_of_build(&world).is_some());
    // Without an age, only people build it again.
    world.definition = Some(definition(|it| it["rebuildAgeSeconds"] = json!(0)));
    world.now = world.now.plus_millis(1_000 * DAY_MS);
    assert!(world.texts()[0].starts_with("wait: build 1 was cancelled (builder b1 ended"));
}

/// Until when the next build waits.
fn wait_of_build(world: &World) -> Option<Timestamp> {
    world.steps().into_iter().find_map(|step| {
        let Step::Wait { until, reason } = step else {
            return None;
        };
        let is_about_it = matches!(
            reason,
            WaitReason::BuildFailed { .. } | WaitReason::BuildCancelled { .. }
        );
        until.filter(|_| is_about_it)
    })
}

/// Removes the records of old failures.
fn settle_cleanup(world: &mut World) {
    for start in ["delete", "remove"] {
        while world.texts().iter().any(|text| text.starts_with(start)) {
            take(world, start, Fate::Success);
        }
    }
}

fn request(world: &World, reason: &str) -> BuildRequest {
    BuildRequest {
        at: world.now,
        by: "ann".to_owned(),
        reason: reason.to_owned(),
    }
}
