//! The errors of calls, and errors as one line of text.

use std::error::Error;

use reqwest::StatusCode;
use serde_json::Value;

/// Why a call had no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server may have executed the call or not. Repeat it if that is harmless.
    #[error("no answer")]
    NoAnswer(#[source] reqwest::Error),
    /// The server refused the call, with a reason.
    #[error("{0}")]
    Refused(Refusal),
    /// The server executed the call, but the reply is not valid.
    #[error("{0}")]
    BadReply(String),
}

/// A reply with a status of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub body: Vec<u8>,
    /// The next step, as the server says.
    pub advice: Option<String>,
}

impl CallError {
    /// Whether the same call may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::Refused(refusal) => {
                refusal.status.as_u16() == 429 || refusal.status.is_server_error()
            }
            Self::BadReply(_) => false,
        }
    }

    /// Whether the call never reached the server.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::NoAnswer(source) if source.is_connect())
    }
}

impl Refusal {
    pub fn message(&self) -> Option<String> {
        message_of(&self.body)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message() {
            Some(message) => write!(f, "{}: {message}", self.status),
            None => write!(f, "{}", self.status),
        }
    }
}

/// The message of an error reply, without the part that repeats the request.
pub fn message_of(body: &[u8]) -> Option<String> {
    let reply: Value = serde_json::from_slice(body).ok()?;
    let text = reply["message"].as_str().or(reply["error"].as_str())?;
    let message = text.split("\n---\n").next().unwrap_or(text).trim();
    (!message.is_empty()).then(|| message.to_owned())
}

/// An error and its causes, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    explained(&text)
}

/// The innermost cause: "Connection refused", not "error sending request".
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let is_timeout = |cause: &(dyn Error + 'static)| {
        let of_http = cause.downcast_ref::<reqwest::Error>();
        of_http.is_some_and(reqwest::Error::is_timeout)
    };
    let mut cause = error;
    loop {
        if is_timeout(cause) {
            return "the time limit was exceeded".to_owned();
        }
        match cause.source() {
            Some(next) => cause = next,
            None => return explained(&cause.to_string()),
        }
    }
}

/// The text of a TLS library about the certificate of a server begins so.
const BAD_CERTIFICATE: &str = "invalid peer certificate: ";
/// How it goes on, and the same for people.
const CERTIFICATE_ERRORS: [(&str, &str); 6] = [
    (
        "Other(OtherError(CaUsedAsEndEntity",
        "it is self-signed, as that of an authority; use a certificate that an authority signed",
    ),
    (
        "UnknownIssuer",
        "no trusted authority signed it; if its authority is your own, set SSL_CERT_FILE to the \
         PEM file of that authority's certificate",
    ),
    (
        "certificate not valid for name",
        "it is for other host names than the one in the URL",
    ),
    ("certificate expired", "it has expired"),
    (
        "certificate not valid yet",
        "it is not valid yet: check the clocks of both machines",
    ),
    ("Revoked", "it was revoked"),
];

/// The same text, with errors of certificates in words.
fn explained(text: &str) -> String {
    let Some((before, detail)) = text.split_once(BAD_CERTIFICATE) else {
        return text.to_owned();
    };
    let mut known = CERTIFICATE_ERRORS.iter();
    match known.find(|(name, _)| detail.starts_with(name)) {
        Some((_, words)) => {
            format!("{before}the certificate of the server is not accepted: {words}")
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers() -> Layer {
        let bottom = Layer {
            text: "disk full",
            source: None,
        };
        Layer {
            text: "cannot save",
            source: Some(Box::new(bottom)),
        }
    }

    #[test]
    fn errors_of_certificates_are_said_in_words() {
        for (text, part) in [
            (
                "tls: invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                "self-signed",
            ),
            ("invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
            (
                "invalid peer certificate: certificate not valid for name \"a\"; certificate is \
                 only valid for DnsName(\"b\")",
                "host names",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 2 (UNIX), but \
                 certificate is not valid after 1 (1 seconds ago)",
                "expired",
            ),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1 (UNIX), \
                 but certificate is not valid before 2 (1 seconds in future)",
                "clocks",
            ),
        ] {
            let said = explained(text);
            assert!(
                said.contains(part) && !said.contains("invalid peer"),
                "{said}"
            );
        }
        for other in ["disk full", "invalid peer certificate: BadEncoding"] {
            assert_eq!(explained(other), other);
        }
    }

    #[test]
    fn an_error_is_shown_with_all_its_causes_or_with_the_last() {
        assert_eq!(with_causes(&layers()), "cannot save: disk full");
        assert_eq!(root_cause(&layers()), "disk full");
    }

    #[test]
    fn a_message_has_no_trailer_and_may_be_missing() {
        let body = br#"{"message": " Bad proof\n\n---\n\n* method: registerWorker"}"#;
        assert_eq!(message_of(body).unwrap(), "Bad proof");
        assert_eq!(message_of(br#"{"error": "no"}"#).unwrap(), "no");
        for odd in [
            &b""[..],
            b"<html>",
            b"[]",
            b"{\"message\": 5}",
            b"{\"message\": \"\"}",
        ] {
            assert_eq!(message_of(odd), None);
        }
    }

    #[test]
    fn only_overload_and_broken_servers_may_pass() {
        for (status, expected) in [
            (400, false),
            (401, false),
            (404, false),
            (409, false),
            (429, true),
            (500, true),
            (503, true),
        ] {
            let refusal = Refusal {
                status: StatusCode::from_u16(status).unwrap(),
                body: Vec::new(),
                advice: None,
            };
            let refused = CallError::Refused(refusal);
            assert_eq!(refused.may_pass(), expected, "{status}");
            assert!(!refused.is_unsent());
        }
        assert!(!CallError::BadReply(String::new()).may_pass());
    }
}
