//! `task create`: builds task definitions from arguments and files.

use std::path::PathBuf;

use access::slugid;
use clap::{Args, value_parser};
use domain::task::Priority;
use domain::time::{DAY_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value, json};

use super::folder::{self, Packed};
use super::follow::{ShownLog, follow, reason, until_resolved};
use crate::client::{Call, QUEUE, WORKER_MANAGER};
use crate::commands::body::{Shape, json_argument, require, set};
use crate::commands::name;
use crate::failure::{Exit, Failure};
use crate::output::Progress;
use crate::session::Session;
use crate::{machine, output};

/// Maximum length of a task's name; longer names are cut.
const MAX_NAME: usize = 100;
/// Maximum number of pools to search for a similar name.
const MAX_POOLS: usize = 1_000;

#[derive(Args, Debug)]
pub(crate) struct NewTask {
    /// Pool id, such as demo/linux
    #[arg(
        long,
        value_name = "POOL",
        value_parser = name::pool,
        required_unless_present = "file"
    )]
    pool: Option<String>,
    /// File with the API's fields: YAML, JSON or TOML (`-`: standard input); flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
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
    /// File or folder of the task to keep as an artifact, such as public/report=out/; repeatable
    ///
    /// A path that ends with a slash is a folder. Paths are below the task's folder.
    #[arg(long, value_name = "NAME=PATH", value_parser = artifact)]
    artifact: Vec<(String, String)>,
    /// Folder to send: its files are in the task's folder when the command starts
    ///
    /// Of a git repository, those that git tracks, as they are now, and new ones that it does not
    /// ignore. For the reference worker.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
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
    #[arg(
        long,
        value_name = "JSON",
        conflicts_with_all = ["env", "max_run_time", "artifact", "dir", "command"]
    )]
    payload: Option<String>,
    /// Number of equal tasks to create, in one group
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        hide_default_value = true,
        value_parser = value_parser!(u32).range(1..=10_000)
    )]
    count: u32,
    /// Print the ids of the tasks only
    #[arg(short, long, conflicts_with = "log")]
    quiet: bool,
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
        required_unless_present_any = ["payload", "file"]
    )]
    command: Vec<String>,
}

pub(super) async fn create(task: NewTask, session: &Session) -> Result<(), Failure> {
    if task.log && session.json {
        let error = Failure::usage("--json and --log cannot be used together");
        return Err(error.with_hint("use --wait to wait and print the task's status"));
    }
    if task.log && task.count > 1 {
        let error = Failure::usage("--log follows one task, and --count creates several");
        return Err(error.with_hint("use --wait to wait for all of them"));
    }
    let packed = task.dir.as_deref().map(folder::pack).transpose()?;
    let definition = task.definition(packed.as_ref(), session)?;
    let pool = pool_of(&definition);
    if !task.force {
        refuse_unknown_pool(&pool, session).await?;
    }
    if let Some(packed) = &packed
        && !session.json
    {
        let files = output::counted(packed.n_files, "file");
        output::note(&format!("packed {files} into {} bytes", packed.size()));
    }
    let created = send(&task, definition, packed.as_ref(), session).await?;
    if !task.wait && !task.log {
        report(&task, &pool, &created, session);
        return Ok(());
    }
    let interrupt = tokio::spawn(tokio::signal::ctrl_c());
    // Ctrl-C is handled from here on.
    tokio::task::yield_now().await;
    if !session.json {
        if task.quiet {
            output::out(&created.ids.join("\n"));
        } else {
            output::note(&created.text(&pool));
        }
    }
    tokio::select! {
        ended = wait(&task, &created, session) => ended,
        Ok(Ok(())) = interrupt => Err(created.interrupted()),
    }
}

/// The tasks of one command.
struct Created {
    ids: Vec<String>,
    /// The last reply.
    reply: Value,
}

