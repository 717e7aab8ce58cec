//! The pages for people: sign-in, sessions, forms, and what they show to whom.

use bytes::Buf as _;
use domain::time::{DAY_MS, HOUR_MS};
use http_body_util::BodyExt as _;
use serde_json::json;
use testing::sizes_around;

use crate::ask::{Answer, Ask, Who};
use crate::database::{Database, on_both};
use crate::samples::null_pool;
use crate::world::World;

const FORM: &str = "application/x-www-form-urlencoded";
const FIREFOX: &str = "Firefox";

/// A browser with a cookie.
#[derive(Clone)]
pub(crate) struct Browser {
    name: &'static str,
    cookie: String,
}

impl Browser {
    fn new() -> Self {
        Self {
            name: FIREFOX,
            cookie: String::new(),
        }
    }

    fn ask(&self, ask: Ask) -> Ask {
        let ask = ask.anonymously().header("accept", "text/html");
        let ask = ask.header("user-agent", self.name);
        match self.cookie.as_str() {
            "" => ask,
            cookie => ask.header("cookie", cookie),
        }
    }

    pub(crate) async fn get(&self, world: &World, path: &str) -> Answer {
        self.ask(world.get(&format!("root:{path}"))).await
    }

    fn form(&self, world: &World, path: &str, fields: &str) -> Ask {
        let ask = world.post(&format!("root:{path}"), json!({}));
        self.ask(ask.body(FORM, fields.to_owned()))
    }

    /// Keeps the cookie that the answer sets.
    fn keep(&mut self, answer: &Answer) {
        let cookie = answer.header("set-cookie");
        cookie
            .split(';')
            .next()
            .unwrap()
            .clone_into(&mut self.cookie);
    }

    /// A browser of a person with this client's credentials.
    pub(crate) async fn of(world: &World, who: &Who) -> Self {
        let mut browser = Self::new();
        let answer = browser.form(world, "/sign-in", &credentials(who)).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        browser.keep(&answer);
        browser
    }

    /// The token that forms of this session have.
    async fn token(&self, world: &World) -> String {
        let page = self.get(world, "/").await.text;
        let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

fn credentials(who: &Who) -> String {
    let id = who.client_id.replace('/', "%2F");
    format!("clientId={id}&accessToken={}", who.token.expose())
}

async fn make_pool(world: &World) {
    world
        .put("/worker-pool/demo%2Flinux", null_pool())
        .await
        .expect(200);
}

async fn world() -> World {
    World::open(Database::sqlite(), |_| {}).await
}

on_both!(a_browser_signs_in_and_out_again, |world| {
    let stranger = Browser::new().get(world, "/").await;
    assert_eq!(stranger.status, 401);
    assert!(stranger.text.contains("Access token"));
    let browser = Browser::of(world, &world.root()).await;
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        let again = Browser::new()
            .form(world, "/sign-in", &credentials(&world.root()))
            .await;
        assert!(again.header("set-cookie").contains(flag), "{flag}");
    }
    let page = browser.get(world, "/").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains(&world.root().client_id));
    let token = browser.token(world).await;
    let fields = format!("token={token}");
    let out = browser.form(world, "/sign-out", &fields).await;
    assert_eq!((out.status, out.header("location")), (303, "/sign-in"));
    assert_eq!(browser.get(world, "/").await.status, 401);
});

#[tokio::test]
async fn wrong_credentials_get_one_answer() {
    let world = world().await;
    let wrong = Who::new(&world.root().client_id, "wrong");
    let unknown = Who::new("nobody/here", "wrong");
    let mut texts = Vec::new();
    for who in [wrong, unknown] {
        let answer = Browser::new()
            .form(&world, "/sign-in", &credentials(&who))
            .await;
        assert_eq!((answer.status, answer.header("set-cookie")), (403, ""));
        texts.push(answer.text);
    }
    assert_eq!(texts[0], texts[1]);
}

on_both!(a_link_signs_one_browser_in_once, |world| {
    let root = world.root();
    let body = json!({"clientId": root.client_id, "accessToken": root.token.expose()});
    let made = world.post("fleetwright:/sign-in-links", body).anonymously();
    let url = made.await.expect(200)["url"].as_str().unwrap().to_owned();
    let (_, link) = url.split_once("link=").unwrap();
    // Programs that only look at the link do not use it up.
    for _ in 0..3 {
        let page = Browser::new()
            .get(world, &format!("/sign-in?link={link}&to=/waiting"))
            .await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains(&root.client_id));
        assert_eq!(page.header("set-cookie"), "");
    }
    let fields = format!("link={link}&to=/waiting");
    let asks = [(); 2].map(|()| Browser::new().form(world, "/sign-in", &fields).send());
    let [first, second] = asks;
    let (first, second) = tokio::join!(first, second);
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 403]);
    let winner = if first.status == 303 { first } else { second };
    assert_eq!(winner.header("location"), "/waiting");
    let mut browser = Browser::new();
    browser.keep(&winner);
    assert_eq!(browser.get(world, "/").await.status, 200);
    let late = Browser::new()
        .get(world, &format!("/sign-in?link={link}"))
        .await;
    assert_eq!(late.status, 403);
});

