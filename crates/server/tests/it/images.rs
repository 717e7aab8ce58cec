//! Definitions of images: created, changed, planned, deleted and restored.

use serde_json::{Value, json};
use server::config::Config;

use crate::authorization::{Case, case, case_with};
use crate::configurations::refused;
use crate::database::{on_both, on_sqlite_first};
use crate::world::World;

const LINUX: &str = "fleetwright:/image/linux";
const MANAGE: &[&str] = &["fleetwright:manage-image:linux"];
const READ: &[&str] = &["fleetwright:get-image:linux"];
const WRITE_SECRET: &[&str] = &[
    "fleetwright:manage-image:linux",
    "worker-manager:provider:aws",
    "secrets:get:project/x",
];

/// A definition whose author must be allowed to read a secret.
fn with_service_secret() -> Value {
    let secret = json!({"name": "TOKEN", "secret": "project/x", "key": "token"});
    with("secrets", json!(["MIRROR", secret]))
}

fn definition() -> Value {
    json!({
        "description": "tasks on Linux",
        "build": {"command": ["make", "image"]},
        "formats": ["raw"],
        "uploads": [{"providerId": "aws", "region": "us-east-1"}],
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut changed = definition();
    changed[key] = value;
    changed
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case_with("createImage", LINUX, with_service_secret(), WRITE_SECRET),
        case_with("updateImage", LINUX, with_service_secret(), WRITE_SECRET),
        case("deleteImage", LINUX, MANAGE),
        case("image", LINUX, READ),
        case(
            "listImages",
            "fleetwright:/images",
            &["fleetwright:list-images"],
        ),
        case_with(
            "planImage",
            "fleetwright:/image/linux/plan",
            definition(),
            READ,
        ),
        case(
            "listImageVersions",
            "fleetwright:/image/linux/versions",
            READ,
        ),
        case("imageVersion", "fleetwright:/image/linux/version/1", READ),
        case(
            "compareImageVersions",
            "fleetwright:/image/linux/difference/1/2",
            READ,
        ),
        case_with(
            "revertImage",
            "fleetwright:/image/linux/revert",
            json!({"to": 1}),
            WRITE_SECRET,
        ),
    ]
}

async fn made(world: &World) -> Value {
    world.put(LINUX, definition()).await.expect(200)
}

async fn actions(world: &World) -> Vec<String> {
    let path = "fleetwright:/image/linux/versions";
    let list = world.get(path).await.expect(200);
    let versions = list["versions"].as_array().unwrap().iter();
    let line = |version: &Value| {
        let text = |key: &str| version[key].as_str().unwrap();
        format!(
            "{} {} {}",
            version["version"],
            text("action"),
            text("reason")
        )
    };
    versions.map(line).collect()
}

on_sqlite_first!(an_image_is_created_shown_listed_and_deleted, |world| {
    let image = made(world).await;
    assert_eq!(image["imageId"], "linux");
    assert_eq!(image["version"], 1);
    assert_eq!(image["build"], json!({"command": ["make", "image"]}));
    assert_eq!(world.get(LINUX).await.expect(200), image);
    // A repeated request, and what was read, sent back.
    assert_eq!(made(world).await, image);
    assert_eq!(world.post(LINUX, image.clone()).await.expect(200), image);
    let other = "fleetwright:/image/mac";
    world.put(other, definition()).await.expect(200);
    let list = world.get("fleetwright:/images?limit=1").await.expect(200);
    let listed = list["images"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["imageId"]), (1, &json!("linux")));
    assert_eq!(listed[0].get("build"), None);
    let token = list["continuationToken"].as_str().unwrap();
    let rest = format!("fleetwright:/images?continuationToken={token}");
    let rest = world.get(&rest).await.expect(200);
    assert_eq!(rest["images"][0]["imageId"], "mac");
    world.delete(LINUX).await.expect(200);
    assert_eq!(refused(world.get(LINUX), 404).await, "Image does not exist");
    world.delete(LINUX).await.expect(404);
    world.post(LINUX, definition()).await.expect(404);
});

