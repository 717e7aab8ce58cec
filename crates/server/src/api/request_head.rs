//! The head of a request: everything before its body.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::HeaderName;
use http::{HeaderMap, Method};
use tokio_util::sync::CancellationToken;

use crate::authentication::Caller;
use crate::limits::Connection;

/// The ids of a request in logs and replies.
#[derive(Clone)]
pub struct RequestTags {
    pub request_id: String,
    pub trace_id: String,
}

/// Where a request comes from.
#[derive(Clone)]
pub struct Sender {
    pub peer: SocketAddr,
    /// Our own address, at which the connection arrived.
    pub local: SocketAddr,
    /// The connection itself is encrypted.
    pub is_tls: bool,
    /// `None`: in tests without sockets.
    pub connection: Option<Arc<Connection>>,
}

/// A request's head and its sender.
pub struct RequestHead {
    pub method: Method,
    pub uri: http::Uri,
    pub headers: HeaderMap,
    pub sender: Sender,
    pub tags: RequestTags,
    /// The person for whom a page of this process makes the request, instead of a signature.
    pub person: Option<Caller>,
    /// Cancelled when the client disconnects or the server stops.
    pub cancelled: CancellationToken,
}

impl RequestHead {
    /// Its approximate size on the wire.
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
