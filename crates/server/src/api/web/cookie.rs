//! The cookies of a session, and of a sign-in that has begun.

use access::Secret;
use http::HeaderMap;
use http::header::COOKIE;

use crate::hosts::Host;

/// The browser keeps the cookie this long; the session may end sooner.
const MAX_AGE_SECONDS: i64 = 30 * 24 * 3_600;
/// A sign-in at the provider takes no longer.
const RETURN_SECONDS: i64 = 10 * 60;

/// The name of the cookie. Browsers do not separate cookies by port, so servers side by side on one
/// machine need different names. With TLS, the prefix keeps other sites of the domain from setting
/// it.
pub(super) fn name(host: &Host, is_encrypted: bool) -> String {
    match is_encrypted {
        true => format!("__Host-fleetwright-{}", host.port),
        false => format!("fleetwright-{}", host.port),
    }
}

/// The name of the cookie of a sign-in that has begun.
pub(super) fn name_for_return(host: &Host, is_encrypted: bool) -> String {
    format!("{}-openid", name(host, is_encrypted))
}

/// The value of this cookie in a request.
pub(super) fn read(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| Secret::new(value))
}

/// Sets the cookie: scripts cannot read it, and requests from other sites do not have it.
pub(super) fn set(name: &str, secret: &Secret, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!(
        "{name}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={MAX_AGE_SECONDS}{secure}",
        secret.expose()
    )
}

pub(super) fn remove(name: &str, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}")
}

/// Sets the cookie of a sign-in that has begun. The request that the provider's page makes has it.
pub(super) fn set_for_return(name: &str, sealed: &Secret, is_encrypted: bool) -> String {
    for_return(name, sealed.expose(), RETURN_SECONDS, is_encrypted)
}

pub(super) fn remove_for_return(name: &str, is_encrypted: bool) -> String {
    for_return(name, "", 0, is_encrypted)
}

fn for_return(name: &str, value: &str, seconds: i64, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; fleetwright-80=x=y"));
        headers.append(COOKIE, HeaderValue::from_static("fleetwright-8080=z"));
        let read = |name| read(&headers, name).map(|secret| secret.expose().to_owned());
        assert_eq!(read("fleetwright-80").as_deref(), Some("x=y"));
        assert_eq!(read("fleetwright-8080").as_deref(), Some("z"));
        assert_eq!(read("fleetwright-8").as_deref(), None);
    }
}
