//! A server with a pool of hosts, and relays for it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testing::dns;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::queue_calls::wait_for;
use crate::world::{Done, Home, Server};

/// A pool of hosts `box-<n>.<group>.fleet.test`.
pub(crate) const POOL: &str = "demo/boxes";

pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) dns: [SocketAddr; 2],
    /// The address of the server.
    pub(crate) listen: String,
}

/// A running relay.
pub(crate) struct Relay {
    address: SocketAddr,
    process: Child,
    log: std::path::PathBuf,
}

/// A running worker.
pub(crate) struct HostWorker {
    process: Child,
    log: std::path::PathBuf,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Site {
    /// `None` without DNS servers.
    pub(crate) fn start() -> Option<Self> {
        let dns = dns::servers()?;
        let server = Server::start();
        let listen = server.root_url().replace("http://", "");
        let site = Self {
            server,
            dns,
            listen,
        };
        let owner = ["--provider", "static", "--owner", "o@example.com"];
        site.server
            .ok(&[&["pool", "create", POOL, "--config", "{}"][..], &owner].concat());
        let scopes = [
            "worker-manager:announce-relay:dc1".to_owned(),
            format!("worker-manager:relay-credentials:{POOL}/*"),
            format!("worker-manager:create-worker:{POOL}/*"),
        ];
        let mut arguments = vec!["client", "create", "relay/dc1"];
        for scope in &scopes {
            arguments.extend(["--scope", scope]);
        }
        let client = site.server.json(&arguments);
        site.server
            .home
            .write("relay-token", client["accessToken"].as_str().unwrap());
        Some(site)
    }

    /// A relay that asks the first DNS server, with further configuration.
    pub(crate) fn relay(&self, more: &str) -> Relay {
        self.relay_at("127.0.0.1:0", more)
    }

    pub(crate) fn relay_at(&self, listen: &str, more: &str) -> Relay {
        self.relay_with(&self.dns[..1], listen, more)
    }

    pub(crate) fn relay_with(&self, dns: &[SocketAddr], listen: &str, more: &str) -> Relay {
        let resolvers: Vec<String> = dns.iter().map(SocketAddr::to_string).collect();
        let text = format!(
            "relay_id = \"dc1\"\nroot_url = \"{}\"\nlisten = \"{listen}\"\n\
             client_id = \"relay/dc1\"\naccess_token_file = \"relay-token\"\n\
             announce_seconds = 1\n{more}\n\
             [dns]\nresolvers = {resolvers:?}\ntimeout_ms = 10000\nrefused_cache_seconds = 1\n\
             [[hosts]]\nname = \"box-<n>.<group>.fleet.test\"\nworker_pool_id = \"{POOL}\"\n\
             worker_group = \"<group>\"\nworker_id = \"box-<n>\"\ndeclare = true\n",
            self.server.root_url()
        );
        let file = self.server.home.write("relay.toml", &text);
        Relay::start(&self.server.home, &file)
    }

    /// Our own worker, on this machine.
    pub(crate) fn worker(&self, more: &[&str]) -> HostWorker {
        let log = self.server.home.path("worker-log");
        let arguments = [&["worker", "run", "--provider", "relay"][..], more].concat();
        let process = self
            .server
            .home
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        HostWorker { process, log }
    }

    /// Runs a script with the program and the owner's credentials, in the home.
    pub(crate) fn shell(&self, script: &str) -> String {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_fleetwright"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.server.command(&[]);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("sh");
        command
            .args(["-euc", script])
            .env_clear()
            .envs(environment)
            .env(
                "PATH",
                format!("{}:{path}", program.parent().unwrap().display()),
            )
            .current_dir(self.server.home.path("."));
        let done = Done::of(command.output().unwrap());
        assert_eq!(done.code, 0, "{script}: {}", done.err);
        done.out
    }

    pub(crate) fn has_program(&self, name: &str) -> bool {
        let found = Command::new(name).arg("--version").output();
        found.is_ok_and(|found| found.status.success())
    }
}

impl Relay {
    /// Starts a relay and waits until it is ready.
    pub(crate) fn start(home: &Home, file: &str) -> Self {
        let log = home.path("relay-log");
        let mut process = home
            .command(&["relay", "--config", file])
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let read = lines.read_line(&mut line).unwrap();
        assert_ne!(
            read,
            0,
            "it did not start: {}",
            std::fs::read_to_string(&log).unwrap()
        );
        let (_, address) = line.trim().split_once("://").unwrap();
        let address = address.replace("[::1]", "127.0.0.1");
        Self {
            address: address.parse().unwrap(),
            process,
            log,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks from this address.
    pub(crate) fn ask(&self, from: &str, path: &str) -> Reply {
        self.send(from, "POST", path, "")
    }

    pub(crate) fn ask_with(&self, from: &str, path: &str, header: &str) -> Reply {
        self.send(from, "POST", path, &format!("{header}\r\n"))
    }

    pub(crate) fn send(&self, from: &str, method: &str, path: &str, headers: &str) -> Reply {
        let request = request(method, path, headers);
        block_on(exchange(self.address, from.to_owned(), request))
    }

    /// One registration for each of these addresses, at the same time.
    pub(crate) fn ask_at_once(&self, from: impl Iterator<Item = String>) -> Vec<Reply> {
        let request = request("POST", "/v1/registration", "");
        block_on(async {
            let asked: Vec<_> = from
                .map(|from| tokio::spawn(exchange(self.address, from, request.clone())))
                .collect();
            let mut replies = Vec::new();
            for reply in asked {
                replies.push(reply.await.unwrap());
            }
            replies
        })
    }

    /// Waits for a line of the log with these parts.
    pub(crate) fn wait_for_log(&self, start: &str, part: &str) {
        wait_for(&format!("the log has {start:?} and {part:?}"), || {
            let log = std::fs::read_to_string(&self.log).unwrap();
            let mut lines = log.lines();
            lines
                .any(|line| line.contains(start) && line.contains(part))
                .then_some(())
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

impl HostWorker {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for HostWorker {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

fn request(method: &str, path: &str, headers: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: relay\r\n{headers}Connection: close\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

async fn exchange(relay: SocketAddr, from: String, request: String) -> Reply {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(relay).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    Reply {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_lowercase(),
        body: serde_json::from_str(body).unwrap(),
    }
}
