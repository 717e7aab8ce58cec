//! The ZooKeeper server of `scripts/with-zookeeper`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use backplane::tree::{TreePath, ZookeeperSettings};

/// The folder that the script makes.
const FOLDER: &str = "TEST_ZOOKEEPER";

/// Its address.
pub(crate) fn servers() -> anyhow::Result<String> {
    let folder = std::env::var(FOLDER).with_context(|| {
        format!("{FOLDER} is not set: run this program by scripts/with-zookeeper")
    })?;
    std::fs::read_to_string(PathBuf::from(folder).join("main/address"))
        .context("cannot read the address of ZooKeeper")
}

/// A client without a login, below a root of its own.
pub(crate) fn settings(
    servers: String,
    root: &str,
    session: Duration,
) -> anyhow::Result<ZookeeperSettings> {
    Ok(ZookeeperSettings {
        servers,
        root: root.parse::<TreePath>()?,
        creates_root: true,
        session,
        call_limit: Duration::from_secs(60),
        login: None,
        tls: None,
    })
}

/// Packets that the server received from all clients.
pub(crate) fn packets_received(address: &str) -> anyhow::Result<u64> {
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
