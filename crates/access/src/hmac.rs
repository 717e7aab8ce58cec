//! HMAC-SHA256 over several pieces, and comparison of its base64 text in constant time.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq as _;

/// A message whose pieces are concatenated: the caller adds separators.
pub(crate) struct Hmac(hmac::Context);

impl Hmac {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Context::with_key(&hmac::Key::new(
            hmac::HMAC_SHA256,
            key,
        )))
    }

    pub(crate) fn add(mut self, piece: &str) -> Self {
        self.0.update(piece.as_bytes());
        self
    }

    pub(crate) fn add_bytes(mut self, piece: &[u8]) -> Self {
        self.0.update(piece);
        self
    }

    pub(crate) fn tag(self) -> Tag {
        let mut tag = [0; 32];
        tag.copy_from_slice(self.0.sign().as_ref());
        Tag(tag)
    }
}

/// A finished HMAC.
pub(crate) struct Tag(pub(crate) [u8; 32]);

impl Tag {
    pub(crate) fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub(crate) fn to_base64_url(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Whether `text` is this tag in standard base64. Takes constant time for texts of one length.
    pub(crate) fn is_base64(&self, text: &str) -> bool {
        let mut own = [0; 44];
        let length = STANDARD
            .encode_slice(self.0, &mut own)
            .expect("32 bytes are 44 characters of padded base64");
        own[..length].ct_eq(text.as_bytes()).into()
    }
}
