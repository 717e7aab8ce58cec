//! Sign-in at a provider of OpenID Connect: whom it lets in, with which rights, and whom not.

use std::sync::Arc;

use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS};
use engine::random::Random;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::config::OpenIdSettings;
use server::start::start_with;
use testing::sizes_around;

use crate::ask::{Answer, Ask};
use crate::database::{Database, on_databases};
use crate::openid_provider::{CLIENT, Reaction, SECRET, Signer, TestProvider};
use crate::samples::null_pool;
use crate::world::{ROOT_URL, START_MS, World};

const FORM: &str = "application/x-www-form-urlencoded";
const BEGIN: &str = "root:/sign-in/openid?to=%2Fwaiting";
const ROLE: &str = "login-identity:openid/ann@corp.example";
const READER: &str = "worker-manager:list-worker-configurations";

/// A server, and the provider that it knows.
struct Pair {
    world: World,
    provider: TestProvider,
}

/// A browser at a server.
#[derive(Clone)]
struct Browser {
    name: &'static str,
    server: Arc<Server>,
    session: String,
    /// The cookie of a sign-in that has begun.
    begun: String,
}

fn settings(provider: &TestProvider, further: &str) -> OpenIdSettings {
    let text = format!(
        "issuer = \"{}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{SECRET}\"\nname = \"Corp\"\n\
         {further}",
        provider.url()
    );
    toml::from_str(&text).unwrap()
}

impl Pair {
    async fn open(further: &str) -> Self {
        Self::on(Database::sqlite(), further).await
    }

    async fn on(database: Database, further: &str) -> Self {
        let provider = TestProvider::open(START_MS / 1_000).await;
        let openid = settings(&provider, further);
        let world = World::open(database, |config| {
            config.page.openid = Some(Box::new(openid))
        })
        .await;
        Self { world, provider }
    }

    fn browser(&self) -> Browser {
        Browser {
            name: "Firefox",
            server: Arc::clone(&self.world.server),
            session: String::new(),
            begun: String::new(),
        }
    }

    /// The answer to a browser that comes back from the provider with this change of its tokens.
    async fn come_back(&self, change: impl FnOnce(&mut Value)) -> Answer {
        let before = self.provider.script().claims.clone();
        change(&mut self.provider.script().claims);
        let mut browser = self.browser();
        let url = browser.begin(self).await;
        let back = self.provider.authorize(&url);
        let answer = browser.get(&self.world, &path_of(&back)).await;
        self.provider.script().claims = before;
        answer
    }

    /// A browser of a person who signed in.
    async fn signed_in(&self) -> Browser {
        let mut browser = self.browser();
        let url = browser.begin(self).await;
        let back = self.provider.authorize(&url);
        let answer = browser.get(&self.world, &path_of(&back)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        browser.keep(&answer);
        browser
    }

    async fn grant(&self, role: &str, scopes: &[&str]) {
        let path = format!(
            "auth:/roles/{}",
            role.replace('/', "%2F").replace('!', "%21")
        );
        let body = json!({"description": "", "scopes": scopes});
        self.world.put(&path, body).await.expect(200);
    }
}

fn path_of(url: &str) -> String {
    let path = url.strip_prefix(ROOT_URL).unwrap();
    format!("root:{path}")
}

impl Browser {
    fn ask(&self, ask: Ask) -> Ask {
        let ask = ask.anonymously().header("accept", "text/html");
        let ask = ask.header("user-agent", self.name).at(&self.server);
        let cookies = [&self.session, &self.begun];
        let cookies: Vec<&str> = cookies.into_iter().map(String::as_str).collect();
        ask.header("cookie", &cookies.join("; "))
    }

    async fn get(&self, world: &World, path: &str) -> Answer {
        self.ask(world.get(path)).await
    }

    /// The provider's page, where this browser is sent.
    async fn begin(&mut self, pair: &Pair) -> String {
        let answer = self.get(&pair.world, BEGIN).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        self.keep(&answer);
        answer.header("location").to_owned()
    }

    fn keep(&mut self, answer: &Answer) {
        for set in answer.headers.get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            match pair.split_once('=').unwrap().0 {
                "fleetwright-80" => pair.clone_into(&mut self.session),
                "fleetwright-80-openid" => pair.clone_into(&mut self.begun),
                other => panic!("an unknown cookie: {other}"),
            }
        }
    }

    async fn post(&self, world: &World, path: &str, fields: &str) -> Answer {
        let page = self.get(world, "root:/").await.text;
        let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap();
        let token = rest.split('"').next().unwrap();
        let ask = world.post(path, json!({}));
        self.ask(ask.body(FORM, format!("token={token}&{fields}")))
            .await
    }
}

fn sets_a_session(answer: &Answer) -> bool {
    let set = answer.headers.get_all("set-cookie").iter();
    set.map(|it| it.to_str().unwrap())
        .any(|it| it.starts_with("fleetwright-80=") && !it.contains("Max-Age=0"))
}

