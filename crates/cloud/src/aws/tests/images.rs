//! Machine images of EC2. No server that simulates EC2 knows `ImportSnapshot`, so its responses are
//! scripted here in the form that AWS documents; the other calls also run against moto.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::testing::sizes_around;
use domain::launch::Cause;
use serde_json::{Map, Value, json};

use super::proxy::{InjectedFailure, Proxy};
use super::scripted::{alone, answer};
use crate::aws::AwsProvider;
use crate::aws::images::MAX_TAGS;
use crate::tests::images::token;
use crate::tests::values::ROOT_URL;
use crate::{
    Checksum, ImageError, ImageTarget as _, ImageUpload, Retry, UploadProgress, UploadState,
};

const REGION: &str = "us-west-2";
const LOCATION: Option<&str> = Some("s3://bucket/images/debian/1/image.raw");

pub(super) struct Given {
    options: Value,
    location: Option<&'static str>,
    format: &'static str,
    region: &'static str,
    metadata: BTreeMap<String, String>,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            options: json!({}),
            location: LOCATION,
            format: "raw",
            region: REGION,
            metadata: BTreeMap::new(),
        }
    }
}

pub(super) async fn upload(
    provider: &AwsProvider,
    given: &Given,
) -> Result<UploadState, ImageError> {
    let checksum = Checksum {
        sha256: "ab".repeat(32),
        size_bytes: 7,
    };
    let options: &Map<String, Value> = given.options.as_object().unwrap();
    let upload = ImageUpload {
        token: &token("token-1"),
        name: "debian 12",
        format: given.format,
        path: None,
        location: given.location,
        checksum: &checksum,
        region: Some(given.region),
        options,
        metadata: &given.metadata,
        progress: &Arc::new(UploadProgress::default()),
    };
    provider.upload_image(&upload).await
}

fn tags(root_url: &str, token: &str) -> String {
    let tag =
        |key: &str, value: &str| format!("<item><key>{key}</key><value>{value}</value></item>");
    format!(
        "<tagSet>{}{}{}</tagSet>",
        tag("fleetwright:deployment", root_url),
        tag("fleetwright:provider", "aws"),
        tag("fleetwright:image", token),
    )
}

fn images(items: &str) -> String {
    format!("<DescribeImagesResponse><imagesSet>{items}</imagesSet></DescribeImagesResponse>")
}

fn image(id: &str, state: &str, root_url: &str) -> String {
    let tags = tags(root_url, "token-1");
    format!(
        "<item><imageId>{id}</imageId><imageState>{state}</imageState><stateReason><message>why\
         </message></stateReason><blockDeviceMapping><item><ebs><snapshotId>snap-1</snapshotId>\
         </ebs></item><item><deviceName>ephemeral0</deviceName></item></blockDeviceMapping>{tags}\
         </item>"
    )
}

fn snapshots(id: &str, status: &str, root_url: &str) -> String {
    let tags = tags(root_url, "token-1");
    format!(
        "<DescribeSnapshotsResponse><snapshotSet><item><snapshotId>{id}</snapshotId>\
         <status>{status}</status>{tags}</item></snapshotSet></DescribeSnapshotsResponse>"
    )
}

pub(super) fn imports(detail: &str) -> String {
    let tags = tags(ROOT_URL, "token-1");
    format!(
        "<DescribeImportSnapshotTasksResponse><importSnapshotTaskSet><item>\
         <importTaskId>import-snap-1</importTaskId><snapshotTaskDetail>{detail}\
         </snapshotTaskDetail>{tags}</item></importSnapshotTaskSet>\
         </DescribeImportSnapshotTasksResponse>"
    )
}

const NO_SNAPSHOTS: &str = "<DescribeSnapshotsResponse><snapshotSet/></DescribeSnapshotsResponse>";
const NO_IMPORTS: &str = "<DescribeImportSnapshotTasksResponse><importSnapshotTaskSet/>\
    </DescribeImportSnapshotTasksResponse>";

/// The next upload finds these; empty texts stand for nothing.
fn finds(proxy: &Proxy, image: &str, snapshot: &str, import: &str) {
    answer(proxy, "DescribeImages", &images(image));
    if !image.is_empty() {
        return;
    }
    let snapshot = if snapshot.is_empty() {
        NO_SNAPSHOTS
    } else {
        snapshot
    };
    answer(proxy, "DescribeSnapshots", snapshot);
    if snapshot == NO_SNAPSHOTS {
        let import = if import.is_empty() {
            NO_IMPORTS
        } else {
            import
        };
        answer(proxy, "DescribeImportSnapshotTasks", import);
    }
}

fn begun(proxy: &Proxy) {
    let body = "<ImportSnapshotResponse><importTaskId>import-snap-1</importTaskId>\
                <snapshotTaskDetail/></ImportSnapshotResponse>";
    answer(proxy, "ImportSnapshot", body);
}

