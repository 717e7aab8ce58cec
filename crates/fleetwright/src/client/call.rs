//! One call of the API, before it is signed and sent.

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

pub(crate) const WORKER_MANAGER: &str = "worker-manager";
pub(crate) const AUTH: &str = "auth";
pub(crate) const QUEUE: &str = "queue";
pub(crate) const FLEETWRIGHT: &str = "fleetwright";

/// What stays as it is in a path or a query; a `/` inside a name does not.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A call: what to send where, and in words what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// A body that is not JSON. It takes the place of what was there, so that it may be sent again.
    pub(crate) raw: Option<Bytes>,
    /// Completes "could not …" in an error.
    pub(crate) purpose: String,
    /// A command that shows what there is, for when this was not found.
    pub(crate) look_with: Option<&'static str>,
}

impl Call {
    fn new(method: Method, service: &str, segments: &[&str]) -> Self {
        let mut path = format!("/api/{service}/v1");
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, ESCAPED));
        }
        Self {
            method,
            path,
            query: Vec::new(),
            body: None,
            raw: None,
            purpose: String::new(),
            look_with: None,
        }
    }

    pub(crate) fn get(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::GET, service, segments)
    }

    pub(crate) fn put(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::PUT, service, segments).with_body(body)
    }

    /// A PUT of bytes in the place of what was there.
    pub(crate) fn upload(service: &str, segments: &[&str], raw: impl Into<Bytes>) -> Self {
        let mut call = Self::new(Method::PUT, service, segments);
        call.raw = Some(raw.into());
        call
    }

    pub(crate) fn post(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::POST, service, segments).with_body(body)
    }

    /// A POST that carries nothing, such as "enable this".
    pub(crate) fn order(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::POST, service, segments)
    }

    pub(crate) fn delete(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::DELETE, service, segments)
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query
            .extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// What the call is for: `show worker pool a/b`.
    pub(crate) fn to(mut self, purpose: impl Into<String>) -> Self {
        self.purpose = purpose.into();
        self
    }

    pub(crate) fn look_with(mut self, command: &'static str) -> Self {
        self.look_with = Some(command);
        self
    }

    fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Path and query as they are sent.
    pub(crate) fn resource(&self) -> String {
        let mut resource = self.path.clone();
        for (position, (name, value)) in self.query.iter().enumerate() {
            resource.push(if position == 0 { '?' } else { '&' });
            resource.push_str(name);
            resource.push('=');
            resource.extend(utf8_percent_encode(value, ESCAPED));
        }
        resource
    }

    /// Whether sending it twice leaves the same as sending it once. Creating is left out: a repeat
    /// may be refused as a conflict, and a token that was lost on the way cannot be had again.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.method == Method::GET || self.method == Method::DELETE || self.raw.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_path_and_query() {
        let call = Call::get(AUTH, &["clients", "a/b@é +"])
            .query("prefix", Some("x&y=/z"))
            .query("limit", Some(3))
            .query("continuationToken", None::<String>);
        assert_eq!(
            call.resource(),
            "/api/auth/v1/clients/a%2Fb%40%C3%A9%20%2B?prefix=x%26y%3D%2Fz&limit=3"
        );
    }

    #[test]
    fn an_empty_segment_keeps_its_slash() {
        assert_eq!(
            Call::get(AUTH, &["roles2", ""]).resource(),
            "/api/auth/v1/roles2/"
        );
    }

    #[test]
    fn reading_and_deleting_may_be_repeated_and_creating_may_not() {
        assert!(Call::get(AUTH, &["a"]).is_idempotent());
        assert!(Call::delete(AUTH, &["a"]).is_idempotent());
        assert!(!Call::put(AUTH, &["a"], Value::Null).is_idempotent());
        assert!(Call::upload(AUTH, &["a"], "x").is_idempotent());
        assert!(!Call::order(AUTH, &["a"]).is_idempotent());
    }
}
