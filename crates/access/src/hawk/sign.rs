//! Functions for clients: hash a body, sign a request, sign a URL.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::{HawkContent, RequestLine, without_bewit};
use crate::Secret;
use crate::certificate::Certificate;

/// The `hash` attribute of a body. Parameters of the content type are ignored; a missing one counts
/// as empty.
pub fn payload_hash(content_type: &str, body: &[u8]) -> String {
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(b"hawk.1.payload\n");
    hash.update(content_type.to_ascii_lowercase().as_bytes());
    hash.update(b"\n");
    hash.update(body);
    hash.update(b"\n");
    STANDARD.encode(hash.finish())
}

/// The value of the `Authorization` header of a request. `ts` is in seconds since 1970. `nonce`,
/// `hash` and `ext` must not contain quotes or backslashes.
pub fn sign_header(
    line: &RequestLine<'_>,
    client_id: &str,
    access_token: &Secret,
    ts: i64,
    nonce: &str,
    hash: Option<&str>,
    ext: Option<&str>,
) -> String {
    let ts = ts.to_string();
    let signed = HawkContent {
        kind: "header",
        ts: &ts,
        nonce,
        method: line.method,
        resource: [line.resource, ""],
        hash: hash.unwrap_or_default(),
        ext: ext.unwrap_or_default(),
        app: None,
        dlg: "",
    };
    let mac = signed.tag(line, access_token).to_base64();
    let mut header = format!("Hawk id=\"{client_id}\", ts=\"{ts}\", nonce=\"{nonce}\"");
    for (name, value) in [("hash", hash), ("ext", ext), ("mac", Some(mac.as_str()))] {
        if let Some(value) = value {
            header.push_str(&format!(", {name}=\"{value}\""));
        }
    }
    header
}

/// A bewit that lets anybody GET a resource until `exp` (seconds since 1970). Add it to the URL's
/// query as `bewit`. The method of `line` and an existing bewit are ignored.
pub fn sign_bewit(
    line: &RequestLine<'_>,
    client_id: &str,
    access_token: &Secret,
    exp: i64,
    ext: Option<&str>,
) -> String {
    let exp = exp.to_string();
    let ext = ext.unwrap_or_default();
    let resource = without_bewit(line.resource).map_or([line.resource, ""], |(_, left)| left);
    let signed = HawkContent {
        kind: "bewit",
        ts: &exp,
        nonce: "",
        method: "GET",
        resource,
        hash: "",
        ext,
        app: None,
        dlg: "",
    };
    let mac = signed.tag(line, access_token).to_base64();
    URL_SAFE_NO_PAD.encode([client_id, &exp, &mac, ext].join("\\"))
}

/// The `ext` for temporary credentials, for limiting a request to some scopes, or for both.
pub fn extension(
    certificate: Option<&Certificate>,
    authorized_scopes: Option<&[String]>,
) -> Option<String> {
    let mut fields = serde_json::Map::new();
    if let Some(certificate) = certificate {
        fields.insert("certificate".to_owned(), json!(certificate));
    }
    if let Some(scopes) = authorized_scopes {
        fields.insert("authorizedScopes".to_owned(), json!(scopes));
    }
    (!fields.is_empty()).then(|| STANDARD.encode(serde_json::Value::Object(fields).to_string()))
}
