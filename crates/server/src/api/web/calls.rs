//! Calls of the API within this process, for the person of a session.

use std::sync::Arc;

use access::Secret;
use access::scope::ANONYMOUS;
use api_client::{Call, Credentials};
use async_trait::async_trait;
use bytes::Bytes;
use domain::session::{Session, SessionKind};
use domain::time::Timestamp;
use engine::access::{
    SessionError, digest_of, end_session, find_session, note_session_use, session_credentials,
};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use page::{Api, Person, Refusal, Visit};
use serde_json::Value;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use super::cookie;
use super::reply::pairs;
use crate::api::client_address;
use crate::api::request::{self, addressed, text_header};
use crate::api::request_head::{RequestHead, RequestTags, Sender};
use crate::api::route::Router;
use crate::app::App;
use crate::authentication::{
    AuthenticationError, Caller, Holding, PersonHolding, RequestToAuthenticate, holder, restored,
    sign,
};
use crate::hosts::Host;

/// A reply of the API has at most this size: pages of a list are smaller.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;
/// The headers by which a call has the same sender as the request for its page.
const OF_SENDER: [&str; 4] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-port",
    "x-forwarded-proto",
];

/// The API of this process.
pub(super) struct LocalApi {
    pub(super) app: Arc<App>,
    pub(super) router: Arc<Router>,
}

/// The browser that sent a request.
pub(super) struct Browser {
    pub(super) local: Arc<LocalApi>,
    pub(super) origin: Origin,
    /// The secret of its cookie.
    pub(super) secret: Option<Secret>,
    /// The name that it gives itself, as a digest.
    pub(super) name: String,
}

/// Where requests of a browser come from.
#[derive(Clone)]
pub(super) struct Origin {
    headers: HeaderMap,
    pub(super) sender: Sender,
    pub(super) tags: RequestTags,
    cancelled: CancellationToken,
    pub(super) host: Host,
    /// The client of an encrypted connection, to us or to a trusted proxy.
    pub(super) is_encrypted: bool,
    pub(super) address: std::net::IpAddr,
}

/// The API for one person, with the rights that the person has now.
pub(super) struct PersonApi {
    local: Arc<LocalApi>,
    origin: Origin,
    signed_in: Option<SignedIn>,
    caller: Caller,
    /// The provider named the person, and no role grants anything.
    is_without_rights: bool,
}

/// A person with a session.
struct SignedIn {
    session: Session,
    holding: Holding,
    form_token: Secret,
}

impl Browser {
    pub(super) fn new(local: Arc<LocalApi>, head: &RequestHead) -> Self {
        let origin = Origin::of(&local.app, head);
        let name = text_header(&head.headers, USER_AGENT).unwrap_or_default();
        let cookie = cookie::name(&origin.host, origin.is_encrypted);
        Self {
            secret: cookie::read(&head.headers, &cookie),
            name: digest_of(name),
            local,
            origin,
        }
    }

