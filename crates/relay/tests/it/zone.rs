//! The records of one test: its names and addresses are its own.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use relay::{HostName, Refusal, Resolver, identify};
use testing::dns;

/// Only ends a test that hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Zone {
    /// The addresses of the test begin like this.
    network: &'static str,
    pub(crate) servers: [SocketAddr; 2],
}

impl Zone {
    /// `None` without DNS servers.
    pub(crate) fn of(network: &'static str) -> Option<Self> {
        let servers = dns::servers()?;
        Some(Self { network, servers })
    }

    pub(crate) fn address(&self, last: u8) -> String {
        format!("{}.{last}", self.network)
    }

    /// A name of this test.
    pub(crate) fn name(&self, first: &str) -> String {
        format!("{first}.n{}.fleet.test", self.network.replace('.', "-"))
    }

    pub(crate) fn add(&self, changes: &[String]) {
        dns::update(self.servers[0], changes);
    }

    /// The record with the name of an address.
    pub(crate) fn pointer(&self, last: u8, name: &str) -> String {
        dns::pointer(&self.address(last), name)
    }

    /// The record with the address of a name.
    pub(crate) fn host(&self, name: &str, last: u8) -> String {
        format!("add {name} 60 A {}", self.address(last))
    }

    pub(crate) async fn identify(&self, last: u8) -> Result<HostName, Refusal> {
        identify_at(&[self.servers[0]], &self.address(last), LONG).await
    }

    /// The refusal of an address, without the changing address of the server.
    pub(crate) async fn refusal(&self, last: u8) -> String {
        let refusal = self.identify(last).await.unwrap_err().to_string();
        refusal.replace(&self.servers[0].to_string(), "DNS")
    }
}

pub(crate) async fn identify_at(
    servers: &[SocketAddr],
    address: &str,
    limit: Duration,
) -> Result<HostName, Refusal> {
    let resolvers: Vec<Resolver> = servers
        .iter()
        .map(|address| Resolver {
            address: *address,
            limit,
        })
        .collect();
    let address: IpAddr = address.parse().unwrap();
    identify(&resolvers, address).await.map(|(name, _)| name)
}