fn registers(proxy: &Proxy) {
    let body = "<RegisterImageResponse><imageId>ami-1</imageId></RegisterImageResponse>";
    answer(proxy, "RegisterImage", body);
}

pub(super) fn status(state: Result<UploadState, ImageError>) -> String {
    match state {
        Ok(UploadState::Ready(image)) => format!("ready {}", image.external_id),
        Ok(UploadState::Pending { status, done, .. }) => match done {
            Some(done) => format!("{status} {done}"),
            None => status,
        },
        Err(error) => error.to_string(),
    }
}

/// The first call of this action has these parameters.
fn has(proxy: &Proxy, action: &str, expected: &[(&str, &str)]) {
    let call = &proxy.calls(action)[0];
    for (name, value) in expected {
        assert_eq!(call[*name], *value, "{name}");
    }
}

#[tokio::test]
async fn an_upload_is_imported_named_registered_and_ready() {
    let (provider, proxy) = alone().await;
    let given = Given {
        options: json!({"roleName": "importer", "architecture": "arm64", "bootMode": "uefi"}),
        metadata: BTreeMap::from([("image".to_owned(), "debian-12".to_owned())]),
        ..Given::default()
    };
    finds(&proxy, "", "", "");
    begun(&proxy);
    assert_eq!(
        status(upload(&provider, &given).await),
        "import import-snap-1 has begun 0"
    );
    has(
        &proxy,
        "ImportSnapshot",
        &[
            ("ClientToken", "token-1"),
            ("DiskContainer.Format", "RAW"),
            ("DiskContainer.UserBucket.S3Bucket", "bucket"),
            (
                "DiskContainer.UserBucket.S3Key",
                "images/debian/1/image.raw",
            ),
            ("RoleName", "importer"),
            ("TagSpecification.1.ResourceType", "import-snapshot-task"),
            ("TagSpecification.1.Tag.3.Key", "fleetwright:image"),
            ("TagSpecification.1.Tag.3.Value", "token-1"),
            ("TagSpecification.1.Tag.5.Key", "image"),
        ],
    );
    let active = "<status>active</status><progress>42</progress><statusMessage>converting\
                  </statusMessage>";
    finds(&proxy, "", "", &imports(active));
    assert_eq!(
        status(upload(&provider, &given).await),
        "import import-snap-1: converting 0.42"
    );
    let completed = "<status>completed</status><snapshotId>snap-1</snapshotId>";
    finds(&proxy, "", "", &imports(completed));
    answer(&proxy, "CreateTags", "<CreateTagsResponse/>");
    registers(&proxy);
    assert_eq!(
        status(upload(&provider, &given).await),
        "image ami-1 is being registered"
    );
    let named = [("ResourceId.1", "snap-1"), ("Tag.3.Value", "token-1")];
    has(&proxy, "CreateTags", &named);
    has(
        &proxy,
        "RegisterImage",
        &[
            ("Name", "debian-12.token-1"),
            ("Architecture", "arm64"),
            ("BootMode", "uefi"),
            ("BlockDeviceMapping.1.Ebs.SnapshotId", "snap-1"),
            ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
            ("TagSpecification.1.ResourceType", "image"),
        ],
    );
    finds(&proxy, &image("ami-1", "pending", ROOT_URL), "", "");
    assert_eq!(
        status(upload(&provider, &given).await),
        "the image is being registered"
    );
    for _ in 0..2 {
        finds(&proxy, &image("ami-1", "available", ROOT_URL), "", "");
        assert_eq!(status(upload(&provider, &given).await), "ready ami-1");
    }
    assert_eq!(proxy.calls("ImportSnapshot").len(), 1);
}

#[tokio::test]
async fn an_upload_goes_on_after_a_crash_at_each_step() {
    let (provider, proxy) = alone().await;
    let given = Given::default();
    // The answer to the import was lost, and EC2 does not list it yet: the client token protects.
    for _ in 0..2 {
        finds(&proxy, "", "", "");
        proxy.next("ImportSnapshot", InjectedFailure::LoseAnswer);
        let error = upload(&provider, &given).await.unwrap_err();
        assert_eq!((error.cause, error.retry()), (Cause::Lost, Retry::Later));
    }
    let calls = proxy.calls("ImportSnapshot");
    assert_eq!(calls[0]["ClientToken"], calls[1]["ClientToken"]);
    // The snapshot has its name, and the image was not registered.
    finds(&proxy, "", &snapshots("snap-1", "pending", ROOT_URL), "");
    assert_eq!(
        status(upload(&provider, &given).await),
        "the snapshot is pending"
    );
    finds(&proxy, "", &snapshots("snap-1", "completed", ROOT_URL), "");
    let duplicate = InjectedFailure::Refuse {
        status: 400,
        code: "InvalidAMIName.Duplicate",
    };
    proxy.next("RegisterImage", duplicate);
    assert_eq!(status(upload(&provider, &given).await), "registering");
    assert_eq!(proxy.calls("RegisterImage")[0]["Architecture"], "x86_64");
}

