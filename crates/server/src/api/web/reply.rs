//! Replies with pages, and the pairs of queries and forms.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode};

use crate::api::query::form_decoded;
use crate::api::response::{Response, with_status};

const HTML: &str = "text/html; charset=utf-8";
/// An address or a form has at most this many parameters.
const MAX_PARAMETERS: usize = 600;

/// The pairs of a query or a form.
pub(super) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.take(MAX_PARAMETERS).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((form_decoded(name)?, form_decoded(value)?))
    });
    decoded.collect()
}

pub(super) fn html(status: StatusCode, text: String) -> Response {
    let mut response = with_status(status, Bytes::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Leads the browser to another page of this site.
pub(super) fn see_other(path: &str) -> Response {
    let mut response = with_status(StatusCode::SEE_OTHER, Bytes::new());
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

pub(super) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn an_address_has_a_limited_number_of_parameters() {
        for size in sizes_around("server::api::web::reply::MAX_PARAMETERS", MAX_PARAMETERS) {
            let text = vec!["a=%2Fb+c"; size].join("&");
            let pairs = pairs(&text).unwrap();
            assert_eq!(pairs.len(), size.min(MAX_PARAMETERS));
            let expected = ("a".to_owned(), "/b c".to_owned());
            assert!(pairs.iter().all(|pair| *pair == expected));
        }
        assert_eq!(pairs("a=%ff"), None);
    }
}
