//! Notices to webhooks: signed JSON by HTTP POST.
//!
//! The signature covers the time and the body, so neither can be changed, and an old request cannot
//! be sent again. Redirects are not followed: they could lead to another recipient.

use access::Secret;
use api_client::with_causes;
use async_trait::async_trait;
use aws_lc_rs::hmac;
use domain::pool::Pool;
use domain::time::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::advice::advice;
use super::content::{Described, error_url};
use super::{Channel, Notification, SendError, hex};
use crate::config::Hook;

/// `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hexadecimal>`
const SIGNATURE: &str = "fleetwright-signature";
/// The notice's id, to drop repeats.
const NOTICE_ID: &str = "fleetwright-notice";
const VERSION: u32 = 1;
/// Replies that ask for a later retry, although other replies of their class are refusals.
const COME_AGAIN: [u16; 2] = [408, 429];

pub struct WebhookChannel {
    hook: Hook,
    http: reqwest::Client,
    id: String,
    name: String,
    root_url: String,
}

impl WebhookChannel {
    /// Opens no connection.
    pub fn new(hook: Hook, root_url: &str) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(hook.time_limit)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let digest = hex(&Sha256::digest(hook.url.expose().as_bytes())[..8]);
        Ok(Self {
            id: format!("notices:webhook:{digest}"),
            name: format!("webhook {}", hook.host),
            root_url: root_url.to_owned(),
            http,
            hook,
        })
    }

    /// The first cause at the top level, the others below `further`, which also counts the errors
    /// and causes that are not described.
    fn body(&self, letter: &Notification<'_>) -> Option<String> {
        let (first, others) = letter.content.causes.split_first()?;
        let described: Vec<Value> = others.iter().map(|cause| self.cause(cause)).collect();
        let n_described: u64 = others.iter().map(|cause| cause.count).sum();
        let further = letter.content.further;
        let mut payload = self.cause(first);
        payload["version"] = json!(VERSION);
        payload["kind"] = json!("worker-pool-errors");
        payload["noticeId"] = json!(letter.id);
        payload["further"] = json!({
            "errors": further.errors + n_described,
            "causes": further.causes + others.len() as u64,
            "described": described,
        });
        Some(payload.to_string())
    }

    fn cause(&self, cause: &Described) -> Value {
        json!({
            "workerPoolId": cause.worker_pool_id,
            "owner": cause.owner,
            "cause": {
                "id": cause.cause_id,
                "launchConfigId": cause.launch_config_id,
                "kind": cause.kind,
                "title": cause.title,
                "code": cause.code,
            },
            "count": cause.count,
            "firstAt": cause.first_at,
            "lastAt": cause.last_at,
            "toldBefore": cause.told_before,
            "since": cause.since,
            "sample": {
                "errorId": cause.error_id,
                "title": cause.title,
                "description": cause.description,
                "extra": cause.extra,
            },
            "advice": advice(cause),
            "url": error_url(&self.root_url, cause),
        })
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn recipient(&self, pool: &Pool) -> Option<String> {
        let mut globs = self.hook.pools.iter();
        let is_wanted = globs.any(|glob| matches_glob(glob, pool.id.as_str()));
        is_wanted.then(|| self.id.clone())
    }

    async fn send(&self, letter: &Notification<'_>) -> Result<(), SendError> {
        let empty = || SendError::Refused("the notice is empty".to_owned());
        let body = self.body(letter).ok_or_else(empty)?;
        let agent = concat!("fleetwright/", env!("CARGO_PKG_VERSION"));
        let mut request = self.http.post(self.hook.url.expose());
        request = request.header("content-type", "application/json");
        request = request
            .header("user-agent", agent)
            .header(NOTICE_ID, letter.id);
        if let Some(secret) = &self.hook.secret {
            request = request.header(SIGNATURE, signature(secret, letter.now, &body));
        }
        // The address may be a secret, and errors contain it.
        let reply = request
            .body(body)
            .send()
            .await
            .map_err(|problem| SendError::Channel(with_causes(&problem.without_url())))?;
        let status = reply.status();
        let answer = format!("it answers {status}");
        if status.is_success() {
            Ok(())
        } else if status.is_client_error() && !COME_AGAIN.contains(&status.as_u16()) {
            Err(SendError::Refused(answer))
        } else if status.is_redirection() {
            let advice = "redirects are not followed: configure their target";
            Err(SendError::Channel(format!("{answer}; {advice}")))
        } else {
            Err(SendError::Channel(answer))
        }
    }
}

/// Receivers compute the same signature.
fn signature(secret: &Secret, now: Timestamp, body: &str) -> String {
    let seconds = now.as_millis().div_euclid(1_000);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let tag = hmac::sign(&key, format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex(tag.as_ref()))
}

/// `*` stands for any characters, including none and slashes.
fn matches_glob(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, text) in [
            ("*", "a/b"),
            ("a/*", "a/b"),
            ("*/b", "a/b"),
            ("a/b", "a/b"),
            ("a*b*c/*", "a-b-c/d"),
            ("**", "x"),
            ("a/b*", "a/b"),
        ] {
            assert!(matches_glob(glob, text), "{glob} {text}");
        }
        for (glob, text) in [
            ("", "a"),
            ("a/", "a/b"),
            ("b/*", "a/b"),
            ("a*a", "a"),
            ("a/*c", "a/b"),
            ("*x*", "a/b"),
            ("a", "ab"),
        ] {
            assert!(!matches_glob(glob, text), "{glob} {text}");
        }
    }

    #[test]
    fn a_signature_is_the_same_as_that_of_openssl() {
        // printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = Secret::new("0123456789abcdef");
        let now = Timestamp::from_millis(1_790_000_000_999);
        assert_eq!(
            signature(&secret, now, r#"{"a":1}"#),
            "t=1790000000,v1=d569e4518fe6f4620fd6639233427e7df5e5394d8f14c85c1063b8d90a724dcb"
        );
    }
}
