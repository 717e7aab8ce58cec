//! One call of the API, and in words what it is for.

pub(crate) use api_client::{AUTH, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use bytes::Bytes;
use reqwest::Method;
use serde_json::Value;

/// A call: what to send where, and in words what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) api: api_client::Call,
    /// Completes "could not …" in an error.
    pub(crate) purpose: String,
    /// A command that shows what there is, for when this was not found.
    pub(super) look_with: Option<&'static str>,
}

impl Call {
    fn new(method: Method, service: &str, segments: &[&str]) -> Self {
        Self {
            api: api_client::Call::new(method, service, segments),
            purpose: String::new(),
            look_with: None,
        }
    }

    pub(crate) fn get(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::GET, service, segments)
    }

    pub(crate) fn put(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::PUT, service, segments).with(|call| call.json(&body))
    }

    /// A PUT of bytes in the place of what was there.
    pub(crate) fn upload(service: &str, segments: &[&str], raw: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, service, segments).with(|call| call.raw(raw))
    }

    pub(crate) fn post(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::POST, service, segments).with(|call| call.json(&body))
    }

    /// A POST that carries nothing, such as "enable this".
    pub(crate) fn order(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::POST, service, segments)
    }

    pub(crate) fn delete(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::DELETE, service, segments)
    }

    pub(crate) fn query(self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.with(|call| call.query(name, value))
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

    fn with(self, change: impl FnOnce(api_client::Call) -> api_client::Call) -> Self {
        Self {
            api: change(self.api),
            ..self
        }
    }
}
