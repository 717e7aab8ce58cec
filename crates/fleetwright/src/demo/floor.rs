//! The machines of the demo: a worker for each machine that has booted, and for each host.
//!
//! Which machines exist, the floor learns from the fake clouds, as a person could see it. All that
//! workers do goes over the API.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::id::WorkerKey;
use domain::time::{Clock as _, SECOND_MS, Timestamp};
use engine::clock::SystemClock;
use rand::RngExt as _;
use tokio::task::JoinSet;

use super::Clouds;
use super::api::{Api, Cast};
use super::scene::Scene;
use super::site::Site;
use super::worker::{Proof, Worker};
use crate::machine;

const LOOK: Duration = Duration::from_millis(500);

pub(crate) struct Floor(Arc<Site>);

impl Floor {
    pub(crate) fn new(scene: &Scene, clouds: &Clouds, cast: Cast, api: Arc<Api>) -> Self {
        Self(Arc::new(Site::new(scene, clouds, cast, api)))
    }

    /// Works for ever. Machines end their workers, so there are no more workers than machines.
    pub(crate) async fn run(self) {
        let site = &self.0;
        let mut workers = JoinSet::new();
        for (key, secret) in &site.hosts {
            let proof = Proof::Secret(secret.clone());
            workers.spawn(Worker::new(site, key.clone(), proof).run());
        }
        let mut known: HashSet<WorkerKey> = HashSet::new();
        let mut interrupted = SystemClock.now();
        loop {
            known.retain(|key| site.cloud_of(key).is_some());
            for (key, proof) in self.booted(&known) {
                known.insert(key.clone());
                workers.spawn(Worker::new(site, key, proof).run());
            }
            while workers.try_join_next().is_some() {}
            interrupted = self.interrupt(interrupted);
            machine::pause(LOOK).await;
        }
    }

    /// The machines that can register, without the known ones.
    fn booted(&self, known: &HashSet<WorkerKey>) -> Vec<(WorkerKey, Proof)> {
        let mut booted = Vec::new();
        for (provider, cloud) in &self.0.clouds {
            let machines = cloud.machines().into_iter();
            let new = machines.filter(|it| it.is_up && !it.is_going && !known.contains(&it.key));
            booted.extend(new.map(|machine| {
                let token = cloud.identity_token(&machine.key);
                let provider = provider.clone();
                (machine.key, Proof::Token(provider, token))
            }));
        }
        booted
    }

    /// Takes back a spot machine, if it is time. Returns when that happened last.
    fn interrupt(&self, last: Timestamp) -> Timestamp {
        let (now, scene) = (SystemClock.now(), &self.0.scene.interruptions);
        if now.millis_since(last) < scene.every_seconds * SECOND_MS {
            return last;
        }
        let is_spot = |key: &WorkerKey| scene.pools.iter().any(|pool| pool == key.pool_id.as_str());
        let clouds = self.0.clouds.iter();
        let spot: Vec<_> = clouds
            .flat_map(|(_, cloud)| cloud.machines().into_iter().map(move |it| (cloud, it)))
            .filter(|(_, machine)| machine.is_up && is_spot(&machine.key))
            .collect();
        if !spot.is_empty() {
            let drawn = machine::random_source().random_range(0..spot.len());
            if let Some((cloud, machine)) = spot.get(drawn) {
                cloud.kill(&machine.key);
            }
        }
        now
    }
}
