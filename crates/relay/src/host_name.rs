//! Names of hosts: letters, digits and hyphens, in lower case.

use std::fmt;
use std::str::FromStr;

use hickory_net::proto::rr::Name;

const MAX_LENGTH: usize = 253;
const MAX_LABEL_LENGTH: usize = 63;

/// A name of RFC 1123, in lower case and without the final dot. Names in other alphabets are in
/// their ASCII form (`xn--…`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The text is no name of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host name: it has other characters than letters, digits and hyphens")]
pub struct BadHostName(pub String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name for questions, which no search list extends.
    pub(crate) fn to_name(&self) -> Result<Name, BadHostName> {
        Name::from_ascii(format!("{}.", self.0)).map_err(|_| BadHostName(self.0.clone()))
    }
}

impl FromStr for HostName {
    type Err = BadHostName;

    fn from_str(text: &str) -> Result<Self, BadHostName> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.len() <= MAX_LENGTH && name.split('.').all(is_label) {
            return Ok(Self(name));
        }
        // A long name is only quoted in part.
        Err(BadHostName(text.chars().take(MAX_LENGTH).collect()))
    }
}

fn is_label(label: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_LABEL_LENGTH).contains(&label.len())
        && label.bytes().all(is_of_name)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_case_and_a_final_dot_change_nothing() {
        let name: HostName = "Mac-1.DC1.Example.COM.".parse().unwrap();
        assert_eq!(name.as_str(), "mac-1.dc1.example.com");
        assert_eq!("mac-1.dc1.example.com".parse(), Ok(name));
        assert!("xn--grner-mxa.example".parse::<HostName>().is_ok());
    }

    #[test]
    fn other_texts_are_refused() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long = format!("{}a", "ab.".repeat(84)); // 253 characters
        assert!(long.parse::<HostName>().is_ok());
        let too_long = format!("b{long}");
        for text in [
            "",
            ".",
            "a..b",
            "a b",
            "a_b.c",
            "-a.b",
            "a-.b",
            "grüner.example",
            "a/b",
            "a\\000.b",
            "*.example",
            "a\n",
            &long_label,
            &too_long,
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }
}
