//! Builders on both trees: builds with real commands and a fake cloud, faults, and seeded chaos.
//!
//! `scripts/with-zookeeper` gives a real ZooKeeper; without it, those tests are skipped.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod behaviour;
mod chaos;
mod world;

/// Builds run below this test program, which runs only this test.
#[test]
fn this_program_can_be_the_supervisor_of_a_build() {
    if cloud::image::run_build_part().is_some() {
        std::process::exit(0);
    }
}
