//! Images on the fake of Azure.

use std::path::PathBuf;

use ::testing::sizes_around;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::launch::Cause;
use serde_json::{Map, Value, json};

use super::site::{OnAzure, provider, put, single};
use crate::azure::AzureProvider;
use crate::azure::blobs::{MAX_PAGES, PIECE_BYTES};
use crate::azure::vhd::footer;
use crate::tests::images::{ImageFixture, image_contract, step, token, upload};
use crate::tests::values::context_at;
use crate::{ImageError, ImageTarget, Provider as _, Retry, UploadState, UploadedImage};

const GROUP: &str = "/subscriptions/s-1/resourceGroups/ci/providers/Microsoft.Compute";

/// A provider with an image for it.
struct World {
    azure: OnAzure,
    folder: tempfile::TempDir,
    options: Value,
    format: &'static str,
}

impl World {
    async fn start(options: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("image.raw"), disk()).unwrap();
        Self {
            azure: OnAzure::start().await,
            folder,
            options,
            format: "raw",
        }
    }

    async fn step(&self, token: &str) -> Result<UploadState, ImageError> {
        let path = self.path();
        let checksum = crate::checksum_of(&path).unwrap();
        step(self, token, self.format, &path, &checksum).await
    }

    async fn upload(&self, token: &str) -> Result<UploadedImage, ImageError> {
        upload(self, token).await
    }

    fn blobs(&self) -> Value {
        self.azure.fake.steer("blobs", &json!({}))
    }

    fn fault(&self, fault: Value) {
        self.azure.fake.fault(&fault);
    }

    /// The resource, as the fake keeps it.
    fn resource(&self, id: &str) -> Value {
        self.azure.fake.steer("resource", &json!({ "id": id }))
    }

    fn content_is(&self, id: &str, expected: &[u8]) {
        let image = self.resource(id);
        let content = STANDARD.decode(image["disk"].as_str().unwrap()).unwrap();
        assert!(content == expected, "the disk has another content");
        let size = expected.len().div_ceil(1024 * 1024) * 1024 * 1024;
        assert_eq!(image["diskBytes"], size);
    }

    async fn owned(&self) -> Vec<(String, bool)> {
        let owned = self.target().owned_images().await.unwrap();
        owned
            .into_iter()
            .map(|it| (it.external_id, it.is_ready))
            .collect()
    }

    /// The requests that wrote pages, since the last call.
    fn n_pages_written(&self) -> usize {
        let requests = self.azure.fake.steer("requests", &json!({}));
        let is_write = |it: &&Value| it["query"] == "comp=page";
        requests.as_array().unwrap().iter().filter(is_write).count()
    }
}

/// Content of several pieces, with an empty one among them.
fn disk() -> Vec<u8> {
    let mut disk = vec![7; PIECE_BYTES];
    disk.extend(vec![0; PIECE_BYTES + 512]);
    disk.extend(
        (0..300_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()),
    );
    disk.extend(b"the end");
    disk
}

#[async_trait]
impl ImageFixture for World {
    fn target(&self) -> &dyn ImageTarget {
        self.azure.provider.images().unwrap()
    }

    fn format(&self) -> &'static str {
        self.format
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(format!("image.{}", self.format))
    }

    fn options(&self) -> Map<String, Value> {
        self.options.as_object().unwrap().clone()
    }

    async fn wait_a_little(&self) {
        self.azure.fake.advance();
    }
}

#[tokio::test]
async fn managed_images_keep_the_contract_of_images() {
    image_contract(&World::start(json!({})).await).await;
}

#[tokio::test]
async fn versions_in_a_gallery_keep_the_contract_of_images() {
    image_contract(&World::start(json!({"gallery": "ci/debian"})).await).await;
}

