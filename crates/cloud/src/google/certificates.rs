//! The certificates with which Google signs identity tokens. They change every few days.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{read_body, with_causes};
use domain::time::{Clock, DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use reqwest::header::{AGE, CACHE_CONTROL, HeaderMap};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::CloudError;
use crate::signing::http::Http;
use crate::signing::public_key::PublicKey;

/// Certificates without a time in their headers are fetched again after this time.
const DEFAULT_FRESH_MS: i64 = HOUR_MS;
const MAX_FRESH_MS: i64 = DAY_MS;
/// For a certificate that is not known, they are fetched again, but not more often.
const RETRY_MS: i64 = MINUTE_MS;
/// Time limit of a fetch. A worker waits for it.
const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Certificates at most.
const MAX_CERTIFICATES: usize = 100;

type Keys = Arc<BTreeMap<String, PublicKey>>;

pub(super) struct Certificates {
    url: String,
    http: Http,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: Keys,
    /// `None`: they were never fetched.
    fetched: Option<Timestamp>,
    fresh_until: Option<Timestamp>,
    /// The last try, and its error.
    failed: Option<(Timestamp, String)>,
}

impl Certificates {
    pub(super) fn new(url: String, http: Http, clock: Arc<dyn Clock>) -> Self {
        Self {
            url,
            http,
            clock,
            state: Mutex::default(),
        }
    }

    /// The key with this id; `None`: Google has no such key. An outage is an error. Concurrent
    /// callers wait for the same fetch.
    pub(super) async fn key(&self, id: &str) -> Result<Option<PublicKey>, CloudError> {
        let mut state = self.state.lock().await;
        let now = self.clock.now();
        let lately = |at: &Timestamp| (0..RETRY_MS).contains(&now.millis_since(*at));
        let is_fresh = state.fresh_until.is_some_and(|until| now < until)
            && state.fetched.is_some_and(|at| at <= now);
        if is_fresh && let Some(key) = state.keys.get(id) {
            return Ok(Some(key.clone()));
        }
        // A caller may invent ids, so an unknown one does not always lead to a call.
        if is_fresh && state.fetched.as_ref().is_some_and(lately) {
            return Ok(None);
        }
        if let Some((_, error)) = state.failed.as_ref().filter(|(at, _)| lately(at)) {
            return Err(CloudError::Unavailable(error.clone()));
        }
        match self.fetch().await {
            Ok((keys, fresh_ms)) => {
                let key = keys.get(id).cloned();
                *state = State {
                    keys: Arc::new(keys),
                    fetched: Some(now),
                    fresh_until: Some(now.plus_millis(fresh_ms)),
                    failed: None,
                };
                Ok(key)
            }
            Err(error) => {
                let url = &self.url;
                let error = format!("no certificates of Google from {url}: {error}");
                state.failed = Some((now, error.clone()));
                Err(CloudError::Unavailable(error))
            }
        }
    }

    async fn fetch(&self) -> Result<(BTreeMap<String, PublicKey>, i64), String> {
        let client = self.http.client().map_err(|error| with_causes(&error))?;
        let answer = client.get(&self.url).timeout(FETCH_LIMIT).send().await;
        let answer = answer.map_err(|error| with_causes(&error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        let fresh_ms = fresh_ms(answer.headers());
        let body = read_body(answer, MAX_ANSWER_BYTES).await;
        let body = body.map_err(|error| with_causes(&error))?;
        let keys = read_keys(&body).ok_or("the answer has no certificates")?;
        Ok((keys, fresh_ms))
    }
}

/// The keys in an object of certificates by their ids.
fn read_keys(body: &[u8]) -> Option<BTreeMap<String, PublicKey>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let certificates = document.as_object()?.iter().take(MAX_CERTIFICATES);
    let keys: BTreeMap<String, PublicKey> = certificates
        .filter_map(|(id, text)| Some((id.clone(), PublicKey::parse(text.as_str()?)?)))
        .collect();
    (!keys.is_empty()).then_some(keys)
}

/// How long an answer may be kept, by its headers.
fn fresh_ms(headers: &HeaderMap) -> i64 {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let directives = text(CACHE_CONTROL).unwrap_or_default().split(',');
    let mut max_age = directives.filter_map(|it| it.trim().strip_prefix("max-age="));
    let Some(max_age) = max_age.next().and_then(|it| it.parse::<i64>().ok()) else {
        return DEFAULT_FRESH_MS;
    };
    let age: i64 = text(AGE).and_then(|it| it.parse().ok()).unwrap_or(0);
    let left_ms = max_age.saturating_sub(age.max(0)).saturating_mul(1_000);
    left_ms.clamp(RETRY_MS, MAX_FRESH_MS)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::tests::values::TestClock;
    use crate::vendor::recorder::Recorder;

    fn some_key() -> String {
        use aws_lc_rs::encoding::AsDer as _;
        use aws_lc_rs::rsa::{KeyPair, KeySize};
        use aws_lc_rs::signature::KeyPair as _;
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        STANDARD.encode(key.public_key().as_der().unwrap().as_ref())
    }

    async fn world() -> (Recorder, Certificates, Arc<TestClock>) {
        let (recorder, clock) = (Recorder::start().await, TestClock::new());
        let http = Http::default();
        let certificates = Certificates::new(recorder.url.clone(), http, clock.clone());
        (recorder, certificates, clock)
    }

    async fn has(certificates: &Certificates, id: &str) -> bool {
        certificates.key(id).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn certificates_are_kept_by_their_headers_and_new_ones_are_found() {
        let (recorder, certificates, clock) = world().await;
        let kept = [
            ("cache-control", "public, max-age=7200, must-revalidate"),
            ("age", "3600"),
        ];
        let key = some_key();
        recorder.answer_with(200, &kept, json!({"a": key}));
        assert!(has(&certificates, "a").await);
        assert!(!has(&certificates, "b").await, "just fetched");
        assert_eq!(recorder.calls().len(), 1);
        clock.advance_ms(MINUTE_MS);
        recorder.answer_with(200, &kept, json!({"a": key, "b": key}));
        assert!(has(&certificates, "b").await);
        clock.advance_ms(59 * MINUTE_MS);
        assert!(has(&certificates, "a").await);
        assert_eq!(recorder.calls().len(), 2);
        clock.advance_ms(MINUTE_MS);
        recorder.answer_with(200, &kept, json!({"b": key}));
        assert!(!has(&certificates, "a").await, "it was withdrawn");
        assert_eq!(recorder.calls().len(), 3);
    }

    #[tokio::test]
    async fn an_outage_is_no_refusal_and_is_not_asked_about_each_time() {
        let (recorder, certificates, clock) = world().await;
        for _ in 0..3 {
            let error = certificates.key("a").await.unwrap_err();
            assert!(matches!(error, CloudError::Unavailable(_)), "{error}");
        }
        assert_eq!(recorder.calls().len(), 1);
        clock.advance_ms(MINUTE_MS);
        recorder.answer(200, json!({}));
        assert!(
            certificates.key("a").await.is_err(),
            "none is an outage, too"
        );
        clock.advance_ms(MINUTE_MS);
        recorder.answer(200, json!({"a": some_key()}));
        assert!(has(&certificates, "a").await);
    }

    #[test]
    fn the_time_of_the_headers_has_limits() {
        for (value, expected) in [
            ("max-age=7200", 2 * HOUR_MS),
            ("max-age=1", RETRY_MS),
            ("max-age=99999999999999999", MAX_FRESH_MS),
            ("max-age=-5", RETRY_MS),
            ("max-age=soon", DEFAULT_FRESH_MS),
            ("no-store", DEFAULT_FRESH_MS),
        ] {
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, value.parse().unwrap())]);
            assert_eq!(fresh_ms(&headers), expected, "{value}");
        }
    }

    #[test]
    fn a_limited_number_of_certificates_is_read() {
        let key = some_key();
        for size in sizes_around(
            "cloud::google::certificates::MAX_CERTIFICATES",
            MAX_CERTIFICATES,
        ) {
            let all: BTreeMap<String, &str> = (0..size).map(|n| (n.to_string(), &*key)).collect();
            let keys = read_keys(json!(all).to_string().as_bytes());
            assert_eq!(
                keys.map_or(0, |keys| keys.len()),
                size.min(MAX_CERTIFICATES)
            );
        }
    }
}
