//! A temporary home with a server, and commands for it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary home, isolated from the user's files.
pub(crate) struct Home {
    folder: TempDir,
}

/// A running `up`.
pub(crate) struct Server {
    pub(crate) home: Home,
    /// The text printed when it was ready.
    pub(crate) welcome: String,
    process: Child,
}

/// The outcome of a command.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir();
        Self {
            folder: folder.unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program with only this home in its environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.bare_command(Path::new(env!("CARGO_BIN_EXE_fleetwright")), arguments)
    }

    pub(crate) fn bare_command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }

    /// The access token in the owner's file.
    pub(crate) fn token(&self) -> String {
        let text = self.read("data/owner.env");
        let line = text.lines().find(|line| line.contains("ACCESS_TOKEN"));
        line.unwrap().split_once('=').unwrap().1.to_owned()
    }
}

impl Server {
    /// As if it ran in the default data folder, in which commands look for the owner's file.
    pub(crate) fn serves_its_user(&self) {
        let owner = self.home.read("data/owner.env");
        self.home
            .write(".local/share/fleetwright/owner.env", &owner);
    }

    pub(crate) fn start() -> Self {
        Self::start_in(Home::new(), &[])
    }

    /// A server without the first pool.
    pub(crate) fn without_pools() -> Self {
        let home = Home::new();
        let file = home.write(
            "without-local.toml",
            "[providers.local]\nkind = \"static\"\n",
        );
        Self::start_in(home, &["--config", &file])
    }

    /// Starts the server and waits until it is ready.
    pub(crate) fn start_in(home: Home, more: &[&str]) -> Self {
        let data = home.path("data");
        let mut arguments = vec!["up", "--data", data.to_str().unwrap()];
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        let command = home.command(&arguments);
        Self::start_by(home, command)
    }

    /// Starts the server by a command that becomes the server.
    pub(crate) fn start_by(home: Home, mut command: Command) -> Self {
        let log = File::create(home.path("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut welcome = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        while !welcome.contains("Ctrl-C") {
            let read = lines.read_line(&mut welcome).unwrap();
            assert_ne!(read, 0, "it did not start: {}", home.read("log"));
        }
        Self {
            home,
            welcome,
            process,
        }
    }

    pub(crate) fn root_url(&self) -> String {
        let first = self.welcome.lines().next().unwrap();
        first.rsplit(' ').next().unwrap().to_owned()
    }

    /// A client command with the owner's credentials.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        command
            .env("TASKCLUSTER_ROOT_URL", self.root_url())
            .env("TASKCLUSTER_CLIENT_ID", "static/owner")
            .env("TASKCLUSTER_ACCESS_TOKEN", self.home.token());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.err);
        done.out
    }

    /// Runs a command with `--json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Runs a command with this standard input.
    pub(crate) fn with_input(&self, arguments: &[&str], input: &str) -> Done {
        Done::of_input(self.command(arguments), input)
    }

    /// Stops the server, and returns its exit code and its home.
    pub(crate) fn terminate(mut self) -> (Option<i32>, Home) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
        let code = self.process.wait().unwrap().code();
        let home = std::mem::replace(&mut self.home, Home::new());
        (code, home)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

impl Done {
    /// Runs a command with this standard input.
    pub(crate) fn of_input(mut command: Command, input: &str) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        Self::of(child.wait_with_output().unwrap())
    }

    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Reads the rest of a stream and discards it.
pub(crate) fn drain(mut stream: impl std::io::Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
