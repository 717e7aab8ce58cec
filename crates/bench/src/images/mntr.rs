//! Counters of a ZooKeeper server, by its command `mntr`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Context as _;

/// Packets that the server received from all clients.
pub(super) fn packets_received(address: &str) -> anyhow::Result<u64> {
    counter(address, "zk_packets_received")
}

fn counter(address: &str, name: &str) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(address).context("cannot connect to ZooKeeper")?;
    stream.write_all(b"mntr")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.context("the answer to `mntr` has no such counter")?;
    value.trim().parse().context("a counter is no number")
}