#[tokio::test]
async fn a_link_expires_and_needs_valid_credentials() {
    let world = world().await;
    let root = world.root();
    let body = json!({"clientId": root.client_id, "accessToken": "wrong"});
    let refused = world.post("fleetwright:/sign-in-links", body).await;
    assert_eq!(refused.status, 401);
    let body = json!({"clientId": root.client_id, "accessToken": root.token.expose()});
    let made = world
        .post("fleetwright:/sign-in-links", body)
        .await
        .expect(200);
    let url = made["url"].as_str().unwrap().to_owned();
    let (_, link) = url.split_once("link=").unwrap();
    world.clock.advance_ms(HOUR_MS);
    let late = Browser::new()
        .form(&world, "/sign-in", &format!("link={link}"))
        .await;
    assert_eq!(late.status, 403);
}

#[tokio::test]
async fn a_stolen_cookie_ends_the_session() {
    let world = world().await;
    let browser = Browser::of(&world, &world.root()).await;
    let thief = Browser {
        name: "curl",
        ..browser.clone()
    };
    assert_eq!(thief.get(&world, "/").await.status, 401);
    assert_eq!(browser.get(&world, "/").await.status, 401);
}

#[tokio::test]
async fn a_session_ends_with_its_client_and_follows_its_scopes() {
    let world = world().await;
    let who = world
        .client("people/ann", &["worker-manager:list-worker-pools"])
        .await;
    let browser = Browser::of(&world, &who).await;
    assert_eq!(browser.get(&world, "/providers").await.status, 403);
    let more = json!({
        "description": "", "expires": "2036-01-01T00:00:00.000Z",
        "scopes": ["worker-manager:*", "fleetwright:*"],
    });
    let path = "auth:/clients/people%2Fann";
    world.post(path, more).await.expect(200);
    assert_eq!(browser.get(&world, "/rules").await.status, 200);
    let path = "auth:/clients/people%2Fann/disable";
    world.post(path, json!({})).await.expect(200);
    let ended = browser.get(&world, "/").await;
    assert_eq!(ended.status, 401);
    assert!(ended.text.contains("Your session has ended"));
    assert!(ended.header("set-cookie").contains("Max-Age=0"));
    let path = "auth:/clients/people%2Fann/enable";
    world.post(path, json!({})).await.expect(200);
    assert_eq!(
        browser.get(&world, "/").await.status,
        401,
        "it has ended for good"
    );
}

on_both!(a_session_that_is_not_used_ends, |world| {
    let browser = Browser::of(world, &world.root()).await;
    for _ in 0..4 {
        world.clock.advance_ms(5 * DAY_MS);
        assert_eq!(browser.get(world, "/").await.status, 200);
    }
    world.clock.advance_ms(8 * DAY_MS);
    assert_eq!(browser.get(world, "/").await.status, 401);
});

on_both!(a_client_has_a_limited_number_of_sessions, |world| {
    for size in sizes_around("engine::access::sessions::MAX_OF_CLIENT", 20) {
        let id = format!("people/p{size}");
        let scopes = ["worker-manager:list-worker-configurations"];
        let who = world.client(&id, &scopes).await;
        let mut browsers = Vec::new();
        for _ in 0..size {
            browsers.push(Browser::of(world, &who).await);
            world.clock.advance_ms(1);
        }
        let mut n_signed_in = 0;
        for (place, browser) in browsers.iter().enumerate() {
            let status = browser.get(world, "/rules").await.status;
            assert_eq!(status, if place + 20 < size { 401 } else { 200 }, "{place}");
            n_signed_in += usize::from(status == 200);
        }
        assert_eq!(n_signed_in, size.min(20));
    }
});

#[tokio::test]
async fn forms_need_the_token_of_their_session_and_come_from_this_site() {
    let world = world().await;
    make_pool(&world).await;
    let browser = Browser::of(&world, &world.root()).await;
    let other = Browser::of(&world, &world.root()).await;
    let token = browser.token(&world).await;
    let foreign = other.token(&world).await;
    assert_ne!(token, foreign);
    let fields = |token: &str| {
        format!("token={token}&override=o1&pool=demo%2Flinux&reason=test&until=2h&to=%2F")
    };
    for wrong in ["", "x", &foreign] {
        let answer = browser
            .form(&world, "/do/fleet/override", &fields(wrong))
            .await;
        assert_eq!(answer.status, 403, "{wrong}");
    }
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        let form = browser.form(&world, "/do/fleet/override", &fields(&token));
        assert_eq!(form.header(name, value).await.status, 403, "{value}");
    }
    let anonymous = Browser::new()
        .form(&world, "/do/fleet/override", &fields(&token))
        .await;
    assert_eq!(anonymous.status, 401);
    let listed = world.get("/overrides").await.expect(200);
    assert_eq!(listed["overrides"], json!([]));
    let done = browser
        .form(&world, "/do/fleet/override", &fields(&token))
        .header("sec-fetch-site", "same-origin")
        .await;
    assert_eq!((done.status, done.header("location")), (303, "/"));
    let listed = world.get("/overrides").await.expect(200);
    assert_eq!(listed["overrides"][0]["overrideId"], "o1");
    assert_eq!(
        listed["overrides"][0]["owner"],
        json!(world.root().client_id)
    );
}

