//! A new task: from a command line to what the queue's API wants to know.

use access::slugid;
use clap::Args;
use domain::task::Priority;
use domain::time::{DAY_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value, json};

use super::follow::{reason, until_resolved};
use super::name;
use crate::client::{Call, QUEUE, WORKER_MANAGER};
use crate::commands::body::{json_argument, set};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::{machine, output};

/// Names are cut after so many characters.
const MAX_NAME: usize = 100;
/// Among this many pools a similar name is looked for.
const MAX_POOLS: usize = 1_000;

#[derive(Args, Debug)]
pub(crate) struct NewTask {
    /// The worker pool whose workers may run it
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: String,
    /// What to call it (default: the command)
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Who answers for it (default: your client)
    #[arg(long, value_name = "E-MAIL")]
    owner: Option<String>,
    /// How long it may run, such as 90s, 10m or 2h
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    max_run_time: Option<String>,
    /// Until when it must be done: a time, or a length from now (default: 1d)
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    deadline: Option<String>,
    /// Which tasks go first: highest, very-high, high, medium, low, very-low, lowest
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<Priority>,
    /// A variable of its environment; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Another task that must complete first; may be given several times
    #[arg(long, value_name = "TASK", value_parser = name::task)]
    after: Vec<String>,
    /// The group it belongs to (default: one of its own)
    #[arg(long, value_name = "GROUP", value_parser = name::task)]
    task_group: Option<String>,
    /// A scope that it gets; may be given several times
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// How often to try again when a worker is lost (default: 5)
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// For other workers than ours: the whole payload, as JSON or as @FILE
    #[arg(long, value_name = "JSON", conflicts_with_all = ["env", "max_run_time", "command"])]
    payload: Option<String>,
    /// Create it even if there is no worker pool of this name: other workers may come for it
    #[arg(long)]
    force: bool,
    /// Wait until it is resolved
    #[arg(short, long)]
    wait: bool,
    /// Show its log as it grows, and wait until it is resolved
    #[arg(short, long)]
    log: bool,
    /// The program and its arguments
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "payload"
    )]
    command: Vec<String>,
}

pub(super) async fn create(task: NewTask, session: &Session) -> Result<(), Failure> {
    if task.log && session.json {
        let problem = Failure::usage("a log is a text: leave --json or --log out");
        return Err(problem.advise("--wait waits for the end, and prints how the task stands then"));
    }
    let id = slugid::nice(&mut machine::chance());
    let definition = task.definition(session)?;
    if !task.force {
        refuse_unknown_pool(&task.pool, session).await?;
    }
    let call = Call::put(QUEUE, &["task", &id], definition)
        .to(format!("create a task in worker pool {}", task.pool))
        .look_with("fleetwright pool list");
    let reply = session.client.call(&call).await?;
    let created = format!("created task {id} in {}", task.pool);
    if !task.wait && !task.log {
        session.done(&reply, &created);
        if !session.json {
            output::note(&format!(
                "next: fleetwright task log --follow {id}\n      fleetwright task status {id}"
            ));
        }
        return Ok(());
    }
    let interrupt = tokio::spawn(tokio::signal::ctrl_c());
    // From here on it is heard.
    tokio::task::yield_now().await;
    if !session.json {
        output::note(&created);
    }
    tokio::select! {
        status = until_resolved(&id, task.log, session) => ended(&id, &status?, session),
        Ok(Ok(())) = interrupt => Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted: task {id} goes on without being watched"),
        )
        .advise(format!(
            "`fleetwright task log --follow {id}` shows it again, `fleetwright task cancel {id}` ends it"
        ))),
    }
}

