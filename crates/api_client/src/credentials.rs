//! Who signs calls, and the header that shows it.

use access::Secret;
use access::hawk::{RequestLine, sign_header};
use reqwest::{Method, Url};

use super::call::Body;

/// The client as which calls are made.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub client_id: String,
    pub access_token: Secret,
    /// The `ext` of each signature: holds the certificate of temporary credentials.
    pub extension: Option<String>,
}

/// The moment and the nonce of one signature.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub seconds: i64,
    /// A text that no other request has.
    pub nonce: String,
}

/// The `Authorization` header of a request to this URL.
pub fn authorization(
    credentials: &Credentials,
    method: &Method,
    url: &Url,
    body: &Body,
    stamp: &Stamp,
) -> String {
    let resource = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let line = RequestLine {
        method: method.as_str(),
        resource: &resource,
        host: url.host_str().unwrap_or_default(),
        port: url.port_or_known_default().unwrap_or_default(),
    };
    sign_header(
        &line,
        &credentials.client_id,
        &credentials.access_token,
        stamp.seconds,
        &stamp.nonce,
        body.hash().as_deref(),
        credentials.extension.as_deref(),
    )
}
