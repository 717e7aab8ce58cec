//! Sign-in at a provider of OpenID Connect: whom it lets in, and with which rights.

use std::sync::Arc;

use domain::time::HOUR_MS;
use engine::random::Random;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::config::OpenIdSettings;
use server::start::start_with;

use crate::database::{Database, on_databases};
use crate::openid_provider::TestProvider;
use crate::openid_world::{BEGIN, Pair, path_of, refused, settings};
use crate::samples::null_pool;
use crate::world::START_MS;

const ROLE: &str = "login-identity:openid/ann@corp.example";
const READER: &str = "worker-manager:list-worker-configurations";

mod a_person_signs_in_and_has_the_rights_of_a_role {
    use super::*;

    async fn run(database: Database) {
        let pair = Pair::on(database, "").await;
        let world = &pair.world;
        let mut browser = pair.browser();
        let page = browser.get(world, "root:/waiting").await;
        assert_eq!(page.status, 401);
        assert!(page.text.contains("Sign in with Corp"));
        assert!(page.text.contains("/sign-in/openid?to=%2Fwaiting"));
        let begun = browser.get(world, BEGIN).await;
        for part in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
            assert!(begun.header("set-cookie").contains(part), "{part}");
        }
        let url = browser.begin(&pair).await;
        let back = pair.provider.authorize(&url);
        let answer = browser.get(world, &path_of(&back)).await;
        assert_eq!(answer.status, 200);
        // The cookie of the session is strict, so our own page makes the next request.
        let goes_on = "http-equiv=\"refresh\" content=\"0;url=/waiting\"";
        assert!(answer.text.contains(goes_on), "{}", answer.text);
        let set: Vec<&str> = answer
            .headers
            .get_all("set-cookie")
            .iter()
            .map(|it| it.to_str().unwrap())
            .collect();
        assert!(set[0].starts_with("fleetwright-80=") && set[0].contains("SameSite=Strict"));
        assert!(set[1].starts_with("fleetwright-80-openid=;") && set[1].contains("Max-Age=0"));
        browser.keep(&answer);

        let page = browser.get(world, "root:/rules").await;
        assert_eq!(page.status, 403);
        let command = format!("fleetwright role create &#39;{ROLE}&#39; --scope SCOPE");
        let shown = page.text.replace("'", "&#39;");
        assert!(shown.contains(&command), "{}", page.text);
        pair.grant(ROLE, &["worker-manager:*", "fleetwright:*"])
            .await;
        world
            .put("/worker-pool/demo%2Flinux", null_pool())
            .await
            .expect(200);
        let page = browser.get(world, "root:/rules").await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("openid/ann@corp.example"));

        let fields = "override=o1&pool=demo%2Flinux&reason=test&until=2h&to=%2F";
        let done = browser.post(world, "root:/do/fleet/override", fields).await;
        assert_eq!(done.status, 303, "{}", done.text);
        let listed = world.get("/overrides").await.expect(200);
        assert_eq!(listed["overrides"][0]["owner"], "openid/ann@corp.example");

        let role = format!("auth:/roles/{}", ROLE.replace('/', "%2F"));
        world.delete(&role).await.expect(204);
        assert_eq!(browser.get(world, "root:/rules").await.status, 403);
        pair.grant(ROLE, &["worker-manager:*"]).await;
        let out = browser.post(world, "root:/sign-out", "").await;
        assert_eq!(out.status, 200);
        let end = format!("{}/end?client_id=fleet%2F1", pair.provider.url());
        assert!(out.text.contains(&end), "{}", out.text);
        assert!(out.text.contains("id_token_hint=ey"));
        assert_eq!(browser.get(world, "root:/rules").await.status, 401);
    }

    on_databases!(both, tokio::test);
}

#[tokio::test]
async fn changes_of_a_person_are_in_the_audit_log() {
    let pair = Pair::open("").await;
    pair.grant(ROLE, &["worker-manager:*", "fleetwright:*"])
        .await;
    let pool = "/worker-pool/demo%2Flinux";
    pair.world.put(pool, null_pool()).await.expect(200);
    let browser = pair.signed_in().await;
    let fields = "override=o1&pool=demo%2Flinux&reason=test&until=2h&to=%2F";
    let done = browser
        .post(&pair.world, "root:/do/fleet/override", fields)
        .await;
    assert_eq!(done.status, 303, "{}", done.text);
    let path = "auth:/clients/openid%2Fann@corp.example/audit";
    let log = pair.world.get(path).await.expect(200);
    let entries = log["auditHistory"].as_array().unwrap().iter();
    let kinds: Vec<&str> = entries
        .map(|entry| entry["entityType"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["client", "override"], "{log:#}");
}

#[tokio::test]
async fn a_session_has_the_scopes_of_its_roles_and_no_others() {
    let pair = Pair::open("groups = \"groups\"").await;
    pair.grant("openid-group:ops", &[READER]).await;
    let groups = |groups: Value| pair.come_back(move |claims| claims["groups"] = groups);
    for taken in [json!("ops"), json!(["a", "ops"])] {
        let mut browser = pair.browser();
        browser.keep(&groups(taken).await);
        assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 200);
        let page = browser.get(&pair.world, "root:/providers").await;
        assert_eq!(page.status, 403);
    }
    // A star of the provider covers no role.
    for other in [
        json!("*"),
        json!("op*"),
        json!(["OPS", "ops "]),
        json!([]),
        json!(null),
    ] {
        let mut browser = pair.browser();
        browser.keep(&groups(other).await);
        assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 403);
    }
    refused(
        &groups(json!({"ops": true})).await,
        403,
        "neither a text nor a list",
    );
    let many: Vec<String> = (0..10_000).map(|number| format!("g{number}")).collect();
    refused(&groups(json!(many)).await, 403, "is in 10000 groups");
}

