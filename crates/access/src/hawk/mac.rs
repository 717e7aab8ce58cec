//! The content that Hawk signs.

use std::borrow::Cow;

use super::RequestLine;
use crate::Secret;
use crate::hmac::{Hmac, Tag};

/// The content that a MAC covers.
pub(crate) struct HawkContent<'a> {
    /// `header` or `bewit`.
    pub(crate) kind: &'static str,
    pub(crate) ts: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) method: &'a str,
    /// Path and query, in two pieces.
    pub(crate) resource: [&'a str; 2],
    pub(crate) hash: &'a str,
    pub(crate) ext: &'a str,
    pub(crate) app: Option<&'a str>,
    pub(crate) dlg: &'a str,
}

impl HawkContent<'_> {
    pub(crate) fn tag(&self, line: &RequestLine<'_>, key: &Secret) -> Tag {
        let method = self.method.to_ascii_uppercase();
        let host = line.host.to_ascii_lowercase();
        let mut hmac = Hmac::new(key.expose().as_bytes())
            .add("hawk.1.")
            .add(self.kind)
            .add("\n")
            .add(self.ts)
            .add("\n")
            .add(self.nonce)
            .add("\n")
            .add(&method)
            .add("\n")
            .add(self.resource[0])
            .add(self.resource[1])
            .add("\n")
            .add(&host)
            .add(&format!("\n{}\n", line.port))
            .add(self.hash)
            .add("\n")
            .add(&escaped(self.ext))
            .add("\n");
        if let Some(app) = self.app {
            hmac = hmac.add(app).add("\n").add(self.dlg).add("\n");
        }
        hmac.tag()
    }
}

fn escaped(ext: &str) -> Cow<'_, str> {
    if ext.contains(['\\', '\n']) {
        Cow::Owned(ext.replace('\\', "\\\\").replace('\n', "\\n"))
    } else {
        Cow::Borrowed(ext)
    }
}
