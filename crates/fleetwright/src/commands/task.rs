//! Tasks and their artifacts.

mod artifacts;
mod folder;
mod follow;
mod lists;
mod log;
mod new;
mod waits;

use clap::{Args, Subcommand};
use domain::task::Priority;
use serde_json::{Value, json};

use self::follow::ShownLog;
use super::name::{self, Task as Name};
use super::{Confirmed, Consent, Session};
use crate::client::{Call, QUEUE};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Create a task
    ///
    /// A worker of the pool runs the command after --, without a shell (with a shell: -- sh -c
    /// '...'). With --wait or --log, the exit code is 0 if the task completed, and 1 otherwise.
    Create(Box<new::NewTask>),
    Status(Name),
    /// Show the log of a task's last run
    Log(LogArguments),
    Cancel(Confirmed<Name>),
    Rerun(Name),
    /// Change the priority of a task that is not resolved
    Priority {
        #[command(flatten)]
        name: Name,
        /// The new priority
        #[arg(value_name = "PRIORITY", value_parser = str::parse::<Priority>)]
        priority: Priority,
    },
    /// List the pending and running tasks of all pools or one, or all tasks of a group
    ///
    /// With --state, also tasks that ended: those of the last runs that `fleetwright pool runs`
    /// shows.
    List(lists::ListArguments),
    /// List the artifacts of a task's last run
    Artifacts(artifacts::Artifacts),
    /// Download an artifact of a task's last run
    Download(artifacts::Download),
}

#[derive(Args, Debug)]
pub(crate) struct LogArguments {
    #[command(flatten)]
    name: Name,
    /// Follow the log until the task is resolved
    #[arg(short, long, conflicts_with = "run")]
    follow: bool,
    /// Run number (default: the last run)
    #[arg(long, value_name = "N")]
    run: Option<u64>,
    /// Read a log on any host that the task refers to, such as its worker
    #[arg(long)]
    any_host: bool,
}

const STATUS: &[Column] = &[
    Column::text("Task", "taskId"),
    Column::text("State", "state"),
    Column::text("Pool", "taskQueueId"),
    Column::text("Group", "taskGroupId"),
    Column::age("Deadline", "deadline"),
    Column::age("Expires", "expires"),
    Column::text("Retries left", "retriesLeft"),
];

const RUNS: &[Column] = &[
    Column::number("RUN", "runId"),
    Column::text("STATE", "state"),
    Column::text("BECAUSE", "reasonCreated"),
    Column::age("SCHEDULED", "scheduled"),
    Column::age("STARTED", "started"),
    Column::age("RESOLVED", "resolved"),
    Column::text("REASON", "reasonResolved"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::Create(task) => new::create(*task, session).await,
        Verb::Status(Name { task }) => show(&task, session).await,
        Verb::Log(arguments) => show_log(arguments, session).await,
        Verb::Cancel(Confirmed { name, consent }) => cancel(&name.task, &consent, session).await,
        Verb::Rerun(name) => {
            let call = Call::order(QUEUE, &["task", &name.task, "rerun"]);
            change(call, &name.task, "rerun", session).await
        }
        Verb::Priority { name, priority } => {
            let body = json!({"newPriority": priority.as_str()});
            let call = Call::post(QUEUE, &["task", &name.task, "priority"], body);
            let effect = format!("give priority {} to", priority.as_str());
            change(call, &name.task, &effect, session).await
        }
        Verb::List(arguments) => lists::list(arguments, session).await,
        Verb::Artifacts(arguments) => artifacts::list(&arguments, session).await,
        Verb::Download(arguments) => artifacts::download(&arguments, session).await,
    }
}

/// The command `logs` too.
pub(crate) async fn show_log(arguments: LogArguments, session: &Session) -> Result<(), Failure> {
    let LogArguments {
        name,
        follow,
        run,
        any_host,
    } = arguments;
    if !follow {
        return log(&name.task, run, any_host, session).await;
    }
    let shown = if any_host {
        ShownLog::OfAnyHost
    } else {
        ShownLog::OfServer
    };
    follow_log(&name.task, shown, session).await
}

async fn status(task: &str, session: &Session) -> Result<Value, Failure> {
    let call = Call::get(QUEUE, &["task", task, "status"])
        .to(format!("show task {task}"))
        .list_command(name::TASK_LIST);
    let mut reply = session.client.call(&call).await?;
    Ok(reply["status"].take())
}

async fn show(task: &str, session: &Session) -> Result<(), Failure> {
    let status = status(task, session).await?;
    session.details(&status, STATUS);
    if !session.json {
        let runs = status["runs"].as_array().map_or(&[][..], Vec::as_slice);
        let width = output::screen_width();
        let table = output::table(runs, RUNS, session.now, width);
        output::out(&format!("\n{table}"));
    }
    Ok(())
}

fn refuse_json(session: &Session) -> Result<(), Failure> {
    if session.json {
        return Err(Failure::usage(
            "--json is not supported for logs: leave it out",
        ));
    }
    Ok(())
}

async fn follow_log(task: &str, shown: ShownLog, session: &Session) -> Result<(), Failure> {
    refuse_json(session)?;
    let resolved = follow::until_resolved(task, shown, session).await;
    resolved.map(drop)
}

async fn log(
    task: &str,
    run: Option<u64>,
    any_host: bool,
    session: &Session,
) -> Result<(), Failure> {
    refuse_json(session)?;
    let run = match run {
        Some(run) => run,
        None => follow::last_run(&status(task, session).await?).ok_or_else(|| {
            Failure::failed(format!("task {task} has no log: it is not scheduled yet")).with_hint(
                format!("wait for it with `fleetwright task log --follow {task}`"),
            )
        })?,
    };
    let mut reading = log::Reading::of(task, run, any_host);
    reading.print(false, session).await
}

/// Sends a call that changes a task, and prints the state that the task has then.
async fn change(call: Call, task: &str, effect: &str, session: &Session) -> Result<(), Failure> {
    let call = call
        .to(format!("{effect} task {task}"))
        .list_command(name::TASK_LIST);
    let reply = session.client.call(&call).await?;
    let state = reply["status"]["state"].as_str().unwrap_or_default();
    session.done(&reply, &format!("task {task} is {state}"));
    Ok(())
}

async fn cancel(task: &str, consent: &Consent, session: &Session) -> Result<(), Failure> {
    let call = Call::order(QUEUE, &["task", task, "cancel"])
        .to(format!("cancel task {task}"))
        .list_command(name::TASK_LIST);
    consent.confirm(&call)?;
    let reply = session.client.call(&call).await?;
    let state = reply["status"]["state"].as_str().unwrap_or_default();
    let text = match follow::reason(&reply["status"]) {
        Some("canceled") => format!("cancelled task {task}"),
        Some(_) | None => format!("task {task} was already resolved: {state}"),
    };
    session.done(&reply, &text);
    Ok(())
}
