//! The hosts and ports under which clients reach this server. Signatures cover both, so a request
//! that was signed for another server is refused from every sender.

use std::net::{IpAddr, SocketAddr};

use backplane::tree::local_host;
use reqwest::Url;

use crate::config::Config;

/// The hosts and ports of the configuration.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The root URL first.
    urls: Vec<Host>,
}

/// A name, or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// In lower case; an IPv6 address has brackets.
    pub name: String,
    pub port: u16,
}

impl Hosts {
    pub fn of(config: &Config) -> Self {
        let root_url = config.root_url();
        let urls = std::iter::once(&root_url).chain(&config.root_url_aliases);
        Self {
            urls: urls.filter_map(|url| Host::of(url)).collect(),
        }
    }

    /// The host that a client addressed by this header. `port` is the one that a trusted proxy
    /// saw; otherwise that of the header, of the URL with this name, or the usual one counts.
    pub fn addressed(&self, header: &str, port: Option<u16>, is_tls: bool) -> Host {
        let (name, in_header) = split_host(header);
        let name = name.to_lowercase();
        let of_url = || {
            let url = self.urls.iter().find(|url| url.name == name)?;
            Some(url.port)
        };
        let usual = if is_tls { 443 } else { 80 };
        let port = port.or(in_header).or_else(of_url).unwrap_or(usual);
        Host { name, port }
    }

    /// Whether this URL has the host of the server, on any port. Cookies do not distinguish ports.
    pub fn shares_host_with(&self, url: &str) -> bool {
        let Some(host) = Host::of(url) else {
            return true;
        };
        self.urls.iter().any(|ours| {
            ours.name == host.name || (ours.is_this_machine() && host.is_this_machine())
        })
    }

    /// Whether the server has this name, on any port.
    pub fn has_name(&self, name: &str) -> bool {
        self.urls.iter().any(|url| url.name == name)
    }

    /// Whether this is a host of this server, at whose address `local` the connection arrived.
    pub fn contains(&self, host: &Host, local: SocketAddr) -> bool {
        let is_url = |url: &Host| {
            let is_same =
                url.name == host.name || (url.is_this_machine() && host.is_this_machine());
            is_same && url.port == host.port
        };
        let is_local = || {
            let ip = local.ip().to_canonical();
            host.ip().is_some_and(|it| it.to_canonical() == ip)
                || (ip.is_loopback() && host.is_this_machine())
                || host.name == local_host().to_lowercase()
        };
        self.urls.iter().any(is_url) || (host.port == local.port() && is_local())
    }
}

impl Host {
    /// The host of a URL.
    pub fn of(url: &str) -> Option<Self> {
        let url: Url = url.parse().ok()?;
        Some(Self {
            name: url.host_str()?.to_lowercase(),
            port: url.port_or_known_default()?,
        })
    }

    fn ip(&self) -> Option<IpAddr> {
        let address = self.name.trim_start_matches('[').trim_end_matches(']');
        address.parse().ok()
    }