on_both!(edits_name_the_version_that_they_are_for, |world| {
    made(world).await;
    let mut edit = with("keep", json!(3));
    edit["version"] = json!(1);
    let changed = world.post(LINUX, edit.clone()).await.expect(200);
    assert_eq!(
        (&changed["version"], &changed["keep"]),
        (&json!(2), &json!(3))
    );
    edit["keep"] = json!(4);
    let told = refused(world.post(LINUX, edit), 409).await;
    assert!(
        told.contains("has version 2, and the edit is for version 1"),
        "{told}"
    );
    let told = refused(world.delete(&format!("{LINUX}?version=1")), 409).await;
    assert!(told.contains("has version 2"), "{told}");
    let told = refused(world.put(LINUX, definition()), 409).await;
    assert!(
        told.contains("A different image of this name exists"),
        "{told}"
    );
    assert_eq!(world.get(LINUX).await.expect(200), changed);
});

on_both!(every_version_is_kept_and_can_be_restored, |world| {
    made(world).await;
    let mut edit = with("keep", json!(3));
    edit["reason"] = json!("roll back further");
    world.post(LINUX, edit).await.expect(200);
    world.delete(LINUX).await.expect(200);
    let path = "fleetwright:/image/linux/revert";
    let restored = world.post(path, json!({"to": 2})).await.expect(200);
    assert_eq!(
        (&restored["keep"], &restored["version"]),
        (&json!(3), &json!(4))
    );
    let back = json!({"to": 1, "reason": "too many", "version": 4});
    let first = world.post(path, back.clone()).await.expect(200);
    assert_eq!(first.get("keep"), None);
    refused(world.post(path, back), 409).await;
    assert_eq!(
        actions(world).await,
        [
            "5 reverted to version 1: too many",
            "4 reverted to version 2",
            "3 deleted ",
            "2 updated roll back further",
            "1 created ",
        ]
    );
    let second = "fleetwright:/image/linux/version/2";
    assert_eq!(world.get(second).await.expect(200)["keep"], 3);
    let difference = "fleetwright:/image/linux/difference/1/2";
    let difference = world.get(difference).await.expect(200);
    assert_eq!(
        difference["changes"],
        json!([{"pointer": "/keep", "after": 3, "effect": "needs no build and no upload"}])
    );
    for missing in [
        "version/9",
        "version/99999999999999999999",
        "difference/1/9",
    ] {
        let ask = world.get(&format!("fleetwright:/image/linux/{missing}"));
        assert!(matches!(ask.await.status, 400 | 404), "{missing}");
    }
    refused(world.post(path, json!({"to": 9})), 404).await;
    let history = world.get("auth:/audit/image/linux").await.expect(200);
    assert_eq!(history["auditHistory"].as_array().unwrap().len(), 5);
});

fn limited_secrets(config: &mut Config) {
    let text = r#"
        [images.secrets.ALL]
        file = "/no/such/file"
        [images.secrets.LINUX]
        file = "/no/such/file"
        images = ["linux", "other"]
        [images.secrets.OTHER]
        file = "/no/such/file"
        images = ["other"]
        [images.secrets.NONE]
        file = "/no/such/file"
        images = []
    "#;
    config.images = toml::from_str::<Config>(text).unwrap().images;
}

on_sqlite_first!(
    a_secret_that_is_for_other_images_is_refused,
    limited_secrets,
    |world| {
        // A builder of its own may have a secret that this server does not know.
        made(world).await;
        let free = with("secrets", json!(["ALL", "LINUX", "UNKNOWN"]));
        world.post(LINUX, free).await.expect(200);
        for name in ["OTHER", "NONE"] {
            let edit = with("secrets", json!(["ALL", name]));
            let expected = format!(
                "The image cannot be used:\n/secrets/1: image linux may not use secret {name}: add it to images.secrets.{name}.images in \
                 the configuration of the builders, or remove the secret from the definition"
            );
            assert_eq!(
                refused(world.post(LINUX, edit.clone()), 400).await,
                expected
            );
            let plan = world.post("fleetwright:/image/linux/plan", edit.clone());
            assert_eq!(refused(plan, 400).await, expected);
            let other = world.put("fleetwright:/image/more", edit);
            assert!(
                refused(other, 400)
                    .await
                    .contains("image more may not use secret")
            );
        }
        assert_eq!(world.get(LINUX).await.expect(200)["version"], 2);
    }
);