/// The text of a refusal, without a session.
#[track_caller]
fn refused(answer: &Answer, status: u16, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert!(answer.text.contains(part), "{part}: {}", answer.text);
    assert!(!sets_a_session(answer));
}

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
        world.delete(&role).await.expect(200);
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
async fn tokens_of_others_for_others_or_of_another_time_are_refused() {
    let pair = Pair::open("").await;
    let now = START_MS / 1_000;
    let wrong = [
        ("nonce", json!("other"), "(nonce)"),
        ("aud", json!("other"), "(aud)"),
        ("aud", json!([CLIENT, "other"]), "(azp)"),
        ("azp", json!("other"), "(azp)"),
        ("iss", json!("http://127.0.0.1:1"), "(iss)"),
        ("exp", json!(now - 60), "(exp)"),
        ("iat", json!(now + 120), "(nbf, iat)"),
        ("nbf", json!(now + 120), "(nbf, iat)"),
        ("sub", json!(""), "(sub)"),
    ];
    for (name, value, part) in wrong {
        let answer = pair.come_back(|claims| claims[name] = value).await;
        refused(&answer, 403, part);
    }
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
}

#[tokio::test]
async fn each_kind_of_key_signs_and_no_other_way_does() {
    let pair = Pair::open("").await;
    let signers = [Signer::ed(), Signer::ec(), Signer::rsa(), Signer::pss()];
    for (kid, signer) in ["a", "b", "c", "d"].into_iter().zip(signers) {
        pair.world.clock.advance_ms(2 * MINUTE_MS);
        let public = signer.public_as_secret();
        let key = signer.jwk(kid);
        {
            let mut script = pair.provider.script();
            script.keys = vec![key];
            (script.kid, script.signer) = (kid, signer);
        }
        assert!(sets_a_session(&pair.come_back(|_| ()).await));
        for false_signer in [
            Signer::Hmac(public),
            Signer::Nothing,
            Signer::ed(),
            Signer::rsa(),
        ] {
            let mut kept = std::mem::replace(&mut pair.provider.script().signer, false_signer);
            let answer = pair.come_back(|_| ()).await;
            refused(&answer, 403, "an ID token that is not accepted");
            std::mem::swap(&mut pair.provider.script().signer, &mut kept);
        }
    }
}

#[tokio::test]
async fn keys_are_read_again_for_an_unknown_one_once_a_minute() {
    let pair = Pair::open("").await;
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
    assert_eq!(pair.provider.n_asked("/keys"), 1);
    pair.provider.script().kid = "k2";
    for _ in 0..3 {
        refused(&pair.come_back(|_| ()).await, 403, "has no key for it");
    }
    assert_eq!(pair.provider.n_asked("/keys"), 1);
    pair.world.clock.advance_ms(MINUTE_MS);
    for _ in 0..3 {
        refused(&pair.come_back(|_| ()).await, 403, "has no key for it");
    }
    assert_eq!(pair.provider.n_asked("/keys"), 2);
    pair.world.clock.advance_ms(MINUTE_MS);
    let signer = Signer::ec();
    {
        let mut script = pair.provider.script();
        script.keys.push(signer.jwk("k2"));
        script.signer = signer;
    }
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
    assert_eq!(pair.provider.n_asked("/keys"), 3);
    assert_eq!(
        pair.provider.n_asked("/.well-known/openid-configuration"),
        1
    );
}

#[tokio::test]
async fn answers_that_are_not_tokens_are_refused() {
    let pair = Pair::open("").await;
    for (reaction, part) in [
        (Reaction::Huge, "more than 256 KiB"),
        (Reaction::Garbage, "sent no JSON"),
        (Reaction::Redirect, "answered 302"),
        (Reaction::Failure, "answered 500"),
    ] {
        pair.provider.script().reaction = reaction;
        refused(&pair.come_back(|_| ()).await, 503, part);
    }
    assert_eq!(
        pair.provider.n_asked("/keys"),
        0,
        "the redirect was not followed"
    );
    pair.provider.script().reaction = Reaction::Tokens;
    assert!(sets_a_session(&pair.come_back(|_| ()).await));
}

#[tokio::test]
async fn a_provider_that_never_answers_ends_a_sign_in() {
    let pair = Pair::open("").await;
    pair.provider.script().reaction = Reaction::Silence;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = pair.provider.authorize(&url);
    let asking = tokio::spawn(browser.ask(pair.world.get(&path_of(&back))).send());
    pair.provider.wait_for("/token", 1).await;
    tokio::time::pause();
    let answer = asking.await.unwrap();
    refused(&answer, 503, "does not answer");
}

