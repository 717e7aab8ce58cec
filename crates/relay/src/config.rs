//! The configuration file of a relay, in TOML. docs/datacentre.md describes the keys.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api_client::parse_root_url;
use domain::id::RelayId;
use serde::Deserialize;
use tls::TlsFiles;

use crate::host_rule::{BadHostRule, HostRule, HostRuleConfig};
use crate::resolver::Resolver;

/// Resolvers that must agree.
const MAX_RESOLVERS: usize = 4;
/// Rules about hosts.
const MAX_RULES: usize = 100;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the relay, such as that of its datacentre.
    pub relay_id: RelayId,
    /// The URL of the worker manager.
    pub root_url: String,
    /// The address that hosts ask.
    pub listen: SocketAddr,
    pub client_id: String,
    /// The file with the access token of that client.
    pub access_token_file: PathBuf,
    #[serde(default)]
    pub tls: Option<Tls>,
    pub dns: Dns,
    #[serde(default)]
    pub limits: Limits,
    /// How often the relay announces itself.
    #[serde(default = "half_a_minute")]
    pub announce_seconds: u32,
    pub hosts: Vec<HostRuleConfig>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    /// Authorities: a host needs a certificate of one of them, for its name.
    #[serde(default)]
    pub client_ca_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// DNS servers, which must agree.
    pub resolvers: Vec<SocketAddr>,
    /// Maximum time for one question.
    #[serde(default = "two_seconds")]
    pub timeout_ms: u64,
    /// Answers are kept as long as their records say, but at least a second, and this long at most.
    #[serde(default = "five_minutes")]
    pub max_cache_seconds: u64,
    /// Refusals are kept for this long.
    #[serde(default = "five_seconds")]
    pub refused_cache_seconds: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one address at a time.
    pub connections_per_address: u32,
    /// Requests of one address in a second.
    pub requests_per_second: u32,
    /// Requests that wait for DNS or the worker manager at a time.
    pub lookups: usize,
    /// Hosts whose names and credentials are kept.
    pub hosts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1_000,
            connections_per_address: 32,
            requests_per_second: 20,
            lookups: 64,
            hosts: 10_000,
        }
    }
}

fn half_a_minute() -> u32 {
    30
}

fn two_seconds() -> u64 {
    2_000
}

fn five_minutes() -> u64 {
    300
}

fn five_seconds() -> u64 {
    5
}

#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    #[error("{key}: must be from {least} to {most}")]
    Range {
        key: &'static str,
        least: u64,
        most: u64,
    },
    #[error("root_url: {0}")]
    RootUrl(api_client::BadRootUrl),
    #[error("hosts, rule {number}")]
    Rule {
        number: usize,
        #[source]
        source: BadHostRule,
    },
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), BadConfig> {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (dns, limits) = (&self.dns, &self.limits);
        for (key, value, least, most) in [
            ("announce_seconds", self.announce_seconds.into(), 1, 3_600),
            (
                "dns.resolvers",
                count(dns.resolvers.len()),
                1,
                count(MAX_RESOLVERS),
            ),
            ("dns.timeout_ms", dns.timeout_ms, 10, 10_000),
            ("dns.max_cache_seconds", dns.max_cache_seconds, 1, 86_400),
            (
                "dns.refused_cache_seconds",
                dns.refused_cache_seconds,
                1,
                3_600,
            ),
            ("hosts", count(self.hosts.len()), 1, count(MAX_RULES)),
            ("limits.connections", count(limits.connections), 1, 100_000),
            (
                "limits.connections_per_address",
                limits.connections_per_address.into(),
                1,
                100_000,
            ),
            (
                "limits.requests_per_second",
                limits.requests_per_second.into(),
                1,
                1_000_000,
            ),
            ("limits.lookups", count(limits.lookups), 1, 10_000),
            ("limits.hosts", count(limits.hosts), 1, 1_000_000),
        ] {
            if !(least..=most).contains(&value) {
                return Err(BadConfig::Range { key, least, most });
            }
        }
        parse_root_url(&self.root_url).map_err(BadConfig::RootUrl)?;
        self.rules().map(drop)
    }

    pub(crate) fn rules(&self) -> Result<Vec<HostRule>, BadConfig> {
        let rules = self.hosts.iter().enumerate().map(|(index, written)| {
            HostRule::new(written).map_err(|source| BadConfig::Rule {
                number: index + 1,
                source,
            })
        });
        rules.collect()
    }

    pub(crate) fn resolvers(&self) -> Vec<Resolver> {
        let limit = Duration::from_millis(self.dns.timeout_ms);
        let addresses = self.dns.resolvers.iter();
        addresses
            .map(|address| Resolver {
                address: *address,
                limit,
            })
            .collect()
    }
}

impl Tls {
    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testing::sizes_around;

    use super::*;

    fn config() -> Value {
        json!({"relay_id": "dc1", "root_url": "https://fleet.example.com",
            "listen": "0.0.0.0:8126", "client_id": "relay/dc1", "access_token_file": "token",
            "dns": {"resolvers": ["10.0.0.2:53"]},
            "hosts": [{"name": "<n>.example.com", "worker_pool_id": "a/b", "worker_group": "dc1",
                "worker_id": "<n>"}]})
    }

    fn problem(config: Value) -> Option<String> {
        let config: Config = serde_json::from_value(config).unwrap();
        let problem = config.check().err()?;
        Some(api_client::with_causes(&problem))
    }

    #[test]
    fn a_short_configuration_has_defaults() {
        assert_eq!(problem(config()), None);
    }

    #[test]
    fn an_invalid_value_is_named() {
        for (pointer, value, part) in [
            (
                "/announce_seconds",
                json!(0),
                "announce_seconds: must be from 1 to 3600",
            ),
            (
                "/dns/timeout_ms",
                json!(9),
                "dns.timeout_ms: must be from 10",
            ),
            (
                "/limits",
                json!({"hosts": 0}),
                "limits.hosts: must be from 1",
            ),
            ("/root_url", json!("https://x/y"), "root_url: "),
            (
                "/hosts/0/worker_id",
                json!("<m>"),
                "hosts, rule 1: \"<m>\" names <m>",
            ),
        ] {
            let mut config = config();
            let (object, key) = pointer.rsplit_once('/').unwrap();
            config.pointer_mut(object).unwrap()[key] = value;
            let problem = problem(config).unwrap();
            assert!(problem.starts_with(part), "{problem}");
        }
    }

    #[test]
    fn the_numbers_of_resolvers_and_rules_are_bounded() {
        for n in sizes_around("relay::config::MAX_RESOLVERS", MAX_RESOLVERS) {
            let mut config = config();
            config["dns"]["resolvers"] = json!(vec!["10.0.0.2:53"; n]);
            let is_good = (1..=MAX_RESOLVERS).contains(&n);
            assert_eq!(problem(config).is_none(), is_good, "{n}");
        }
        for n in sizes_around("relay::config::MAX_RULES", MAX_RULES) {
            let mut config = config();
            config["hosts"] = json!(vec![config["hosts"][0].clone(); n]);
            let is_good = (1..=MAX_RULES).contains(&n);
            assert_eq!(problem(config).is_none(), is_good, "{n}");
        }
    }
}
