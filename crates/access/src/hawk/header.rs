//! Reads the `Authorization: Hawk name="value", …` header strictly.

use super::{Extension, Header, MAX_HEADER_LENGTH};
use crate::auth_error::AuthError;

pub(super) fn read(header: &str) -> Result<Header, AuthError> {
    if header.len() > MAX_HEADER_LENGTH {
        return Err(AuthError::bad_request("Header length too long"));
    }
    let (scheme, attributes) = header.split_once(is_space).unwrap_or((header, ""));
    if !scheme.eq_ignore_ascii_case("hawk") {
        return Err(AuthError::unauthorized("Unsupported authentication scheme"));
    }
    Attributes::read(attributes.trim_start_matches(is_space))?.finish()
}

/// The attributes read so far. Only for `app` does an absent attribute differ from an empty one: it
/// adds lines to the signed content.
#[derive(Default)]
struct Attributes<'a> {
    id: Option<&'a str>,
    ts: Option<&'a str>,
    nonce: Option<&'a str>,
    hash: Option<&'a str>,
    ext: Option<&'a str>,
    mac: Option<&'a str>,
    app: Option<&'a str>,
    dlg: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    fn read(mut rest: &'a str) -> Result<Self, AuthError> {
        let mut attributes = Self::default();
        // This ends because each round takes at least the three characters `="` and `"`.
        while !rest.is_empty() {
            let (name, value, next) = attribute(rest).ok_or_else(bad_format)?;
            let slot = attributes
                .slot(name)
                .ok_or_else(|| AuthError::bad_request(&format!("Unknown attribute: {name}")))?;
            if !value.bytes().all(is_allowed) {
                return Err(AuthError::bad_request(&format!(
                    "Bad attribute value: {name}"
                )));
            }
            if slot.replace(value).is_some() {
                return Err(AuthError::bad_request(&format!(
                    "Duplicate attribute: {name}"
                )));
            }
            rest = next;
        }
        Ok(attributes)
    }

    fn slot(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
        match name {
            "id" => Some(&mut self.id),
            "ts" => Some(&mut self.ts),
            "nonce" => Some(&mut self.nonce),
            "hash" => Some(&mut self.hash),
            "ext" => Some(&mut self.ext),
            "mac" => Some(&mut self.mac),
            "app" => Some(&mut self.app),
            "dlg" => Some(&mut self.dlg),
            _ => None,
        }
    }

    fn finish(self) -> Result<Header, AuthError> {
        let required = |value: Option<&'a str>| {
            value
                .filter(|value| !value.is_empty())
                .ok_or_else(|| AuthError::bad_request("Missing attributes"))
        };
        let present = |value: Option<&'a str>| value.filter(|value| !value.is_empty());
        let ts = required(self.ts)?;
        let ext = self.ext.unwrap_or_default();
        let id = required(self.id)?;
        Ok(Header {
            ts_seconds: seconds(ts)
                .ok_or_else(|| AuthError::bad_request("Bad attribute value: ts"))?,
            nonce: required(self.nonce)?.to_owned(),
            mac: required(self.mac)?.to_owned(),
            extension: Extension::read(ext, id)?,
            id: id.to_owned(),
            ts: ts.to_owned(),
            hash: present(self.hash).map(str::to_owned),
            ext: ext.to_owned(),
            app: present(self.app).map(str::to_owned),
            dlg: self.dlg.unwrap_or_default().to_owned(),
        })
    }
}

/// Takes `name="value"` and, unless it is the last, a comma. Spaces are allowed only around the
/// comma, and a comma at the end is accepted.
fn attribute(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once("=\"")?;
    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return None;
    }
    let (value, rest) = rest.split_once('"')?;
    if value.contains('\\') {
        return None;
    }
    let rest = rest.trim_start_matches(is_space);
    match rest.strip_prefix(',') {
        Some(next) => Some((name, value, next.trim_start_matches(is_space))),
        None => rest.is_empty().then_some((name, value, rest)),
    }
}

/// Seconds without a fraction. At most 15 digits, so that milliseconds fit.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let digits = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

/// Printable ASCII. Quotes and backslashes were refused before.
fn is_allowed(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

fn bad_format() -> AuthError {
    AuthError::bad_request("Bad header format")
}