#[tokio::test]
async fn a_limited_number_of_sign_ins_asks_the_provider_at_once() {
    for size in sizes_around("server::openid::provider::MAX_EXCHANGES", 16) {
        let pair = Pair::open("").await;
        pair.provider.script().reaction = Reaction::Silence;
        let mut asks = Vec::new();
        for number in 0..size {
            let mut browser = pair.browser();
            let url = browser.begin(&pair).await;
            let back = pair.provider.authorize(&url);
            let asking = tokio::spawn(browser.ask(pair.world.get(&path_of(&back))).send());
            if number < 16 {
                pair.provider.wait_for("/token", number + 1).await;
                asks.push(asking);
            } else {
                refused(&asking.await.unwrap(), 503, "asked by many people");
            }
        }
        assert_eq!(pair.provider.n_asked("/token"), size.min(16));
        asks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn a_code_is_used_once() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let first = browser.get(&pair.world, &back).await;
    assert!(sets_a_session(&first));
    // The browser kept the cookie although it was removed.
    let second = browser.get(&pair.world, &back).await;
    refused(&second, 403, "invalid_grant (the code was used)");
    browser.keep(&first);
    refused(
        &browser.get(&pair.world, &back).await,
        403,
        "did not begin this sign-in",
    );
}

#[tokio::test]
async fn a_sign_in_of_another_browser_or_time_gets_one_answer() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let mut other = pair.browser();
    other.begin(&pair).await;
    let mut texts = Vec::new();
    let forged = back.replace("state=", "state=x");
    let without = back.replace("state=", "stat=");
    let renamed = Browser {
        name: "curl",
        ..browser.clone()
    };
    let sealed_elsewhere = Browser {
        begun: "fleetwright-80-openid=s1.k1.AAAA".to_owned(),
        ..browser.clone()
    };
    for (who, path) in [
        (&other, &back),
        (&pair.browser(), &back),
        (&browser, &forged),
        (&browser, &without),
        (&renamed, &back),
        (&sealed_elsewhere, &back),
    ] {
        let answer = who.get(&pair.world, path).await;
        refused(&answer, 403, "did not begin this sign-in");
        texts.push(answer.text);
    }
    pair.world.clock.advance_ms(10 * MINUTE_MS);
    let late = browser.get(&pair.world, &back).await;
    refused(&late, 403, "did not begin this sign-in");
    texts.push(late.text);
    texts.dedup();
    assert_eq!(texts.len(), 1);
    assert_eq!(pair.provider.n_asked("/token"), 0);
}

#[tokio::test]
async fn an_error_of_the_provider_is_shown_as_text() {
    let pair = Pair::open("").await;
    let mut browser = pair.browser();
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let error = "error=access_denied&error_description=%3Cb%3ENo%3C%2Fb%3E";
    let denied = back.replace("code=c1", error);
    let answer = browser.get(&pair.world, &denied).await;
    refused(
        &answer,
        403,
        "Corp refused the sign-in: access_denied (&lt;b&gt;No&lt;/b&gt;)",
    );
    // Another provider's answer, as RFC 9207 describes it.
    let (mixed, _) = back.split_once("iss=").unwrap();
    let answer = browser
        .get(&pair.world, &format!("{mixed}iss=https://evil.example"))
        .await;
    refused(&answer, 403, "an answer of another provider");
    pair.world.clock.advance_ms(2 * HOUR_MS);
    let supported = "authorization_response_iss_parameter_supported";
    pair.provider.script().metadata[supported] = json!(true);
    let url = browser.begin(&pair).await;
    let back = path_of(&pair.provider.authorize(&url));
    let (without, _) = back.split_once("&iss=").unwrap();
    let answer = browser.get(&pair.world, without).await;
    refused(&answer, 403, "an answer of another provider");
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
async fn a_provider_with_unusable_metadata_is_named_and_asked_again_later() {
    let pair = Pair::open("").await;
    let browser = pair.browser();
    let url = pair.provider.url();
    pair.provider.script().metadata["issuer"] = json!(format!("{url}/"));
    for _ in 0..3 {
        let answer = browser.get(&pair.world, BEGIN).await;
        refused(&answer, 503, "set page.openid.issuer to exactly this text");
    }
    let metadata = "/.well-known/openid-configuration";
    assert_eq!(pair.provider.n_asked(metadata), 1);
    {
        let mut script = pair.provider.script();
        script.metadata["issuer"] = json!(url);
        script.metadata["token_endpoint"] = json!("http://id.example/token");
    }
    pair.world.clock.advance_ms(5 * SECOND_MS);
    let answer = browser.get(&pair.world, BEGIN).await;
    refused(&answer, 503, "is not encrypted");
    pair.provider.script().metadata["token_endpoint"] = json!(format!("{url}/token"));
    pair.world.clock.advance_ms(5 * SECOND_MS);
    assert_eq!(browser.get(&pair.world, BEGIN).await.status, 303);
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
