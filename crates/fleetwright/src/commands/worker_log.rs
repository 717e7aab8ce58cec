//! The log of a worker: what its process or its machine wrote.

use serde_json::json;

use super::Session;
use super::worker_name::Name;
use crate::failure::Failure;
use crate::output::{self, ForeignText};

pub(super) async fn print(worker: &Name, session: &Session) -> Result<(), Failure> {
    let log = session.client.bytes(&worker.log()).await?;
    if session.json {
        let [pool, group, id] = worker.parts();
        let text = String::from_utf8_lossy(&log);
        output::json(&json!({
            "workerPoolId": pool,
            "workerGroup": group,
            "workerId": id,
            "text": text,
        }));
        return Ok(());
    }
    if log.is_empty() {
        output::note(&format!("worker {worker} has written nothing yet"));
        return Ok(());
    }
    let mut text = ForeignText::to_stdout();
    text.print(&log);
    text.end();
    output::check_written()
}
