//! The site of the demo: its clouds, its hosts, and what its workers know of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::Secret;
use api_client::{Call, Credentials, QUEUE};
use cloud::FakeCloud;
use domain::id::{ProviderId, WorkerKey};
use domain::time::{Clock as _, HOUR_MS};
use engine::clock::SystemClock;
use serde_json::json;

use super::Clouds;
use super::api::{Api, Cast};
use super::scene::Scene;

pub(super) struct Site {
    pub(super) api: Arc<Api>,
    pub(super) scene: Scene,
    pub(super) clouds: Vec<(ProviderId, Arc<FakeCloud>)>,
    pub(super) hosts: Vec<(WorkerKey, Secret)>,
    quarantines_by: Option<Credentials>,
    has_quarantined: AtomicBool,
}

impl Site {
    pub(super) fn new(scene: &Scene, clouds: &Clouds, cast: Cast, api: Arc<Api>) -> Self {
        Self {
            api,
            scene: scene.clone(),
            clouds: clouds.all.clone(),
            quarantines_by: cast.people.get(&scene.quarantine.by).cloned(),
            hosts: cast.hosts,
            has_quarantined: AtomicBool::new(false),
        }
    }

    /// The cloud in which the machine of this worker runs.
    pub(super) fn cloud_of(&self, key: &WorkerKey) -> Option<&FakeCloud> {
        let mut clouds = self.clouds.iter().map(|(_, cloud)| cloud.as_ref());
        clouds.find(|cloud| cloud.is_up(key))
    }

    pub(super) fn is_host(&self, key: &WorkerKey) -> bool {
        self.hosts.iter().any(|(host, _)| host == key)
    }

    /// A person keeps the first worker of a pool from working.
    pub(super) async fn quarantine_first(&self, key: &WorkerKey) {
        let scene = &self.scene.quarantine;
        let is_first = scene.pool == key.pool_id.as_str()
            && !self.has_quarantined.swap(true, Ordering::SeqCst);
        let Some(by) = self.quarantines_by.as_ref().filter(|_| is_first) else {
            return;
        };
        let (provisioner, worker_type) = key.pool_id.parts();
        let worker = [key.group.as_str(), key.id.as_str()];
        let pool = [
            "provisioners",
            provisioner,
            "worker-types",
            worker_type,
            "workers",
        ];
        let until = SystemClock.now().plus_millis(scene.for_hours * HOUR_MS);
        let body = json!({"quarantineUntil": until.to_string(), "quarantineInfo": scene.reason});
        let call = Call::put(QUEUE, &[&pool[..], &worker].concat(), &body);
        if let Err(error) = self.api.call(&call, Some(by)).await {
            tracing::warn!("the quarantine of {key} was refused: {error}");
        }
    }
}
