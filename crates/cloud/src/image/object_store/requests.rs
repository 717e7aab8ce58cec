//! One request to an object store: signed for S3, with a time limit that its size allows.

use std::sync::Arc;
use std::time::Duration;

use api_client::{read_body, with_causes};
use domain::time::Clock;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Body, Client, Method, Response};
use serde::Deserialize;

use super::{BadObjectStore, ObjectStoreSettings};
use crate::image::artifact_store::{ArtifactError, ArtifactKey};
use crate::image::output::sha256_of;
use crate::signing::credentials::{KeyText, Keys, Source};
use crate::signing::http::Http;
use crate::signing::sign::s3_headers;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A peer that takes less than this is given up.
const MIN_BYTES_PER_SECOND: u64 = 64 * 1024;
/// Longest document that is read: a page of 1,000 parts or keys has some 300 KB.
const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;
const MAX_MESSAGE_CHARS: usize = 500;
/// Characters of a query that must not be escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The body of a request, and headers that belong to it.
pub(super) struct Content {
    pub(super) body: Body,
    pub(super) size: u64,
    pub(super) sha256: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Content {
    pub(super) fn empty() -> Self {
        Self::of(Vec::new())
    }

    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            size: bytes.len() as u64,
            sha256: sha256_of(&bytes),
            body: Body::from(bytes),
            headers: Vec::new(),
        }
    }
}

pub(super) struct Requests {
    client: Client,
    /// With the bucket, without a slash at its end.
    base: String,
    prefix: String,
    region: String,
    /// `None`: requests are not signed.
    keys: Option<Keys>,
    stall: Duration,
    clock: Arc<dyn Clock>,
}

/// An error document of S3.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorDocument {
    code: String,
    #[serde(default)]
    message: String,
}

impl Requests {
    pub(super) fn new(
        settings: &ObjectStoreSettings,
        stall: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadObjectStore> {
        let client = Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| BadObjectStore {
                key: "url",
                message: with_causes(&error),
            })?;
        let base = settings.url.trim_end_matches('/');
        let base = match &settings.bucket {
            Some(bucket) => format!("{base}/{bucket}"),
            None => base.to_owned(),
        };
        let keys = settings.bucket.as_ref().map(|_| {
            let region = settings.region.clone();
            Keys::new(
                source(settings),
                region,
                Http::default(),
                Arc::clone(&clock),
            )
        });
        Ok(Self {
            client,
            base,
            prefix: settings.prefix.clone(),
            region: settings.region.clone(),
            keys,
            stall,
            clock,
        })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn url(&self, key: &ArtifactKey, query: &str) -> String {
        let (base, prefix) = (&self.base, &self.prefix);
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{base}/{prefix}{key}{mark}{query}")
    }

    /// Sends a request about a file.
    pub(super) async fn send(
        &self,
        method: Method,
        key: &ArtifactKey,
        query: &str,
        content: Content,
    ) -> Result<Response, ArtifactError> {
        self.send_to(method, self.url(key, query), content).await
    }

    /// Sends a request about the bucket.
    pub(super) async fn send_to_bucket(&self, query: &str) -> Result<Response, ArtifactError> {
        let url = format!("{}?{query}", self.base);
        let answer = self.send_to(Method::GET, url, Content::empty()).await?;
        self.accept(answer).await
    }

    async fn send_to(
        &self,
        method: Method,
        url: String,
        content: Content,
    ) -> Result<Response, ArtifactError> {
        let what = format!("{method} {url}");
        let mut request = self.client.request(method.clone(), &url);
        let mut headers = content.headers;
        if let Some(keys) = &self.keys {
            let credentials = keys.get().await;
            let credentials =
                credentials.map_err(|error| ArtifactError::Credentials(error.to_string()))?;
            let signed = s3_headers(
                method.as_str(),
                &url,
                &headers,
                &content.sha256,
                &self.region,
                &credentials,
                self.clock.now(),
            );
            headers.extend(signed.map_err(|error| {
                ArtifactError::Refused(format!("{what}: the request cannot be signed: {error}"))
            })?);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        // The body of a response has limits of its own.
        let limit = self.stall + Duration::from_secs(content.size / MIN_BYTES_PER_SECOND);
        let sent = tokio::time::timeout(limit, request.body(content.body).send()).await;
        let sent = sent.map_err(|_| {
            let seconds = limit.as_secs();
            ArtifactError::Unavailable(format!("{what}: no answer within {seconds} s"))
        })?;
        sent.map_err(|error| ArtifactError::Unavailable(format!("{what}: {}", with_causes(&error))))
    }

    /// Returns a successful response, or the error that it reports.
    pub(super) async fn accept(&self, answer: Response) -> Result<Response, ArtifactError> {
        let status = answer.status().as_u16();
        if answer.status().is_success() {
            return Ok(answer);
        }
        let body = self.document(answer).await.unwrap_or_default();
        let error = error_of(status, &body);
        if let (ArtifactError::Credentials(_), Some(keys)) = (&error, &self.keys) {
            // The next call fetches new ones.
            keys.forget().await;
        }
        Err(error)
    }

    /// The body of a response, as text.
    pub(super) async fn document(&self, answer: Response) -> Result<String, ArtifactError> {
        let read = tokio::time::timeout(self.stall, read_body(answer, MAX_DOCUMENT_BYTES)).await;
        let body = read
            .map_err(|_| ArtifactError::Unavailable("the answer does not end".to_owned()))?
            .map_err(|error| ArtifactError::Unavailable(with_causes(&error)))?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

fn source(settings: &ObjectStoreSettings) -> Source {
    let given = settings.secret_access_key.clone().map(KeyText::Given);
    let file = settings.secret_access_key_file.clone().map(KeyText::File);
    match (&settings.access_key_id, given.or(file)) {
        (Some(access_key_id), Some(secret_access_key)) => Source::Keys {
            access_key_id: access_key_id.clone(),
            secret_access_key,
            session_token: None,
        },
        _ => Source::Chain,
    }
}

/// The error that an unsuccessful response reports.
pub(super) fn error_of(status: u16, body: &str) -> ArtifactError {
    let document: Option<ErrorDocument> = quick_xml::de::from_str(body).ok();
    let (code, text) = match document {
        Some(it) => {
            let message: String = it.message.chars().take(MAX_MESSAGE_CHARS).collect();
            let text = format!("{}: {message}", it.code);
            (it.code, text)
        }
        None => (String::new(), format!("status {status}")),
    };
    match (status, code.as_str()) {
        (429, _) | (_, "SlowDown" | "Throttling" | "RequestLimitExceeded") => {
            ArtifactError::Throttled(text)
        }
        (401 | 403, _)
        | (400, "ExpiredToken" | "InvalidToken" | "AuthorizationHeaderMalformed") => {
            ArtifactError::Credentials(text)
        }
        (408 | 500..=599, _) | (400, "RequestTimeout") | (200, _) => {
            ArtifactError::Unavailable(text)
        }
        _ => ArtifactError::Refused(text),
    }
}

pub(super) fn header_of(answer: &Response, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
