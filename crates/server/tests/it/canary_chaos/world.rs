//! A world with one image, its builds and one pool, and the steps that can happen in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::audit::EntityType;
use domain::image::{ImageDefinition, ImageRollout, Standing};
use domain::image_reference::{canary_mark, image_uses};
use domain::launch_config::LaunchConfig;
use domain::time::MINUTE_MS;
use engine::images::{ImageFacts, advance, refresh_pools, start_canary, use_build};
use serde_json::{Value, json};
use testing::Chance;

use super::checks::Observer;
use super::machines::{Machine, Quality};
use super::mutants::Mutant;
use crate::database::Database;
use crate::fleet_world::{Fleet, POOL, pool};
use crate::image_samples::{build, definition, referring};

const IMAGE: &str = "linux";

/// The builds and the last decision, as a server sees them in the tree.
#[derive(Clone, Debug, Default)]
struct Picture {
    builds: BTreeSet<u64>,
    standing: Standing,
}

pub(super) struct CanaryWorld {
    pub(super) fleet: Fleet,
    pub(super) chance: Chance,
    pub(super) mutant: Option<Mutant>,
    pub(super) observer: Observer,
    definition: ImageDefinition,
    /// All builds that ever were, with the truth about them.
    pub(super) quality: BTreeMap<u64, Quality>,
    /// Those that exist.
    pub(super) existing: BTreeSet<u64>,
    /// Those from which a machine started.
    pub(super) served: BTreeSet<u64>,
    /// The picture of a server whose copy of the tree is late.
    late: Picture,
    /// All workers of this world run beside their images, as those of a server without rights do.
    pub(super) is_beside: bool,
    machines: Vec<Machine>,
    n_machines: u64,
    pub(super) trace: Vec<String>,
}

impl CanaryWorld {
    pub(super) async fn open(seed: u64, database: Database, mutant: Option<Mutant>) -> Self {
        let fleet = Fleet::open(database).await;
        let chance = Chance::new(seed);
        let share = *chance.pick(&[0.2, 0.35, 0.5]).unwrap();
        let max_seconds = *chance.pick(&[3_600, 604_800]).unwrap();
        let is_beside = chance.percent(20);
        let canary = json!({
            "share": share,
            "minStarts": chance.between(1, 20),
            "maxSeconds": max_seconds,
        });
        let body = definition(&canary);
        fleet
            .put("fleetwright:/image/linux", body.clone())
            .await
            .expect(200);
        fleet
            .make_pool(POOL, pool("one", 0, 400, &[referring()]))
            .await;
        let mut world = Self {
            fleet,
            chance,
            mutant,
            observer: Observer::default(),
            definition: ImageDefinition::parse(&body).unwrap(),
            quality: BTreeMap::new(),
            existing: BTreeSet::new(),
            served: BTreeSet::new(),
            late: Picture::default(),
            is_beside,
            machines: Vec::new(),
            n_machines: 0,
            trace: Vec::new(),
        };
        world.add_build(Quality::Good);
        world.settle().await;
        world
    }

    pub(super) fn note(&mut self, line: String) {
        self.trace.push(line);
    }

    pub(super) async fn step(&mut self) {
        match self.chance.below(100) {
            0..5 => {
                let bad = self.chance.percent(50);
                let quality = match bad {
                    true => *self.chance.pick(&Quality::BAD).unwrap(),
                    false => Quality::Good,
                };
                self.add_build(quality);
            }
            5..7 => self.remove_build(),
            7..10 => self.let_a_person_decide().await,
            10..13 => self.look_with_a_late_picture().await,
            13..16 => self.look_twice_at_once().await,
            16..18 => self.change_share().await,
            18..20 => self.decide_while_a_server_looks().await,
            _ => self.launch_and_wait().await,
        }
        self.settle().await;
    }

    /// The step of a server that sees all, as it is made every few seconds.
    pub(super) async fn settle(&mut self) {
        let picture = self.picture().await;
        self.advance_with(picture).await;
        if self.mutant == Some(Mutant::ForgetsPools) {
            return;
        }
        let round = refresh_pools(&self.fleet.app.engine, |_| false)
            .await
            .unwrap();
        assert!(round.failed.is_empty(), "{:?}", round.failed);
    }

