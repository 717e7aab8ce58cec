//! Servers as processes of their own, so that memory and time are theirs.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use access::seal::generate_key;
use access::{Secret, slugid};
use anyhow::Context as _;
use api_client::Credentials;
use http_body_util::Empty;
use hyper::body::Bytes;

use super::load::Connection;
use crate::machine::{self, Stopwatch};

/// A server that has not answered by then is not going to.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a starting server is asked.
const START_BEAT: Duration = Duration::from_millis(1);
/// The client that `up` makes; it may do everything.
pub(crate) const OWNER: &str = "static/owner";
const TOKEN: &str = "export TASKCLUSTER_ACCESS_TOKEN=";
/// Names the program to measure, if it does not lie beside this one.
const BINARY: &str = "FLEETWRIGHT_BINARY";
const PING: &str = "/api/worker-manager/v1/ping";

/// Where the measured server keeps its data.
#[derive(Clone)]
pub(crate) enum Database {
    Sqlite,
    Postgres { url: String },
}

/// A temporary folder, and what is in it; removed in the end.
pub(crate) struct Folder {
    path: PathBuf,
    database: Database,
    token: Secret,
    port: u16,
}

/// A running server; ended when dropped.
pub(crate) struct Child {
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
    process: std::process::Child,
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sqlite" => Ok(Self::Sqlite),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Ok(Self::Postgres {
                    url: url.to_owned(),
                })
            }
            _ => Err("it is neither `sqlite` nor a postgres:// URL".to_owned()),
        }
    }
}

/// The URL may hold a password.
impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Database {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }
}

impl Folder {
    pub(crate) fn new(database: &Database) -> anyhow::Result<Self> {
        let mut rng = machine::chance();
        let path =
            std::env::temp_dir().join(format!("fleetwright-bench-{}", slugid::nice(&mut rng)));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let folder = Self {
            path,
            database: database.clone(),
            token: Secret::new(slugid::secret(&mut rng)),
            port: free.context("cannot find a free port")?.port(),
        };
        folder.write("keys", &format!("k1 {}\n", generate_key(&mut rng).expose()))?;
        if let Database::Postgres { url } = database {
            folder.write("server.toml", &folder.configuration(url))?;
        }
        Ok(folder)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    fn configuration(&self, url: &str) -> String {
        format!(
            "\
listen = \"127.0.0.1:{}\"

[database]
url = {}

[keys]
file = {}

[[auth.static_clients]]
client_id = \"{OWNER}\"
access_token = \"{}\"
scopes = [\"*\"]

[providers.static]
kind = \"static\"

[providers.fake]
kind = \"fake\"
accepts = \"google\"
",
            self.port,
            toml::Value::from(url),
            toml::Value::from(self.path.join("keys").display().to_string()),
            self.token.expose(),
        )
    }

    /// What starts the server on this folder.
    fn command(&self) -> anyhow::Result<Command> {
        let mut command = fleetwright()?;
        match &self.database {
            Database::Sqlite => command
                .args([
                    "up",
                    "--listen",
                    &format!("127.0.0.1:{}", self.port),
                    "--data",
                ])
                .arg(self.path.join("data")),
            Database::Postgres { .. } => command
                .args(["serve", "--config"])
                .arg(self.path.join("server.toml")),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    fn credentials(&self) -> anyhow::Result<Credentials> {
        let access_token = match self.database {
            Database::Sqlite => {
                let file = self.path.join("data/owner.env");
                let text = std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                token(&text).context("the owner's file has no token")?
            }
            Database::Postgres { .. } => self.token.clone(),
        };
        Ok(Credentials {
            client_id: OWNER.to_owned(),
            access_token,
            extension: None,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.path);
    }
}

impl Child {
    /// Starts a server of ours; also how long it took until its first answer.
    pub(crate) async fn ours(folder: &Folder) -> anyhow::Result<(Self, Duration)> {
        let address = SocketAddr::from(([127, 0, 0, 1], folder.port));
        let mut command = folder.command()?;
        let watch = Stopwatch::start();
        let process = command.spawn().context("cannot start the server")?;
        let mut child = Self {
            address,
            credentials: nobody(),
            process,
        };
        while !answers(address).await {
            let ended = child
                .process
                .try_wait()
                .context("cannot watch the server")?;
            if ended.is_some() || watch.elapsed() > START_LIMIT {
                anyhow::bail!(
                    "the server to measure did not start: start one yourself to see why: `fleetwright up`, or `fleetwright serve` with this database"
                );
            }
            machine::pause(START_BEAT).await;
        }
        let took = watch.elapsed();
        child.credentials = folder.credentials()?;
        Ok((child, took))
    }

    /// Starts the bare server.
    pub(crate) async fn bare() -> anyhow::Result<Self> {
        let mut process = this_program()?
            .arg("bare")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the bare server")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut line)
                .context("cannot read from the bare server")?;
        }
        let address = line
            .trim()
            .parse()
            .context("the bare server did not start")?;
        Ok(Self {
            address,
            credentials: nobody(),
            process,
        })
    }

    /// The memory it has in use, where the system tells.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        resident_bytes_of(&self.process.id().to_string())
    }

    /// The processor time that it has used, where the system tells.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        /// What Linux counts in, on every machine that it runs on today.
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
        // The name, in parentheses, may hold spaces.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut times = fields.split_whitespace().skip(11);
        let user: f64 = times.next()?.parse().ok()?;
        let system: f64 = times.next()?.parse().ok()?;
        Some((user + system) / TICKS_PER_SECOND)
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn end(self) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

fn nobody() -> Credentials {
    Credentials {
        client_id: String::new(),
        access_token: Secret::new(""),
        extension: None,
    }
}

/// The program that is measured.
fn fleetwright() -> anyhow::Result<Command> {
    let program = match std::env::var_os(BINARY) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()
            .context("cannot find this program")?
            .with_file_name(format!("fleetwright{}", std::env::consts::EXE_SUFFIX)),
    };
    anyhow::ensure!(
        program.is_file(),
        "there is no {}: build it (`cargo build --release -p fleetwright`), or name the program to measure in {BINARY}",
        program.display()
    );
    Ok(Command::new(program))
}

/// The access token in the file that `up` writes for its owner.
fn token(text: &str) -> Option<Secret> {
    let value = text.lines().find_map(|line| line.strip_prefix(TOKEN))?;
    Some(Secret::new(value.trim_matches('\'')))
}

pub(crate) fn this_program() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Ok(Command::new(program))
}

async fn answers(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::<Empty<Bytes>>::open(address).await else {
        return false;
    };
    let request = hyper::Request::get(PING)
        .header("host", address.to_string())
        .body(Empty::new())
        .expect("this request is well-formed");
    connection
        .send(request)
        .await
        .is_ok_and(|(status, _)| status.is_success())
}

/// The memory that this process has in use, where the system tells.
pub(crate) fn own_resident_bytes() -> Option<u64> {
    resident_bytes_of("self")
}

fn resident_bytes_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
