//! Sends one call of a vendor's API, and reads its answer.

use std::time::Duration;

use api_client::{read_body, with_causes};
use domain::launch::Cause;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::endpoint::is_below;
use super::error::{Failure, Vendor, VendorError};
use super::pause::{retry_after, scarcity};
use super::request::{Address, Ask, Content};
use super::tokens::Tokens;
use crate::call_scope::{RequestWatch, ask_for_pause};
use crate::signing::http::Http;

/// Calls one API of a vendor.
pub(crate) struct Rest {
    vendor: &'static Vendor,
    /// Without a slash at the end.
    endpoint: String,
    http: Http,
    /// `None`: the API takes no token.
    tokens: Option<Tokens>,
    /// The header with the error code of a refusal whose body is not JSON.
    code_header: Option<&'static str>,
    /// Whether a call whose token was refused is made again with another one.
    renews_tokens: bool,
    /// Called for each throttled call.
    on_throttled: Option<OnThrottled>,
}

/// Takes the method and the headers of a throttled call.
type OnThrottled = Box<dyn Fn(&Method, &HeaderMap) + Send + Sync>;

/// A successful answer whose body is not read as JSON.
#[derive(Clone, Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl RawAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A successful answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// `null` for an empty body.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How long the vendor asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }
}

impl Rest {
    pub(crate) fn new(
        vendor: &'static Vendor,
        endpoint: &str,
        http: Http,
        tokens: Option<Tokens>,
    ) -> Self {
        Self {
            vendor,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            http,
            tokens,
            code_header: None,
            renews_tokens: false,
            on_throttled: None,
        }
    }

    pub(crate) fn with_code_header(mut self, name: &'static str) -> Self {
        self.code_header = Some(name);
        self
    }

    /// Makes a call again, once, when its token was refused: that call had no effect. For long work
    /// such as an upload, which credentials that change must not end.
    pub(crate) fn renewing_tokens(mut self) -> Self {
        self.renews_tokens = true;
        self
    }

    pub(crate) fn telling_throttled(
        mut self,
        tell: impl Fn(&Method, &HeaderMap) + Send + Sync + 'static,
    ) -> Self {
        self.on_throttled = Some(Box::new(tell));
        self
    }