#[tokio::test]
async fn failures_at_ec2_are_named_with_what_to_do() {
    let (provider, proxy) = alone().await;
    let given = Given::default();
    let detail =
        "<status>deleted</status><statusMessage>ClientError: no file system</statusMessage>";
    finds(&proxy, "", "", &imports(detail));
    let error = upload(&provider, &given).await.unwrap_err();
    let expected = "configuration: import import-snap-1 is deleted: ClientError: no file system";
    assert_eq!(
        (error.to_string().as_str(), error.retry()),
        (expected, Retry::AfterChange)
    );
    finds(&proxy, "", &snapshots("snap-1", "error", ROOT_URL), "");
    assert_eq!(
        status(upload(&provider, &given).await),
        "configuration: snapshot snap-1 has failed"
    );
    finds(&proxy, &image("ami-1", "failed", ROOT_URL), "", "");
    assert_eq!(
        status(upload(&provider, &given).await),
        "configuration: image ami-1 is failed: why"
    );
    for (status, code, cause) in [
        (503, "RequestLimitExceeded", Cause::Throttled),
        (401, "AuthFailure", Cause::Credentials),
        (400, "SnapshotLimitExceeded", Cause::Configuration),
        (500, "InternalError", Cause::Lost),
    ] {
        finds(&proxy, "", "", "");
        proxy.next("ImportSnapshot", InjectedFailure::Refuse { status, code });
        let error = upload(&provider, &given).await.unwrap_err();
        let is_expected =
            error.cause == cause || (code.contains("Limit") && error.cause == Cause::Quota);
        assert!(is_expected, "{code}: {error}");
        assert!(error.error.contains(code), "{error}");
    }
}

#[tokio::test]
async fn an_upload_that_ec2_cannot_take_is_refused_before_it_begins() {
    let (provider, proxy) = alone().await;
    let cases = [
        (
            Given {
                format: "tar",
                ..Given::default()
            },
            "no images of format \"tar\", only raw, vhd",
        ),
        (
            Given {
                region: "eu-west-9",
                ..Given::default()
            },
            "does not use region eu-west-9",
        ),
        (
            Given {
                options: json!({"speed": "x"}),
                ..Given::default()
            },
            "no option \"speed\"",
        ),
        (
            Given {
                options: json!({"bootMode": 7}),
                ..Given::default()
            },
            "must be a text, not 7",
        ),
        (
            Given {
                options: json!({"bootMode": ""}),
                ..Given::default()
            },
            "must be a text, not \"\"",
        ),
    ];
    for (given, expected) in cases {
        let error = upload(&provider, &given).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.retry(), Retry::AfterChange);
    }
    assert!(proxy.calls("DescribeImages").is_empty());
    for location in [None, Some("/var/lib/image.raw"), Some("s3://bucket")] {
        finds(&proxy, "", "", "");
        let given = Given {
            location,
            ..Given::default()
        };
        let error = upload(&provider, &given).await.unwrap_err();
        assert!(
            error.error.starts_with("EC2 imports images from S3 only"),
            "{error}"
        );
    }
    assert!(proxy.calls("ImportSnapshot").is_empty());
}

#[tokio::test]
async fn the_number_of_tags_has_a_limit() {
    for count in sizes_around("cloud::aws::images::MAX_TAGS", MAX_TAGS) {
        let (provider, proxy) = alone().await;
        finds(&proxy, "", "", "");
        begun(&proxy);
        let metadata = (0..count).map(|number| (format!("k{number}"), "é".repeat(300)));
        let foreign = [("aws:x", "x"), ("fleetwright:image", "x"), ("Name", "x")];
        let foreign = foreign.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let given = Given {
            metadata: metadata.chain(foreign).collect(),
            ..Given::default()
        };
        upload(&provider, &given).await.unwrap();
        let call = &proxy.calls("ImportSnapshot")[0];
        let n_tags = call.keys().filter(|name| name.ends_with(".Key")).count();
        assert_eq!(n_tags, (count + 4).min(MAX_TAGS));
        assert!(
            call.values()
                .all(|value| value.chars().count() <= 255 || value.len() < 600)
        );
    }
}

