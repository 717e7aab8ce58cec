//! Documentation: uploaded, joined, shown, refused completely, and deleted with its subject.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use documentation::{Building, MAX_UPLOAD_BYTES, Tree};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ask::{Answer, Ask};
use crate::authorization::{Case, case};
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::static_pool;
use crate::world::World;

const BUILD: &str = "/worker-configuration/build/documentation";
const OPT: &str = "/worker-type/opt/documentation";

pub(crate) fn cases() -> Vec<Case> {
    let by_hand = "/worker-type/pp%2Fee/documentation";
    vec![
        case(
            "documentationIndex",
            "/documentation",
            &["worker-manager:list-documentation"],
        ),
        case(
            "putWorkerConfigurationDocumentation",
            BUILD,
            &["worker-manager:manage-worker-configuration:build"],
        ),
        case(
            "putWorkerConfigurationDocumentation",
            BUILD,
            &["worker-manager:update-documentation:worker-configuration:build"],
        ),
        case(
            "workerConfigurationDocumentation",
            BUILD,
            &["worker-manager:get-documentation:worker-configuration:build"],
        ),
        case(
            "workerConfigurationDocumentationPage",
            "/worker-configuration/build/documentation/page",
            &["worker-manager:get-documentation:worker-configuration:build"],
        ),
        case(
            "deleteWorkerConfigurationDocumentation",
            BUILD,
            &["worker-manager:manage-worker-configuration:build"],
        ),
        case(
            "putWorkerTypeDocumentation",
            by_hand,
            &["worker-manager:manage-worker-type:pp/ee"],
        ),
        case(
            "putWorkerTypeDocumentation",
            OPT,
            &["worker-manager:update-documentation:worker-type:opt"],
        ),
        case(
            "workerTypeDocumentation",
            OPT,
            &["worker-manager:get-documentation:worker-type:opt"],
        ),
        case(
            "workerTypeDocumentationPage",
            "/worker-type/pp/ee/documentation/page",
            &["worker-manager:get-documentation:worker-type:pp/ee"],
        ),
        case(
            "deleteWorkerTypeDocumentation",
            by_hand,
            &["worker-manager:update-documentation:worker-type:pp/ee"],
        ),
    ]
}

