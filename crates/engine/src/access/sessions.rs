//! Sessions: opened by credentials or by a link, found by the secret of a browser, ended.

use std::sync::Arc;

use access::Secret;
use access::seal::OpenError;
use domain::audit::{AuditEntry, EntityType};
use domain::session::{MAX_SESSION_MS, Session, SessionKind, credentials_purpose};
use domain::time::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use store::StoreError;

use crate::Engine;

/// A client has at most this many sessions, and as many links. The ones used longest ago end first.
const MAX_OF_CLIENT: u32 = 20;

/// A person who proved to be a client.
#[derive(Clone, Debug)]
pub struct SignIn {
    pub client_id: String,
    /// The credentials, in a form that the caller chooses.
    pub credentials: Secret,
    /// The session ends this long after the sign-in, if that is sooner than any other does.
    pub longest_ms: i64,
    /// The name that the browser gives itself; empty for a link.
    pub browser: String,
    /// How the person proved it, for the audit log.
    pub by: &'static str,
    pub source_ip: String,
    pub request_id: String,
}

/// Why a link or a session cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It was used already, it has expired, or it never existed.
    #[error("there is no such session: sign in again")]
    NotFound,
    #[error("the credentials of the session cannot be opened: {0}. Sign in again")]
    Sealed(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Signs a browser in, or makes a link that does. Returns the secret of the browser or the link.
pub async fn open(
    engine: &Arc<Engine>,
    kind: SessionKind,
    sign_in: SignIn,
    now: Timestamp,
) -> store::Result<Secret> {
    let secret = engine.random.secret();
    let session = sealed(engine, kind, &secret, &sign_in, now);
    let written = engine.change("session_open", now, move |change| {
        store::sessions::insert(change.tx, &session, MAX_OF_CLIENT)?;
        store::audit::insert(change.tx, &entry(&session, &sign_in, now))
    });
    written.await?;
    Ok(secret)
}

/// Signs a browser in with a link. Of several browsers that open one link, one is signed in.
pub async fn open_link(
    engine: &Arc<Engine>,
    link: &Secret,
    browser: String,
    (source_ip, request_id): (String, String),
    now: Timestamp,
) -> Result<Secret, SessionError> {
    let found = find(engine, link, SessionKind::Link, now).await?;
    let credentials = session_credentials(engine, &found)?;
    let sign_in = SignIn {
        client_id: found.client_id.clone(),
        credentials,
        longest_ms: MAX_SESSION_MS,
        browser,
        by: "link",
        source_ip,
        request_id,
    };
    let secret = engine.random.secret();
    let session = sealed(engine, SessionKind::Browser, &secret, &sign_in, now);
    let written = engine.change("session_open_link", now, move |change| {
        if !store::sessions::delete(change.tx, &found.id)? {
            return Err(SessionError::NotFound);
        }
        store::sessions::insert(change.tx, &session, MAX_OF_CLIENT)?;
        Ok(store::audit::insert(
            change.tx,
            &entry(&session, &sign_in, now),
        )?)
    });
    written.await?;
    Ok(secret)
}

/// The session of this kind that the secret stands for.
pub async fn find(
    engine: &Arc<Engine>,
    secret: &Secret,
    kind: SessionKind,
    now: Timestamp,
) -> Result<Session, SessionError> {
    let id = id_of(secret);
    let read = engine
        .store
        .read("session_get", move |tx| store::sessions::get(tx, &id));
    let found: Option<Session> = read.await?;
    found
        .filter(|session| session.kind == kind && !session.has_ended(now))
        .ok_or(SessionError::NotFound)
}

/// The credentials with which the session was opened.
pub fn session_credentials(engine: &Engine, session: &Session) -> Result<Secret, OpenError> {
    let purpose = credentials_purpose(&session.id);
    engine.keyring.open(&purpose, &session.sealed_credentials)
}

/// Notes that a session is used, so that it does not end. Most uses need no write.
pub async fn note_use(
    engine: &Arc<Engine>,
    session: &Session,
    now: Timestamp,
) -> store::Result<()> {
    let Some(used) = session.used(now) else {
        return Ok(());
    };
    let written = engine.change("session_note_use", now, move |change| {
        store::sessions::note_use(change.tx, &used)
    });
    written.await
}

pub async fn end(engine: &Arc<Engine>, session: &Session, now: Timestamp) -> store::Result<()> {
    let id = session.id.clone();
    let written = engine.change("session_end", now, move |change| {
        store::sessions::delete(change.tx, &id)
    });
    written.await.map(drop)
}

/// Names a browser; sessions of another one are refused.
#[must_use]
pub fn digest_of(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Secrets have 256 random bits, so a plain digest does not tell them.
fn id_of(secret: &Secret) -> String {
    digest_of(secret.expose())
}

fn sealed(
    engine: &Engine,
    kind: SessionKind,
    secret: &Secret,
    sign_in: &SignIn,
    now: Timestamp,
) -> Session {
    let id = id_of(secret);
    let purpose = credentials_purpose(&id);
    let seal =
        |random: &mut dyn rand::Rng| engine.keyring.seal(&purpose, &sign_in.credentials, random);
    let ends = now.plus_millis(sign_in.longest_ms.min(MAX_SESSION_MS));
    Session {
        kind,
        client_id: sign_in.client_id.clone(),
        sealed_credentials: engine.random.with(seal),
        browser: sign_in.browser.clone(),
        created: now,
        last_used: now,
        expires: kind.expires(now).min(ends),
        ends,
        id,
    }
}

fn entry(session: &Session, sign_in: &SignIn, now: Timestamp) -> AuditEntry {
    let action = match session.kind {
        SessionKind::Browser => "signed-in",
        SessionKind::Link => "sign-in-link-created",
    };
    AuditEntry {
        entity_type: EntityType::Client,
        entity_id: sign_in.client_id.clone(),
        action: action.to_owned(),
        client_id: sign_in.client_id.clone(),
        created: now,
        source_ip: Some(sign_in.source_ip.clone()),
        request_id: Some(sign_in.request_id.clone()),
        detail: json!({"by": sign_in.by}),
    }
}