    /// Makes a call and reads its JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, VendorError> {
        let what = format!("{} {:?}", ask.method, ask.address);
        let answer = self.call(ask).await?;
        serde_json::from_value(answer.body)
            .map_err(|error| self.error(Failure::Lost(format!("{what}: unexpected JSON: {error}"))))
    }

    /// Makes a call. A 401 makes the next call use another token. Headers may ask for a pause.
    pub(crate) async fn call(&self, ask: Ask) -> Result<Answer, VendorError> {
        let RawAnswer {
            status,
            headers,
            body,
        } = self.call_raw(ask).await?;
        let body = match (!body.is_empty()).then(|| serde_json::from_slice(&body)) {
            None => Value::Null,
            Some(Ok(body)) => body,
            Some(Err(error)) => {
                return Err(self.error(Failure::Lost(format!("the answer is not JSON: {error}"))));
            }
        };
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// Makes a call whose answer may have any form.
    pub(crate) async fn call_raw(&self, ask: Ask) -> Result<RawAnswer, VendorError> {
        let again = self.renews_tokens.then(|| ask.clone());
        match (self.call_once(ask).await, again) {
            (Err(error), Some(again)) if error.has_status(401) => self.call_once(again).await,
            (answer, _) => answer,
        }
    }

    async fn call_once(&self, ask: Ask) -> Result<RawAnswer, VendorError> {
        let token = match &self.tokens {
            Some(tokens) => Some(tokens.get().await.map_err(|failure| self.error(failure))?),
            None => None,
        };
        let url = self.url(&ask)?;
        let client = self.http.client();
        let client = client.map_err(|error| self.error(Failure::NotSent(with_causes(&error))))?;
        let mut request = client.request(ask.method.clone(), url).timeout(ask.limit);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = &token {
            request = request.bearer_auth(token.expose());
        }
        request = match ask.content {
            // Some servers refuse a POST without a length.
            Content::Nothing => request.body(Vec::new()),
            Content::Json(body) => request.json(&body),
            Content::Bytes(body) => request.body(body),
        };
        let watch = RequestWatch::start();
        let answer = request.send().await;
        watch.end(answer.as_ref().ok().map(|answer| answer.status().as_u16()));
        let answer = answer.map_err(|error| {
            // Without a connection, the call cannot have had an effect.
            if error.is_connect() || error.is_builder() {
                self.error(Failure::NotSent(with_causes(&error)))
            } else {
                self.error(Failure::Lost(with_causes(&error)))
            }
        })?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if let Some(pause) = scarcity(&headers) {
            ask_for_pause(pause);
        }
        let body = read_body(answer, ask.max_bytes)
            .await
            .map_err(|error| self.error(Failure::Lost(with_causes(&error))))?;
        let status_code = status.as_u16();
        if !status.is_success() {
            if let (429, Some(tell)) = (status_code, &self.on_throttled) {
                tell(&ask.method, &headers);
            }
            if let (401, Some(tokens), Some(token)) = (status_code, &self.tokens, &token) {
                tokens.forget(token).await;
            }
            return Err(self.refusal(status_code, &headers, &body));
        }
        Ok(RawAnswer {
            status: status_code,
            headers,
            body,
        })
    }

    fn url(&self, ask: &Ask) -> Result<String, VendorError> {
        match &ask.address {
            Address::Path(path) => Ok(format!("{}{path}{}", self.endpoint, ask.query_text('?'))),
            Address::Url(url) if is_below(url, &self.endpoint) => {
                let mark = if url.contains('?') { '&' } else { '?' };
                Ok(format!("{url}{}", ask.query_text(mark)))
            }
            Address::Url(url) => {
                let host: String = url.chars().take(200).collect();
                let error = format!("{host} is not below {}", self.endpoint);
                Err(self.error(Failure::NotSent(error)))
            }
        }
    }

    /// Reads a refusal. The refusal of a proxy has only a status.
    fn refusal(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> VendorError {
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let (code, message) = document
            .and_then(|document| (self.vendor.read_error)(&document))
            .or_else(|| self.error_in_header(headers, body))
            .unwrap_or_else(|| {
                let name = self.vendor.name;
                let message = format!("status {status} without an error of {name} in the body");
                (String::new(), message)
            });
        let wait = retry_after(headers);
        let error = VendorError::answered(self.vendor, status, &code, &message, wait);
        let is_throttled = error.cause() == Some(Cause::Throttled);
        if let Some(wait) = wait.filter(|_| is_throttled || status == 503) {
            ask_for_pause(wait);
        }
        error
    }

    /// Code and message of a refusal in XML.
    fn error_in_header(&self, headers: &HeaderMap, body: &[u8]) -> Option<(String, String)> {
        let code = headers.get(self.code_header?)?.to_str().ok()?;
        let text = String::from_utf8_lossy(body);
        let message = text.split_once("<Message>").map(|(_, rest)| rest);
        let message = message.and_then(|rest| rest.split("</Message>").next());
        Some((code.to_owned(), message.unwrap_or_default().to_owned()))
    }

    fn error(&self, failure: Failure) -> VendorError {
        VendorError::new(self.vendor, failure)
    }
}

/// Some items of a list, and what to ask for next.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

/// Reads a list to its last page, at most this many of them.
pub(crate) async fn all_pages<T, F>(
    vendor: &'static Vendor,
    max_pages: usize,
    mut page: impl FnMut(Option<String>) -> F,
) -> Result<Vec<T>, VendorError>
where
    F: Future<Output = Result<Page<T>, VendorError>>,
{
    let (mut all, mut next) = (Vec::new(), None);
    for _ in 0..max_pages {
        let (items, after) = page(next).await?;
        all.extend(items);
        // An empty name of the next page would ask for the first one again.
        next = after.filter(|after| !after.is_empty());
        if next.is_none() {
            return Ok(all);
        }
    }
    let error = format!("a list did not end within {max_pages} pages");
    Err(VendorError::new(vendor, Failure::Lost(error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use access::Secret;
    use async_trait::async_trait;
    use domain::time::{HOUR_MS, Timestamp};
    use reqwest::Method;
    use serde_json::json;

    use super::*;
    use crate::tests::values::TestClock;
    use crate::vendor::recorder::{Recorder, TEST_VENDOR};
    use crate::vendor::{Token, TokenSource};

    struct Hush;

    #[async_trait]
    impl TokenSource for Hush {
        async fn fetch(&self, now: Timestamp) -> Result<Token, Failure> {
            Ok(Token {
                secret: Secret::new("hush"),
                expires: now.plus_millis(HOUR_MS),
            })
        }
    }

    fn rest(recorder: &Recorder) -> Rest {
        let tokens = Tokens::new(Box::new(Hush), TestClock::new());
        Rest::new(&TEST_VENDOR, &recorder.url, Http::default(), Some(tokens))
    }

    #[tokio::test]
    async fn a_call_carries_its_token_and_its_content() {
        let recorder = Recorder::start().await;
        recorder.answer(200, json!({"a": 1}));
        let ask = Ask::new(Method::POST, &["x", "a/b"])
            .with_content(Content::Json(json!({"b": 2})))
            .with_query("q", "é");
        let answer = rest(&recorder).call(ask).await.unwrap();
        assert_eq!((answer.status, answer.body), (200, json!({"a": 1})));
        let calls = recorder.calls();
        assert_eq!(calls[0].method, Method::POST);
        assert_eq!(calls[0].target, "/x/a%2Fb?q=%C3%A9");
        assert_eq!(calls[0].header("authorization"), Some("Bearer hush"));
        assert_eq!(calls[0].json(), json!({"b": 2}));
    }

    #[tokio::test]
    async fn a_refusal_has_its_code_its_message_and_its_wait() {
        let recorder = Recorder::start().await;
        let body = json!({"code": "NO_STOCK", "message": "none left"});
        recorder.answer_with(503, &[("retry-after", "7")], body);
        let error = rest(&recorder).call(Ask::get(&["x"])).await.unwrap_err();
        let answer = error.answer().unwrap();
        assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(error.cause(), Some(Cause::Capacity));
        let text = "Error calling Test API: NO_STOCK: none left";
        assert_eq!(error.to_string(), text);
    }

    #[tokio::test]
    async fn refusals_and_counts_of_calls_that_are_left_ask_for_a_pause() {
        let body = |code: &str| json!({"code": code, "message": "why"});
        for (status, code, name, value, expected) in [
            (429, "X", "retry-after", "7", Some(7)),
            (503, "X", "retry-after", "7", Some(7)),
            (503, "", "retry-after", "7", Some(7)),
            (429, "X", "x", "y", None),
            (400, "X", "retry-after", "7", None),
            (202, "", "retry-after", "7", None),
            (
                200,
                "",
                "x-ms-ratelimit-remaining-resource",
                "A/Put3Min;0",
                Some(18),
            ),
            (
                200,
                "",
                "x-ms-ratelimit-remaining-resource",
                "A/Put3Min;99",
                None,
            ),
        ] {
            let recorder = Recorder::start().await;
            recorder.answer_with(status, &[(name, value)], body(code));
            let rest = rest(&recorder);
            let (_, notes) = crate::with_notes(rest.call(Ask::get(&["x"]))).await;
            let expected = expected.map(Duration::from_secs);
            assert_eq!(notes.pause, expected, "{status} {name}: {value}");
        }
    }

    #[tokio::test]
    async fn a_refusal_in_xml_has_the_code_of_its_header() {
        let recorder = Recorder::start().await;
        let xml = "<?xml?><Error><Code>NO_STOCK</Code><Message>none left</Message></Error>";
        let rest = rest(&recorder).with_code_header("x-code");
        recorder.answer_text_with(409, &[("x-code", "NO_STOCK")], xml);
        let error = rest.call_raw(Ask::get(&["x"])).await.unwrap_err();
        assert_eq!(error.cause(), Some(Cause::Capacity));
        assert!(
            error.to_string().ends_with("NO_STOCK: none left"),
            "{error}"
        );
        recorder.answer_text_with(404, &[("x-code", "NoBlob")], "");
        let error = rest.call_raw(Ask::get(&["x"])).await.unwrap_err();
        assert_eq!(error.cause(), Some(Cause::Configuration));
    }

    #[tokio::test]
    async fn a_call_whose_token_is_refused_is_made_once_more_if_that_is_wanted() {
        let recorder = Recorder::start().await;
        let renewing = rest(&recorder).renewing_tokens();
        recorder.answer(401, Value::Null);
        recorder.answer_text(200, "not JSON");
        let content = Content::Bytes(vec![7, 8].into());
        let ask = Ask::new(Method::PUT, &["x"]).with_content(content);
        let answer = renewing.call_raw(ask.clone()).await.unwrap();
        assert_eq!(answer.body, b"not JSON");
        assert!(recorder.calls().iter().all(|call| *call.body == [7, 8]));
        for _ in 0..2 {
            recorder.answer(401, Value::Null);
        }
        let error = renewing.call_raw(ask.clone()).await.unwrap_err();
        assert_eq!(error.cause(), Some(Cause::Credentials));
        recorder.answer(401, Value::Null);
        rest(&recorder).call_raw(ask).await.unwrap_err();
        assert_eq!(recorder.calls().len(), 5);
    }

    #[tokio::test]
    async fn an_answer_of_a_proxy_between_us_and_the_vendor_is_an_outage() {
        let recorder = Recorder::start().await;
        recorder.answer_text(407, "<html>");
        let error = rest(&recorder).call(Ask::get(&["x"])).await.unwrap_err();
        assert_eq!(error.cause(), Some(Cause::Unavailable));
        assert!(error.to_string().contains("407 without an error of Test"));
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_or_too_long_is_lost() {
        let recorder = Recorder::start().await;
        recorder.answer_text(200, "[1, 2");
        recorder.answer(200, json!("x".repeat(100)));
        recorder.cut();
        let rest = rest(&recorder);
        for _ in 0..3 {
            let ask = Ask {
                max_bytes: 50,
                ..Ask::get(&["x"])
            };
            let error = rest.call(ask).await.unwrap_err();
            assert!(matches!(error.failure, Failure::Lost(_)), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_gets_nothing() {
        let rest = Rest::new(&TEST_VENDOR, "http://127.0.0.1:1", Http::default(), None);
        let error = rest.call(Ask::get(&["x"])).await.unwrap_err();
        assert!(matches!(error.failure, Failure::NotSent(_)), "{error}");
    }

    #[tokio::test]
    async fn an_address_of_another_server_is_not_called() {
        let recorder = Recorder::start().await;
        let rest = rest(&recorder);
        let ask = Ask::to_url(Method::GET, "https://evil.example/operations/1");
        let error = rest.call(ask).await.unwrap_err();
        assert!(matches!(error.failure, Failure::NotSent(_)), "{error}");
        recorder.answer(202, Value::Null);
        let own = format!("{}/operations/1?a=b", recorder.url);
        let ask = Ask::to_url(Method::GET, &own).with_query("c", "d");
        assert_eq!(rest.call(ask).await.unwrap().status, 202);
        assert_eq!(recorder.calls()[0].target, "/operations/1?a=b&c=d");
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_last_page_within_a_limit() {
        for (n_pages, is_read) in [(1, true), (3, true), (4, false)] {
            let page = |next: Option<String>| {
                let number = next.map_or(0, |next| next.parse::<usize>().unwrap());
                let after = (number + 1 < n_pages).then(|| (number + 1).to_string());
                async move { Ok((vec![number], after)) }
            };
            let read = all_pages(&TEST_VENDOR, 3, page).await;
            assert_eq!(read.is_ok(), is_read, "{n_pages}");
            if let Ok(all) = read {
                assert_eq!(all, (0..n_pages).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn callers_are_shared_between_tasks() {
        fn check<T: Send + Sync>(_: &T) {}
        let tokens = Tokens::new(Box::new(Hush), TestClock::new());
        check(&Arc::new(tokens));
    }
}
