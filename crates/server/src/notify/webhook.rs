//! Notices to programs: JSON by HTTP POST, signed.
//!
//! The signature covers the time and the body, so that neither can be changed and an old request cannot be sent
//! again. A redirect is not followed: it could lead what is said to somebody else.

use std::fmt::Write as _;

use access::Secret;
use api_client::with_causes;
use async_trait::async_trait;
use aws_lc_rs::hmac;
use domain::pool::Pool;
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::advice::advice;
use super::content::{Described, error_url};
use super::{Channel, Letter, SendError};
use crate::config::Hook;

/// `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hexadecimal>`
const SIGNATURE: &str = "fleetwright-signature";
/// By which repeats can be dropped.
const NOTICE_ID: &str = "fleetwright-notice";
const VERSION: u32 = 1;
/// Answers that ask to come again later, among those that otherwise refuse.
const COME_AGAIN: [u16; 2] = [408, 429];

pub struct WebhookChannel {
    hook: Hook,
    http: reqwest::Client,
    id: String,
    name: String,
    root_url: String,
}

/// What is sent: the first cause at the top, the others below `further`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    version: u32,
    kind: &'static str,
    notice_id: &'a str,
    #[serde(flatten)]
    first: Cause<'a>,
    further: FurtherCauses<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cause<'a> {
    worker_pool_id: &'a str,
    owner: &'a str,
    cause: Named<'a>,
    count: u64,
    first_at: &'a str,
    last_at: &'a str,
    told_before: u64,
    since: &'a str,
    sample: Sample<'a>,
    advice: &'static str,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Named<'a> {
    id: &'a str,
    launch_config_id: Option<&'a str>,
    kind: &'a str,
    title: &'a str,
    code: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sample<'a> {
    error_id: &'a str,
    title: &'a str,
    description: &'a str,
    extra: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FurtherCauses<'a> {
    /// How many errors and causes there are beside the first, described or not.
    errors: u64,
    causes: u64,
    described: Vec<Cause<'a>>,
}

impl WebhookChannel {
    /// Makes no connection.
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

    fn body(&self, letter: &Letter<'_>) -> Option<String> {
        let mut causes = letter.content.causes.iter().map(|cause| self.cause(cause));
        let first = causes.next()?;
        let described: Vec<Cause<'_>> = causes.collect();
        let further = letter.content.further;
        let payload = Payload {
            version: VERSION,
            kind: "worker-pool-errors",
            notice_id: letter.id,
            first,
            further: FurtherCauses {
                errors: further.errors + described.iter().map(|cause| cause.count).sum::<u64>(),
                causes: further.causes + described.len() as u64,
                described,
            },
        };
        serde_json::to_string(&payload).ok()
    }

    fn cause<'a>(&self, cause: &'a Described) -> Cause<'a> {
        Cause {
            worker_pool_id: &cause.worker_pool_id,
            owner: &cause.owner,
            cause: Named {
                id: &cause.cause_id,
                launch_config_id: cause.launch_config_id.as_deref(),
                kind: &cause.kind,
                title: &cause.title,
                code: &cause.code,
            },
            count: cause.count,
            first_at: &cause.first_at,
            last_at: &cause.last_at,
            told_before: cause.told_before,
            since: &cause.since,
            sample: Sample {
                error_id: &cause.error_id,
                title: &cause.title,
                description: &cause.description,
                extra: &cause.extra,
            },
            advice: advice(cause),
            url: error_url(&self.root_url, cause),
        }
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

    async fn send(&self, letter: &Letter<'_>) -> Result<(), SendError> {
        let empty = || SendError::Refused("there is nothing in it".to_owned());
        let body = self.body(letter).ok_or_else(empty)?;
        let mut request = self
            .http
            .post(self.hook.url.expose())
            .header("content-type", "application/json")
            .header(
                "user-agent",
                concat!("fleetwright/", env!("CARGO_PKG_VERSION")),
            )
            .header(NOTICE_ID, letter.id);
        if let Some(secret) = &self.hook.secret {
            request = request.header(SIGNATURE, signature(secret, letter.now, &body));
        }
        // The address may be a secret, and errors name it.
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
            let advice = "redirects are not followed, so name the address it leads to";
            Err(SendError::Channel(format!("{answer}; {advice}")))
        } else {
            Err(SendError::Channel(answer))
        }
    }
}

/// What a receiver computes, too.
fn signature(secret: &Secret, now: Timestamp, body: &str) -> String {
    let seconds = now.as_millis().div_euclid(1_000);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let tag = hmac::sign(&key, format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex(tag.as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// `*` stands for any characters, also for none and for slashes.
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
    fn a_star_stands_for_anything() {
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
    fn a_signature_is_what_openssl_computes() {
        // printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let secret = Secret::new("0123456789abcdef");
        let now = Timestamp::from_millis(1_790_000_000_999);
        assert_eq!(
            signature(&secret, now, r#"{"a":1}"#),
            "t=1790000000,v1=d569e4518fe6f4620fd6639233427e7df5e5394d8f14c85c1063b8d90a724dcb"
        );
    }
}
