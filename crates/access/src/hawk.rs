//! Hawk: reads and makes the signatures of requests.
//!
//! [`read`] needs no key and no clock, and returns the client to load. `authenticate::verify` does
//! the rest.

mod bewit;
mod extension;
mod header;
mod mac;
mod sign;

use std::fmt;

pub(crate) use bewit::without_bewit;
pub(crate) use extension::{CheckedCertificate, Extension};
pub(crate) use mac::HawkContent;
pub use sign::{extension, payload_hash, sign_bewit, sign_header};

use crate::auth_error::AuthError;

/// Longest `Authorization` header that is read.
pub const MAX_HEADER_LENGTH: usize = 4096;

/// Longest bewit that is read: the parts of a header, encoded again.
pub const MAX_BEWIT_LENGTH: usize = 8192;

/// The target of a request, as its sender saw it.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method, in any case.
    pub method: &'a str,
    /// Path and query exactly as sent.
    pub resource: &'a str,
    /// The host's name, without port.
    pub host: &'a str,
    /// The port that the sender used.
    pub port: u16,
}

/// The authentication of a request.
#[derive(Debug)]
pub enum RequestAuth {
    /// None: an anonymous request.
    Nothing,
    /// An `Authorization` header.
    Header(Header),
    /// A signed URL.
    Bewit(Bewit),
}

/// The attributes of an `Authorization: Hawk …` header.
pub struct Header {
    pub(crate) id: String,
    /// As sent, since the signature covers the text.
    pub(crate) ts: String,
    pub(crate) ts_seconds: i64,
    pub(crate) nonce: String,
    pub(crate) mac: String,
    pub(crate) hash: Option<String>,
    pub(crate) ext: String,
    pub(crate) app: Option<String>,
    pub(crate) dlg: String,
    pub(crate) extension: Extension,
}

/// The parts of a bewit.
pub struct Bewit {
    pub(crate) id: String,
    /// As sent, since the signature covers the text.
    pub(crate) exp: String,
    pub(crate) exp_seconds: i64,
    pub(crate) mac: String,
    pub(crate) ext: String,
    pub(crate) extension: Extension,
}

/// Reads the authentication of a request, and makes all checks that need neither a key nor the
/// time.
pub fn read(line: &RequestLine<'_>, authorization: Option<&str>) -> Result<RequestAuth, AuthError> {
    let authorization = authorization.filter(|header| !header.is_empty());
    match (authorization, without_bewit(line.resource)) {
        (None, None) => Ok(RequestAuth::Nothing),
        (Some(header), None) => header::read(header).map(RequestAuth::Header),
        (None, Some((token, _))) => bewit::read(line.method, token).map(RequestAuth::Bewit),
        (Some(_), Some(_)) => Err(AuthError::new(
            "Cannot use two authentication schemes at once: \
             this request has both a bewit and an Authorization header",
        )),
    }
}

impl RequestAuth {
    /// The client that the sender claims to be, or the name of temporary credentials.
    pub fn sender(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Header(header) => Some(&header.id),
            Self::Bewit(bewit) => Some(&bewit.id),
        }
    }

    /// The client whose access token verifies this: the issuer of a certificate, else the client
    /// itself.
    pub fn client_to_load(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Header(header) => Some(header.extension.issuer().unwrap_or(&header.id)),
            Self::Bewit(bewit) => Some(bewit.extension.issuer().unwrap_or(&bewit.id)),
        }
    }
}

impl fmt::Debug for Header {
    /// Leaves out everything that could be replayed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Header")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Bewit {
    /// Leaves out everything that could be replayed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Bewit")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
