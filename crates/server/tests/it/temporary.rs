//! Temporary and restricted credentials, and every way in which they are refused.

use access::Secret;
use domain::time::{HOUR_MS, MINUTE_MS};

use crate::ask::Who;
use crate::database::on_sqlite_first;
use crate::samples::DAY_MS;
use crate::world::{START_MS, World};

const LIST: &str = "worker-manager:list-providers";
const PATH: &str = "/providers";

async fn refused(world: &World, who: &Who, part: &str) {
    let answer = world.get(PATH).by(who).await;
    answer.refused_with(401, "AuthenticationFailed", part);
}

on_sqlite_first!(
    temporary_credentials_have_the_scopes_of_their_certificate,
    |world| {
        let client = world.client("ci", &["worker-manager:*"]).await;
        let temporary = client.temporary(None, &[LIST], world.now());
        assert_eq!(temporary.client_id, "ci");
        world.get(PATH).by(&temporary).await.expect(200);
        let answer = world.get("/worker-pools").by(&temporary).await;
        answer.refused_with(403, "InsufficientScopes", "Client ID ci does not have");
    }
);

on_sqlite_first!(
    temporary_credentials_may_have_a_name_if_their_issuer_may_give_it,
    |world| {
        let issuer = world
            .client("ci", &[LIST, "auth:create-client:job/*"])
            .await;
        let named = issuer.temporary(Some("job/7"), &[LIST], world.now());
        assert_eq!(named.client_id, "job/7");
        world.get(PATH).by(&named).await.expect(200);
        let answer = world.get("/worker-pools").by(&named).await;
        answer.refused_with(403, "InsufficientScopes", "Client ID job/7 does not have");
        let stranger = issuer.temporary(Some("another"), &[LIST], world.now());
        refused(world, &stranger, "ext.certificate").await;
        let itself = issuer.temporary(Some("ci"), &[LIST], world.now());
        refused(world, &itself, "ext.certificate.issuer").await;
    }
);

on_sqlite_first!(roles_of_the_issuer_count, |world| {
    let role = serde_json::json!({"description": "", "scopes": [LIST]});
    world.put("auth:/roles/lister", role).await.expect(200);
    let issuer = world.client("ci", &["assume:lister"]).await;
    world
        .get(PATH)
        .by(&issuer.temporary(None, &[LIST], world.now()))
        .await
        .expect(200);
    let assumed = issuer.temporary(None, &["assume:lister"], world.now());
    world.get(PATH).by(&assumed).await.expect(200);
});

on_sqlite_first!(temporary_credentials_never_exceed_their_issuer, |world| {
    let issuer = world.client("ci", &[LIST]).await;
    let greedy = issuer.temporary(None, &["worker-manager:*"], world.now());
    refused(world, &greedy, "ext.certificate").await;
});

on_sqlite_first!(temporary_credentials_hold_for_their_time, |world| {
    let root = world.root();
    let between =
        |start, expiry| root.temporary_between(None, &[LIST], START_MS + start, START_MS + expiry);
    for (start, expiry) in [
        (-HOUR_MS, HOUR_MS),
        (5 * MINUTE_MS, HOUR_MS),
        (-HOUR_MS, -5 * MINUTE_MS),
        (0, 31 * DAY_MS),
    ] {
        world
            .get(PATH)
            .by(&between(start, expiry))
            .await
            .expect(200);
    }
    for (start, expiry, part) in [
        (5 * MINUTE_MS + 1, HOUR_MS, "ext.certificate.start"),
        (-HOUR_MS, -5 * MINUTE_MS - 1, "ext.certificate.expiry"),
        (0, 31 * DAY_MS + 1, "ext.certificate"),
    ] {
        refused(world, &between(start, expiry), part).await;
    }
    let soon_over = between(0, HOUR_MS);
    world.clock.advance_ms(HOUR_MS + 5 * MINUTE_MS);
    world.get(PATH).by(&soon_over).await.expect(200);
    world.clock.advance_ms(1);
    refused(world, &soon_over, "ext.certificate.expiry").await;
});