    /// Whether it means the machine of the client.
    pub fn is_this_machine(&self) -> bool {
        let is_here = |ip: IpAddr| ip.to_canonical().is_loopback() || ip.is_unspecified();
        self.name == "localhost" || self.ip().is_some_and(is_here)
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// A host header's name and port; the name of an IPv6 address keeps its brackets.
pub(crate) fn split_host(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(root_url: Option<&str>, aliases: &[&str]) -> Hosts {
        Hosts::of(&Config {
            root_url: root_url.map(str::to_owned),
            root_url_aliases: aliases.iter().map(|url| (*url).to_owned()).collect(),
            listen: ([0, 0, 0, 0], 8080).into(),
            ..Config::default()
        })
    }

    /// Whether a request with this header is for us, if it arrives at this address.
    fn is_ours(hosts: &Hosts, header: &str, local: &str) -> bool {
        let host = hosts.addressed(header, None, false);
        hosts.contains(&host, local.parse().unwrap())
    }

    #[test]
    fn hosts_are_split_from_their_ports() {
        assert_eq!(split_host("a.example:8080"), ("a.example", Some(8080)));
        assert_eq!(split_host("a.example"), ("a.example", None));
        assert_eq!(split_host("[::1]:80"), ("[::1]", Some(80)));
        assert_eq!(split_host("[::1]"), ("[::1]", None));
        assert_eq!(split_host(""), ("", None));
    }

    #[test]
    fn the_host_of_the_root_url_and_its_aliases_are_ours() {
        let hosts = hosts(Some("https://Fleet.example"), &["http://old.example:81/"]);
        for (header, expected) in [
            ("fleet.example", true),
            ("FLEET.example:443", true),
            ("fleet.example:80", false),
            ("old.example", true),
            ("old.example:81", true),
            ("old.example:443", false),
            ("evil.example", false),
            ("evil.example:443", false),
            ("fleet.example.evil.example", false),
            ("", false),
            ("localhost:8080", false),
        ] {
            assert_eq!(
                is_ours(&hosts, header, "192.0.2.1:8080"),
                expected,
                "{header}"
            );
        }
    }

    #[test]
    fn the_address_of_the_connection_is_ours() {
        let hosts = hosts(Some("https://fleet.example"), &[]);
        let own_name = format!("{}:8080", local_host());
        for (header, local, expected) in [
            ("192.0.2.1:8080", "192.0.2.1:8080", true),
            ("192.0.2.1:8080", "[::ffff:192.0.2.1]:8080", true),
            ("192.0.2.1:8081", "192.0.2.1:8080", false),
            ("192.0.2.2:8080", "192.0.2.1:8080", false),
            ("[2001:db8::1]:8080", "[2001:db8::1]:8080", true),
            (own_name.as_str(), "192.0.2.1:8080", true),
            ("localhost:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "[::1]:8080", true),
            ("[::1]:8080", "127.0.0.1:8080", true),
            ("localhost:8081", "127.0.0.1:8080", false),
            ("localhost:8080", "192.0.2.1:8080", false),
            ("localhost", "127.0.0.1:80", true),
        ] {
            assert_eq!(
                is_ours(&hosts, header, local),
                expected,
                "{header} at {local}"
            );
        }
    }

    #[test]
    fn a_root_url_on_this_machine_has_all_names_of_this_machine() {
        // Such as a container without a root URL, whose port is forwarded.
        for root_url in [
            None,
            Some("http://127.0.0.1:8080"),
            Some("http://localhost:8080"),
        ] {
            let hosts = hosts(root_url, &[]);
            for (header, expected) in [
                ("localhost:8080", true),
                ("127.0.0.1:8080", true),
                ("[::1]:8080", true),
                ("localhost:9000", false),
                ("fleet.example:8080", false),
            ] {
                let local = "192.0.2.1:8080";
                assert_eq!(
                    is_ours(&hosts, header, local),
                    expected,
                    "{root_url:?} {header}"
                );
            }
        }
    }

    #[test]
    fn hosts_are_shared_whatever_the_port_and_the_name_of_this_machine() {
        let far = hosts(Some("https://fleet.example"), &["http://old.example:81/"]);
        for (url, expected) in [
            ("https://fleet.example:8443", true),
            ("http://FLEET.example", true),
            ("http://old.example", true),
            ("https://artifacts.fleet.example", false),
            ("https://artifacts.example", false),
            ("http://127.0.0.1:8081", false),
            ("nonsense", true),
        ] {
            assert_eq!(far.shares_host_with(url), expected, "{url}");
        }
        let near = hosts(Some("http://127.0.0.1:8080"), &[]);
        for url in [
            "http://localhost:8081",
            "http://[::1]:8081",
            "http://127.0.0.1:1",
        ] {
            assert!(near.shares_host_with(url), "{url}");
        }
    }

    #[test]
    fn a_trusted_proxy_knows_the_port() {
        let hosts = hosts(Some("https://fleet.example"), &[]);
        let addressed = |header, port, is_tls| hosts.addressed(header, port, is_tls).port;
        assert_eq!(addressed("fleet.example:8080", Some(443), false), 443);
        assert_eq!(addressed("fleet.example:8080", None, false), 8080);
        assert_eq!(addressed("fleet.example", None, false), 443);
        assert_eq!(addressed("other.example", None, false), 80);
        assert_eq!(addressed("other.example", None, true), 443);
    }
}
