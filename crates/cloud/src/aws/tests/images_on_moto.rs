//! Machine images on moto, which simulates EC2, but for the import of their snapshot.

use serde::Deserialize;

use super::images::{Given, imports, status, upload};
use super::moto::OnMoto;
use super::scripted::answer;
use crate::ImageTarget as _;
use crate::aws::image_responses::RegisteredImage;
use crate::aws::parameters::Parameters;
use crate::tests::images::token;
use crate::tests::values::ROOT_URL;

const REGION: &str = "us-west-2";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    volume_id: Option<String>,
    snapshot_id: Option<String>,
}

impl OnMoto {
    async fn make(&self, action: &str, parameters: Parameters) -> Made {
        let made = self.provider.ec2.call(REGION, action, &parameters).await;
        made.unwrap()
    }

    async fn make_snapshot(&self) -> String {
        let volume = Parameters::default()
            .with("Size", 1)
            .with("AvailabilityZone", format!("{REGION}a"));
        let volume = self.make("CreateVolume", volume).await.volume_id.unwrap();
        let snapshot = Parameters::default().with("VolumeId", volume);
        let snapshot = self.make("CreateSnapshot", snapshot).await;
        snapshot.snapshot_id.unwrap()
    }

    /// EC2 does this when an image is registered; moto does not.
    async fn add_tags(&self, image: &str) {
        let pairs = [
            ("fleetwright:deployment", self.root_url.as_str()),
            ("fleetwright:provider", "aws"),
            ("fleetwright:image", "token-1"),
        ];
        let mut tags = Parameters::default().with("ResourceId.1", image);
        for (number, (key, value)) in (1..).zip(pairs) {
            tags = tags
                .with(&format!("Tag.{number}.Key"), key)
                .with(&format!("Tag.{number}.Value"), value);
        }
        self.make("CreateTags", tags).await;
    }

    async fn find(&self, text: &str) -> Option<String> {
        let found = self.provider.find_image(Some(REGION), &token(text)).await;
        found.unwrap().map(|image| image.external_id)
    }

    async fn snapshots(&self) -> Vec<String> {
        let found = self.provider.our_snapshots(REGION).await.unwrap();
        found.into_iter().map(|it| it.snapshot_id).collect()
    }
}

#[tokio::test]
async fn an_image_is_registered_found_and_deleted_on_moto() {
    let Some(world) = OnMoto::start("images").await else {
        return;
    };
    let provider = &world.provider;
    let snapshot = world.make_snapshot().await;
    let detail = format!("<status>completed</status><snapshotId>{snapshot}</snapshotId>");
    let import = imports(&detail).replace(ROOT_URL, &world.root_url);
    answer(&world.proxy, "DescribeImportSnapshotTasks", &import);
    let state = status(upload(provider, &Given::default()).await);
    let made = state.strip_prefix("image ");
    let made = made.and_then(|it| it.strip_suffix(" is being registered"));
    let id = made.unwrap_or_else(|| panic!("{state}"));
    world.add_tags(id).await;
    let ready = status(upload(provider, &Given::default()).await);
    assert_eq!(ready, format!("ready {id}"));
    assert_eq!(world.find("token-1").await.as_deref(), Some(id));
    assert_eq!(world.find("other").await, None);
    for _ in 0..2 {
        provider.delete_image(Some(REGION), id).await.unwrap();
    }
    assert_eq!(world.find("token-1").await, None);
    // moto's image has a snapshot of its own, so ours is left, as after a crash.
    assert_eq!(world.snapshots().await, [snapshot.as_str()]);
    for _ in 0..2 {
        let deleted = provider.delete_image(Some(REGION), &snapshot).await;
        deleted.unwrap();
    }
    assert!(world.snapshots().await.is_empty());
}

#[tokio::test]
async fn an_image_that_is_not_ours_stays_on_moto() {
    let Some(world) = OnMoto::start("foreign-images").await else {
        return;
    };
    let provider = &world.provider;
    let foreign = Parameters::default().with("Name", format!("foreign-{}", std::process::id()));
    let foreign = provider.ec2.call(REGION, "RegisterImage", &foreign).await;
    let foreign: RegisteredImage = foreign.unwrap();
    let deleted = provider.delete_image(Some(REGION), &foreign.image_id).await;
    let error = deleted.unwrap_err().error;
    assert!(error.ends_with("does not have our tags"), "{error}");
}
