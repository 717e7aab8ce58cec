//! Compresses long replies for clients that ask for it.
//!
//! Only replies to reads: those are JSON whose names repeat, so they shrink to a tenth. Short ones
//! fit into a few packets anyway. Replies with credentials are not reads, so the length of a
//! compressed reply says nothing about a secret.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Method};

use super::body::Body;
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

/// Whether the client names gzip, or all encodings, and does not exclude it.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let codings: Vec<(String, bool)> = texts.flat_map(|text| text.split(',')).map(coding).collect();
    let named = |name: &str| codings.iter().find(|(other, _)| other == name);
    let gzip = named("gzip").or_else(|| named("x-gzip"));
    gzip.or_else(|| named("*"))
        .is_some_and(|(_, is_accepted)| *is_accepted)
}

/// A coding in lower case, and whether its weight is above zero.
fn coding(part: &str) -> (String, bool) {
    let mut parts = part.split(';');
    let name = parts.next().unwrap_or_default().trim();
    let excluded = parts.any(|parameter| {
        let value = parameter.trim().strip_prefix("q=");
        value.is_some_and(|weight| weight.trim().parse() == Ok(0.0))
    });
    (name.to_ascii_lowercase(), !excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("GZip", true),
            ("deflate, gzip;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000, *", false),
            ("*;q=0", false),
            ("br;q=1, deflate", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(accepts_gzip(&headers), expected, "{accepted}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
