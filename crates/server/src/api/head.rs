//! The head of a request: what is known before its body is read.

use std::net::SocketAddr;

use http::header::HeaderName;
use http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

/// What a request is known by in logs and replies.
#[derive(Clone)]
pub struct Tags {
    pub request_id: String,
    pub trace_id: String,
}

/// A request's head and who sent it.
pub struct Head {
    pub method: Method,
    pub uri: http::Uri,
    pub headers: HeaderMap,
    pub peer: SocketAddr,
    /// The connection itself is encrypted.
    pub is_tls: bool,
    pub tags: Tags,
    /// The client has hung up, or the server stops.
    pub gone: CancellationToken,
}

impl Head {
    /// How long it is as it was sent, to a few bytes.
    pub(super) fn bytes(&self) -> usize {
        let uri = self
            .uri
            .path_and_query()
            .map_or(1, |uri| uri.as_str().len());
        let line = |(name, value): (&HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len() + ": \r\n".len()
        };
        let headers: usize = self.headers.iter().map(line).sum();
        self.method.as_str().len() + uri + "  HTTP/1.1\r\n\r\n".len() + headers
    }
}
