//! Measures the load of an idle server, and the time until the first line of a task's log.

use std::time::Duration;

use anyhow::Context as _;
use api_client::{Call, FLEETWRIGHT};
use serde_json::{Value, json};

use crate::child::{Child, Database, Folder};
use crate::figures::median;
use crate::load::{Connection, timed};
use crate::machine::{self, Stopwatch};
use crate::prepare::{create_task, signed};

/// How long the idle server is observed.
const WATCHED: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(3);
/// Tasks whose first line is awaited, one by one.
const TASKS: usize = 7;
/// The pool that `up` creates on its first start.
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
    // An existing worker takes the later tasks; both cases are of interest.
    let warm = median(first_lines.into_iter().skip(1));
    server.end().await;
    Ok(json!({
        "cpuShareOfOneCore": share,
        "residentBytes": resident,
        "firstLogLineWithNewWorkerMs": cold,
        "firstLogLineWithWaitingWorkerMs": warm,
    }))
}

/// The share of a core that the server used while it was observed.
async fn cpu_share(server: &Child) -> Option<f64> {
    let before = server.cpu_seconds()?;
    machine::pause(WATCHED).await;
    Some((server.cpu_seconds()? - before) / WATCHED.as_secs_f64())
}

async fn first_line_ms(server: &Child) -> anyhow::Result<f64> {
    let (id, create) = create_task(POOL, &["echo", "first line"]);
    let read = Call::get(FLEETWRIGHT, &["task", &id, "runs", "0", "log"]);
    let mut connection = Connection::open(server.address).await?;
    let watch = Stopwatch::start();
    let request = signed(&create, server.address, Some(&server.credentials));
    timed(&mut connection, request)
        .await
        .context("cannot create a task")?;
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
            anyhow::bail!("the task's log did not begin within the time limit");
        }
        machine::pause(BEAT).await;
    }
}
