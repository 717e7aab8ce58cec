//! The measured servers as child processes, so that their memory and processor time can be read.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use access::{Secret, slugid};
use anyhow::Context as _;
use api_client::Credentials;
use http_body_util::Empty;
use hyper::body::Bytes;
use serde_json::Value;
use tempfile::TempDir;

use super::load::Connection;
use crate::machine::{self, Stopwatch};
use crate::processor;

/// A server that has not responded within this time has failed.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a starting server is checked.
const START_BEAT: Duration = Duration::from_millis(1);
/// The client that `up` creates; it has all scopes.
pub(crate) const OWNER: &str = "static/owner";
const TOKEN: &str = "export TASKCLUSTER_ACCESS_TOKEN=";
/// The variable with the program to measure, if that is not in the folder of this program.
const BINARY: &str = "FLEETWRIGHT_BINARY";
const PING: &str = "/api/worker-manager/v1/ping";

/// The database of the measured server.
#[derive(Clone)]
pub(crate) enum Database {
    Sqlite,
    Postgres { url: String },
}

/// A temporary folder with its files; removed when dropped.
pub(crate) struct Folder {
    files: TempDir,
    /// The measured program; else the one that `fleetwright` finds.
    program: Option<PathBuf>,
    database: Database,
    token: Secret,
    port: u16,
}

/// A running server; stopped when dropped.
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

    /// As the store takes it: SQLite has its data in this file.
    pub(crate) fn url(&self, file: &Path) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", file.display()),
            Self::Postgres { url } => url.clone(),
        }
    }
}

impl Folder {
    pub(crate) fn new(database: &Database) -> anyhow::Result<Self> {
        Self::of(None, database)
    }

    /// For this program.
    pub(crate) fn of(program: Option<&Path>, database: &Database) -> anyhow::Result<Self> {
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let folder = Self {
            files: machine::temporary_folder()?,
            program: program.map(Path::to_owned),
            database: database.clone(),
            token: Secret::new(slugid::secret(&mut machine::chance())),
            port: free.context("cannot find a free port")?.port(),
        };
        if let Database::Postgres { url } = database {
            std::fs::write(folder.path("server.toml"), folder.configuration(url))
                .context("cannot write the configuration")?;
        }
        Ok(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The file of the database, unless it is on a server.
    pub(crate) fn database_file(&self) -> PathBuf {
        self.path("data/fleetwright.sqlite")
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
            toml::Value::from(self.path("keys").display().to_string()),
            self.token.expose(),
        )
    }

    /// The command that starts the server on this folder.
    fn command(&self) -> anyhow::Result<Command> {
        let mut command = match &self.program {
            Some(program) => existing(program.clone())?,
            None => fleetwright()?,
        };
        match &self.database {
            Database::Sqlite => command
                .args([
                    "up",
                    "--listen",
                    &format!("127.0.0.1:{}", self.port),
                    "--data",
                ])
                .arg(self.path("data")),
            Database::Postgres { .. } => command
                .args(["serve", "--config"])
                .arg(self.path("server.toml")),
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
                let file = self.path("data/owner.env");
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

impl Child {
    /// Starts a measured server. Also returns the time until its first response.
    pub(crate) async fn ours(folder: &Folder) -> anyhow::Result<(Self, Duration)> {
        let address = SocketAddr::from(([127, 0, 0, 1], folder.port));
        let mut command = folder.command()?;
        let watch = Stopwatch::start();
        let process = command.spawn().context("cannot start the server")?;
        let mut child = Self {
            address,
            credentials: no_credentials(),
            process,
        };
        while !answers(address).await {
            let ended = child
                .process
                .try_wait()
                .context("cannot watch the server")?;
            if ended.is_some() || watch.elapsed() > START_LIMIT {
                anyhow::bail!(
                    "the server to measure did not start; run `fleetwright up`, or `fleetwright serve` with this database, to see why"
                );
            }
            machine::pause(START_BEAT).await;
        }
        let took = watch.elapsed();
        child.credentials = folder.credentials()?;
        Ok((child, took))
    }

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
            credentials: no_credentials(),
            process,
        })
    }

    /// The memory that it uses, if the system reports it.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        machine::memory_bytes(&self.process.id().to_string(), "VmRSS:")
    }

    /// The processor time that it has used, if the system reports it.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        processor::of_process(self.process.id())
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

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

fn no_credentials() -> Credentials {
    Credentials {
        client_id: String::new(),
        access_token: Secret::new(""),
        extension: None,
    }
}

/// The program to measure.
pub(crate) fn fleetwright() -> anyhow::Result<Command> {
    let program = match std::env::var_os(BINARY) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()
            .context("cannot find this program")?
            .with_file_name(format!("fleetwright{}", std::env::consts::EXE_SUFFIX)),
    };
    existing(program)
}

fn existing(program: PathBuf) -> anyhow::Result<Command> {
    anyhow::ensure!(
        program.is_file(),
        "{} does not exist: build it (`cargo build --release -p fleetwright`), or name the program to measure in {BINARY}",
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

/// Runs a part of a measurement in a process of its own, and returns the figures that it prints.
pub(crate) fn figures_of(part: &mut Command) -> anyhow::Result<Value> {
    let done = part
        .output()
        .context("cannot start a part of the measurement")?;
    if !done.status.success() {
        let problem = String::from_utf8_lossy(&done.stderr);
        anyhow::bail!("a part of the measurement failed: {problem}");
    }
    serde_json::from_slice(&done.stdout).context("a part of the measurement printed no JSON")
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

/// The memory that this process uses, if the system reports it.
pub(crate) fn own_resident_bytes() -> Option<u64> {
    machine::memory_bytes("self", "VmRSS:")
}
