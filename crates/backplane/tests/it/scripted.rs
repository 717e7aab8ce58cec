//! An HTTP server that responds by a script and records its requests.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longest request of these tests.
const MAX_REQUEST: usize = 1024 * 1024;

/// The response to a request line and its body.
pub(crate) type Script = fn(&str, &str) -> (u16, String);

#[derive(Clone)]
pub(crate) struct ScriptedServer {
    pub(crate) root_url: String,
    /// The heads of all requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    pub(crate) async fn start(
        script: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(script);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            root_url: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
        };
        let asked = Arc::clone(&server.asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&asked)));
            }
        });
        server
    }

    /// The request lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let lines = asked.iter().filter_map(|head| head.lines().next());
        lines.map(str::to_owned).collect()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// One request for each connection.
async fn serve(
    mut stream: TcpStream,
    script: Arc<impl Fn(&str, &str) -> (u16, String)>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let mut received = Vec::new();
    let (head, body) = loop {
        assert!(received.len() < MAX_REQUEST);
        if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= length(head)
        {
            break (head.to_owned(), body.to_owned());
        }
    };
    let line = head.lines().next().unwrap().to_owned();
    asked.lock().unwrap().push(head);
    let (status, answer) = script(&line, &body);
    let text = format!(
        "HTTP/1.1 {status} ScriptedServer\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
    let _gone = stream.write_all(text.as_bytes()).await;
}

fn length(head: &str) -> usize {
    let lower = head.to_lowercase();
    let given = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    given.map_or(0, |length| length.trim().parse().unwrap())
}
