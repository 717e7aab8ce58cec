//! One call of a vendor's API.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

/// Time limit of a call that sets none.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Longest answer that is read.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Escapes all but the unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The content of a call.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Nothing,
    Json(Value),
    Bytes(Bytes),
}

/// A call to make.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(super) method: Method,
    pub(super) address: Address,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) content: Content,
    pub(super) limit: Duration,
    pub(super) max_bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Address {
    /// An escaped path below the endpoint.
    Path(String),
    /// A complete address that the vendor sent, like that of an operation.
    Url(String),
}

impl Ask {
    /// A call of the path with these segments, each of which is escaped.
    pub(crate) fn new(method: Method, segments: &[&str]) -> Self {
        let mut path = String::new();
        for segment in segments {
            // A segment `..` would leave the path.
            let segment = match *segment {
                "." | ".." => segment.replace('.', "%2E"),
                segment => utf8_percent_encode(segment, ESCAPED).to_string(),
            };
            let _ = write!(path, "/{segment}");
        }
        Self::at(method, Address::Path(path))
    }

    /// A call of an address that the vendor sent. It is refused unless it is below the endpoint.
    pub(crate) fn to_url(method: Method, url: &str) -> Self {
        Self::at(method, Address::Url(url.to_owned()))
    }

    fn at(method: Method, address: Address) -> Self {
        Self {
            method,
            address,
            query: Vec::new(),
            headers: Vec::new(),
            content: Content::Nothing,
            limit: CALL_LIMIT,
            max_bytes: MAX_ANSWER_BYTES,
        }
    }

    pub(crate) fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    pub(crate) fn delete(segments: &[&str]) -> Self {
        Self::new(Method::DELETE, segments)
    }

    pub(crate) fn with_query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(crate) fn with_content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The query, escaped, with its `?`.
    pub(super) fn query_text(&self, mark: char) -> String {
        let mut text = String::new();
        for (name, value) in &self.query {
            text.push(if text.is_empty() { mark } else { '&' });
            let (name, value) = (escape(name), escape(value));
            let _ = write!(text, "{name}={value}");
        }
        text
    }
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_and_each_value_is_escaped() {
        let ask = Ask::get(&["projects", "a/b", "..", "é c"])
            .with_query("filter", "a=b&c")
            .with_query("n", 5);
        let Address::Path(path) = &ask.address else {
            panic!("it has a path");
        };
        assert_eq!(path, "/projects/a%2Fb/%2E%2E/%C3%A9%20c");
        assert_eq!(ask.query_text('?'), "?filter=a%3Db%26c&n=5");
        assert_eq!(ask.query_text('&'), "&filter=a%3Db%26c&n=5");
        assert_eq!(Ask::get(&[]).query_text('?'), "");
    }
}
