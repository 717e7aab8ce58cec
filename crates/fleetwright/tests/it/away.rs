//! Servers and builders that are started, or run, while the database or the tree is away.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use access::seal::generate_key;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use testing::databases::Database;

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

/// A way to a server that can be closed.
struct Gate {
    address: SocketAddr,
    server: String,
    open: Option<(Arc<Mutex<Passing>>, JoinHandle<()>)>,
}

/// The connections through an open gate. A client that connects while it closes is too late.
#[derive(Default)]
struct Passing {
    is_closed: bool,
    streams: Vec<TcpStream>,
}

impl Gate {
    /// A closed gate, at an address where nothing answers.
    fn closed(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            server: server.to_owned(),
            open: None,
        }
    }

    fn open(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        let (passing, server) = (
            Arc::new(Mutex::new(Passing::default())),
            self.server.clone(),
        );
        let shared = Arc::clone(&passing);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let mut passing = shared.lock().unwrap();
                if passing.is_closed {
                    return;
                }
                copy(&client, &server);
                copy(&server, &client);
                passing.streams.extend([client, server]);
            }
        });
        self.open = Some((passing, thread));
    }

    fn close(&mut self) {
        let (passing, thread) = self.open.take().unwrap();
        let mut passing = passing.lock().unwrap();
        passing.is_closed = true;
        for stream in passing.streams.drain(..) {
            let _ended_already = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(passing);
        // Wakes the thread, if nobody else did.
        let _ended_already = TcpStream::connect(self.address);
        thread.join().unwrap();
    }
}

fn copy(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut to);
        let _ended_already = to.shutdown(std::net::Shutdown::Both);
    });
}

/// A process, killed at the end of the test.
struct Process(Child);

impl Process {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let log = File::create(home.path("log")).unwrap();
        let mut command = home.command(arguments);
        Self(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    }