#[tokio::test]
async fn what_a_person_may_not_do_is_not_offered_and_refused() {
    let world = world().await;
    make_pool(&world).await;
    let reader = [
        "worker-manager:get-worker-pool:*",
        "worker-manager:list-worker-pools",
    ];
    let who = world.client("people/bob", &reader).await;
    let browser = Browser::of(&world, &who).await;
    let page = browser.get(&world, "/pools/demo/linux").await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(!page.text.contains("/do/fleet/override"));
    assert!(page.text.contains("You may not see this"));
    let of_root = Browser::of(&world, &world.root()).await;
    let page = of_root.get(&world, "/pools/demo/linux").await;
    assert!(page.text.contains("/do/fleet/override"));
    let token = browser.token(&world).await;
    let fields = format!("token={token}&override=o1&pool=demo%2Flinux&reason=x&until=2h");
    let refused = browser.form(&world, "/do/fleet/override", &fields).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("Not done"));
}

#[tokio::test]
async fn public_pages_show_what_the_role_anonymous_may_see() {
    let world = World::open(Database::sqlite(), |config| {
        config.page.anonymous = true;
    })
    .await;
    let browser = Browser::new();
    assert_eq!(browser.get(&world, "/rules").await.status, 401);
    let role = json!({"description": "", "scopes": ["worker-manager:list-worker-configurations"]});
    world.put("auth:/roles/anonymous", role).await.expect(200);
    let page = browser.get(&world, "/rules").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("Sign in"));
    assert!(!page.text.contains("/do/"));
}

#[tokio::test]
async fn programs_and_other_sites_get_what_they_got_before() {
    let world = world().await;
    let welcome = world.get("root:/").anonymously().await.expect(200);
    assert_eq!(welcome["name"], "Fleetwright");
    let missing = world.get("root:/pools").anonymously().await;
    assert_eq!(
        (missing.status, missing.text.as_str()),
        (404, "{\"error\":\"Not found\"}")
    );
    let page = Browser::new().get(&world, "/").await;
    let policy = page.header("content-security-policy");
    assert!(policy.contains("script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("access-control-allow-origin"), "");
    assert_eq!(page.header("cache-control"), "no-store");
}

#[tokio::test]
async fn texts_that_others_write_are_shown_as_text() {
    let world = world().await;
    let evil = "<script>alert(1)</script>\"'<img src=x onerror=alert(2)>";
    let mut evil_pool = null_pool();
    evil_pool["description"] = json!(evil);
    world
        .put("/worker-pool/demo%2Flinux", evil_pool)
        .await
        .expect(200);
    let browser = Browser::of(&world, &world.root()).await;
    for path in [
        "/",
        "/pools/demo/linux",
        "/pools/%3Cscript%3E/x",
        "/workers?q=%3Cscript%3E",
    ] {
        let page = browser.get(&world, path).await.text;
        for part in ["<script>", "<img", "onerror=\""] {
            assert!(!page.contains(part), "{path}: {part}");
        }
    }
    let page = browser.get(&world, "/pools/demo/linux").await.text;
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

/// The HTML of the sections that an open page is sent first.
async fn first_sections(browser: &Browser, world: &World, path: &str) -> String {
    let ask = browser.ask(world.get(&format!("root:/live-page?at={path}")));
    let mut body = ask.open().await.into_body();
    let mut text = String::new();
    while !text.contains("event: change") {
        let frame = body.frame().await.unwrap().unwrap();
        let mut chunk = frame.into_data().unwrap();
        let bytes = chunk.copy_to_bytes(chunk.remaining());
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    text
}

#[tokio::test]
async fn an_open_page_keeps_the_token_of_its_own_session() {
    let world = world().await;
    make_pool(&world).await;
    let first = Browser::of(&world, &world.root()).await;
    let second = Browser::of(&world, &world.root()).await;
    let path = "%2Fpools%2Fdemo%2Flinux";
    let sent = [
        first_sections(&first, &world, path).await,
        first_sections(&second, &world, path).await,
    ];
    let tokens = [first.token(&world).await, second.token(&world).await];
    for (own, other) in [(0, 1), (1, 0)] {
        assert!(sent[own].contains(&tokens[own]));
        assert!(!sent[own].contains(&tokens[other]));
    }
}

#[tokio::test]
async fn an_open_page_learns_that_its_session_has_ended() {
    let world = world().await;
    let gone = Browser {
        cookie: "fleetwright-80=unknown".to_owned(),
        ..Browser::new()
    };
    let said = gone.get(&world, "/live-page?at=%2F").await;
    assert_eq!(
        (said.status, said.text.as_str()),
        (200, "event: end\ndata: {}\n\n")
    );
}
