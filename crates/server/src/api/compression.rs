//! Compresses long replies for clients that ask for it.
//!
//! Only replies to reads: those are JSON whose names repeat, so they shrink to a tenth. Short ones
//! fit into a few packets anyway. Replies with credentials are not reads, so the length of a
//! compressed reply says nothing about a secret.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Method};

use super::body::Body;
use super::conditions::accepts_gzip;
use super::request_head::RequestHead;
use super::response::Response;

/// A shorter reply is not compressed.
const MIN_BYTES: usize = 16 * 1024;

/// The response as this client gets it.
pub(super) async fn compress(head: &RequestHead, mut response: Response) -> Response {
    let plain = match response.body() {
        Body::Whole(chunk) if head.method == Method::GET && chunk.len() >= MIN_BYTES => {
            chunk.bytes()
        }
        Body::Whole(_) | Body::Stream(_) => return response,
    };
    // A proxy that keeps the reply must know that another client may get another one.
    let encodings = HeaderValue::from_static("accept-encoding");
    response.headers_mut().append(VARY, encodings);
    if !accepts_gzip(&head.headers) {
        return response;
    }
    // It may take many milliseconds, in which this thread serves others.
    let compressed = tokio::task::spawn_blocking(move || gzip(&plain)).await;
    if let Ok(Ok(compressed)) = compressed {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
        *response.body_mut() = Body::from(compressed);
    }
    response
}

/// The fastest level: the others take several times as long, and save little.
fn gzip(plain: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain)?;
    Ok(encoder.finish()?.into())
}
