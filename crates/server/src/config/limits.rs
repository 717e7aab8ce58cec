//! The section `[server]`: limits of connections, requests and replies.

use serde::Deserialize;

/// Maximum size of the head of a request.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Larger bodies are refused.
    pub max_body_bytes: usize,
    /// A request's head must arrive within this time from its first byte. The first head of a
    /// connection must arrive within this time from its start.
    pub head_seconds: u64,
    /// An idle connection is closed after this time.
    pub idle_seconds: u64,
    /// A request's body must arrive within this time.
    pub body_seconds: u64,
    /// Further connections replace some of callers without credentials, or wait.
    pub max_connections: usize,
    /// For one address without credentials; 0: no limit. A quarter by default.
    pub connections_per_address: Option<usize>,
    /// Memory for the heads of all requests that have not arrived completely.
    pub head_memory_bytes: usize,
    /// Running requests have this long to end when the server stops.
    pub drain_seconds: u64,
    /// An upload must arrive within this time, and each piece of it within `body_seconds`.
    pub upload_seconds: u64,
    /// Memory for the bodies of all authorised requests together, as text and parsed.
    pub body_memory_bytes: usize,
    /// Maximum number of calls without credentials per address and minute; 0: no limit.
    pub open_calls_per_minute: u32,
    /// Number of trusted proxies before the server; each adds to `X-Forwarded-For`.
    pub trusted_proxies: u8,
    /// Validate our own replies against their schemas. For tests: it is slow.
    pub check_responses: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 10 * 1024 * 1024,
            head_seconds: 10,
            idle_seconds: 90,
            body_seconds: 60,
            max_connections: 20_000,
            connections_per_address: None,
            head_memory_bytes: 16 * 1024 * 1024,
            drain_seconds: 30,
            upload_seconds: 3_600,
            body_memory_bytes: 128 * 1024 * 1024,
            open_calls_per_minute: 6_000,
            trusted_proxies: 0,
            check_responses: false,
        }
    }
}

impl Limits {
    /// The first invalid limit. With a limit of zero, a server could answer no request.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let counts = [
            ("server.max_connections", self.max_connections as u64),
            ("server.max_body_bytes", self.max_body_bytes as u64),
            ("server.head_seconds", self.head_seconds),
            ("server.idle_seconds", self.idle_seconds),
            ("server.body_seconds", self.body_seconds),
            ("server.upload_seconds", self.upload_seconds),
        ];
        if let Some((key, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Some((key, "must be at least 1"));
        }
        if self.head_memory_bytes < MAX_HEAD_BYTES {
            let problem = "must be at least 16384, the size of one head";
            return Some(("server.head_memory_bytes", problem));
        }
        let problem = "must be at least twice server.max_body_bytes";
        let is_small = self.body_memory_bytes < 2 * self.max_body_bytes;
        is_small.then_some(("server.body_memory_bytes", problem))
    }
}
