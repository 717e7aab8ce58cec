//! The DNS servers of scripts/with-dns, and what stands between them and their clients.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::HashSet;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The types of questions about addresses.
pub const A: u16 = 1;
pub const PTR: u16 = 12;

/// No DNS message over UDP is larger here.
const MAX_MESSAGE_BYTES: usize = 4_096;
/// Only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The two servers, or `None` without them.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
pub fn servers() -> Option<[SocketAddr; 2]> {
    let Ok(text) = std::env::var("TEST_DNS") else {
        println!("skipped: TEST_DNS is not set");
        return None;
    };
    let (first, second) = text.split_once(' ').unwrap();
    Some([first.parse().unwrap(), second.parse().unwrap()])
}

/// Changes records of a server, such as `add h7.fleet.test 60 A 127.0.0.10`, one after the other.
pub fn update(server: SocketAddr, changes: &[impl AsRef<str>]) {
    let mut text = format!("server {} {}\ncheck-names no\n", server.ip(), server.port());
    for change in changes {
        text.push_str(&format!("update {}\nsend\n", change.as_ref()));
    }
    let mut program = Command::new("nsupdate")
        .args(["-t", "120"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let done = program.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{text}{said}");
}

/// The record with the name of an address, for `update`.
pub fn pointer(address: &str, name: &str) -> String {
    format!("add {} 300 PTR {name}.", reverse(address))
}

/// The name under which the name of an address is found.
pub fn reverse(address: &str) -> String {
    match address.parse().unwrap() {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            let digits = octets
                .iter()
                .rev()
                .map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
    }
}

/// Stands between a server and its clients: counts questions, and holds some of them back.
pub struct Interposer {
    pub address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// Each question as it was sent, since clients repeat late questions.
    questions: HashSet<Vec<u8>>,
    held_kind: Option<u16>,
    n_held: usize,
}

impl Interposer {
    /// Before this server; without one, no question is ever answered.
    pub fn start(server: Option<SocketAddr>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut buffer = [0; MAX_MESSAGE_BYTES];
            while let Ok((size, client)) = socket.recv_from(&mut buffer) {
                let question = buffer[..size].to_vec();
                let (socket, state) = (socket.try_clone().unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || {
                    state.0.lock().unwrap().questions.insert(question.clone());
                    let Some(server) = server else {
                        return;
                    };
                    wait_while_held(&state, kind_of(&question));
                    if let Some(answer) = ask(server, &question) {
                        let _client_has_ended = socket.send_to(&answer, client);
                    }
                });
            }
        });
        Self { address, state }
    }

    pub fn n_questions(&self) -> usize {
        self.state.0.lock().unwrap().questions.len()
    }

    /// Holds questions of this type back from now on.
    pub fn hold(&self, kind: u16) {
        self.state.0.lock().unwrap().held_kind = Some(kind);
    }

    /// Waits until a question is held back.
    pub fn wait_until_held(&self) {
        let (state, changed) = &*self.state;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, LIMIT, |state| state.n_held == 0);
        assert!(!waited.unwrap().1.timed_out(), "no question was held back");
    }

    pub fn release(&self) {
        let (state, changed) = &*self.state;
        state.lock().unwrap().held_kind = None;
        changed.notify_all();
    }
}

fn wait_while_held((state, changed): &(Mutex<State>, Condvar), kind: u16) {
    let mut state = state.lock().unwrap();
    if state.held_kind == Some(kind) {
        state.n_held += 1;
        changed.notify_all();
        let is_held = |state: &mut State| state.held_kind == Some(kind);
        drop(changed.wait_timeout_while(state, LIMIT, is_held).unwrap());
    }
}

/// The type of the question: it follows the name, which ends with an empty label.
fn kind_of(question: &[u8]) -> u16 {
    let mut place = 12;
    while question[place] != 0 {
        place += usize::from(question[place]) + 1;
    }
    u16::from_be_bytes([question[place + 1], question[place + 2]])
}

fn ask(server: SocketAddr, question: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.send_to(question, server).unwrap();
    let mut buffer = [0; MAX_MESSAGE_BYTES];
    let size = socket.recv(&mut buffer).ok()?;
    Some(buffer[..size].to_vec())
}
