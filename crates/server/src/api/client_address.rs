//! The client's address of a request, behind trusted proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use super::request_head::RequestHead;
use crate::app::App;

/// The address of the client, or of the last proxy if its header is missing.
pub(super) fn address(app: &App, head: &RequestHead) -> IpAddr {
    let n_proxies = usize::from(app.config.server.trusted_proxies);
    forwarded(&head.headers, n_proxies).unwrap_or_else(|| head.sender.peer.ip())
}

/// Each trusted proxy appends the address that it saw to `X-Forwarded-For`. The client chose
/// everything before these entries.
fn forwarded(headers: &HeaderMap, n_proxies: usize) -> Option<IpAddr> {
    let lists = headers.get_all("x-forwarded-for").iter();
    let lists: Vec<&str> = lists.map(|list| list.to_str().unwrap_or("")).collect();
    let mut entries = lists.iter().flat_map(|list| list.split(',')).rev();
    address_in(entries.nth(n_proxies.checked_sub(1)?)?)
}

/// Proxies write addresses bare, quoted, in brackets, or with the port of the connection.
fn address_in(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim().trim_matches('"').trim();
    let bare = entry.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = bare.unwrap_or(entry).parse();
    address
        .or_else(|_| entry.parse().map(|it: SocketAddr| it.ip()))
        .ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_address_is_parsed_in_each_notation() {
        for entry in [
            "203.0.113.9",
            " 203.0.113.9 ",
            "203.0.113.9:1234",
            "\"203.0.113.9\"",
            "\"203.0.113.9:1\"",
        ] {
            let expected = "203.0.113.9".parse().unwrap();
            assert_eq!(address_in(entry), Some(expected), "{entry}");
        }
        for entry in [
            "2001:db8::1",
            "[2001:db8::1]",
            "[2001:db8::1]:443",
            "\"[2001:db8::1]:443\"",
            "\"2001:db8::1\"",
        ] {
            let expected = "2001:db8::1".parse().unwrap();
            assert_eq!(address_in(entry), Some(expected), "{entry}");
        }
        for entry in [
            "",
            "unknown",
            "_hidden",
            "203.0.113.9:x",
            "203.0.113.9:99999",
            "[2001:db8::1",
            "2001:db8::1]",
            "[203.0.113.9",
            "\"",
        ] {
            assert_eq!(address_in(entry), None, "{entry}");
        }
    }

    #[test]
    fn the_entry_of_the_first_trusted_proxy_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(forwarded(&headers, 1), None);
        for list in ["192.0.2.1, 192.0.2.2:80", "[2001:db8::3]:443"] {
            headers.append("x-forwarded-for", HeaderValue::from_static(list));
        }
        for (n_proxies, expected) in [
            (0, None),
            (1, Some("2001:db8::3")),
            (2, Some("192.0.2.2")),
            (3, Some("192.0.2.1")),
            (4, None),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(forwarded(&headers, n_proxies), expected, "{n_proxies}");
        }
    }
}
