//! Documentation on its way out: tarballs and pages, not sent again to those who have them.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use documentation::STYLE;
use domain::documentation::{Record, Subject};
use engine::configurations::{Tarballs, find_documentation};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    LAST_MODIFIED, REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::super::reply::Reply;
use super::http_date;
use super::subject::subject;

pub(in super::super) const TARBALL: &str = "application/gzip";
pub(in super::super) const PAGE: &str = "text/html; charset=utf-8";
/// Ask each time whether it has changed; what is behind a signed URL is nobody else's.
const CACHING: &str = "private, no-cache";

/// Nothing runs, nothing is loaded but images, and the only style is ours.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src https: data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
});

/// What a request finds.
enum Found {
    /// The client has it already.
    Known(HeaderMap),
    New(HeaderMap, Tarballs),
}

pub(in super::super) async fn get(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let (mut headers, tarballs) = match find(&call, &subject, "").await? {
        Found::Known(headers) => return Ok(Reply::NotModified(headers)),
        Found::New(headers, tarballs) => (headers, tarballs),
    };
    let tarball = tarballs.into_one().await?;
    set(&mut headers, CONTENT_TYPE, TARBALL);
    let file = subject.id().replace('/', "-");
    let disposition = format!("attachment; filename=\"{file}.tar.gz\"");
    set(&mut headers, CONTENT_DISPOSITION, &disposition);
    Ok(Reply::whole(headers, Bytes::from(tarball)))
}

pub(in super::super) async fn page(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    // A newer program may show the same in another way.
    let kind = concat!("-page-", env!("CARGO_PKG_VERSION"));
    let (mut headers, tarballs) = match find(&call, &subject, kind).await? {
        Found::Known(headers) => return Ok(Reply::NotModified(headers)),
        Found::New(headers, tarballs) => (headers, tarballs),
    };
    let name = subject.id().to_owned();
    let page = tarballs.into_page(name).await?;
    set(&mut headers, CONTENT_TYPE, PAGE);
    set(&mut headers, CONTENT_SECURITY_POLICY, &POLICY);
    // The page's own address may be signed.
    set(&mut headers, REFERRER_POLICY, "no-referrer");
    Ok(Reply::whole(headers, Bytes::from(page)))
}

/// Reads no tarball of which the client has what is made of it.
async fn find(call: &Call, subject: &Subject, kind: &'static str) -> Result<Found, ApiError> {
    let only_own = call.query("joined") == Some("false");
    let given = call.if_none_match.clone().unwrap_or_default();
    let is_known = move |records: &[Record]| {
        let headers = headers(records, kind);
        headers.get(ETAG).is_some_and(|tag| is_known(tag, &given))
    };
    let found = find_documentation(&call.app.engine, subject.clone(), only_own, is_known);
    let (records, tarballs) = found.await?;
    let headers = headers(&records, kind);
    Ok(match tarballs {
        None => Found::Known(headers),
        Some(tarballs) => Found::New(headers, tarballs),
    })
}

/// What tells this version of a reply from others.
fn headers(records: &[Record], kind: &str) -> HeaderMap {
    let digests: Vec<&str> = records
        .iter()
        .map(|record| record.digest.as_str())
        .collect();
    let mut headers = HeaderMap::new();
    set(
        &mut headers,
        ETAG,
        &format!("\"{}{kind}\"", digests.join("-")),
    );
    if let Some(last) = records.iter().map(|record| record.last_modified).max() {
        set(&mut headers, LAST_MODIFIED, &http_date(last));
    }
    set(&mut headers, CACHE_CONTROL, CACHING);
    headers
}

fn is_known(tag: &HeaderValue, known: &str) -> bool {
    known.split(',').map(str::trim).any(|given| {
        let given = given.strip_prefix("W/").unwrap_or(given);
        given == "*" || given.as_bytes() == tag.as_bytes()
    })
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}
