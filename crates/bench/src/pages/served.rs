//! The servers whose pages are measured, as processes of their own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use access::Secret;
use anyhow::Context as _;
use api_client::Credentials;
use serde_json::Value;

use crate::child::fleetwright;
use crate::load::{Connection, timed};
use crate::machine;
use crate::prepare::{create_task, signed};

/// Before the link to the pages, in what `demo` prints.
const LINK: &str = "  pages ";

/// A running server; ended when dropped.
pub(super) struct Served {
    process: Child,
    pub(super) address: SocketAddr,
    /// Path and query of the link that signs in.
    pub(super) link: String,
    /// Of the large fleet only.
    pub(super) credentials: Option<Credentials>,
}

impl Served {
    pub(super) fn demo() -> anyhow::Result<Self> {
        let mut command = fleetwright()?;
        command.args(["demo", "--listen", "127.0.0.1:0"]);
        let (process, lines) = started(command)?;
        let mut served = Self::of(process);
        for line in lines {
            let line = line.context("cannot read what the demo prints")?;
            if let Some(link) = line.strip_prefix(LINK) {
                served.go_to(link.trim())?;
                return Ok(served);
            }
        }
        anyhow::bail!("the demo did not start; run `fleetwright demo` to see why")
    }

    /// A server that says in its first line where it is.
    pub(super) fn start(command: Command) -> anyhow::Result<Self> {
        let (process, mut lines) = started(command)?;
        let mut served = Self::of(process);
        let line = lines.next().context("the server did not start")??;
        let said: Value = serde_json::from_str(&line)?;
        let text = |name: &str| said[name].as_str().unwrap_or_default();
        served.go_to(text("link"))?;
        served.address = text("address").parse().context("no address")?;
        served.credentials = Some(Credentials {
            client_id: text("clientId").to_owned(),
            access_token: Secret::new(text("accessToken")),
            extension: None,
        });
        Ok(served)
    }

    fn of(process: Child) -> Self {
        Self {
            process,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            link: String::new(),
            credentials: None,
        }
    }

    fn go_to(&mut self, link: &str) -> anyhow::Result<()> {
        let rest = link.strip_prefix("http://").context("no link")?;
        let (address, path) = rest.split_once('/').context("no path in the link")?;
        self.link = format!("/{path}");
        if let Ok(address) = address.parse() {
            self.address = address;
        }
        Ok(())
    }

    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Creates a task; returns when it was sent, in milliseconds.
    pub(super) async fn create_task(&self, pool: &str) -> anyhow::Result<f64> {
        let mut connection = Connection::open(self.address).await?;
        let (_, call) = create_task(pool, &["true"]);
        let request = signed(&call, self.address, self.credentials.as_ref());
        let sent = machine::now().as_millis();
        timed(&mut connection, request)
            .await
            .context("cannot create a task")?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds fit until the year 285,000"
        )]
        Ok(sent as f64)
    }
}

type Said = std::io::Lines<BufReader<std::process::ChildStdout>>;

fn started(mut command: Command) -> anyhow::Result<(Child, Said)> {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a server")?;
    let stdout = process.stdout.take().context("the server has an output")?;
    Ok((process, BufReader::new(stdout).lines()))
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}