    pub(super) fn add_build(&mut self, quality: Quality) {
        let number = self.quality.keys().max().map_or(1, |last| last + 1);
        self.note(format!("build {number} is ready: {quality:?}"));
        self.quality.insert(number, quality);
        self.existing.insert(number);
    }

    fn remove_build(&mut self) {
        // As builders do: the last two stay, and what machines start from.
        let last = self.existing.iter().rev().take(2).copied();
        let kept: BTreeSet<u64> = last.chain(self.in_use()).collect();
        let old: Vec<u64> = self.existing.difference(&kept).copied().collect();
        if let Some(number) = self.chance.pick(&old).copied() {
            self.note(format!("build {number} is removed"));
            self.existing.remove(&number);
        }
    }

    async fn let_a_person_decide(&mut self) {
        let all: Vec<u64> = self.existing.iter().copied().collect();
        let number = *self.chance.pick(&all).unwrap();
        let decision = self.fleet.decision(number);
        let facts = self.facts(self.picture().await);
        let engine = &self.fleet.app.engine;
        let (verb, done) = match self.chance.percent(50) {
            true => ("use", use_build(engine, facts, decision).await),
            false => ("try", start_canary(engine, facts, decision, None).await),
        };
        let done = done.map(drop).map_err(|refusal| refusal.to_string());
        self.note(format!("a person wants to {verb} build {number}: {done:?}"));
    }

    /// A server whose copy of the tree is as it was some steps ago.
    async fn look_with_a_late_picture(&mut self) {
        let now = self.picture().await;
        let late = std::mem::replace(&mut self.late, now);
        self.note(format!("a server sees {late:?}"));
        self.advance_with(late).await;
    }

    async fn look_twice_at_once(&mut self) {
        let facts = self.facts(self.picture().await);
        let (engine, now) = (&self.fleet.app.engine, self.fleet.now());
        let (one, other) = tokio::join!(
            advance(engine, Arc::clone(&facts), now),
            advance(engine, facts, now)
        );
        one.and(other).unwrap();
        self.note("two servers look at once".to_owned());
    }

    /// The verdict of the server was read before the decision of the person, or after it.
    async fn decide_while_a_server_looks(&mut self) {
        let facts = self.facts(self.picture().await);
        let all: Vec<u64> = self.existing.iter().copied().collect();
        let number = *self.chance.pick(&all).unwrap();
        let (engine, now) = (&self.fleet.app.engine, self.fleet.now());
        let (looked, decided) = tokio::join!(
            advance(engine, Arc::clone(&facts), now),
            use_build(engine, facts, self.fleet.decision(number))
        );
        looked.unwrap();
        let decided = decided.map(drop).map_err(|refusal| refusal.to_string());
        self.note(format!(
            "a person uses build {number} while a server looks: {decided:?}"
        ));
    }

    async fn change_share(&mut self) {
        let share = *self.chance.pick(&[0.2, 0.35, 0.5, 1.0]).unwrap();
        let body = definition(&json!({"share": share}));
        self.definition = ImageDefinition::parse(&body).unwrap();
        let put = self.fleet.post("fleetwright:/image/linux", body);
        put.await.expect(200);
        self.note(format!("the share of canaries is {share} now"));
    }

    pub(super) async fn launch_and_wait(&mut self) {
        let configs = self.active().await;
        let n_machines = self.chance.between(4, 20);
        for _ in 0..n_machines {
            self.launch(&configs).await;
        }
        self.fleet.pass_ms(self.chance.between(1, 5) * MINUTE_MS);
        let now = self.fleet.now();
        let mut machines = std::mem::take(&mut self.machines);
        machines.retain(|machine| !machine.is_over);
        let lived = self.fleet.write(move |tx| {
            for machine in &mut machines {
                machine.live(tx, now)?;
            }
            Ok(std::mem::take(&mut machines))
        });
        self.machines = lived.await;
        if self.mutant == Some(Mutant::BelievesWorkersBesideTheImage) {
            self.fleet
                .database
                .raw("UPDATE workers SET provider_data = REPLACE(provider_data, 'false', 'true')");
        }
        if self.mutant == Some(Mutant::SwapsGroups) {
            self.fleet.database.raw(
                "UPDATE canary_trials SET trial = REPLACE(REPLACE(REPLACE(trial, \
                 '\"isCanary\":true', '\"x\"'), '\"isCanary\":false', '\"isCanary\":true'), \
                 '\"x\"', '\"isCanary\":false')",
            );
        }
    }

