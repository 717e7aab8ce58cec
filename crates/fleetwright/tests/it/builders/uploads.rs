//! Uploads whose builder dies, and a provider that is slow, fails, or stops half-way.

use std::fs;

use domain::image::{BuildNumber, UploadState};

use super::cluster::{Cluster, image, shared};

/// A provider that keeps images in a folder. It notes each upload with its token. An upload with
/// the file `slow` waits for the file `go`; with the file `closed`, it fails.
const STORE: &str = r#"#!/bin/sh
set -eu
cd "$STORE"
question=$(cat)
asked() { printf '%s' "$question" | sed -n "s/.*\"$1\":\"*\([^\",}]*\).*/\1/p"; }
case "$1" in
  setup) echo '{"images":{"formats":["raw"]}}' ;;
  upload-image) token=$(asked token)
    if [ -e closed ]; then echo '{"cause":"unavailable","message":"the store is closed"}'; exit 1; fi
    echo "$token" >>uploads
    if [ -e slow ] && ! [ -e go ]; then
      touch "half-$token"
      echo '{"state":"pending","status":"half of it is here","done":0.5,"callAfterSeconds":1}'
    else
      rm -f "half-$token"; cp -- "$(asked path)" "image-$token"
      printf '{"state":"ready","imageId":"image-%s"}' "$token"
    fi ;;
  find-image) if [ -e "image-$(asked token)" ]; then printf '{"image":{"imageId":"image-%s"}}' "$(asked token)"; else echo '{}'; fi ;;
  delete-image) rm -f "$(asked imageId)"; echo '{}' ;;
  owned-images) echo '{"images":[]}' ;;
  *) echo '{}' ;;
esac
"#;

/// The lines of a configuration that add the provider.
fn store(cluster: &Cluster) -> String {
    let program = cluster.home.write("store.sh", STORE);
    let folder = cluster.path("store");
    fs::create_dir_all(&folder).unwrap();
    format!(
        "[providers.store]\nkind = \"exec\"\ncommand = [\"sh\", \"{program}\"]\n\
         env = {{ STORE = \"{folder}\" }}\n"
    )
}

fn counting(cluster: &Cluster) -> String {
    let log = cluster.path("builds");
    format!("echo built >>{log}; echo image >\"$FLEETWRIGHT_OUTPUT.raw\"")
}

fn touch(cluster: &Cluster, name: &str) {
    fs::write(cluster.home.path("store").join(name), "").unwrap();
}

#[test]
fn a_build_in_a_shared_store_is_uploaded_by_another_when_its_builder_dies() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let (artifacts, provider) = (shared(&cluster.path("artifacts")), store(&cluster));
    // It can build, and it cannot upload.
    let mut first = cluster.builder("a", &artifacts);
    cluster.define(
        &[image("linux", &counting(&cluster), &["store"])],
        &["store"],
    );
    cluster.wait_ready("linux", 1);
    first.kill();
    let second = cluster.builder("b", &format!("{artifacts}{provider}"));
    let (uploader, id) = cluster.wait_uploaded("linux", 1);
    assert_eq!(uploader, second.name);
    let uploaded = fs::read_to_string(cluster.home.path("store").join(id)).unwrap();
    assert_eq!(uploaded, "image\n");
    assert_eq!(cluster.lines("builds").len(), 1);
}

#[test]
fn a_build_that_died_with_its_builder_is_built_again_at_once() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let provider = store(&cluster);
    let mut first = cluster.builder("a", "");
    cluster.define(
        &[image("linux", &counting(&cluster), &["store"])],
        &["store"],
    );
    cluster.wait_ready("linux", 1);
    first.kill();
    let second = cluster.builder("b", &provider);
    let (uploader, _) = cluster.wait_uploaded("linux", 2);
    assert_eq!(uploader, second.name);
    assert_eq!(cluster.lines("builds").len(), 2);
}

#[test]
fn an_upload_goes_on_with_its_token_when_the_uploading_builder_dies() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let more = format!("{}{}", shared(&cluster.path("artifacts")), store(&cluster));
    touch(&cluster, "slow");
    let mut builders = vec![cluster.builder("a", &more), cluster.builder("b", &more)];
    cluster.define(
        &[image("linux", &counting(&cluster), &["store"])],
        &["store"],
    );
    cluster.until("half of it is uploaded", || {
        cluster.lines("store/uploads").len() > 1
    });
    let uploader = cluster.wait("linux", "it is uploading", |node| {
        let build = node.builds.get(&BuildNumber(1))?;
        let mut uploads = build
            .targets
            .values()
            .flat_map(|target| target.uploads.values());
        Some(uploads.next()?.record.as_ref()?.uploader.clone())
    });
    let position = builders.iter().position(|it| it.name == uploader).unwrap();
    builders.remove(position).kill();
    touch(&cluster, "go");
    let (uploader, _) = cluster.wait_uploaded("linux", 1);
    assert_eq!(uploader, builders[0].name);
    let tokens = cluster.lines("store/uploads");
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    assert_eq!(cluster.lines("builds").len(), 1);
}

#[test]
fn a_provider_that_fails_is_tried_again_and_says_why() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let provider = store(&cluster);
    touch(&cluster, "closed");
    let _builder = cluster.builder("a", &provider);
    cluster.define(
        &[image("linux", &counting(&cluster), &["store"])],
        &["store"],
    );
    let error = cluster.wait("linux", "the upload failed", |node| {
        let build = node.builds.get(&BuildNumber(1))?;
        let mut uploads = build
            .targets
            .values()
            .flat_map(|target| target.uploads.values());
        uploads.find_map(|upload| match &upload.record.as_ref()?.state {
            UploadState::Failed { error, .. } => Some(error.clone()),
            UploadState::Uploading | UploadState::Ready | UploadState::Deleting => None,
        })
    });
    assert!(error.contains("the store is closed"), "{error}");
    fs::remove_file(cluster.home.path("store").join("closed")).unwrap();
    cluster.wait_uploaded("linux", 1);
    assert_eq!(cluster.lines("builds").len(), 1);
}

#[test]
fn an_image_that_is_removed_disappears_at_the_provider_first() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let provider = store(&cluster);
    let _builder = cluster.builder("a", &provider);
    cluster.define(
        &[image("linux", &counting(&cluster), &["store"])],
        &["store"],
    );
    let (_, id) = cluster.wait_uploaded("linux", 1);
    let path = cluster.home.path("store").join(id);
    assert!(path.exists());
    cluster.remove_all();
    cluster.wait_removed("linux");
    assert!(!path.exists());
}
