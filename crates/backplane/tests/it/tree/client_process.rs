//! A process of its own that holds a lock: this test binary, started again.

use std::process::Stdio;

use backplane::tree::{Lock, TreePath};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::twin::{Server, connect, path, within};
use crate::broker::WAIT_LIMIT;

const ROOT: &str = "FLEETWRIGHT_TEST_LOCK_ROOT";
const HELD: &str = "holds the lock";

pub(crate) struct ClientProcess(Child);

impl ClientProcess {
    /// Starts a process, and waits until it holds the lock of `/a`.
    pub(crate) async fn start(root: &TreePath) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "tree::client_process::hold_a_lock",
            ])
            .env(ROOT, root.as_str())
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        within(async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(HELD) {
                    return;
                }
            }
            panic!("the process ended");
        })
        .await;
        Self(child)
    }

    pub(crate) fn kill(&mut self) {
        self.0.start_kill().unwrap();
    }
}

/// The work of the process. In other runs it does nothing.
#[tokio::test]
async fn hold_a_lock() {
    let Ok(root) = std::env::var(ROOT) else {
        return;
    };
    let server = Server::main().unwrap();
    let tree = connect(server.settings(&root.parse().unwrap())).await;
    let node = path("/a");
    let lock = Lock::acquire(&tree, &node, "process", WAIT_LIMIT);
    let lock = lock.await.unwrap();
    println!("{HELD}");
    lock.uncertain().await;
}