on_sqlite_first!(
    a_plan_says_what_a_change_needs_and_changes_nothing,
    |world| {
        let path = "fleetwright:/image/linux/plan";
        let plan = world.post(path, definition()).await.expect(200);
        assert_eq!(
            (&plan["exists"], &plan["changes"]),
            (&json!(false), &json!([]))
        );
        let image = made(world).await;
        let mut wanted = with("build", json!({"command": ["make", "all"]}));
        wanted["uploads"] = json!([{"providerId": "aws"}]);
        let plan = world.post(path, wanted).await.expect(200);
        let effects = plan["changes"].as_array().unwrap().iter();
        let effects: Vec<_> = effects
            .map(|change| format!("{} {}", change["pointer"], change["effect"]))
            .collect();
        assert_eq!(
            effects,
            [
                r#""/build/command" "needs a new build""#,
                r#""/uploads" "needs a new upload to aws""#,
            ]
        );
        assert_eq!(world.get(LINUX).await.expect(200), image);
    }
);

on_sqlite_first!(all_errors_of_a_definition_are_refused_together, |world| {
    let body = json!({
        "colour": "red",
        "build": {"command": []},
        "formats": ["ova"],
        "keep": 1,
        "labels": ["a b"],
        "canary": {"share": 2, "minStarts": 0},
        "version": "new",
        "uploads": [
            {"providerId": "aws", "format": "iso"},
            {"providerId": "moon"},
            {"providerId": "sun", "options": 3},
            {"providerId": "static"},
            {"providerId": "aws", "region": "us-east-1"},
        ],
    });
    let expected = [
        "/version",
        "/build/command",
        "/labels/0",
        "/keep",
        "/uploads/2/options",
        "/canary/share",
        "/canary/minStarts",
        "/colour",
        "/uploads/0/format",
        "/uploads/1/providerId",
        "/uploads/2/providerId",
        "/uploads/3/providerId",
        "/uploads/4/format",
    ];
    for ask in [
        world.put(LINUX, body.clone()),
        world.post(LINUX, body.clone()),
        world.post("fleetwright:/image/linux/plan", body.clone()),
    ] {
        let told = refused(ask, 400).await;
        let lines = told.lines().filter(|line| line.starts_with('/'));
        let places: Vec<&str> = lines.filter_map(|line| line.split(": ").next()).collect();
        assert_eq!(places, expected, "{told}");
        for part in [
            "/uploads/1/providerId: there is no provider moon; the configured ones are: ",
            "/uploads/3/providerId: provider static takes no images",
            "and not iso",
            "and not ova, which it gets because it names no `format`",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    world.get(LINUX).await.expect(404);
});

on_sqlite_first!(what_is_wrong_with_a_definition_is_named, |world| {
    for (body, part) in [
        (with("build", json!({"command": []})), "/build/command"),
        (with("keep", json!(1)), "keep"),
        (with("formats", json!(["RAW"])), "/formats/0"),
        (
            with("uploads", json!([{"region": "a"}])),
            "/uploads/0/providerId",
        ),
        (
            with("imageId", json!("mac")),
            "/imageId: must be linux, which the request is about, and not \"mac\"",
        ),
        (with("colour", json!("red")), "colour"),
        (
            with(
                "uploads",
                json!([{"providerId": "aws"}, {"providerId": "moon"}]),
            ),
            "/uploads/1/providerId: there is no provider moon; the configured ones are: ",
        ),
    ] {
        let told = refused(world.put(LINUX, body.clone()), 400).await;
        assert!(told.contains(part), "{body}: {told}");
        let plan = world.post("fleetwright:/image/linux/plan", body.clone());
        assert_eq!(plan.await.status, 400, "{body}");
    }
    world.get(LINUX).await.expect(404);
    world
        .put("fleetwright:/image/a%2Fb", definition())
        .await
        .expect(400);
});
