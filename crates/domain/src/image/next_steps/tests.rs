//! Tests of the next steps.

mod failures;
mod goal;
mod scenarios;
mod standings;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{Fate, World};
use crate::image::Standing;
use crate::image::definition::ImageDefinition;
use crate::image::number::BuildNumber;
use crate::image::step::Step;
use crate::image::view::{BuildBudget, LiveBuilder};
use crate::time::{DAY_MS, Timestamp};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn definition(change: impl FnOnce(&mut Value)) -> ImageDefinition {
    let mut document = json!({
        "imageId": "linux", "build": {"command": ["make"]}, "formats": ["raw"],
        "uploads": [{"providerId": "aws", "region": "eu"}, {"providerId": "local"}],
    });
    change(&mut document);
    ImageDefinition::parse(&document).unwrap()
}

fn builder(name: &str, labels: &[&str]) -> LiveBuilder {
    LiveBuilder {
        name: name.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        is_busy: false,
    }
}

/// An image without builds, two builders and two providers.
fn world() -> World {
    World {
        name: "linux".parse().unwrap(),
        definition: Some(definition(|_| ())),
        builds: BTreeMap::new(),
        build_lock: None,
        request: None,
        pause: None,
        pinned: [].into(),
        standing: Standing::default(),
        builders: vec![builder("b1", &[]), builder("b2", &["arm64"])],
        providers: ["aws", "local"].map(|id| id.parse().unwrap()).into(),
        budget: BuildBudget {
            running: 0,
            limit: 4,
        },
        now: at(1_000_000_000),
        clouds: [].into(),
        next_fence: 0,
        last_build: 0,
        is_image_removed: false,
    }
}

/// Carries out all steps until only waits remain; returns these.
fn settle(world: &mut World) -> Vec<String> {
    for _ in 0..100 {
        let mut steps = world.steps();
        steps.retain(|step| !matches!(step, Step::Wait { .. }));
        if steps.is_empty() {
            return world.texts();
        }
        for step in steps {
            world.apply(&step, Fate::Success);
        }
    }
    panic!("no end: {:#?}", world.texts());
}

fn numbers(builds: &[BuildNumber]) -> Vec<u64> {
    builds.iter().map(|build| build.0).collect()
}

/// A world with this many good builds, each a day younger than the one before.
fn world_with_builds(n: usize) -> World {
    let mut world = world();
    for _ in 0..n {
        world.now = world.now.plus_millis(DAY_MS);
        settle(&mut world);
    }
    world
}

/// Takes the first step whose text begins so, with this fate.
fn take(world: &mut World, start: &str, fate: Fate) {
    let steps = world.steps();
    let step = steps
        .iter()
        .find(|step| step.to_string().starts_with(start));
    let step = step
        .unwrap_or_else(|| panic!("no {start:?} in {:#?}", world.texts()))
        .clone();
    world.apply(&step, fate);
}