    /// The person of the session, or anybody if there is no session and the server has public
    /// pages.
    pub(super) async fn person(&self) -> Result<PersonApi, Why> {
        let app = &self.local.app;
        let Some(secret) = &self.secret else {
            return self.anybody().await;
        };
        let now = app.engine.clock.now();
        let session = match find_session(&app.engine, secret, SessionKind::Browser, now).await {
            Ok(session) if session.browser == self.name => session,
            Ok(stolen) => {
                tracing::warn!(client.id = stolen.client_id, source.ip = %self.origin.address,
                    "ended a session of {}: another browser used it", stolen.client_id);
                end_session(&app.engine, &stolen, now).await?;
                return Err(Why::Ended);
            }
            Err(SessionError::NotFound) => return Err(Why::Ended),
            Err(problem) => return Err(problem.into()),
        };
        let opened = session_credentials(&app.engine, &session).map_err(SessionError::from)?;
        let holding = restored(&opened).ok_or(Why::Ended)?;
        let found = match &holding {
            Holding::Credentials(credentials) => self.origin.caller(app, credentials, now).await,
            Holding::Person(person) => named_person(app, person, &session, now).await,
        };
        let caller = match found {
            Ok(caller) => caller,
            Err(AuthenticationError::Refused(_)) => {
                // The client was disabled or deleted, or its token changed. Or the provider is no
                // longer that of the configuration.
                end_session(&app.engine, &session, now).await?;
                return Err(Why::Ended);
            }
            Err(problem) => return Err(problem.into()),
        };
        note_session_use(&app.engine, &session, now).await?;
        let form_token = Secret::new(digest_of(&format!("form token: {}", secret.expose())));
        let is_without_rights = match &holding {
            Holding::Credentials(_) => false,
            Holding::Person(person) => {
                let anonymous = self.anonymous(now).await?.scopes;
                caller.scopes.iter().all(|scope| {
                    anonymous.satisfies(scope) || person.scopes.iter().any(|own| own == scope)
                })
            }
        };
        let signed_in = SignedIn {
            session,
            holding,
            form_token,
        };
        Ok(PersonApi {
            signed_in: Some(signed_in),
            is_without_rights,
            ..self.api_of(caller)
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.local.app.engine.clock.now()
    }

    /// The same browser, for a task that outlives the request.
    pub(super) fn again(&self) -> Self {
        Self {
            local: Arc::clone(&self.local),
            origin: Origin {
                cancelled: CancellationToken::new(),
                ..self.origin.clone()
            },
            secret: self.secret.clone(),
            name: self.name.clone(),
        }
    }

    async fn anybody(&self) -> Result<PersonApi, Why> {
        let app = &self.local.app;
        if !app.config.page.anonymous {
            return Err(Why::Needed);
        }
        Ok(self.api_of(self.anonymous(app.engine.clock.now()).await?))
    }

    /// A caller without credentials.
    async fn anonymous(&self, now: Timestamp) -> Result<Caller, AuthenticationError> {
        let request = RequestToAuthenticate::default();
        self.local
            .app
            .authenticator
            .authenticate(&request, now)
            .await
    }

    fn api_of(&self, caller: Caller) -> PersonApi {
        PersonApi {
            local: Arc::clone(&self.local),
            origin: self.origin.clone(),
            signed_in: None,
            caller,
            is_without_rights: false,
        }
    }
}

impl Origin {
    fn of(app: &App, head: &RequestHead) -> Self {
        let kept = OF_SENDER.into_iter().flat_map(|name| {
            let values = head.headers.get_all(name).iter().cloned();
            values.map(move |value| (HeaderName::from_static(name), value))
        });
        let host = addressed(app, head);
        let is_proxied = app.config.server.trusted_proxies > 0;
        let forwarded = text_header(&head.headers, "x-forwarded-proto");
        Self {
            headers: kept.collect(),
            sender: head.sender.clone(),
            tags: head.tags.clone(),
            cancelled: head.cancelled.clone(),
            is_encrypted: head.sender.is_tls || is_proxied && forwarded == Some("https"),
            address: client_address::address(app, head),
            host,
        }
    }

    /// The client of these credentials.
    pub(super) async fn caller(
        &self,
        app: &App,
        credentials: &Credentials,
        now: Timestamp,
    ) -> Result<Caller, AuthenticationError> {
        holder(app.holders(), credentials, (&self.host, self.address), now).await
    }
}

/// The caller of a session that the provider opened, with the roles of this moment.
async fn named_person(
    app: &App,
    person: &PersonHolding,
    session: &Session,
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let is_configured = app
        .openid
        .as_ref()
        .is_some_and(|it| it.issuer() == person.issuer);
    let embedded = app.authenticator.embedded().filter(|_| is_configured);
    let Some(embedded) = embedded else {
        let text = "the provider of this sign-in is not configured";
        return Err(AuthenticationError::Refused(text.to_owned()));
    };
    let mut scopes = person.scopes.clone();
    scopes.push(ANONYMOUS.to_owned());
    Ok(Caller {
        client_id: Some(person.client_id.clone()),
        scopes: embedded.expand(&scopes, now).await?,
        expires: session.ends,
        payload_hash: None,
    })
}

impl PersonApi {
    /// The visit of an address; `None` if its escapes are wrong.
    pub(super) fn visit(&self, path: &str, query: &str) -> Option<Visit<'_>> {
        let decode = |text: &str| {
            let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
            decoded.ok().map(String::from)
        };
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        Some(Visit {
            api: self,
            path: segments.map(decode).collect::<Option<_>>()?,
            query: pairs(query)?,
            now: self.now(),
            person: self.shown(),
            is_opened: true,
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.local.app.engine.clock.now()
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.signed_in.is_none()
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.signed_in.as_ref().map(|signed_in| &signed_in.session)
    }

    /// Whether the provider named the person, and no role grants anything.
    pub(super) fn is_without_rights(&self) -> bool {
        self.is_without_rights
    }

    /// The person, if the provider named it.
    pub(super) fn named(&self) -> Option<&PersonHolding> {
        match &self.signed_in.as_ref()?.holding {
            Holding::Person(person) => Some(person),
            Holding::Credentials(_) => None,
        }
    }

    /// The person as the page shows it.
    pub(super) fn shown(&self) -> Option<Person> {
        let signed_in = self.signed_in.as_ref()?;
        Some(Person {
            client_id: signed_in.session.client_id.clone(),
            form_token: signed_in.form_token.expose().to_owned(),
        })
    }

    /// Whether a form comes from a page of this person's session.
    pub(super) fn made(&self, token: &str) -> bool {
        let token = Secret::new(token);
        let known = self.signed_in.as_ref();
        known.is_some_and(|signed_in| signed_in.form_token == token)
    }

    fn head(&self, call: &Call) -> Option<RequestHead> {
        let uri: Uri = call.resource.parse().ok()?;
        let mut headers = self.origin.headers.clone();
        let app = &self.local.app;
        let holding = self.signed_in.as_ref().map(|signed_in| &signed_in.holding);
        if let Some(Holding::Credentials(credentials)) = holding {
            let signed = sign(
                &app.engine,
                credentials,
                &self.origin.host,
                (&call.method, &call.resource),
                &call.body,
            );
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&signed).ok()?);
        }
        if let Some((content_type, _)) = call.body.content() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Some(RequestHead {
            method: call.method.clone(),
            uri,
            headers,
            sender: self.origin.sender.clone(),
            tags: self.origin.tags.clone(),
            person: self.named().map(|_| self.caller.clone()),
            cancelled: self.origin.cancelled.clone(),
        })
    }
}

#[async_trait]
impl Api for PersonApi {
    async fn call(&self, call: Call) -> Result<Value, Refusal> {
        let body = call.body.content().map(|(_, content)| content);
        let Some(head) = self.head(&call) else {
            return Err(refusal(400, "the address is not valid"));
        };
        let body = Full::new(body.unwrap_or_default());
        let local = &self.local;
        let response = request::answer(&local.app, &local.router, head, body).await;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_REPLY_BYTES);
        let Ok(body) = body.collect().await else {
            return Err(refusal(502, "the reply broke off"));
        };
        let text: Bytes = body.to_bytes();
        let reply = serde_json::from_slice(&text).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&text);
            Value::String(text.into_owned())
        });
        if status.is_success() {
            return Ok(reply);
        }
        let member = |name: &str| reply.get(name).and_then(Value::as_str).unwrap_or_default();
        Err(Refusal {
            status: status.as_u16(),
            code: member("code").to_owned(),
            message: member("message").to_owned(),
        })
    }

    fn may(&self, call: &Call) -> bool {
        request::permits(
            &self.local.router,
            &self.caller.scopes,
            &call.method,
            call.path(),
        )
    }
}

fn refusal(status: u16, message: &str) -> Refusal {
    Refusal {
        status,
        code: String::new(),
        message: message.to_owned(),
    }
}

/// Why a person has to sign in.
#[derive(Debug)]
pub(super) enum Why {
    Needed,
    /// There was a session.
    Ended,
    /// Nothing is known about sessions at the moment.
    Away(String),
}

impl From<StoreError> for Why {
    fn from(problem: StoreError) -> Self {
        Self::Away(problem.to_string())
    }
}

impl From<SessionError> for Why {
    fn from(problem: SessionError) -> Self {
        match problem {
            SessionError::NotFound | SessionError::Sealed(_) => Self::Ended,
            SessionError::Store(problem) => problem.into(),
        }
    }
}

impl From<AuthenticationError> for Why {
    fn from(problem: AuthenticationError) -> Self {
        match problem {
            AuthenticationError::Refused(_) => Self::Ended,
            AuthenticationError::NotLookedUp
            | AuthenticationError::NotExpanded(_)
            | AuthenticationError::NoAnswer(_)
            | AuthenticationError::Store(_) => Self::Away(problem.to_string()),
        }
    }
}
