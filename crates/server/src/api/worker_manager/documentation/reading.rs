//! Serves documentation as tarballs and pages, with caching by entity tags.

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
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use super::{http_date, subject};
use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(in super::super) const TARBALL: &str = "application/gzip";
pub(in super::super) const PAGE: &str = "text/html; charset=utf-8";
/// Clients must revalidate. Content behind a signed URL is private.
const CACHING: &str = "private, no-cache";

/// The page runs no scripts and loads nothing but images; its only style is ours.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src https: data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
});

pub(in super::super) async fn get(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let (mut headers, tarballs) = find(&call, &subject, "").await?;
    let Some(tarballs) = tarballs else {
        return Ok(Reply::HeadersOnly(StatusCode::NOT_MODIFIED, headers));
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
    // A newer program may show the same content in another way.
    let kind = concat!("-page-", env!("CARGO_PKG_VERSION"));
    let (mut headers, tarballs) = find(&call, &subject, kind).await?;
    let Some(tarballs) = tarballs else {
        return Ok(Reply::HeadersOnly(StatusCode::NOT_MODIFIED, headers));
    };
    let name = subject.id().to_owned();
    let page = tarballs.into_page(name).await?;
    set(&mut headers, CONTENT_TYPE, PAGE);
    set(&mut headers, CONTENT_SECURITY_POLICY, &POLICY);
    // The page's own address may be signed.
    set(&mut headers, REFERRER_POLICY, "no-referrer");
    Ok(Reply::whole(headers, Bytes::from(page)))
}

/// The headers of the reply, and its tarballs unless the client's copy is current.
async fn find(
    call: &Call,
    subject: &Subject,
    kind: &'static str,
) -> Result<(HeaderMap, Option<Tarballs>), ApiError> {
    let only_own = call.query("joined") == Some("false");
    let conditions = call.conditions.clone();
    let is_known = move |records: &[Record]| {
        let headers = headers(records, kind);
        headers.get(ETAG).is_some_and(|tag| conditions.know(tag))
    };
    let found = find_documentation(&call.app.engine, subject.clone(), only_own, is_known);
    let (records, tarballs) = found.await?;
    Ok((headers(&records, kind), tarballs))
}

/// The entity tag of this version of a reply, and the caching headers.
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

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}
