//! File formats of images.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::id::text_in_json;

const MAX_FORMAT_LENGTH: usize = 16;

/// A file format of images, such as `raw` or `qcow2`. The file has this extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageFormat(Arc<str>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a format: it must have 1 to {MAX_FORMAT_LENGTH} small letters, digits and dots, \
     and begin and end with a letter or digit"
)]
pub struct BadFormat(String);

impl ImageFormat {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageFormat {
    type Err = BadFormat;

    fn from_str(text: &str) -> Result<Self, BadFormat> {
        let is_end = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let bytes = text.as_bytes();
        let is_known = |byte: &u8| *byte == b'.' || is_end(Some(byte));
        let has_ends = is_end(bytes.first()) && is_end(bytes.last());
        if !has_ends || bytes.len() > MAX_FORMAT_LENGTH || !bytes.iter().all(is_known) {
            return Err(BadFormat(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_in_json!(ImageFormat);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_an_extension_of_a_file() {
        let longest = "a".repeat(MAX_FORMAT_LENGTH);
        for good in ["tar", "raw", "qcow2", "tar.gz", "7z", "a", longest.as_str()] {
            assert_eq!(good.parse::<ImageFormat>().unwrap().to_string(), good);
        }
        let longer = "a".repeat(MAX_FORMAT_LENGTH + 1);
        for bad in [
            "",
            ".",
            ".tar",
            "tar.",
            "RAW",
            "a/b",
            "a b",
            "é",
            longer.as_str(),
        ] {
            assert!(bad.parse::<ImageFormat>().is_err(), "{bad}");
        }
    }
}
