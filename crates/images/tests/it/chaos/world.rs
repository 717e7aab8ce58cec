//! A chaotic world: a tree, builders in their seats, two providers, and what people did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::id::ImageName;
use domain::image::BuildNumber;
use domain::time::Timestamp;
use images::{TreeOwnership, claim_tree};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::builder::Seat;
use super::faults::Faults;
use super::intruders::OURS;
use super::monitor::Monitor;
use super::mutants::Mutant;
use super::rollouts::Pools;
use super::snapshot::Snapshot;
use super::store::MemoryStore;
use crate::world::{Definition, Twin, World};
use testing::Chance;

pub(super) const REBUILD_AGE_MS: i64 = 6 * 3_600_000;
pub(super) const PROVIDERS: [&str; 2] = ["fake", "other"];

pub(super) struct ChaosWorld {
    pub(super) world: World,
    pub(super) chance: Chance,
    /// Dice of their own: the others of a seed stay the same.
    pub(super) intruders: Chance,
    pub(super) monitor: Arc<Monitor>,
    pub(super) faults: Faults,
    pub(super) seats: Vec<Seat>,
    pub(super) names: Vec<ImageName>,
    /// The knowledge of people about each image.
    pub(super) known: BTreeMap<ImageName, Known>,
    pub(super) is_virtual: bool,
    /// The builds that people cancelled.
    pub(super) cancelled: BTreeMap<(ImageName, BuildNumber), Timestamp>,
    /// Canaries come to a verdict in three of this many looks.
    pub(super) patience: usize,
    pub(super) mutant: Option<Mutant>,
}

/// The actions of people on an image since its definition was created.
#[derive(Default)]
pub(super) struct Known {
    pub(super) definition: Option<Value>,
    /// Builds that were ready once.
    pub(super) good: BTreeSet<BuildNumber>,
    /// The newest build of an image of this name that was removed before: it may still go.
    pub(super) removed: BuildNumber,
    /// Builds that people deleted.
    pub(super) deleted: BTreeSet<BuildNumber>,
    /// Targets that had an image in use, of this definition.
    pub(super) served: BTreeSet<String>,
    pub(super) pools: Pools,
}

impl ChaosWorld {
    pub(super) async fn open(seed: u64, twin: Twin, mutant: Option<Mutant>) -> Self {
        let is_virtual = matches!(twin, Twin::Embedded(..));
        let world = World::open(twin).await;
        world.add_provider(PROVIDERS[1]).await;
        let chance = Chance::new(seed);
        let monitor = Monitor::new(Arc::clone(world.tree()));
        let faults = Faults {
            chance: chance.clone(),
            monitor: Arc::clone(&monitor),
            per_mille: Arc::new(AtomicI64::new(0)),
            slow_ms: Arc::new(AtomicI64::new(0)),
            mutant,
        };
        let (n_images, n_seats) = (chance.between(1, 3), chance.between(1, 4));
        let names = (0..n_images).map(|it| format!("img-{it}").parse().unwrap());
        let shared = MemoryStore::new("shared", &chance, &monitor);
        let mut seats = Vec::new();
        for number in 0..n_seats {
            let store = match chance.percent(60) {
                true => Arc::clone(&shared),
                false => MemoryStore::new(&format!("own-{number}"), &chance, &monitor),
            };
            seats.push(Seat {
                folder: world.path(&format!("seat-{number}")),
                store,
                n_runs: 0,
                slots: usize::try_from(chance.between(1, 2)).unwrap(),
                builder: None,
            });
        }
        let mut chaos = Self {
            world,
            monitor,
            faults,
            seats,
            names: names.collect(),
            known: BTreeMap::new(),
            is_virtual,
            cancelled: BTreeMap::new(),
            patience: *chance.pick(&[6, 30, 150]).unwrap(),
            chance,
            intruders: Chance::new(!seed),
            mutant,
        };
        let owner = claim_tree(chaos.world.tree(), OURS).await.unwrap();
        assert_eq!(owner, TreeOwnership::Ours);
        for seat in 0..chaos.seats.len() {
            chaos.start(seat).await;
        }
        for name in chaos.names.clone() {
            chaos.define(&name).await;
        }
        chaos
    }

