//! Tests of the next steps.

mod goal;
mod scenarios;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{Fate, World};
use crate::image::definition::ImageDefinition;
use crate::image::selection::Standing;
use crate::image::step::Step;
use crate::image::view::{BuildBudget, LiveBuilder};
use crate::time::Timestamp;

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