#[tokio::test]
async fn an_address_that_is_not_verified_is_no_identity() {
    let pair = Pair::open("").await;
    pair.grant(ROLE, &[READER]).await;
    let mut browser = pair.browser();
    for verified in [json!(false), json!("true"), json!(null)] {
        let answer = pair
            .come_back(|claims| claims["email_verified"] = verified)
            .await;
        browser.keep(&answer);
        let page = browser.get(&pair.world, "root:/rules").await;
        assert_eq!(page.status, 403);
        assert!(
            page.text.contains("login-identity:openid/sub:7"),
            "{}",
            page.text
        );
    }
    let strict = Pair::open("identity = \"email\"").await;
    let answer = strict
        .come_back(|claims| claims["email_verified"] = json!(false))
        .await;
    refused(&answer, 403, "the e-mail address is not verified");
}

#[tokio::test]
async fn what_an_id_token_lacks_is_asked_for() {
    let pair = Pair::open("groups = \"groups\"").await;
    pair.grant("openid-group:ops", &[READER]).await;
    pair.provider.script().userinfo = json!({"sub": "7", "groups": ["ops"]});
    let browser = pair.signed_in().await;
    assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 200);
    pair.provider.script().userinfo = json!({"sub": "8", "groups": ["ops"]});
    let answer = pair.come_back(|_| ()).await;
    refused(&answer, 403, "describes another person");
    pair.provider.script().userinfo = json!("a token");
    refused(
        &pair.come_back(|_| ()).await,
        403,
        "describes another person",
    );
    let before = pair.provider.n_asked("/userinfo");
    pair.come_back(|claims| claims["groups"] = json!([])).await;
    assert_eq!(pair.provider.n_asked("/userinfo"), before);
}

#[tokio::test]
async fn a_sign_in_begins_on_our_own_page_and_leads_to_one() {
    let pair = Pair::open("").await;
    let browser = pair.browser();
    for site in ["cross-site", "same-site"] {
        let ask = browser
            .ask(pair.world.get(BEGIN))
            .header("sec-fetch-site", site);
        let answer = ask.await;
        assert_eq!((answer.status, answer.header("set-cookie")), (200, ""));
        assert!(answer.text.contains("Sign in with Corp"));
    }
    for evil in [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/sign-out",
    ] {
        let escaped = evil.replace('/', "%2F").replace('\\', "%5C");
        let mut browser = pair.browser();
        let path = format!("root:/sign-in/openid?to={escaped}");
        let begun = browser.get(&pair.world, &path).await;
        browser.keep(&begun);
        let back = pair.provider.authorize(begun.header("location"));
        let answer = browser.get(&pair.world, &path_of(&back)).await;
        assert!(
            answer.text.contains("content=\"0;url=/\""),
            "{}",
            answer.text
        );
    }
    let elsewhere = browser
        .ask(pair.world.get(BEGIN))
        .header("host", "other.example");
    let answer = elsewhere.await;
    let expected = (303, "http://fleet.example.com/sign-in");
    assert_eq!((answer.status, answer.header("location")), expected);
}

#[tokio::test]
async fn a_session_ends_at_its_time_whatever_its_use() {
    let pair = Pair::open("session_hours = 2").await;
    pair.grant(ROLE, &[READER]).await;
    let browser = pair.signed_in().await;
    for _ in 0..7 {
        pair.world.clock.advance_ms(HOUR_MS / 4);
        assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 200);
    }
    pair.world.clock.advance_ms(HOUR_MS / 4);
    assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 401);
}

/// A further process of the deployment, with another configuration of the provider.
async fn process(pair: &Pair, openid: Option<OpenIdSettings>) -> Arc<Server> {
    let mut config = pair.world.app.config.clone();
    config.page.openid = openid.map(Box::new);
    let random = Random::new(StdRng::seed_from_u64(11));
    let clock = Arc::clone(&pair.world.clock) as _;
    let app = start_with(config, clock, random, Vec::new()).await.unwrap();
    Arc::new(Server::new(app))
}

#[tokio::test]
async fn another_process_finishes_a_sign_in() {
    let pair = Pair::open("").await;
    pair.grant(ROLE, &[READER]).await;
    let second = process(&pair, Some(settings(&pair.provider, ""))).await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    browser.server = second;
    let answer = browser.get(&pair.world, &back).await;
    browser.keep(&answer);
    browser.server = Arc::clone(&pair.world.server);
    assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 200);
}

#[tokio::test]
async fn a_session_ends_if_its_provider_is_configured_no_longer() {
    let pair = Pair::open("").await;
    pair.grant(ROLE, &[READER]).await;
    let other = TestProvider::open(START_MS / 1_000).await;
    for openid in [None, Some(settings(&other, ""))] {
        let mut browser = pair.signed_in().await;
        assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 200);
        browser.server = process(&pair, openid).await;
        assert_eq!(browser.get(&pair.world, "root:/rules").await.status, 401);
    }
}
