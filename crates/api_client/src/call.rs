//! A call of the API, before it is signed and sent.

use std::time::Duration;

use access::hawk::payload_hash;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

/// The services of the API.
pub const AUTH: &str = "auth";
pub const FLEETWRIGHT: &str = "fleetwright";
pub const QUEUE: &str = "queue";
pub const SECRETS: &str = "secrets";
pub const WORKER_MANAGER: &str = "worker-manager";

pub const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// Characters that are not escaped in a path or a query; a `/` inside a name is escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    /// Escaped path and query.
    pub resource: String,
    pub body: Body,
    pub headers: Vec<(&'static str, String)>,
    /// Maximum time for the reply and its body, if it differs from the client's.
    pub limit: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum Body {
    Nothing,
    Json(Bytes),
    /// Bytes that replace existing content, so that they may be sent again.
    Raw(Bytes),
}

impl Call {
    /// A call with an escaped path and query.
    pub fn to(method: Method, resource: impl Into<String>) -> Self {
        Self {
            method,
            resource: resource.into(),
            body: Body::Nothing,
            headers: Vec::new(),
            limit: None,
        }
    }

    pub fn new(method: Method, service: &str, segments: &[&str]) -> Self {
        let mut path = format!("/api/{service}/v1");
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, ESCAPED));
        }
        Self::to(method, path)
    }

    pub fn get(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::GET, service, segments)
    }

    pub fn put(service: &str, segments: &[&str], body: &Value) -> Self {
        Self::new(Method::PUT, service, segments).json(body)
    }

    pub fn post(service: &str, segments: &[&str], body: &Value) -> Self {
        Self::new(Method::POST, service, segments).json(body)
    }

    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Body::Json(Bytes::from(body.to_string()));
        self
    }

    #[must_use]
    pub fn raw(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Body::Raw(body.into());
        self
    }

    /// Adds a parameter to the query, if it has a value.
    #[must_use]
    pub fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let is_first = !self.resource.contains('?');
            self.resource.push(if is_first { '?' } else { '&' });
            self.resource.push_str(name);
            self.resource.push('=');
            let value = value.to_string();
            self.resource.extend(utf8_percent_encode(&value, ESCAPED));
        }
        self
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.headers
            .extend(value.map(|value| (name, value.to_owned())));
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        let path = self.resource.split_once('?');
        path.map_or(&self.resource, |(path, _)| path)
    }

    /// Whether sending it twice has the same effect as sending it once. Creating does not count: a
    /// repetition may be refused as a conflict, and a lost token cannot be read again.
    pub fn is_idempotent(&self) -> bool {
        let is_raw = matches!(self.body, Body::Raw(_));
        self.method == Method::GET || self.method == Method::DELETE || is_raw
    }
}

impl Body {
    /// The hash that a signature covers. A server does not hash bytes that it streams to a file.
    pub(crate) fn hash(&self) -> Option<String> {
        match self {
            Self::Nothing => Some(payload_hash("", b"")),
            Self::Json(body) => Some(payload_hash(JSON, body)),
            Self::Raw(_) => None,
        }
    }

    /// The content type and the content, unless the body is empty.
    pub fn content(&self) -> Option<(&'static str, Bytes)> {
        match self {
            Self::Nothing => None,
            Self::Json(body) => Some((JSON, body.clone())),
            Self::Raw(body) => Some((BYTES, body.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_path_and_query() {
        let call = Call::get("auth", &["clients", "a/b@é +"])
            .query("prefix", Some("x&y=/z"))
            .query("limit", Some(3))
            .query("continuationToken", None::<String>);
        assert_eq!(
            call.resource,
            "/api/auth/v1/clients/a%2Fb%40%C3%A9%20%2B?prefix=x%26y%3D%2Fz&limit=3"
        );
        assert_eq!(call.path(), "/api/auth/v1/clients/a%2Fb%40%C3%A9%20%2B");
    }

    #[test]
    fn an_empty_segment_keeps_its_slash() {
        let call = Call::get("auth", &["roles2", ""]);
        assert_eq!(call.resource, "/api/auth/v1/roles2/");
    }

    #[test]
    fn reading_and_deleting_may_be_repeated_and_creating_may_not() {
        let new = |method| Call::new(method, "auth", &["a"]);
        assert!(new(Method::GET).is_idempotent());
        assert!(new(Method::DELETE).is_idempotent());
        assert!(!new(Method::PUT).json(&Value::Null).is_idempotent());
        assert!(new(Method::PUT).raw("x").is_idempotent());
        assert!(!new(Method::POST).is_idempotent());
    }

    #[test]
    fn bytes_are_not_part_of_a_signature() {
        assert!(Body::Nothing.hash().is_some());
        assert_ne!(Body::Json("{}".into()).hash(), Body::Nothing.hash());
        assert_eq!(Body::Raw("{}".into()).hash(), None);
    }
}
