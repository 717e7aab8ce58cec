//! Documentation on its way out: tarballs and pages, not sent again to those who have them.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use domain::documentation::{self, Record, Refusal, STYLE, Subject, Tree};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    LAST_MODIFIED, REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::super::reply::Reply;
use super::subject::subject;
use super::{TURNS, http_date};

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

/// The tarballs that a reply is made of.
#[derive(Default)]
struct Sources {
    worker_type: Option<Vec<u8>>,
    configuration: Option<Vec<u8>>,
}

/// What a request finds.
enum Found {
    /// The client has it already.
    Known(HeaderMap),
    New(HeaderMap, Sources),
}

pub(in super::super) async fn get(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let (mut headers, sources) = match find(&call, &subject, "").await? {
        Found::Known(headers) => return Ok(Reply::NotModified(headers)),
        Found::New(headers, sources) => (headers, sources),
    };
    let tarball = match sources.only() {
        Ok(tarball) => tarball,
        Err(sources) => TURNS.run(move || joined(&sources)).await??,
    };
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
    let (mut headers, sources) = match find(&call, &subject, kind).await? {
        Found::Known(headers) => return Ok(Reply::NotModified(headers)),
        Found::New(headers, sources) => (headers, sources),
    };
    let name = subject.id().to_owned();
    let page = TURNS.run(move || sources.page(&name)).await??;
    set(&mut headers, CONTENT_TYPE, PAGE);
    set(&mut headers, CONTENT_SECURITY_POLICY, &POLICY);
    // The page's own address may be signed.
    set(&mut headers, REFERRER_POLICY, "no-referrer");
    Ok(Reply::whole(headers, Bytes::from(page)))
}

/// Reads no tarball of which the client has what is made of it.
async fn find(call: &Call, subject: &Subject, kind: &'static str) -> Result<Found, ApiError> {
    let (subject, only_own) = (subject.clone(), call.query("joined") == Some("false"));
    let known = call.if_none_match.clone().unwrap_or_default();
    let read = call.app.engine.store.read("documentation_find", move |tx| {
        let mut subjects = vec![subject.clone()];
        if let Subject::WorkerType(id) = &subject
            && !only_own
        {
            let configuration = store::documentation::configuration_of(tx, id)?;
            subjects.extend(configuration.map(Subject::Configuration));
        }
        let mut records = Vec::new();
        for subject in &subjects {
            records.extend(store::documentation::get_record(tx, subject)?);
        }
        if records.is_empty() {
            let text = format!("There is no documentation of {subject}");
            return Err(ApiError::not_found(text));
        }
        let headers = headers(&records, kind);
        if headers.get(ETAG).is_some_and(|tag| is_known(tag, &known)) {
            return Ok(Found::Known(headers));
        }
        let mut sources = Sources::default();
        for record in &records {
            let found = store::documentation::get(tx, &record.subject)?;
            let found = found.map(|(_, tarball)| tarball);
            match &record.subject {
                Subject::WorkerType(_) => sources.worker_type = found,
                Subject::Configuration(_) => sources.configuration = found,
            }
        }
        Ok(Found::New(headers, sources))
    });
    read.await
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

impl Sources {
    /// The tarball, if it is only one.
    fn only(self) -> Result<Vec<u8>, Self> {
        match (self.worker_type, self.configuration) {
            (Some(tarball), None) | (None, Some(tarball)) => Ok(tarball),
            (worker_type, configuration) => Err(Self {
                worker_type,
                configuration,
            }),
        }
    }

    fn trees(&self) -> Result<(Option<Tree>, Option<Tree>), ApiError> {
        let tree = |tarball: &Option<Vec<u8>>| {
            let tree = tarball.as_deref().map(Tree::unpack);
            tree.transpose().map_err(|refusal| not_readable(&refusal))
        };
        Ok((tree(&self.worker_type)?, tree(&self.configuration)?))
    }

    fn page(&self, name: &str) -> Result<String, ApiError> {
        let (worker_type, configuration) = self.trees()?;
        let page = documentation::page(name, worker_type.as_ref(), configuration.as_ref());
        page.map_err(|refusal| not_readable(&refusal))
    }
}

fn joined(sources: &Sources) -> Result<Vec<u8>, ApiError> {
    let (worker_type, configuration) = sources.trees()?;
    let joined = documentation::join(worker_type, configuration);
    Ok(joined.map(|tree| tree.pack()).unwrap_or_default())
}

/// What we packed ourselves cannot be read: that is nothing the caller can help.
fn not_readable(refusal: &Refusal) -> ApiError {
    std::io::Error::other(format!("stored documentation is not readable: {refusal}")).into()
}