/// Sends the definition once for each task. Several tasks are one group.
async fn send(
    task: &NewTask,
    mut definition: Value,
    packed: Option<&Packed>,
    session: &Session,
) -> Result<Created, Failure> {
    let pool = pool_of(&definition);
    let mut created = Created {
        ids: Vec::new(),
        reply: Value::Null,
    };
    let mut progress = Progress::start();
    for number in 0..task.count {
        progress.report(|| format!("created {number} of {} tasks", task.count));
        let id = slugid::nice(&mut machine::random_source());
        if task.count > 1 && definition["taskGroupId"].is_null() {
            definition["taskGroupId"] = json!(id);
        }
        let call = Call::put(QUEUE, &["task", &id], definition.clone())
            .to(format!("create a task in pool {pool}"))
            .list_command("fleetwright pool list");
        let sent = session.client.call(&call).await;
        created.reply = sent.map_err(|failure| match packed {
            Some(packed) if failure.message.contains("A task may take") => {
                let size = packed.size();
                failure.with_hint(format!(
                    "the folder of --dir takes {size} bytes when packed: name a smaller folder, \
                     let .gitignore exclude more, or raise queue.max_task_bytes of the server"
                ))
            }
            Some(_) | None => created.before(failure, &definition["taskGroupId"]),
        })?;
        created.ids.push(id);
    }
    Ok(created)
}