on_sqlite_first!(a_forged_certificate_is_refused, |world| {
    let issuer = world
        .client("ci", &[LIST, "auth:create-client:job/*"])
        .await;
    let good = issuer.temporary(Some("job/7"), &[LIST], world.now());
    world.get(PATH).by(&good).await.expect(200);
    let forge = |edit: &dyn Fn(&mut access::certificate::Certificate)| {
        let mut forged = good.clone();
        edit(forged.certificate.as_mut().unwrap());
        forged
    };
    refused(
        world,
        &forge(&|it| it.expiry += 1),
        "ext.certificate.signature",
    )
    .await;
    refused(
        world,
        &forge(&|it| it.scopes.clear()),
        "ext.certificate.signature",
    )
    .await;
    refused(
        world,
        &forge(&|it| it.version = 2),
        "ext.certificate.version",
    )
    .await;
    refused(
        world,
        &forge(&|it| it.seed.truncate(43)),
        "ext.certificate.seed",
    )
    .await;
    refused(
        world,
        &forge(&|it| it.issuer = Some("nosuch".to_owned())),
        "nosuch",
    )
    .await;
    refused(
        world,
        &forge(&|it| it.scopes.push("ü".to_owned())),
        "ext.certificate.scopes",
    )
    .await;
    let renamed = Who {
        client_id: "job/8".to_owned(),
        ..good.clone()
    };
    refused(world, &renamed, "ext.certificate.signature").await;
    let guessed = Who {
        token: Secret::new("guess"),
        ..good
    };
    refused(world, &guessed, "Bad mac").await;
});

on_sqlite_first!(they_end_with_their_issuer, |world| {
    let issuer = world.client("ci", &[LIST]).await;
    let temporary = issuer.temporary(None, &[LIST], world.now());
    world.get(PATH).by(&temporary).await.expect(200);
    let nothing = serde_json::json!({});
    world
        .post("auth:/clients/ci/disable", nothing.clone())
        .await
        .expect(200);
    refused(world, &temporary, "is disabled").await;
    world
        .post("auth:/clients/ci/enable", nothing.clone())
        .await
        .expect(200);
    world.get(PATH).by(&temporary).await.expect(200);
    world
        .post("auth:/clients/ci/reset", nothing)
        .await
        .expect(200);
    refused(world, &temporary, "").await;
    world.delete("auth:/clients/ci").await.expect(204);
    refused(world, &temporary, "Client with clientId 'ci' not found").await;
});

on_sqlite_first!(a_request_may_limit_itself, |world| {
    let client = world.client("ci", &["worker-manager:*"]).await;
    world
        .get(PATH)
        .by(&client.clone().limited_to(&[LIST]))
        .await
        .expect(200);
    let limited = client.clone().limited_to(&[LIST]);
    let answer = world.get("/worker-pools").by(&limited).await;
    answer.refused_with(
        403,
        "InsufficientScopes",
        "worker-manager:list-worker-pools",
    );
    let nothing = client.clone().limited_to(&[]);
    let answer = world.get(PATH).by(&nothing).await;
    answer.refused_with(403, "InsufficientScopes", LIST);
    let more = client.clone().limited_to(&["auth:list-clients"]);
    refused(
        world,
        &more,
        "Supplied credentials do not satisfy authorizedScopes; credentials have \
                           scopes: ",
    )
    .await;
    let bad = client.clone().limited_to(&["ü"]);
    refused(world, &bad, "authorizedScopes").await;
    let both = client
        .temporary(None, &["worker-manager:*"], world.now())
        .limited_to(&[LIST]);
    world.get(PATH).by(&both).await.expect(200);
    let answer = world.get("/worker-pools").by(&both).await;
    answer.refused_with(
        403,
        "InsufficientScopes",
        "worker-manager:list-worker-pools",
    );
});

on_sqlite_first!(an_extension_that_is_none_is_refused, |world| {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let root = world.root();
    let sign = |ext: &str| {
        let line = access::hawk::RequestLine {
            method: "GET",
            resource: "/api/worker-manager/v1/providers",
            host: "fleet.example.com",
            port: 80,
        };
        let ts = START_MS / 1_000;
        access::hawk::sign_header(
            &line,
            &root.client_id,
            &root.token,
            ts,
            "n",
            None,
            Some(ext),
        )
    };
    for good in [
        STANDARD.encode("{}"),
        URL_SAFE_NO_PAD.encode("{}"),
        "e30=".to_owned(),
        "e30".to_owned(),
    ] {
        world
            .get(PATH)
            .authorization(&sign(&good))
            .await
            .expect(200);
    }
    for bad in ["%%%", "AAAA", "bnVsbA"] {
        let answer = world.get(PATH).authorization(&sign(bad)).await;
        assert_eq!(answer.status, 401, "{bad}");
    }
    for (ext, part) in [
        ("{", "Failed to parse ext"),
        (r#"{"certificate": 3}"#, "ext.certificate"),
        (r#"{"certificate": {}}"#, "ext.certificate.version"),
        (r#"{"certificate": {"version": 1}}"#, "ext.certificate.seed"),
        (r#"{"authorizedScopes": "all"}"#, "authorizedScopes"),
        (r#"{"authorizedScopes": [1]}"#, "authorizedScopes"),
    ] {
        let answer = world
            .get(PATH)
            .authorization(&sign(&STANDARD.encode(ext)))
            .await;
        answer.refused_with(401, "AuthenticationFailed", part);
    }
});