    pub(super) async fn start(&mut self, seat: usize) {
        let longest = if self.is_virtual { 120_000 } else { 200 };
        let place = &mut self.seats[seat];
        if place.builder.is_none() {
            place.start(&self.world, &self.faults, longest, seat).await;
        }
    }

    /// Creates or changes a definition.
    pub(super) async fn define(&mut self, name: &ImageName) {
        let chance = self.chance.clone();
        let mut uploads = Vec::new();
        for (number, provider) in PROVIDERS.iter().enumerate() {
            if number == 0 || chance.percent(50) {
                uploads.push(json!({
                    "providerId": provider,
                    "options": {"form": chance.between(0, 1)},
                }));
            }
        }
        let document = json!({
            "imageId": name.as_str(),
            "build": {"command": ["true"]},
            "environment": {"RELEASE": chance.between(0, 2).to_string()},
            "formats": ["raw"],
            "uploads": uploads,
            "keep": chance.between(2, 3),
            "rebuildAgeSeconds": REBUILD_AGE_MS / 1_000,
        });
        self.monitor.note(format!("define {document}"));
        if !self.known.contains_key(name) {
            let shot = Snapshot::read(&self.monitor).await;
            let image = shot.images.get(name);
            let newest = image.and_then(|image| image.builds.keys().next_back().copied());
            let known = Known {
                removed: newest.unwrap_or_default(),
                ..Known::default()
            };
            self.known.insert(name.clone(), known);
        }
        let known = self.known.entry(name.clone()).or_default();
        let before = known.definition.replace(document.clone());
        // Another form of a target is another image.
        if before.is_none_or(|before| before["uploads"] != document["uploads"]) {
            known.served.clear();
        }
        // People took the target away: its launch configs are refused, and made again.
        let is_target = |target: &String| super::checks::is_target(Some(&document), target);
        known.pools.named.retain(|(target, ..)| is_target(target));
        self.world.define(&Definition(document)).await;
    }

    pub(super) async fn undefine(&mut self, name: &ImageName) {
        self.monitor.note(format!("undefine {name}"));
        self.known.remove(name);
        self.cancelled.retain(|(image, _), _| image != name);
        self.world.undefine(name.as_str()).await;
    }

    /// Time passes, in which servers do not look.
    pub(super) async fn pass_quietly(&self, milliseconds: i64) {
        self.monitor.note(format!("pass {milliseconds} ms"));
        if self.is_virtual {
            let time = Duration::from_millis(u64::try_from(milliseconds).unwrap());
            // Time: it is stopped.
            let _ = timeout(time, std::future::pending::<()>()).await;
            return;
        }
        let short = Duration::from_millis(u64::try_from(milliseconds.min(40)).unwrap());
        // Time: lets builders go on between steps; no step counts on it.
        let _ = timeout(short, std::future::pending::<()>()).await;
        self.world.advance(milliseconds).await;
    }

    pub(super) fn set_faults(&self, per_mille: i64, slow_ms: i64) {
        let slow_ms = if self.is_virtual {
            slow_ms
        } else {
            slow_ms / 100
        };
        self.faults.per_mille.store(per_mille, Ordering::SeqCst);
        self.faults.slow_ms.store(slow_ms, Ordering::SeqCst);
    }

    /// A builder dies. Its session ends some time later.
    pub(super) async fn kill(&mut self, seat: usize) {
        let Some(builder) = self.seats[seat].builder.take() else {
            return;
        };
        self.monitor.note(format!("kill b{seat}"));
        let session = builder.kill().await;
        if self.is_virtual {
            let millis = u64::try_from(self.chance.between(0, 20_000)).unwrap();
            tokio::spawn(async move {
                let time = Duration::from_millis(millis);
                // Time: it is stopped.
                let _ = timeout(time, std::future::pending::<()>()).await;
                session.expire().await;
            });
        } else {
            session.vanish();
        }
    }
}
