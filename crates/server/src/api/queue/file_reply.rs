//! Replies with a file: all of it, the part that the client lacks, or nothing if it has the file.

use std::io::{self, BufReader, Read as _};

use bytes::Bytes;
use engine::artifacts::{ByteStream, OpenFile};
use flate2::bufread::MultiGzDecoder;
use futures_util::stream;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::api::conditions::{Conditions, Part};
use crate::api::error::ApiError;
use crate::api::reply::{Reply, StreamReply};

/// Bytes of each read of an unpacked file.
const PIECE_BYTES: usize = 64 * 1024;

/// `encoding` is the content encoding in which the file is stored. Parts are parts of the stored
/// bytes. A file in gzip is unpacked for clients that refuse gzip, and then has no parts: where
/// they begin would be known only after unpacking what comes before.
pub(super) async fn reply(
    file: OpenFile,
    encoding: Option<&str>,
    mut headers: HeaderMap,
    conditions: &Conditions,
) -> Result<Reply, ApiError> {
    let is_gzip = encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case("gzip"));
    if is_gzip {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
    let unpacks = is_gzip && conditions.refuses_gzip;
    let kind = if unpacks { "-unpacked" } else { "" };
    let tag = header(&format!("\"{}{kind}\"", file.tag()))?;
    headers.insert(ETAG, tag.clone());
    if conditions.know(&tag) {
        return Ok(Reply::HeadersOnly(StatusCode::NOT_MODIFIED, headers));
    }
    if unpacks {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        return Ok(Reply::Stream(StreamReply {
            status: StatusCode::OK,
            headers,
            length: None,
            bytes: unpacked(file.into_file().await),
        }));
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let all = file.length();
    let (status, range) = match conditions.part(&tag, all) {
        Part::All => (StatusCode::OK, 0..all),
        Part::Bytes(range) => {
            let text = format!("bytes {}-{}/{all}", range.start, range.end - 1);
            headers.insert(CONTENT_RANGE, header(&text)?);
            (StatusCode::PARTIAL_CONTENT, range)
        }
        Part::Beyond => {
            headers.insert(CONTENT_RANGE, header(&format!("bytes */{all}"))?);
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            return Ok(Reply::HeadersOnly(status, headers));
        }
    };
    if let Some(encoding) = encoding.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(CONTENT_ENCODING, encoding);
    }
    Ok(Reply::Stream(StreamReply {
        status,
        headers,
        length: Some(range.end - range.start),
        bytes: file.stream(range).await?,
    }))
}

fn header(text: &str) -> Result<HeaderValue, ApiError> {
    HeaderValue::from_str(text).map_err(|bad| ApiError::from(io::Error::other(bad)))
}

/// A file that is not in gzip, although its worker said so, fails the reply.
fn unpacked(file: std::fs::File) -> ByteStream {
    let decoder = MultiGzDecoder::new(BufReader::with_capacity(PIECE_BYTES, file));
    Box::pin(stream::try_unfold(decoder, |mut decoder| async move {
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let length = decoder.read(&mut piece)?;
            piece.truncate(length);
            Ok::<_, io::Error>((Bytes::from(piece), decoder))
        });
        let (piece, decoder) = reading.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then_some((piece, decoder)))
    }))
}
