//! Hawk: how a request shows who sent it, read and written.
//!
//! [`read`] needs no key and no clock: it says which client to load. `authenticate::verify` does
//! the rest.

mod bewit;
mod extension;
mod header;
mod mac;
mod sign;

use std::fmt;

pub(crate) use bewit::without_bewit;
pub(crate) use extension::{CheckedCertificate, Extension};
pub(crate) use mac::Signed;
pub use sign::{extension, payload_hash, sign_bewit, sign_header};

use crate::auth_failed::AuthFailed;

/// The longest `Authorization` header that is read.
pub const MAX_HEADER_LENGTH: usize = 4096;

/// The longest bewit that is read: as a header, encoded once more, and its other parts.
pub const MAX_BEWIT_LENGTH: usize = 8192;

/// Where a request went, as its sender saw it.
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

/// What a request presents.
#[derive(Debug)]
pub enum Presented {
    /// Nothing: an anonymous request.
    Nothing,
    /// An `Authorization` header.
    Header(Header),
    /// A signed URL.
    Bewit(Bewit),
}

/// The attributes of an `Authorization: Hawk …` header.
pub struct Header {
    pub(crate) id: String,
    /// As sent, since it is signed as sent.
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
    /// As sent, since it is signed as sent.
    pub(crate) exp: String,
    pub(crate) exp_seconds: i64,
    pub(crate) mac: String,
    pub(crate) ext: String,
    pub(crate) extension: Extension,
}

/// Reads what a request presents and checks all that needs neither a key nor the time.
pub fn read(line: &RequestLine<'_>, authorization: Option<&str>) -> Result<Presented, AuthFailed> {
    let authorization = authorization.filter(|header| !header.is_empty());
    match (authorization, without_bewit(line.resource)) {
        (None, None) => Ok(Presented::Nothing),
        (Some(header), None) => header::read(header).map(Presented::Header),
        (None, Some((token, _))) => bewit::read(line.method, token).map(Presented::Bewit),
        (Some(_), Some(_)) => Err(AuthFailed::new(
            "Cannot use two authentication schemes at once: \
             this request has both a bewit and an Authorization header",
        )),
    }
}

impl Presented {
    /// Whose access token is needed to check this: the issuer that a certificate names, else the
    /// client itself.
    pub fn client_to_load(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Header(header) => Some(header.extension.issuer().unwrap_or(&header.id)),
            Self::Bewit(bewit) => Some(bewit.extension.issuer().unwrap_or(&bewit.id)),
        }
    }
}

impl fmt::Debug for Header {
    /// Without what could be sent again.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Header")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Bewit {
    /// Without what could be sent again.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Bewit")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