/// A configuration `build` with the worker type `opt`, whose pool exists.
async fn with_configuration(world: &World) {
    world.database.raw(
        "INSERT INTO worker_configurations (worker_configuration_id, document, market, created, \
         last_modified, version) VALUES ('build', '{}', '{}', 1, 1, 1); \
         INSERT INTO worker_types (worker_pool_id, worker_configuration_id, payload_schema, \
         check_payload) VALUES ('worker-manager/opt', 'build', NULL, 0)",
    );
    let pool = world.put("/worker-pool/worker-manager%2Fopt", static_pool());
    pool.await.expect(200);
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut building = Building::default();
    let metadata = [("metadata.json", r#"{"version": 1}"#)];
    for (path, content) in metadata.iter().chain(files) {
        building
            .file(path.as_bytes(), content.as_bytes().to_vec())
            .unwrap();
    }
    building.finish().unwrap()
}

fn upload(world: &World, path: &str, tarball: Vec<u8>) -> Ask {
    world.ask(Method::PUT, path).raw(tarball)
}

pub(crate) async fn put(world: &World, path: &str, files: &[(&str, &str)]) -> Value {
    upload(world, path, tree(files).pack()).await.expect(200)
}

/// A reply that is no text.
async fn bytes_of(ask: Ask) -> Bytes {
    let (parts, body) = ask.open().await.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(parts.status, 200, "{bytes:?}");
    let length = parts.headers.get("content-length");
    assert!(length.is_none_or(|length| *length == bytes.len().to_string().as_str()));
    bytes
}

async fn tree_at(world: &World, path: &str) -> Vec<(String, String)> {
    let tree = Tree::unpack(&bytes_of(world.get(path)).await).unwrap();
    let files = tree.files().map(|(path, content)| {
        let text = String::from_utf8(content.to_vec()).unwrap();
        (path.to_owned(), text)
    });
    files.collect()
}

async fn page(world: &World, path: &str) -> Answer {
    let answer = world.get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

on_sqlite_first!(an_upload_is_served_as_a_tarball_and_as_a_page, |world| {
    with_configuration(world).await;
    let files = [("README.md", "# Build"), ("docs/a.md", "More")];
    let put = put(world, BUILD, &files).await;
    let tarball = tree(&files).pack();
    assert_eq!(
        put,
        json!({"workerConfigurationId": "build", "title": "Build", "files": 3, "bytes": 25,
            "packedBytes": tarball.len(), "digest": put["digest"],
            "created": "2026-09-21T14:13:20.000Z", "lastModified": "2026-09-21T14:13:20.000Z"})
    );
    assert_eq!(bytes_of(world.get(BUILD)).await, tarball);

    let page = page(world, &format!("{BUILD}/page")).await;
    assert!(
        page.text.contains("<h1 id=\"readme--build\">Build</h1>"),
        "{}",
        page.text
    );
    assert!(page.text.contains("<p>More</p>"), "{}", page.text);
    let headers = [
        "content-type",
        "cache-control",
        "last-modified",
        "referrer-policy",
        "x-content-type-options",
        "content-security-policy",
    ];
    let (_, style) = page.text.split_once("<style>").unwrap();
    let (style, _) = style.split_once("</style>").unwrap();
    let digest = STANDARD.encode(Sha256::digest(style));
    let lines = headers.map(|name| format!("{name}: {}", page.header(name)));
    assert_snapshot!(lines.join("\n").replace(&digest, "[digest]"), @r"
    content-type: text/html; charset=utf-8
    cache-control: private, no-cache
    last-modified: Mon, 21 Sep 2026 14:13:20 GMT
    referrer-policy: no-referrer
    x-content-type-options: nosniff
    content-security-policy: default-src 'none'; style-src 'sha256-[digest]'; img-src https: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'
    ");

    let listed = world.get("/documentation").await.expect(200);
    assert_eq!(listed, json!({"documentation": [put]}));
    world.delete(BUILD).await.expect(204);
    world.delete(BUILD).await.expect(204);
    let gone = "No documentation exists for worker configuration build";
    world
        .get(BUILD)
        .await
        .refused(404, "ResourceNotFound", gone);
    let history = world
        .get("auth:/audit/worker-configuration/build")
        .await
        .expect(200);
    let actions = history["auditHistory"].as_array().unwrap().iter();
    let actions: Vec<_> = actions
        .map(|entry| entry["actionType"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["documentation-updated", "documentation-deleted"]);
});

on_sqlite_first!(
    the_same_again_changes_nothing_and_who_has_it_is_not_sent_it,
    |world| {
        with_configuration(world).await;
        let files = [("README.md", "# Build")];
        let first = put(world, BUILD, &files).await;
        world.clock.advance_ms(60_000);
        // In another order and with other times, as programs pack it.
        let mut archive = tar_of(&[
            ("./README.md", "# Build"),
            ("./metadata.json", r#"{"version": 1}"#),
        ]);
        archive.extend([0; 10_240]);
        let again = upload(world, BUILD, archive).await.expect(200);
        assert_eq!(again, first);

        for path in [BUILD.to_owned(), format!("{BUILD}/page")] {
            let tag = {
                let answer = world.get(&path).open().await;
                answer.headers()["etag"].to_str().unwrap().to_owned()
            };
            for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
                let answer = world.get(&path).header("if-none-match", &known).await;
                assert_eq!((answer.status, answer.text.as_str()), (304, ""), "{known}");
                assert_eq!(answer.header("etag"), tag);
            }
            put(world, BUILD, &[("README.md", &format!("# {path}"))]).await;
            let answer = world.get(&path).header("if-none-match", &tag).open().await;
            assert_eq!(answer.status(), 200);
            put(world, BUILD, &files).await;
        }
        let last = world.get("/documentation").await.expect(200);
        let last = &last["documentation"][0];
        assert_eq!(last["created"], "2026-09-21T14:13:20.000Z");
        assert_eq!(last["lastModified"], "2026-09-21T14:14:20.000Z");
    }
);

/// Headers as GNU tar writes them.
fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000755");
        header[108..115].copy_from_slice(b"0001750");
        header[116..123].copy_from_slice(b"0001750");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"14712345670");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar  \0");
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(header);
        bytes.extend(content.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes
}

on_sqlite_first!(
    a_worker_types_documentation_is_followed_by_that_of_its_configuration,
    |world| {
        with_configuration(world).await;
        let nothing = "No documentation exists for worker type worker-manager/opt";
        world
            .get(OPT)
            .await
            .refused(404, "ResourceNotFound", nothing);

        // If only one of them has documentation, that is shown.
        put(
            world,
            BUILD,
            &[("README.md", "# Build"), ("docs/a.md", "A")],
        )
        .await;
        assert_eq!(tree_at(world, OPT).await, tree_at(world, BUILD).await);
        let alone = page(world, &format!("{OPT}/page")).await.text;
        assert!(
            alone.contains("Build</h1>") && !alone.contains("General Worker"),
            "{alone}"
        );
        let own = format!("{OPT}?joined=false");
        world
            .get(&own)
            .await
            .refused(404, "ResourceNotFound", nothing);

        let made = put(world, OPT, &[("README.md", "# Opt")]).await;
        assert_eq!(made["workerPoolId"], "worker-manager/opt");
        let joined = tree_at(world, "/worker-type/worker-manager%2Fopt/documentation").await;
        assert_eq!(joined, tree_at(world, OPT).await);
        let paths: Vec<_> = joined.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            ["README.md", "docs/general/docs/a.md", "metadata.json"]
        );
        assert_eq!(
            joined[0].1,
            "# Opt\n\n# General Worker Configuration Documentation\n\n# Build"
        );
        assert_eq!(tree_at(world, &own).await.len(), 2);
        let shown = page(world, "/worker-type/worker-manager/opt/documentation/page")
            .await
            .text;
        let at = |part: &str| {
            shown
                .find(part)
                .unwrap_or_else(|| panic!("{part} in {shown}"))
        };
        assert!(at("Opt</h1>") < at("General Worker Configuration Documentation</h1>"));
        assert!(at("General Worker Configuration Documentation</h1>") < at("Build</h1>"));

        // The entity tag changes when either of them changes.
        let tag = page(world, &format!("{OPT}/page"))
            .await
            .header("etag")
            .to_owned();
        put(world, BUILD, &[("README.md", "# Other")]).await;
        let answer = world
            .get(&format!("{OPT}/page"))
            .header("if-none-match", &tag)
            .await;
        assert_eq!(answer.status, 200);
        world.delete(OPT).await.expect(204);
        assert_eq!(tree_at(world, OPT).await, tree_at(world, BUILD).await);
    }
);

on_both!(a_refused_upload_changes_nothing, |world| {
    with_configuration(world).await;
    let kept = tree(&[("README.md", "# Kept")]);
    upload(world, BUILD, kept.pack()).await.expect(200);
    let metadata = ("metadata.json", r#"{"version": 1}"#);
    for (tarball, code, part) in [
        (Vec::new(), (400, "InputError"), "The tarball is truncated"),
        (
            b"nonsense".repeat(200),
            (400, "InputError"),
            "This is not a tarball",
        ),
        (
            tar_of(&[("docs/a.md", "a")]),
            (400, "InputError"),
            "truncated",
        ),
        (
            [tar_of(&[metadata, ("../a.md", "a")]), vec![0; 1024]].concat(),
            (400, "InputError"),
            "\"../a.md\" leads out of its folder with `..`: give it a path within the tarball",
        ),
        (
            [tar_of(&[("docs/a.md", "a")]), vec![0; 1024]].concat(),
            (400, "InputError"),
            "metadata.json is missing at the top",
        ),
        (
            vec![0x1f; MAX_UPLOAD_BYTES + 1],
            (413, "InputTooLarge"),
            "The body is larger than 4194304 bytes",
        ),
    ] {
        let answer = upload(world, BUILD, tarball).await;
        answer.refused_with(code.0, code.1, part);
    }
    assert_eq!(bytes_of(world.get(BUILD)).await, kept.pack());
});

on_sqlite_first!(only_existing_subjects_can_be_documented, |world| {
    with_configuration(world).await;
    let tarball = tree(&[]).pack();
    for (path, text) in [
        (
            "/worker-configuration/none/documentation",
            "Worker configuration does not exist",
        ),
        (
            "/worker-type/none/documentation",
            "Worker pool does not exist",
        ),
        (
            "/worker-type/pp%2Fnone/documentation",
            "Worker pool does not exist",
        ),
    ] {
        let answer = upload(world, path, tarball.clone()).await;
        answer.refused(404, "ResourceNotFound", text);
    }
    for path in [
        "/worker-type/a%2Fb%2Fc/documentation",
        "/worker-type/A%20b/documentation",
    ] {
        let answer = upload(world, path, tarball.clone()).await;
        answer.refused_with(400, "InvalidRequestArguments", "is not a worker pool id");
    }
    let answer = upload(world, "/worker-configuration/a%2Fb/documentation", tarball);
    answer
        .await
        .refused_with(400, "InvalidRequestArguments", "workerConfigurationId");
});

on_sqlite_first!(
    a_worker_type_takes_the_same_scope_by_either_of_its_names,
    |world| {
        with_configuration(world).await;
        let tarball = tree(&[]).pack();
        for (scope, expected) in [
            ("worker-manager:manage-worker-type:worker-manager/opt", 403),
            ("worker-manager:manage-worker-type:worker-manager/*", 403),
            ("worker-manager:manage-worker-type:opt", 200),
            ("worker-manager:update-documentation:worker-type:*", 200),
        ] {
            let caller = world.root().temporary(None, &[scope], world.now());
            for path in [OPT, "/worker-type/worker-manager%2Fopt/documentation"] {
                let answer = upload(world, path, tarball.clone()).by(&caller).await;
                assert_eq!(answer.status, expected, "{scope}: {}", answer.text);
            }
        }
    }
);

on_both!(documentation_is_deleted_with_its_subject, |world| {
    with_configuration(world).await;
    put(world, BUILD, &[]).await;
    put(world, OPT, &[]).await;
    world.keep_house().await;
    let count = async || {
        let listed = world.get("/documentation").await.expect(200);
        listed["documentation"].as_array().unwrap().len()
    };
    assert_eq!(count().await, 2);
    world
        .delete("/worker-pool/worker-manager%2Fopt")
        .await
        .expect(200);
    world.keep_house().await;
    assert_eq!(count().await, 1);
    world.database.raw("DELETE FROM worker_configurations");
    world.keep_house().await;
    assert_eq!(count().await, 0);
});

on_sqlite_first!(malicious_documentation_is_harmless, |world| {
    with_configuration(world).await;
    let text = "<script>alert(1)</script>\n\n[a](javascript:alert(1)) <img src=x onerror=alert(1)> \
         ![b](data:text/html,<script>) [c](https://ok.example)";
    put(world, BUILD, &[("README.md", text)]).await;
    let page = page(world, &format!("{BUILD}/page")).await.text;
    let (_, body) = page.split_once("<main>").unwrap();
    assert_snapshot!(body, @r#"

    <section id="readme">
    <h1>README</h1>
    <pre><code>&lt;script&gt;alert(1)&lt;/script&gt;
    </code></pre>
    <p>a &lt;img src=x onerror=alert(1)&gt; b <a href="https://ok.example">c</a></p>
    </section>
    </main>
    </body>
    </html>
    "#);
});
