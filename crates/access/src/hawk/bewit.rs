//! Signed URLs: a `bewit=` query parameter instead of a header.

use base64::Engine as _;

use super::extension::URL_SAFE;
use super::header::seconds;
use super::{Bewit, Extension, MAX_BEWIT_LENGTH};
use crate::auth_error::AuthError;
use crate::scope::is_scope;

/// The bewit of a resource, and the resource without it as two texts to join.
pub(crate) fn without_bewit(resource: &str) -> Option<(&str, [&str; 2])> {
    let query_start = resource.find('?')?;
    let mut start = query_start + 1;
    for parameter in resource[start..].split('&') {
        let end = start + parameter.len();
        if let Some(token) = parameter.strip_prefix("bewit=") {
            // Removes its separator too: the one after it, or the one before the last parameter.
            let left = if end < resource.len() {
                [&resource[..start], &resource[end + 1..]]
            } else {
                [&resource[..start - 1], ""]
            };
            return Some((token, left));
        }
        start = end + 1;
    }
    None
}

pub(super) fn read(method: &str, token: &str) -> Result<Bewit, AuthError> {
    if token.is_empty() {
        return Err(AuthError::unauthorized("Empty bewit"));
    }
    if !method.eq_ignore_ascii_case("get") && !method.eq_ignore_ascii_case("head") {
        return Err(AuthError::unauthorized("Invalid method"));
    }
    if token.len() > MAX_BEWIT_LENGTH {
        return Err(AuthError::bad_request("Bewit length too long"));
    }
    let decoded = URL_SAFE
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(|| AuthError::bad_request("Invalid bewit encoding"))?;
    let mut parts = decoded.split('\\');
    let (Some(id), Some(exp), Some(mac), Some(ext), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return Err(bad_structure());
    };
    if id.is_empty() || exp.is_empty() || mac.is_empty() {
        return Err(AuthError::bad_request("Missing bewit attributes"));
    }
    // The id is one line of the content that a certificate signs.
    if !is_scope(id) {
        return Err(bad_structure());
    }
    Ok(Bewit {
        exp_seconds: seconds(exp).ok_or_else(bad_structure)?,
        extension: Extension::read(ext, id)?,
        id: id.to_owned(),
        exp: exp.to_owned(),
        mac: mac.to_owned(),
        ext: ext.to_owned(),
    })
}

fn bad_structure() -> AuthError {
    AuthError::bad_request("Invalid bewit structure")
}
