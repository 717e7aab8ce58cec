//! A server with a provider of OpenID Connect, and browsers that sign in there.

use std::sync::Arc;

use serde_json::{Value, json};
use server::api::listener::Server;
use server::config::OpenIdSettings;

use crate::ask::{Answer, Ask};
use crate::database::Database;
use crate::openid_provider::{CLIENT, SECRET, TestProvider};
use crate::world::{ROOT_URL, START_MS, World};

const FORM: &str = "application/x-www-form-urlencoded";
pub(crate) const BEGIN: &str = "root:/sign-in/openid?to=%2Fwaiting";

/// A server, and the provider that it knows.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) provider: TestProvider,
}

/// A browser at a server.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) name: &'static str,
    pub(crate) server: Arc<Server>,
    pub(crate) session: String,
    /// The cookie of a sign-in that has begun.
    pub(crate) begun: String,
}

pub(crate) fn settings(provider: &TestProvider, further: &str) -> OpenIdSettings {
    let text = format!(
        "issuer = \"{}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{SECRET}\"\nname = \"Corp\"\n\
         {further}",
        provider.url()
    );
    toml::from_str(&text).unwrap()
}

impl Pair {
    pub(crate) async fn open(further: &str) -> Self {
        Self::on(Database::sqlite(), further).await
    }

    pub(crate) async fn on(database: Database, further: &str) -> Self {
        let provider = TestProvider::open(START_MS / 1_000).await;
        let openid = settings(&provider, further);
        let world = World::open(database, |config| {
            config.page.openid = Some(Box::new(openid))
        })
        .await;
        Self { world, provider }
    }

    pub(crate) fn browser(&self) -> Browser {
        Browser {
            name: "Firefox",
            server: Arc::clone(&self.world.server),
            session: String::new(),
            begun: String::new(),
        }
    }

    /// The answer to a browser that comes back from the provider with this change of its tokens.
    pub(crate) async fn come_back(&self, change: impl FnOnce(&mut Value)) -> Answer {
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
    pub(crate) async fn signed_in(&self) -> Browser {
        let mut browser = self.browser();
        let url = browser.begin(self).await;
        let back = self.provider.authorize(&url);
        let answer = browser.get(&self.world, &path_of(&back)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        browser.keep(&answer);
        browser
    }

    pub(crate) async fn grant(&self, role: &str, scopes: &[&str]) {
        let path = format!(
            "auth:/roles/{}",
            role.replace('/', "%2F").replace('!', "%21")
        );
        let body = json!({"description": "", "scopes": scopes});
        self.world.put(&path, body).await.expect(200);
    }
}

pub(crate) fn path_of(url: &str) -> String {
    let path = url.strip_prefix(ROOT_URL).unwrap();
    format!("root:{path}")
}

impl Browser {
    pub(crate) fn ask(&self, ask: Ask) -> Ask {
        let ask = ask.anonymously().header("accept", "text/html");
        let ask = ask.header("user-agent", self.name).at(&self.server);
        let cookies = [&self.session, &self.begun];
        let cookies: Vec<&str> = cookies.into_iter().map(String::as_str).collect();
        ask.header("cookie", &cookies.join("; "))
    }

    pub(crate) async fn get(&self, world: &World, path: &str) -> Answer {
        self.ask(world.get(path)).await
    }

    /// The provider's page, where this browser is sent.
    pub(crate) async fn begin(&mut self, pair: &Pair) -> String {
        let answer = self.get(&pair.world, BEGIN).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        self.keep(&answer);
        answer.header("location").to_owned()
    }

    pub(crate) fn keep(&mut self, answer: &Answer) {
        for set in answer.headers.get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            match pair.split_once('=').unwrap().0 {
                "fleetwright-80" => pair.clone_into(&mut self.session),
                "fleetwright-80-openid" => pair.clone_into(&mut self.begun),
                other => panic!("an unknown cookie: {other}"),
            }
        }
    }

    pub(crate) async fn post(&self, world: &World, path: &str, fields: &str) -> Answer {
        let page = self.get(world, "root:/").await.text;
        let (_, rest) = page.split_once("name=\"token\" value=\"").unwrap();
        let token = rest.split('"').next().unwrap();
        let ask = world.post(path, json!({}));
        self.ask(ask.body(FORM, format!("token={token}&{fields}")))
            .await
    }
}

pub(crate) fn sets_a_session(answer: &Answer) -> bool {
    let set = answer.headers.get_all("set-cookie").iter();
    set.map(|it| it.to_str().unwrap())
        .any(|it| it.starts_with("fleetwright-80=") && !it.contains("Max-Age=0"))
}

/// The text of a refusal, without a session.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert!(answer.text.contains(part), "{part}: {}", answer.text);
    assert!(!sets_a_session(answer));
}