fn pool_of(definition: &Value) -> String {
    definition["taskQueueId"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Prints the tasks of a creation without a wait.
fn report(task: &NewTask, pool: &str, created: &Created, session: &Session) {
    if task.quiet && !session.json {
        return output::out(&created.ids.join("\n"));
    }
    let [id] = created.ids.as_slice() else {
        let group = created.reply["status"]["taskGroupId"]
            .as_str()
            .unwrap_or_default();
        let document = json!({"taskIds": created.ids, "taskGroupId": group});
        session.done(&document, &created.text(pool));
        if !session.json {
            output::note(&format!("next: fleetwright task list --task-group {group}"));
        }
        return;
    };
    session.done(&created.reply, &created.text(pool));
    if !session.json {
        output::note(&format!(
            "next: fleetwright task log --follow {id}\n      fleetwright task status {id}"
        ));
    }
}

/// Waits for all tasks, one after the other.
async fn wait(task: &NewTask, created: &Created, session: &Session) -> Result<(), Failure> {
    let shown = if task.log {
        ShownLog::OfServer
    } else {
        ShownLog::None
    };
    let [id] = created.ids.as_slice() else {
        return wait_for_all(created, session).await;
    };
    let status = until_resolved(id, shown, session).await?;
    ended(id, &status, shown, session)
}

async fn wait_for_all(created: &Created, session: &Session) -> Result<(), Failure> {
    let all = created.ids.len();
    let (mut statuses, mut failed) = (Vec::new(), Vec::new());
    let mut progress = Progress::start();
    for id in &created.ids {
        let (n_resolved, n_failed) = (statuses.len(), failed.len());
        progress.report(|| format!("{n_resolved} of {all} tasks are resolved, {n_failed} failed"));
        let status = follow(id, ShownLog::None, session).await?;
        if status["state"] != "completed" {
            failed.push(id.clone());
        }
        statuses.push(status);
    }
    drop(progress);
    if session.json {
        output::json(&json!({ "statuses": statuses }));
    }
    match failed.first() {
        None => {
            if !session.json {
                output::note(&format!("{all} tasks completed"));
            }
            Ok(())
        }
        Some(first) => Err(Failure::failed(format!(
            "{} of {all} tasks did not complete",
            failed.len()
        ))
        .with_hint(format!(
            "`fleetwright task log {first}` shows the log of the first one"
        ))),
    }
}

impl Created {
    /// The failure of the next task, with what exists already.
    fn before(&self, mut failure: Failure, group: &Value) -> Failure {
        if !self.ids.is_empty() {
            let tasks = output::counted(self.ids.len(), "task");
            let group = group.as_str().unwrap_or_default();
            let more = format!("; {tasks} were created before, in group {group}");
            failure.message.push_str(&more);
        }
        failure
    }

    fn text(&self, pool: &str) -> String {
        match self.ids.as_slice() {
            [id] => format!("created task {id} in {pool}"),
            ids => {
                let group = self.reply["status"]["taskGroupId"].as_str();
                let group = group.unwrap_or_default();
                format!("created {} tasks in {pool}, group {group}", ids.len())
            }
        }
    }

    fn interrupted(&self) -> Failure {
        match self.ids.as_slice() {
            [id] => Failure::new(
                Exit::Interrupted,
                format!("interrupted: task {id} continues"),
            )
            .with_hint(format!(
                "`fleetwright task log --follow {id}` follows it again, `fleetwright task cancel \
                 {id}` cancels it"
            )),
            ids => Failure::new(
                Exit::Interrupted,
                format!("interrupted: {} tasks continue", ids.len()),
            ),
        }
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

/// The fields of createTask.
const SHAPE: Shape = Shape {
    writable: &[
        "taskQueueId",
        "provisionerId",
        "workerType",
        "schedulerId",
        "projectId",
        "taskGroupId",
        "dependencies",
        "requires",
        "routes",
        "priority",
        "retries",
        "created",
        "deadline",
        "expires",
        "scopes",
        "payload",
        "metadata",
        "tags",
        "extra",
    ],
    read_only: "",
};

impl NewTask {
    /// The fields of the file, then those of the flags, then defaults.
    fn definition(&self, packed: Option<&Packed>, session: &Session) -> Result<Value, Failure> {
        let now = session.now;
        let mut fields = SHAPE.read(self.file.as_deref())?;
        let payload = self.payload(fields.remove("payload"), packed, now)?;
        let metadata = self.metadata(fields.remove("metadata"), &payload, session)?;
        for name in ["deadline", "expires"] {
            let of_flag = self.deadline.as_ref().filter(|_| name == "deadline");
            let of_file = fields.get(name).and_then(Value::as_str);
            let Some(text) = of_flag.map(String::as_str).or(of_file) else {
                continue;
            };
            let place = match of_flag {
                Some(_) => format!("--{name}"),
                None => format!("`{name}` of --file"),
            };
            let moment = session.moment(&place, text)?;
            fields.insert(name.to_owned(), json!(moment.to_string()));
        }
        let in_a_day = now.plus_millis(DAY_MS).to_string();
        fields.entry("deadline").or_insert(json!(in_a_day));
        // A time in the file is that of another task.
        set(&mut fields, "created", Some(now.to_string()));
        set(&mut fields, "payload", Some(payload));
        set(&mut fields, "metadata", Some(metadata));
        if self.pool.is_some() {
            fields.remove("provisionerId");
            fields.remove("workerType");
        }
        set(&mut fields, "taskQueueId", self.pool.clone());
        let listed = |items: &Vec<String>| (!items.is_empty()).then(|| json!(items));
        set(&mut fields, "priority", self.priority.map(Priority::as_str));
        set(&mut fields, "dependencies", listed(&self.after));
        set(&mut fields, "scopes", listed(&self.scope));
        set(&mut fields, "taskGroupId", self.task_group.clone());
        set(&mut fields, "retries", self.retries);
        let old_names = ["provisionerId", "workerType"].map(|name| fields.get(name));
        if let (None, [Some(Value::String(first)), Some(Value::String(second))]) =
            (fields.get("taskQueueId"), old_names)
        {
            let queue = format!("{first}/{second}");
            fields.insert("taskQueueId".to_owned(), json!(queue));
            fields.remove("provisionerId");
            fields.remove("workerType");
        }
        require(&fields, "taskQueueId", "--pool")?;
        Ok(Value::Object(fields))
    }

    fn metadata(
        &self,
        of_file: Option<Value>,
        payload: &Value,
        session: &Session,
    ) -> Result<Value, Failure> {
        let mut metadata = match of_file {
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(Failure::usage("`metadata` of --file must be a mapping")),
            None => Map::new(),
        };
        let command = &payload["command"];
        let parts = command.as_array().into_iter().flatten();
        let parts = parts.filter_map(Value::as_str).chain(command.as_str());
        let command = parts.collect::<Vec<_>>().join(" ");
        let usual = if command.is_empty() {
            "task".to_owned()
        } else {
            command
        };
        let owner = session.client.client_id().unwrap_or("unknown");
        set(&mut metadata, "name", self.name.clone());
        set(&mut metadata, "description", self.description.clone());
        set(&mut metadata, "owner", self.owner.clone());
        for (name, value) in [
            ("name", usual),
            ("description", String::new()),
            ("owner", owner.to_owned()),
            ("source", session.client.root_url().to_owned()),
        ] {
            metadata.entry(name).or_insert(json!(value));
        }
        if let Some(name) = metadata.get("name").and_then(Value::as_str) {
            let cut: String = name.chars().take(MAX_NAME).collect();
            metadata.insert("name".to_owned(), json!(cut));
        }
        Ok(Value::Object(metadata))
    }

    fn payload(
        &self,
        of_file: Option<Value>,
        packed: Option<&Packed>,
        now: Timestamp,
    ) -> Result<Value, Failure> {
        if let Some(text) = &self.payload {
            return json_argument("--payload", text);
        }
        let mut payload = match of_file {
            None => Map::new(),
            Some(Value::Object(fields)) => fields,
            // The server says what is wrong with it.
            Some(other) if !self.has_payload_flags() => return Ok(other),
            Some(_) => {
                return Err(Failure::usage(
                    "the payload of --file is not a mapping, so no flag can change it",
                ));
            }
        };
        if !self.command.is_empty() {
            payload.insert("command".to_owned(), json!(self.command));
        }
        if !self.env.is_empty() {
            let env = entry(&mut payload, "env", json!({})).as_object_mut();
            let env = env.ok_or_else(|| no_flag("env", "mapping"))?;
            env.extend(
                self.env
                    .iter()
                    .map(|(name, value)| (name.clone(), json!(value))),
            );
        }
        let artifacts = self.artifact.iter().map(|(name, path)| {
            let kind = if path.ends_with('/') {
                "directory"
            } else {
                "file"
            };
            json!({"name": name, "path": path.trim_end_matches('/'), "type": kind})
        });
        append(&mut payload, "artifacts", artifacts.collect())?;
        let mounts = packed.map(Packed::mount).into_iter();
        append(&mut payload, "mounts", mounts.collect())?;
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

    fn has_payload_flags(&self) -> bool {
        !self.command.is_empty()
            || !self.env.is_empty()
            || !self.artifact.is_empty()
            || self.dir.is_some()
            || self.max_run_time.is_some()
    }
}

/// Adds items to a list of the payload.
fn append(payload: &mut Map<String, Value>, name: &str, items: Vec<Value>) -> Result<(), Failure> {
    if !items.is_empty() {
        let list = entry(payload, name, json!([])).as_array_mut();
        list.ok_or_else(|| no_flag(name, "list"))?.extend(items);
    }
    Ok(())
}

/// A field of the payload that a flag adds to; `null` is no value.
fn entry<'a>(payload: &'a mut Map<String, Value>, name: &str, empty: Value) -> &'a mut Value {
    let entry = payload.entry(name).or_insert(Value::Null);
    if entry.is_null() {
        *entry = empty;
    }
    entry
}

fn no_flag(name: &str, kind: &str) -> Failure {
    Failure::usage(format!(
        "payload.{name} of --file is not a {kind}, so no flag can add to it"
    ))
}

fn artifact(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.to_owned()))
        }
        Some(_) | None => Err("expected NAME=PATH, such as public/build.tgz=out/a.tgz".to_owned()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE, such as CI=true".to_owned()),
    }
}