#[tokio::test]
async fn a_machine_boots_from_the_uploaded_disk() {
    let world = World::start(json!({"osType": "Windows", "hyperVGeneration": "V2"})).await;
    let id = world.upload("1f0c").await.unwrap().external_id;
    assert_eq!(id, format!("{GROUP}/images/fleetwright-1f0c"));
    world.content_is(&id, &disk());
    assert_eq!(world.blobs(), json!([]), "the blob is deleted");
    let image = world.resource(&id);
    assert_eq!(image["tags"]["image"], "debian-12");
    assert_eq!(image["properties"]["hyperVGeneration"], "V2");
    assert_eq!(
        image["properties"]["storageProfile"]["osDisk"]["osType"],
        "Windows"
    );

    let boot = |id: &str| {
        let disk = json!({"createOption": "FromImage"});
        let storage = json!({"imageReference": {"id": id}, "osDisk": disk});
        single(&json!({"storageProfile": storage}))
    };
    let other = boot(&format!("{id}-other"));
    world.azure.launch(other).await.unwrap_err();
    assert_eq!(world.azure.launch(boot(&id)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_version_is_copied_to_the_locations_of_the_provider() {
    let world = World::start(json!({"gallery": "ci/debian", "storageAccountType": "Standard_ZRS"}));
    let world = world.await;
    let id = world.upload("1f0c").await.unwrap().external_id;
    assert!(
        id.starts_with(&format!("{GROUP}/galleries/ci/images/debian/versions/0.")),
        "{id}"
    );
    world.content_is(&id, &disk());
    let profile = &world.resource(&id)["properties"]["publishingProfile"];
    assert_eq!(
        profile["targetRegions"],
        json!([{"name": "westus"}, {"name": "eastus"}])
    );
    assert_eq!(profile["storageAccountType"], "Standard_ZRS");
    let mut lost = World::start(json!({"gallery": "ci/unknown"})).await;
    let error = lost.step("1f0c").await.unwrap_err();
    assert_eq!(error.cause, Cause::Configuration);
    assert!(
        error.error.contains("gallery image does not exist"),
        "{error}"
    );
    lost.options = json!({"gallery": "ci"});
    let error = lost.step("1f0c").await.unwrap_err();
    assert!(
        error.error.contains("like \"ci/debian\", not \"ci\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_vhd_is_sent_as_it_is() {
    let mut world = World::start(json!({})).await;
    let mut bytes = disk();
    bytes.resize(bytes.len().next_multiple_of(1024 * 1024), 0);
    bytes.extend(footer(bytes.len() as u64, &token("one")));
    world.format = "vhd";
    std::fs::write(world.path(), &bytes).unwrap();
    let id = world.upload("two").await.unwrap().external_id;
    world.content_is(&id, &disk());
    for wrong in [&bytes[..bytes.len() - 1], &bytes[512..], &bytes[..512]] {
        std::fs::write(world.path(), wrong).unwrap();
        let error = world.step("three").await.unwrap_err();
        assert_eq!(error.cause, Cause::Configuration);
        assert!(error.error.contains("not a fixed VHD"), "{error}");
    }
}

#[tokio::test]
async fn a_half_done_upload_goes_on_where_it_stopped() {
    let world = World::start(json!({})).await;
    let page = json!({"path": "comp=page", "method": "PUT"});
    let with = |more: Value| {
        let mut fault = page.clone();
        for (key, value) in more.as_object().unwrap() {
            fault[key] = value.clone();
        }
        fault
    };
    let busy = json!({"x-ms-error-code": "ServerBusy"});
    for (fault, cause) in [
        (with(json!({"drop": "before"})), Cause::Lost),
        (with(json!({"drop": "after", "skip": 1})), Cause::Lost),
        (
            with(json!({"status": 503, "headers": busy, "body": "busy"})),
            Cause::Unavailable,
        ),
        (with(json!({"status": 429})), Cause::Throttled),
        (
            json!({"path": "comp=properties", "drop": "after"}),
            Cause::Lost,
        ),
        (
            json!({"path": "images/fleetwright-one", "method": "PUT", "drop": "before"}),
            Cause::Lost,
        ),
    ] {
        world.fault(fault.clone());
        let error = world.step("one").await.unwrap_err();
        assert_eq!(
            (error.cause, error.retry()),
            (cause, Retry::Later),
            "{fault}: {error}"
        );
    }
    // All pages are known to be written, and only the image is missing.
    world.n_pages_written();
    // Tokens that Azure does not accept any more are replaced on the way.
    world.azure.fake.steer("revoke", &json!({}));
    let id = world.upload("one").await.unwrap().external_id;
    assert_eq!(world.n_pages_written(), 0);
    world.content_is(&id, &disk());
}

#[tokio::test]
async fn an_image_whose_answer_was_lost_is_found_by_its_token() {
    let world = World::start(json!({})).await;
    world.fault(json!({"path": "images/fleetwright-one", "method": "PUT", "drop": "after"}));
    let error = world.step("one").await.unwrap_err();
    assert_eq!((error.cause, error.retry()), (Cause::Lost, Retry::Later));
    assert_eq!(
        world
            .target()
            .find_image(None, &token("one"))
            .await
            .unwrap(),
        None
    );
    let image = world.upload("one").await.unwrap();
    let found = world
        .target()
        .find_image(None, &token("one"))
        .await
        .unwrap();
    assert_eq!(found, Some(image.clone()));
    assert_eq!(world.owned().await, [(image.external_id, true)]);
}

#[tokio::test]
async fn an_image_that_fails_is_reported_and_then_made_again() {
    let world = World::start(json!({})).await;
    let error = json!({"code": "QuotaExceeded", "message": "no more images"});
    world.fault(json!({"path": "images/fleetwright-one", "method": "PUT",
        "operation": {"error": error}}));
    let error = world.upload("one").await.unwrap_err();
    assert_eq!(
        (error.cause, error.retry()),
        (Cause::Quota, Retry::AfterChange)
    );
    assert!(error.error.contains("no more images"), "{error}");
    let id = format!("{GROUP}/images/fleetwright-one");
    let owned = world.owned().await;
    assert_eq!(owned[0], (id.clone(), false));
    assert_eq!(owned.len(), 2, "the blob, too: {owned:?}");
    world.n_pages_written();
    assert_eq!(world.upload("one").await.unwrap().external_id, id);
    assert_eq!(world.n_pages_written(), 0, "the blob is kept");
}

#[tokio::test]
async fn images_and_blobs_of_others_stay() {
    let world = World::start(json!({})).await;
    let id = world.upload("one").await.unwrap().external_id;
    let mut context = context_at("azure", &world.azure.clock);
    context.root_url = "https://elsewhere.example.com".to_owned();
    let settings = json!({"client_secret": "hush"});
    let stranger: AzureProvider = provider(&world.azure.fake, settings, context);
    let stranger = stranger.images().unwrap();
    assert_eq!(stranger.owned_images().await.unwrap(), []);
    assert_eq!(
        stranger.find_image(None, &token("one")).await.unwrap(),
        None
    );
    let error = stranger.delete_image(None, &id).await.unwrap_err();
    assert_eq!(error.cause, Cause::Configuration);
    assert_eq!(
        error.error,
        format!("{id} exists and does not have our tags")
    );
    let blob = format!(
        "{}/storage-1/images/fleetwright/theirs.vhd",
        world.azure.fake.url
    );
    world.target().delete_image(None, &blob).await.unwrap_err();
    let disk = "Microsoft.Compute/disks";
    put(&world.azure.fake, disk, "d", json!({"location": "westus"}));
    for wrong in [
        "x".to_owned(),
        format!("{GROUP}/disks/d"),
        id.replace("s-1", "s-2"),
    ] {
        let error = world.target().delete_image(None, &wrong).await.unwrap_err();
        assert!(error.error.contains("is not the id of an image"), "{error}");
    }
    assert_eq!(world.owned().await, [(id, true)]);
}

#[tokio::test]
async fn forgotten_blobs_are_listed_on_all_pages_and_deleted() {
    let world = World::start(json!({})).await;
    world.fault(json!({"path": "Compute/images", "method": "PUT", "status": 403, "times": 3}));
    for name in ["one", "Two", "three"] {
        world.step(name).await.unwrap_err();
    }
    world.azure.fake.steer("blobs", &json!({"page": 1}));
    let owned = world.target().owned_images().await.unwrap();
    let tokens: Vec<_> = owned.iter().filter_map(|it| it.token.clone()).collect();
    assert_eq!(tokens, ["Two", "one", "three"].map(token));
    let blobs = &world.azure.provider.images.as_ref().unwrap().blobs;
    for limit in sizes_around("cloud::azure::blobs::MAX_PAGES", MAX_PAGES) {
        let read = blobs.pages_at_most(limit).await;
        assert_eq!(read.is_ok(), limit >= 3, "{limit}");
    }
    for one in owned {
        assert!(!one.is_ready);
        for _ in 0..2 {
            world
                .target()
                .delete_image(None, &one.external_id)
                .await
                .unwrap();
        }
    }
    assert_eq!(world.blobs(), json!([]));
}

#[tokio::test]
async fn what_a_person_must_change_is_named() {
    let mut world = World::start(json!({})).await;
    let clock = &world.azure.clock;
    let endpoint = format!("{}/storage-1", world.azure.fake.url);
    let of = |change: Value| {
        let mut settings = json!({"client_secret": "hush"});
        settings["image_storage"] = change;
        provider(&world.azure.fake, settings, context_at("azure", clock))
    };
    let missing = json!({"account": "account1", "container": "missing", "endpoint": endpoint});
    let (missing, none) = (of(missing), of(Value::Null));
    assert!(none.images().is_none());
    assert!(none.images_need().unwrap().starts_with("image_storage"));
    let elsewhere = missing
        .images()
        .unwrap()
        .problems(Some("eastus"), &Map::new());
    assert_eq!(elsewhere[0].at, "region");
    assert!(
        elsewhere[0]
            .message
            .contains("in westus, and not in eastus")
    );
    world.azure.provider = missing;
    let error = world.step("one").await.unwrap_err();
    assert_eq!(error.cause, Cause::Configuration);
    let text = "ContainerNotFound: The container does not exist.";
    assert!(error.error.ends_with(text), "{error}");
}
