//! Others use the same tree: a server of another database, and somebody who has no keys.

use std::sync::Arc;

use backplane::tree::{Lifetime, Tree, TreePath, create_parents};
use domain::image::{BuildNumber, UploadNumber};
use images::{Place, TreeOwnership, claim_tree};
use serde_json::json;

use super::mutants::Mutant;
use super::snapshot::Snapshot;
use super::world::{ChaosWorld, PROVIDERS};
use crate::world::image;

/// The id of the database of these worlds.
pub(super) const OURS: &str = "ours";
/// An image that only somebody without keys defines.
pub(super) const FORGED: &str = "forged";

impl ChaosWorld {
    pub(super) async fn intrude(&mut self) {
        match self.intruders.below(3) {
            0 => self.other_server_looks().await,
            1 => self.forge_image().await,
            _ => self.forge_upload().await,
        }
    }

    /// It has no image, and would remove all.
    async fn other_server_looks(&self) {
        self.monitor.note("a server of another database".to_owned());
        let owner = claim_tree(self.world.tree(), "another").await;
        let is_theirs = matches!(owner, Ok(TreeOwnership::Ours));
        if is_theirs || self.mutant == Some(Mutant::LetsAnyDatabaseHaveTheTree) {
            for name in self.world.images.names() {
                let _ = self.world.images.remove(&name).await;
            }
        }
    }

    async fn forge_image(&self) {
        self.monitor.note("a forged image".to_owned());
        let document = json!({
            "imageId": FORGED,
            "build": {"command": ["true"]},
            "formats": ["raw"],
        });
        let text = json!({"version": 1, "document": document}).to_string();
        let builds = Place::Builds(image(FORGED)).path().unwrap();
        for (node, data) in [
            (builds.join("lock").unwrap(), ""),
            (Place::Standing(image(FORGED)).path().unwrap(), "{}"),
            (Place::Definition(image(FORGED)).path().unwrap(), &text),
        ] {
            self.forge(&node, data).await;
        }
    }

    /// A newer upload of a build stands for the image of another one, or for none.
    async fn forge_upload(&mut self) {
        let shot = Snapshot::read(&self.monitor).await;
        let ready = shot.images.iter().flat_map(|(name, image)| {
            let builds = image.builds.iter().filter(|(_, build)| build.is_ready());
            builds.map(move |(number, _)| (name.clone(), *number))
        });
        let ready: Vec<(_, BuildNumber)> = ready.collect();
        let Some((name, build)) = self.intruders.pick(&ready).cloned() else {
            return;
        };
        let provider = *self.intruders.pick(&PROVIDERS).unwrap();
        let target = provider.parse().unwrap();
        let place = Place::Upload(name.clone(), build, target, UploadNumber(4_000_000));
        let images = self.world.cloud(provider).images();
        let other = self.intruders.pick(&images);
        let external_id = other.map_or("nowhere", |other| other.external_id.as_str());
        let record = json!({
            "state": "ready",
            "state_time": self.world.clock.now_ms().as_millis() / 1_000,
            "external_id": external_id,
            "format": "raw",
        });
        self.monitor.note(format!(
            "a forged upload of {name} {build} as {external_id}"
        ));
        let node = place.path().unwrap();
        self.forge(&node, &record.to_string()).await;
        self.pass(self.intruders.between(0, 60_000)).await;
        // A person removes it, and the work on the image goes on.
        let _ = self.world.raw_tree().delete(&node, None).await;
    }

    /// Without a seal. If seals are not checked, any data is as good as what has one.
    async fn forge(&self, node: &TreePath, data: &str) {
        let believed = self.mutant == Some(Mutant::BelievesForgeries);
        let tree: &Arc<dyn Tree> = match believed {
            true => self.world.tree(),
            false => self.world.raw_tree(),
        };
        let is_upload = node.as_str().contains("/provider/");
        if !is_upload && create_parents(tree, node).await.is_err() {
            return;
        }
        let _ = tree
            .create(node, data.as_bytes(), Lifetime::Persistent)
            .await;
    }
}
