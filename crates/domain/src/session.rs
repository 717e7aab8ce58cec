//! Browsers that are signed in, and links that sign a browser in.

use crate::id::names;
use crate::time::{DAY_MS, MINUTE_MS, Timestamp};

/// A session ends this long after the sign-in, at the latest.
pub const MAX_SESSION_MS: i64 = 30 * DAY_MS;
/// A session ends if the browser has not asked for anything for this long.
const UNUSED_MS: i64 = 7 * DAY_MS;
/// A link can be opened this long.
const LINK_MS: i64 = 10 * MINUTE_MS;
/// The last use is written again after this time.
const USE_NOTED_MS: i64 = 10 * MINUTE_MS;

/// The meaning of a secret: a session, or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A browser is signed in.
    Browser,
    /// A link that signs one browser in, once.
    Link,
}

names! {
    SessionKind, "not a kind of session",
    Browser = "browser",
    Link = "link",
}

/// A browser that is signed in, or a link that has not been opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// A digest of the secret that only the browser has.
    pub id: String,
    pub kind: SessionKind,
    pub client_id: String,
    /// The credentials of the person, with which the server calls its own API.
    pub sealed_credentials: String,
    /// A digest of the name that the browser gives itself; empty for a link.
    pub browser: String,
    pub created: Timestamp,
    pub last_used: Timestamp,
    pub expires: Timestamp,
    /// It ends then, however much it is used.
    pub ends: Timestamp,
}

impl SessionKind {
    /// When a session of this kind ends that begins now and is not used.
    #[must_use]
    pub fn expires(self, now: Timestamp) -> Timestamp {
        now.plus_millis(match self {
            Self::Browser => UNUSED_MS,
            Self::Link => LINK_MS,
        })
    }
}

impl Session {
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.expires <= now
    }

    /// The session after this use, if the use has to be written.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> Option<Self> {
        if now.millis_since(self.last_used) < USE_NOTED_MS {
            return None;
        }
        Some(Self {
            last_used: now,
            expires: self.kind.expires(now).min(self.ends),
            ..self.clone()
        })
    }
}

/// The purpose for which credentials are sealed: those of another session do not open.
#[must_use]
pub fn credentials_purpose(session_id: &str) -> String {
    format!("session:{session_id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(created: i64) -> Session {
        let at = Timestamp::from_millis(created);
        Session {
            id: "a".to_owned(),
            kind: SessionKind::Browser,
            client_id: "people/ann".to_owned(),
            sealed_credentials: String::new(),
            browser: String::new(),
            created: at,
            last_used: at,
            expires: SessionKind::Browser.expires(at),
            ends: at.plus_millis(MAX_SESSION_MS),
        }
    }

    #[test]
    fn a_session_ends_when_it_is_not_used() {
        let session = session(0);
        assert!(!session.has_ended(Timestamp::from_millis(UNUSED_MS - 1)));
        assert!(session.has_ended(Timestamp::from_millis(UNUSED_MS)));
    }

    #[test]
    fn use_extends_a_session_up_to_its_longest_time() {
        let mut session = session(0);
        let soon = Timestamp::from_millis(USE_NOTED_MS - 1);
        assert_eq!(session.used(soon), None, "not written for each request");
        let mut now = Timestamp::from_millis(0);
        while !session.has_ended(now) {
            session = session.used(now).unwrap_or(session);
            now = now.plus_millis(DAY_MS);
        }
        assert_eq!(now.as_millis(), MAX_SESSION_MS);
    }
}
