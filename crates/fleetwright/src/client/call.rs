//! One API call with its purpose, for messages.

pub(crate) use api_client::{AUTH, FLEETWRIGHT, QUEUE, SECRETS, WORKER_MANAGER};
use bytes::Bytes;
use reqwest::Method;
use serde_json::Value;

/// An API call with its purpose.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) api: api_client::Call,
    /// Completes "could not …" in an error.
    pub(crate) purpose: String,
    /// The command that lists existing items, for the hint when this one is not found.
    pub(super) list_command: Option<String>,
}

impl Call {
    fn new(method: Method, service: &str, segments: &[&str]) -> Self {
        Self {
            api: api_client::Call::new(method, service, segments),
            purpose: String::new(),
            list_command: None,
        }
    }

    pub(crate) fn get(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::GET, service, segments)
    }

    pub(crate) fn put(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::PUT, service, segments).with(|call| call.json(&body))
    }

    /// A PUT of bytes that replaces the existing content.
    pub(crate) fn upload(service: &str, segments: &[&str], raw: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, service, segments).with(|call| call.raw(raw))
    }

    pub(crate) fn post(service: &str, segments: &[&str], body: Value) -> Self {
        Self::new(Method::POST, service, segments).with(|call| call.json(&body))
    }

    /// A POST without a body, such as "enable this".
    pub(crate) fn order(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::POST, service, segments)
    }

    pub(crate) fn delete(service: &str, segments: &[&str]) -> Self {
        Self::new(Method::DELETE, service, segments)
    }

    pub(crate) fn query(self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.with(|call| call.query(name, value))
    }

    /// Sets the purpose, such as `show pool a/b`.
    pub(crate) fn to(mut self, purpose: impl Into<String>) -> Self {
        self.purpose = purpose.into();
        self
    }

    pub(crate) fn list_command(mut self, command: impl Into<String>) -> Self {
        self.list_command = Some(command.into());
        self
    }

    fn with(self, change: impl FnOnce(api_client::Call) -> api_client::Call) -> Self {
        Self {
            api: change(self.api),
            ..self
        }
    }
}
