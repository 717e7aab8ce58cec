//! `task create`: builds a task definition from arguments.

use access::slugid;
use clap::Args;
use domain::task::Priority;
use domain::time::{DAY_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value, json};

use super::follow::{ShownLog, reason, until_resolved};
use super::name;
use crate::client::{Call, QUEUE, WORKER_MANAGER};
use crate::commands::body::{json_argument, set};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::{machine, output};

/// Maximum length of a task's name; longer names are cut.
const MAX_NAME: usize = 100;
/// Maximum number of pools to search for a similar name.
const MAX_POOLS: usize = 1_000;

#[derive(Args, Debug)]
pub(crate) struct NewTask {
    /// Pool id, such as demo/linux
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: String,
    /// Name (default: the command)
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// E-mail address of the owner (default: your client id)
    #[arg(long, value_name = "E-MAIL")]
    owner: Option<String>,
    /// Maximum run time, such as 90s, 10m or 2h
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    max_run_time: Option<String>,
    /// Deadline: a time, or a duration from now (default: 1d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    deadline: Option<String>,
    /// Priority: highest, very-high, high, medium, low, very-low, lowest
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<Priority>,
    /// Environment variable; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Id of a task that must complete first; repeatable
    #[arg(long, value_name = "TASK", value_parser = name::task)]
    after: Vec<String>,
    /// Task group id (default: a new group)
    #[arg(long, value_name = "GROUP", value_parser = name::task)]
    task_group: Option<String>,
    /// Scope to grant; repeatable
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Maximum number of retries after lost workers (default: 5)
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Complete payload for another worker implementation, as JSON or @FILE
    #[arg(long, value_name = "JSON", conflicts_with_all = ["env", "max_run_time", "command"])]
    payload: Option<String>,
    /// Create the task even if the pool does not exist
    #[arg(long)]
    force: bool,
    /// Wait until the task is resolved
    #[arg(short, long)]
    wait: bool,
    /// Follow the log, and wait until the task is resolved
    #[arg(short, long)]
    log: bool,
    /// Program and its arguments
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "payload"
    )]
    command: Vec<String>,
}

pub(super) async fn create(task: NewTask, session: &Session) -> Result<(), Failure> {
    if task.log && session.json {
        let error = Failure::usage("--json and --log cannot be used together");
        return Err(error.with_hint("use --wait to wait and print the task's status"));
    }
    let id = slugid::nice(&mut machine::random_source());
    let definition = task.definition(session)?;
    if !task.force {
        refuse_unknown_pool(&task.pool, session).await?;
    }
    let call = Call::put(QUEUE, &["task", &id], definition)
        .to(format!("create a task in pool {}", task.pool))
        .list_command("fleetwright pool list");
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
    // Ctrl-C is handled from here on.
    tokio::task::yield_now().await;
    if !session.json {
        output::note(&created);
    }
    let shown = if task.log {
        ShownLog::OfServer
    } else {
        ShownLog::None
    };
    tokio::select! {
        status = until_resolved(&id, shown, session) => ended(&id, &status?, shown, session),
        Ok(Ok(())) = interrupt => Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted: task {id} continues"),
        )
        .with_hint(format!(
            "`fleetwright task log --follow {id}` follows it again, `fleetwright task cancel \
             {id}` cancels it"
        ))),
    }
}

/// Refuses an unknown pool: its id is probably misspelt. `--force` skips this check.
async fn refuse_unknown_pool(pool: &str, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-pool", pool]).to("look for the pool");
    let found = session.client.call(&call).await;
    // The client may create tasks, but not read pools.
    if !found.is_err_and(|failure| failure.exit == Exit::NotFound) {
        return Ok(());
    }
    let call = Call::get(WORKER_MANAGER, &["worker-pools"]).to("list pools");
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
        format!("no task was created: pool {pool} does not exist{near}"),
    )
    .with_hint(
        "`fleetwright pool list` lists the pools; use --force if other workers run this task queue",
    ))
}

/// A task that did not complete is a failure.
fn ended(id: &str, status: &Value, shown: ShownLog, session: &Session) -> Result<(), Failure> {
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
    Err(match shown {
        ShownLog::None => {
            failure.with_hint(format!("show its log with `fleetwright task log {id}`"))
        }
        ShownLog::OfServer | ShownLog::OfAnyHost => failure,
    })
}

impl NewTask {
    fn definition(&self, session: &Session) -> Result<Value, Failure> {
        let now = session.now;
        let deadline = match &self.deadline {
            Some(text) => session.moment("--deadline", text)?,
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
            let env = self.env.iter().cloned();
            let env: Map<_, _> = env.map(|(name, value)| (name, json!(value))).collect();
            payload.insert("env".to_owned(), Value::Object(env));
        }
        if let Some(text) = &self.max_run_time {
            let error = "--max-run-time: expected a duration of at least 1 s, such as 90s or 2h";
            let end = output::parse_moment(text, now).map_err(|_| Failure::usage(error))?;
            let seconds = end.millis_since(now) / SECOND_MS;
            if seconds < 1 {
                return Err(Failure::usage(error));
            }
            payload.insert("maxRunTime".to_owned(), json!(seconds));
        }
        Ok(Value::Object(payload))
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE, such as CI=true".to_owned()),
    }
}