/// A pool that does not exist starts no worker: its name was misspelt, or the task is for other workers.
async fn refuse_unknown_pool(pool: &str, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-pool", pool]).to("look for the worker pool");
    let found = session.client.call(&call).await;
    // Not all who may create tasks may see pools.
    if !found.is_err_and(|failure| failure.exit == Exit::NotFound) {
        return Ok(());
    }
    let call = Call::get(WORKER_MANAGER, &["worker-pools"]).to("list worker pools");
    let listed = session
        .client
        .pages(&call, "workerPools", Some(MAX_POOLS))
        .await;
    let listed = listed.unwrap_or_default();
    let pools = listed["workerPools"].as_array().into_iter().flatten();
    let names = pools.filter_map(|pool| pool["workerPoolId"].as_str());
    let near = rules::did_you_mean(pool, names);
    Err(Failure::new(
        Exit::NotFound,
        format!("no task was created: there is no worker pool {pool}{near}"),
    )
    .advise(
        "`fleetwright pool list` shows what there is; --force creates the task all the same, for workers that no \
         pool starts",
    ))
}

/// A task that did not complete is a failure.
fn ended(id: &str, status: &Value, session: &Session) -> Result<(), Failure> {
    if session.json {
        output::json(&json!({ "status": status }));
    }
    let why = reason(status).unwrap_or_default();
    let failure = match status["state"].as_str().unwrap_or_default() {
        "completed" => {
            if !session.json {
                output::note(&format!("task {id} completed"));
            }
            return Ok(());
        }
        "failed" => Failure::failed(format!("task {id} failed")),
        state => Failure::failed(format!("task {id} ended as {state}: {why}")),
    };
    Err(failure.advise(format!("fleetwright task log {id} shows what it said")))
}

impl NewTask {
    fn definition(&self, session: &Session) -> Result<Value, Failure> {
        let now = session.now;
        let deadline = match &self.deadline {
            Some(text) => output::parse_moment(text, now)
                .map_err(|problem| Failure::usage(format!("--deadline: {problem}")))?,
            None => now.plus_millis(DAY_MS),
        };
        let owner = self.owner.as_deref().or(session.client.client_id());
        let name = self.name.clone().unwrap_or_else(|| self.command.join(" "));
        let name = if name.is_empty() { "task" } else { &name };
        let mut fields = Map::from_iter([
            ("taskQueueId".to_owned(), json!(self.pool)),
            ("created".to_owned(), json!(now.to_string())),
            ("deadline".to_owned(), json!(deadline.to_string())),
            ("payload".to_owned(), self.payload(now)?),
            (
                "metadata".to_owned(),
                json!({
                    "name": name.chars().take(MAX_NAME).collect::<String>(),
                    "description": self.description.as_deref().unwrap_or_default(),
                    "owner": owner.unwrap_or("unknown"),
                    "source": session.client.root_url(),
                }),
            ),
        ]);
        let listed = |items: &Vec<String>| (!items.is_empty()).then(|| json!(items));
        set(&mut fields, "priority", self.priority.map(Priority::as_str));
        set(&mut fields, "dependencies", listed(&self.after));
        set(&mut fields, "scopes", listed(&self.scope));
        set(&mut fields, "taskGroupId", self.task_group.clone());
        set(&mut fields, "retries", self.retries);
        Ok(Value::Object(fields))
    }

    fn payload(&self, now: Timestamp) -> Result<Value, Failure> {
        if let Some(text) = &self.payload {
            return json_argument("--payload", text);
        }
        let mut payload = Map::from_iter([("command".to_owned(), json!(self.command))]);
        if !self.env.is_empty() {
            let env: Map<String, Value> = self
                .env
                .iter()
                .map(|(name, value)| (name.clone(), json!(value)))
                .collect();
            payload.insert("env".to_owned(), Value::Object(env));
        }
        if let Some(text) = &self.max_run_time {
            let problem = "give --max-run-time a length of at least a second, such as 90s or 2h";
            let end = output::parse_moment(text, now).map_err(|_| Failure::usage(problem))?;
            let seconds = end.millis_since(now) / SECOND_MS;
            if seconds < 1 {
                return Err(Failure::usage(problem));
            }
            payload.insert("maxRunTime".to_owned(), json!(seconds));
        }
        Ok(Value::Object(payload))
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("give NAME=VALUE, such as CI=true".to_owned()),
    }
}
