//! Addresses of vendors' APIs.

/// Calls carry credentials and user data, which must not cross a network unencrypted: `http` is
/// only for this machine.
pub(crate) fn is_endpoint(url: &str) -> bool {
    let here = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let after = |start: &str| url.strip_prefix(start);
    let is_here = here.iter().filter_map(|start| after(start));
    after("https://").is_some_and(|host| !host.is_empty())
        || is_here
            .into_iter()
            .any(|rest| rest.is_empty() || rest.starts_with([':', '/']))
}

/// Whether an address that a vendor sent is below the configured one, so that our token may be sent
/// there.
pub(super) fn is_below(url: &str, base: &str) -> bool {
    let rest = url.strip_prefix(base.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.starts_with('/') && !rest.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_called_without_encryption() {
        for url in [
            "https://compute.example",
            "http://127.0.0.1:80",
            "http://localhost/x",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(is_endpoint(url), "{url}");
        }
        for url in [
            "https://",
            "http://10.0.0.1",
            "http://localhost.evil",
            "http://127.0.0.1.evil",
            "ftp://localhost",
            "",
        ] {
            assert!(!is_endpoint(url), "{url}");
        }
    }

    #[test]
    fn an_address_elsewhere_gets_no_token() {
        let base = "https://arm.example/";
        assert!(is_below("https://arm.example/operations/1?x=y", base));
        for url in [
            "https://arm.example.evil/operations/1",
            "https://arm.example@evil/1",
            "https://evil/https://arm.example/1",
            "http://arm.example/1",
            "https://arm.example",
            "https://arm.example/\\evil/",
        ] {
            assert!(!is_below(url, base), "{url}");
        }
    }
}