#[tokio::test]
async fn an_image_is_deleted_with_its_snapshot_and_only_if_it_is_ours() {
    let (provider, proxy) = alone().await;
    let delete = |id: &'static str| provider.delete_image(Some(REGION), id);
    answer(
        &proxy,
        "DescribeImages",
        &images(&image("ami-1", "available", ROOT_URL)),
    );
    answer(&proxy, "DeregisterImage", "<DeregisterImageResponse/>");
    answer(&proxy, "DeleteSnapshot", "<DeleteSnapshotResponse/>");
    delete("ami-1").await.unwrap();
    assert_eq!(proxy.calls("DeregisterImage")[0]["ImageId"], "ami-1");
    assert_eq!(proxy.calls("DeleteSnapshot")[0]["SnapshotId"], "snap-1");
    // Another deployment's.
    let theirs = image("ami-2", "available", "https://elsewhere.example.com");
    answer(&proxy, "DescribeImages", &images(&theirs));
    let error = delete("ami-2").await.unwrap_err();
    assert_eq!(error.error, "ami-2 in us-west-2 does not have our tags");
    let theirs = snapshots("snap-2", "completed", "https://elsewhere.example.com");
    answer(&proxy, "DescribeSnapshots", &theirs);
    assert!(
        delete("snap-2")
            .await
            .unwrap_err()
            .error
            .ends_with("does not have our tags")
    );
    // A resource that does not exist counts as deleted.
    for (id, action, code) in [
        ("ami-3", "DescribeImages", "InvalidAMIID.NotFound"),
        ("ami-3", "DescribeImages", "InvalidAMIID.Unavailable"),
        ("snap-3", "DescribeSnapshots", "InvalidSnapshot.NotFound"),
    ] {
        proxy.next(action, InjectedFailure::Refuse { status: 400, code });
        delete(id).await.unwrap();
    }
    answer(&proxy, "DescribeImages", &images(""));
    delete("ami-3").await.unwrap();
    answer(&proxy, "DescribeImportSnapshotTasks", NO_IMPORTS);
    delete("import-snap-3").await.unwrap();
    assert_eq!(proxy.calls("DeregisterImage").len(), 1);
    // The rest of an upload.
    answer(
        &proxy,
        "DescribeSnapshots",
        &snapshots("snap-1", "completed", ROOT_URL),
    );
    answer(&proxy, "DeleteSnapshot", "<DeleteSnapshotResponse/>");
    delete("snap-1").await.unwrap();
    answer(
        &proxy,
        "DescribeImportSnapshotTasks",
        &imports("<status>active</status>"),
    );
    answer(&proxy, "CancelImportTask", "<CancelImportTaskResponse/>");
    delete("import-snap-1").await.unwrap();
    assert_eq!(proxy.calls("CancelImportTask").len(), 1);
    let error = delete("vol-1").await.unwrap_err().error;
    assert_eq!(
        error,
        "\"vol-1\" is not the id of an image, a snapshot or an import"
    );
}

#[tokio::test]
async fn a_deletion_that_was_cut_off_leaves_a_snapshot_that_is_listed() {
    let (provider, proxy) = alone().await;
    answer(
        &proxy,
        "DescribeImages",
        &images(&image("ami-1", "available", ROOT_URL)),
    );
    answer(&proxy, "DeregisterImage", "<DeregisterImageResponse/>");
    let (status, code) = (400, "InvalidSnapshot.InUse");
    proxy.next("DeleteSnapshot", InjectedFailure::Refuse { status, code });
    let error = provider.delete_image(None, "ami-1").await;
    // The usual region is not one of this provider's.
    assert!(
        error
            .unwrap_err()
            .error
            .contains("does not use region us-east-1")
    );
    let error = provider
        .delete_image(Some(REGION), "ami-1")
        .await
        .unwrap_err();
    assert!(error.error.contains("InvalidSnapshot.InUse"), "{error}");
    answer(
        &proxy,
        "DescribeImages",
        &images(&image("ami-2", "available", ROOT_URL)),
    );
    answer(
        &proxy,
        "DescribeSnapshots",
        &snapshots("snap-2", "completed", ROOT_URL),
    );
    answer(
        &proxy,
        "DescribeImportSnapshotTasks",
        &imports("<status>active</status>"),
    );
    let owned = provider.owned_images().await.unwrap();
    let owned: Vec<_> = owned
        .iter()
        .map(|it| (it.external_id.as_str(), it.is_ready))
        .collect();
    assert_eq!(
        owned,
        [("ami-2", true), ("snap-2", false), ("import-snap-1", false)]
    );
    // The snapshot of an image is not listed beside it.
    answer(
        &proxy,
        "DescribeImages",
        &images(&image("ami-2", "available", ROOT_URL)),
    );
    answer(
        &proxy,
        "DescribeSnapshots",
        &snapshots("snap-1", "completed", ROOT_URL),
    );
    answer(&proxy, "DescribeImportSnapshotTasks", NO_IMPORTS);
    assert_eq!(provider.owned_images().await.unwrap().len(), 1);
}