    /// One machine, from the launch config that the share selects.
    async fn launch(&mut self, configs: &[LaunchConfig]) {
        let is_canary = |config: &&LaunchConfig| canary_mark(&config.configuration).is_some();
        let canary = configs.iter().find(is_canary);
        let share = canary.and_then(|config| canary_mark(&config.configuration));
        let percent = share.map_or(0.0, |mark| mark.share * 100.0);
        let wants_canary = (self.chance.between(0, 99) as f64) < percent;
        let plain = configs.iter().find(|config| !is_canary(config));
        let Some(config) = canary.filter(|_| wants_canary).or(plain) else {
            return;
        };
        let Some(used) = image_uses(&config.configuration).first().cloned() else {
            return;
        };
        self.n_machines += 1;
        self.served.insert(used.build);
        let (quality, now) = (self.quality[&used.build], self.fleet.now());
        let number = self.n_machines;
        let (id, is_beside) = (config.id.clone(), self.is_beside);
        let machine = Machine::launch(number, id, quality, is_beside, now, &self.chance);
        self.fleet.insert(machine.as_requested()).await;
        self.machines.push(machine);
    }

    pub(super) async fn active(&self) -> Vec<LaunchConfig> {
        let id = POOL.parse().unwrap();
        let read = self
            .fleet
            .read(move |tx| store::launch_configs::active_between(tx, &id, &id));
        read.await
    }

    pub(super) async fn stored(&self) -> Option<ImageRollout> {
        let image = IMAGE.parse().unwrap();
        self.fleet
            .read(move |tx| store::image_rollouts::get(tx, &image))
            .await
    }

    /// The steps in the audit log.
    pub(super) async fn audited(&self) -> Vec<(String, Value)> {
        let read = self
            .fleet
            .read(|tx| store::audit::by_entity(tx, EntityType::Image, IMAGE, None, 10_000));
        let entries = read.await.into_iter().map(|(_, entry)| entry);
        let steps = entries.filter(|entry| entry.detail.get("build").is_some());
        steps.map(|entry| (entry.action, entry.detail)).collect()
    }

    async fn picture(&self) -> Picture {
        let standing = self.stored().await.map(|rollout| rollout.standing);
        Picture {
            builds: self.existing.clone(),
            standing: standing.unwrap_or_default(),
        }
    }

    async fn advance_with(&mut self, mut picture: Picture) {
        if self.mutant == Some(Mutant::TrustsLatePictures) {
            picture.standing = self.picture().await.standing;
        }
        let facts = self.facts(picture);
        let (engine, now) = (&self.fleet.app.engine, self.fleet.now());
        advance(engine, facts, now).await.unwrap();
        if self.mutant == Some(Mutant::LosesEvents) && self.chance.percent(30) {
            self.fleet.database.raw("DELETE FROM outbox");
        }
        if self.mutant == Some(Mutant::ForgetsWhatServed) {
            let sql = "UPDATE image_rollouts SET standing = REPLACE(standing, '\"reason\":', \
                '\"passedOver\":true,\"reason\":') WHERE standing NOT LIKE '%passedOver%'";
            self.fleet.database.raw(sql);
        }
        if self.mutant == Some(Mutant::ForgetsRejections) {
            let sql = "UPDATE image_rollouts SET standing = \
                '{\"promoted\":1,\"candidate\":null,\"rejected\":[]}' WHERE canary IS NULL";
            self.fleet.database.raw(sql);
        }
    }

    fn facts(&self, picture: Picture) -> Arc<ImageFacts> {
        let now = self.fleet.now();
        let builds = picture.builds.iter().map(|number| build(now, *number));
        Arc::new(ImageFacts {
            definition: self.definition.clone(),
            builds: builds.collect(),
            standing: picture.standing,
        })
    }
}
