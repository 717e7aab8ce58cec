//! What a server costs that does nothing, and how soon the first line of a task's log is there.

use std::time::Duration;

use access::slugid;
use anyhow::Context as _;
use api_client::{Call, FLEETWRIGHT, QUEUE};
use serde_json::{Value, json};

use crate::child::{Child, Database, Folder};
use crate::figures::median;
use crate::load::Connection;
use crate::machine::{self, Stopwatch};
use crate::prepare::signed;

/// How long the server is watched while it does nothing.
const WATCHED: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(3);
/// Tasks whose first line is waited for, one after the other.
const TASKS: usize = 7;
/// The pool that `up` makes on its first start.
const POOL: &str = "local/default";
const LIMIT: Duration = Duration::from_secs(30);
const BEAT: Duration = Duration::from_millis(5);

pub(crate) async fn measure(database: &Database) -> anyhow::Result<Value> {
    let folder = Folder::new(database)?;
    let (server, _) = Child::ours(&folder).await?;
    machine::pause(SETTLING).await;
    let share = cpu_share(&server).await;
    let resident = server.resident_bytes();
    let mut first_lines = Vec::new();
    for _ in 0..TASKS {
        first_lines.push(first_line_ms(&server).await?);
    }
    let cold = first_lines.first().copied();
    // A worker that is already there takes the later ones; both are of interest.
    let warm = median(first_lines.into_iter().skip(1));
    server.end().await;
    Ok(json!({
        "cpuShareOfOneCore": share,
        "residentBytes": resident,
        "firstLogLineWithNewWorkerMs": cold,
        "firstLogLineWithWaitingWorkerMs": warm,
    }))
}

/// The part of one core that the server used while it was watched.
async fn cpu_share(server: &Child) -> Option<f64> {
    let before = server.cpu_seconds()?;
    machine::pause(WATCHED).await;
    Some((server.cpu_seconds()? - before) / WATCHED.as_secs_f64())
}

async fn first_line_ms(server: &Child) -> anyhow::Result<f64> {
    let id = slugid::nice(&mut machine::chance());
    let now = machine::now();
    let body = json!({
        "taskQueueId": POOL,
        "created": now.to_string(),
        "deadline": now.plus_seconds(60 * 60).to_string(),
        "payload": {"command": ["echo", "first line"], "maxRunTime": 60},
        "metadata": {"name": "bench", "description": "", "owner": "bench@example.com",
            "source": "https://example.com"},
    });
    let create = Call::put(QUEUE, &["task", &id], &body);
    let read = Call::get(FLEETWRIGHT, &["task", &id, "runs", "0", "log"]);
    let mut connection = Connection::open(server.address).await?;
    let watch = Stopwatch::start();
    let request = signed(&create, server.address, Some(&server.credentials));
    let (status, reply) = connection.send(request).await?;
    if !status.is_success() {
        let problem = String::from_utf8_lossy(&reply).into_owned();
        anyhow::bail!("a task was not made: {problem}");
    }
    loop {
        let request = signed(&read, server.address, Some(&server.credentials));
        let (status, log) = connection
            .send(request)
            .await
            .context("cannot read the log")?;
        if status.is_success() && String::from_utf8_lossy(&log).contains("first line\n") {
            return Ok(watch.elapsed().as_secs_f64() * 1_000.0);
        }
        if watch.elapsed() > LIMIT {
            anyhow::bail!("the task's log did not begin in time");
        }
        machine::pause(BEAT).await;
    }
}