    /// The first line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let mut lines = BufReader::new(self.0.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        line
    }

    fn terminate(mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

fn says(home: &Home, part: &str) {
    wait_for(part, || home.read("log").contains(part).then_some(()));
}

fn server_file(home: &Home, url: &str) -> String {
    let key = generate_key(&mut StdRng::seed_from_u64(7));
    let keys = home.write("keys", &format!("k1 {}\n", key.expose()));
    let text =
        format!("listen = \"127.0.0.1:0\"\n[database]\nurl = {url:?}\n[keys]\nfile = {keys:?}\n");
    home.write("c.toml", &text)
}

#[test]
fn a_server_that_waits_for_its_database_says_so_and_can_be_stopped() {
    let home = Home::new();
    let gate = Gate::closed("nowhere");
    let url = format!("postgres://u:secret@{}/d?sslmode=disable", gate.address);
    let server = Process::start(&home, &["serve", "--config", &server_file(&home, &url)]);
    says(&home, "waiting for the database: cannot use the database");
    assert!(!home.read("log").contains("secret"));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_server_starts_when_its_database_has_started() {
    let Some(database) = Database::empty_postgres() else {
        return;
    };
    let url = database.url.strip_prefix("postgres://").unwrap();
    let (user, rest) = url.split_once('@').unwrap();
    let (host, rest) = rest.split_once('/').unwrap();
    let mut gate = Gate::closed(host);
    let home = Home::new();
    let through = format!("postgres://{user}@{}/{rest}", gate.address);
    let file = server_file(&home, &through);
    let mut server = Process::start(&home, &["serve", "--config", &file]);
    says(&home, "waiting for the database");
    gate.open();
    let line = server.line();
    assert!(line.contains("is ready at "), "{line} {}", home.read("log"));
    assert_eq!(server.terminate(), Some(0));
    // A database that does not exist is a mistake in the configuration.
    let (name, options) = rest.split_once('?').unwrap_or((rest, ""));
    let other = format!("postgres://{user}@{host}/{name}_x?{options}");
    let refused = home.run(&["serve", "--config", &server_file(&home, &other)]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("does not exist"), "{}", refused.err);
    // So is TLS that the server does not offer.
    let other = format!("postgres://{user}@{host}/{name}?sslmode=require");
    let refused = home.run(&["serve", "--config", &server_file(&home, &other)]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("TLS"), "{}", refused.err);
}

#[test]
fn a_builder_starts_when_the_tree_has_started() {
    let Some((_, servers)) = crate::tree::zookeeper() else {
        return;
    };
    let mut gate = Gate::closed(&servers);
    let home = Home::new();
    let server = server_file(&home, "sqlite:unused");
    let builder_keys = home.path("builder.keys").display().to_string();
    let made = [
        "keys",
        "builder",
        "--config",
        &server,
        "--output",
        &builder_keys,
    ];
    let made = home.run(&made);
    assert_eq!(made.code, 0, "{}", made.err);
    let text = format!(
        "root_url = \"http://localhost\"\ndata = {:?}\nkeys.file = {builder_keys:?}\n\
         [tree]\nkind = \"zookeeper\"\nservers = \"{}\"\nroot = \"/away-{}\"\ninsecure = true\n\
         session_seconds = 1\n",
        home.path("data"),
        gate.address,
        std::process::id(),
    );
    let file = home.write("b.toml", &text);
    let mut builder = Process::start(&home, &["builder", "--config", &file]);
    says(&home, "waiting for the tree");
    gate.open();
    let line = builder.line();
    assert!(line.ends_with(" is ready\n"), "{line} {}", home.read("log"));
    assert_eq!(builder.terminate(), Some(0));

    // Without the tree, it can be stopped as well.
    gate.close();
    let builder = Process::start(&home, &["builder", "--config", &file]);
    says(&home, "waiting for the tree");
    assert_eq!(builder.terminate(), Some(0));
}

#[test]
fn the_status_of_images_says_how_old_it_is_while_the_tree_is_away() {
    let Some((_, servers)) = crate::tree::zookeeper() else {
        return;
    };
    let mut gate = Gate::closed(&servers);
    gate.open();
    let home = Home::new();
    let text = format!(
        "roles = [\"api\", \"housekeeper\"]\n[tree]\nkind = \"zookeeper\"\nservers = \"{}\"\n\
         root = \"/as-of-{}\"\ninsecure = true\nsession_seconds = 1\n\
         [providers.cloud]\nkind = \"fake\"\n",
        gate.address,
        std::process::id(),
    );
    let config = home.write("c.toml", &text);
    let server = Server::start_in(home, &["--config", &config]);
    let definition = json!({
        "imageId": "linux",
        "build": {"command": ["true"]},
        "formats": ["tar"],
        "uploads": [{"providerId": "cloud"}],
    });
    let file = server.home.write("image.json", &definition.to_string());
    server.ok(&["image", "create", "linux", "--file", &file]);
    let show = ["image", "show", "linux"];
    let shown = wait_for("the image is in the tree", || {
        let done = server.run(&show);
        (done.code == 0).then_some(done)
    });
    assert!(!shown.err.contains("as of"), "{}", shown.err);
    gate.close();
    let line = "the server does not reach the tree of images";
    for arguments in [
        &show[..],
        &["image", "list"],
        &["explain", "image", "linux"],
    ] {
        wait_for("it is noticed", || {
            let done = server.run(arguments);
            assert_eq!(done.code, 0, "{}", done.err);
            done.err.contains(line).then_some(())
        });
    }
    let json = [&show[..], &["--json"]].concat();
    let status: Value = serde_json::from_str(&server.ok(&json)).unwrap();
    let since = status["asOf"].as_str().unwrap().to_owned();
    let status: Value = serde_json::from_str(&server.ok(&json)).unwrap();
    assert_eq!(status["asOf"], since, "the time stands still");
    gate.open();
    wait_for("it is reached again", || {
        let status: Value = serde_json::from_str(&server.ok(&json)).unwrap();
        status.get("asOf").is_none().then_some(())
    });
}
