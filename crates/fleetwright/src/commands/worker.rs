//! Workers.

use std::collections::HashMap;

use access::slugid;
use clap::{Args, Subcommand};
use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use super::body::{Shape, json_argument, set};
use super::selected_workers::{self, End, Selection};
use super::worker_name::{LIST_COMMAND, Name};
use super::{Confirmed, Limit, Session, name, named_workers, runs, worker_log};
use crate::client::{Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::input::read_text;
use crate::machine;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List the workers of a pool, or of all pools
    ///
    /// The newest workers first. A list of all pools, and one by provider, presence or a search,
    /// leaves stopped workers out, unless --state stopped is given. It has the workers of the pools
    /// that the caller may list.
    List(Listing),
    /// List the workers of a pool, worker type, configuration, launch config or provider
    ///
    /// Stopped workers are left out.
    Select {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        limit: Limit,
    },
    /// Count the workers of a pool, worker type, configuration, launch config or provider
    ///
    /// Stopped workers are left out.
    Count(Selection),
    /// End workers: some by name, or those of a pool, worker type, configuration, launch config or
    /// provider
    ///
    /// Shows the number of workers by pool and state first, and asks. Workers that are made later
    /// stay, and plans may replace those that ended: pause the target with `override set` before.
    End(End),
    Show(Name),
    Create(Box<Definition>),
    /// Change the expiry, capacity or secret of a worker
    ///
    /// Fields that are neither in flags nor in the file keep their values.
    Update(Box<Definition>),
    #[command(visible_alias = "terminate")]
    Remove(Confirmed<Name>),
    ShouldTerminate(Name),
    /// Show what a worker or its machine wrote, to see why it failed or never registered
    ///
    /// The output of the process (providers of kind local), or the console of the machine (aws and
    /// google): at most the last 256 KiB. Other providers keep no logs. `task log` shows the logs
    /// of tasks.
    Log(Name),
    Runs {
        #[command(flatten)]
        worker: Name,
        #[command(flatten)]
        limit: Limit,
    },
    /// Quarantine workers: they get no tasks for a time
    ///
    /// Their machines keep running, so that they can be inspected.
    Quarantine {
        /// The worker as POOL GROUP WORKER, or several as POOL/GROUP/WORKER
        #[arg(value_name = "WORKER", required = true)]
        workers: Vec<String>,
        /// End: a time, or a duration from now such as 2h
        #[arg(
            long,
            value_name = "TIME",
            required_unless_present = "lift",
            allow_hyphen_values = true
        )]
        until: Option<String>,
        /// Reason, for other users
        #[arg(long, value_name = "TEXT", conflicts_with = "lift")]
        reason: Option<String>,
        /// End the quarantine
        #[arg(long, conflicts_with = "until")]
        lift: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Listing {
    /// Pool id, such as demo/linux (default: all pools)
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// List the workers of all pools (the default without POOL)
    #[arg(long, conflicts_with = "pool")]
    all: bool,
    /// Only workers of this worker group
    #[arg(
        long,
        value_name = "GROUP",
        requires = "pool",
        conflicts_with_all = ["state", "launch_config", "provider", "presence", "search"]
    )]
    group: Option<String>,
    /// Only workers in this state
    #[arg(long, value_parser = ["requested", "running", "stopping", "stopped"])]
    state: Option<String>,
    /// Only workers of this launch config
    #[arg(long, value_name = "ID")]
    launch_config: Option<String>,
    /// Only workers of this provider
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// Only running workers that do this now
    #[arg(long, value_parser = ["busy", "idle", "quarantined", "draining", "silent"])]
    presence: Option<String>,
    /// Only workers with this text in their id, group or pool
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    name: Name,
    /// Expiry: a time, or a duration from now such as 90d (default of create: 365d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    expires: Option<String>,
    /// Maximum number of concurrent tasks
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = capacity)]
    capacity: Option<u32>,
    /// File with the worker's secret of 44 characters (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "new_secret")]
    secret_file: Option<String>,
    /// Create a new secret and print it (default of create without --secret-file)
    #[arg(long)]
    new_secret: bool,
    /// Launch config of the worker (default of create: the first one)
    #[arg(long, value_name = "ID")]
    launch_config: Option<String>,
    /// Parameters for a provider that makes single workers, as JSON or @FILE
    #[arg(long, value_name = "JSON", conflicts_with_all = ["secret_file", "new_secret"])]
    parameters: Option<String>,
    /// File with the API's fields: YAML, JSON or TOML (`-`: standard input); flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

const SHAPE: Shape = Shape {
    writable: &["expires", "capacity", "launchConfigId", "providerInfo"],
    read_only: "workerPoolId workerGroup workerId providerId created state lastModified \
        lastChecked price",
};

const LIST: &[Column] = &[
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("STATE", "state"),
    Column::text("DOES", "presence"),
    Column::text("TASK", "task/taskId"),
    Column::number("CAPACITY", "capacity"),
    Column::age("CREATED", "created"),
    Column::age("EXPIRES", "expires"),
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("PROVIDER", "providerId"),
];

/// Workers of all pools.
const LIST_ALL: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("STATE", "state"),
    Column::text("DOES", "presence"),
    Column::text("TASK", "task/taskId"),
    Column::age("CREATED", "created"),
    Column::age("LAST ACTIVE", "lastDateActive"),
    Column::number("$ PER H", "price"),
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("PROVIDER", "providerId"),
];

const DETAILS: &[Column] = &[
    Column::text("Pool", "workerPoolId"),
    Column::text("Worker group", "workerGroup"),
    Column::text("Worker", "workerId"),
    Column::text("State", "state"),
    Column::text("Provider", "providerId"),
    Column::text("Launch config", "launchConfigId"),
    Column::number("Capacity", "capacity"),
    Column::number("$ per h", PRICE),
    Column::age("Created", "created"),
    Column::age("Changed", "lastModified"),
    Column::age("Checked", "lastChecked"),
    Column::age("Expires", "expires"),
    Column::age("Last active", LAST_ACTIVE),
    Column::age("Quarantined until", QUARANTINED),
    Column::text("Quarantined by", QUARANTINED_BY),
    Column::text("Quarantine reason", QUARANTINE_REASON),
];

/// Dollars per hour, as agreed when the worker was launched or declared.
const PRICE: &str = "price";
const LAST_ACTIVE: &str = "lastDateActive";
const QUARANTINED: &str = "quarantineUntil";
/// Fields of the row that the API does not have.
const QUARANTINED_BY: &str = "quarantinedBy";
const QUARANTINE_REASON: &str = "quarantineReason";

/// `None`: this part does not exist, or the caller may not read it.
async fn read_more(session: &Session, call: &Call) -> Result<Option<Value>, Failure> {
    match session.client.call(call).await {
        Ok(reply) => Ok(Some(reply)),
        Err(failure) if matches!(failure.exit, Exit::NotFound | Exit::NotAllowed) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(listing) => list(listing, session).await,
        Verb::Select { selection, limit } => {
            selected_workers::list(&selection, &limit, session).await
        }
        Verb::Count(selection) => selected_workers::count(&selection, session).await,
        Verb::End(end) => selected_workers::end(end, session).await,
        Verb::Show(worker) => show(&worker, session).await,
        Verb::Create(definition) => create(*definition, session).await,
        Verb::Update(definition) => update(*definition, session).await,
        Verb::Remove(Confirmed { name, consent }) => {
            let call = Call::delete(WORKER_MANAGER, &name.segments())
                .to(format!("remove worker {name}"))
                .list_command(LIST_COMMAND);
            consent.confirm(&call)?;
            session
                .order(&call, &format!("removed worker {name}"))
                .await
        }
        Verb::Log(worker) => worker_log::print(&worker, session).await,
        Verb::Runs { worker, limit } => runs::of_worker(worker.parts(), &limit, session).await,
        Verb::ShouldTerminate(worker) => should_terminate(&worker, session).await,
        Verb::Quarantine {
            workers,
            until,
            reason,
            lift: _,
        } => match Name::of_parts(&workers)? {
            Some(worker) => quarantine(&worker, until.as_deref(), reason, session).await,
            None => named_workers::quarantine(&workers, until.as_deref(), reason, session).await,
        },
    }
}

async fn list(listing: Listing, session: &Session) -> Result<(), Failure> {
    let is_wide = [&listing.provider, &listing.presence, &listing.search];
    let is_wide = is_wide.iter().any(|filter| filter.is_some());
    if let Some(pool) = listing.pool.as_deref().filter(|_| !is_wide) {
        let segments: Vec<_> = ["workers", pool]
            .into_iter()
            .chain(listing.group.as_deref())
            .collect();
        let call = Call::get(WORKER_MANAGER, &segments)
            .query("state", listing.state)
            .query("launchConfigId", listing.launch_config)
            .to(format!("list the workers of pool {pool}"))
            .list_command("fleetwright pool list");
        return list_of_pool(pool, &call, &listing.limit, session).await;
    }
    let call = Call::get(FLEETWRIGHT, &["workers"])
        .query("workerPoolId", listing.pool)
        .query("providerId", listing.provider)
        .query("launchConfigId", listing.launch_config)
        .query("state", listing.state)
        .query("presence", listing.presence)
        .query("search", listing.search)
        .to("list workers");
    session
        .list(&call, "workers", LIST_ALL, &listing.limit)
        .await
}

/// The workers of a pool, with their tasks if the server knows these.
async fn list_of_pool(
    pool: &str,
    call: &Call,
    limit: &Limit,
    session: &Session,
) -> Result<(), Failure> {
    if session.json {
        return session.list(call, "workers", LIST, limit).await;
    }
    let seen = Call::get(FLEETWRIGHT, &["workers"])
        .query("workerPoolId", Some(pool))
        .to("list the tasks of workers");
    let (document, seen) = tokio::join!(
        session.client.pages(call, "workers", limit.limit),
        session.client.pages(&seen, "workers", None),
    );
    let seen = seen.unwrap_or_default();
    let seen = seen["workers"].as_array().into_iter().flatten();
    let seen: HashMap<_, _> = seen.map(|worker| (name_in_pool(worker), worker)).collect();
    session.described_rows(document?, "workers", LIST, |worker| {
        if let Some(seen) = seen.get(&name_in_pool(worker)) {
            for field in ["presence", "task"] {
                worker[field] = seen[field].clone();
            }
        }
    });
    Ok(())
}

fn name_in_pool(worker: &Value) -> [String; 2] {
    ["workerGroup", "workerId"].map(|key| worker[key].as_str().unwrap_or_default().to_owned())
}

async fn show(worker: &Name, session: &Session) -> Result<(), Failure> {
    let mut reply = session.client.call(&worker.read()).await?;
    // Taskcluster's reply has no price, and a caller may lack the right to the explanation.
    if let Some(explained) = read_more(session, &worker.explain()).await? {
        reply[PRICE] = explained[PRICE].clone();
    }
    if session.json {
        session.details(&reply, DETAILS);
        return Ok(());
    }
    // The queue knows only workers that have requested work.
    if let Some(seen) = read_more(session, &worker.seen_by_queue()).await? {
        for field in [LAST_ACTIVE, QUARANTINED] {
            reply[field] = seen[field].clone();
        }
        let until = seen[QUARANTINED]
            .as_str()
            .and_then(|text| text.parse().ok());
        if until.is_none_or(|until: Timestamp| until < session.now) {
            reply[QUARANTINED] = Value::Null;
        } else if let Some(last) = seen["quarantineDetails"]
            .as_array()
            .and_then(|all| all.last())
        {
            reply[QUARANTINED_BY] = last["clientId"].clone();
            reply[QUARANTINE_REASON] = last["quarantineInfo"].clone();
        }
    }
    session.details(&reply, DETAILS);
    Ok(())
}

/// Sets the end of the quarantine. Without one, lifts it by an end in the past.
async fn quarantine(
    worker: &Name,
    until: Option<&str>,
    reason: Option<String>,
    session: &Session,
) -> Result<(), Failure> {
    let (moment, purpose) = match until {
        Some(text) => (
            session.moment("--until", text)?,
            format!("quarantine worker {worker}"),
        ),
        None => (
            session.now.plus_seconds(-60 * 60),
            format!("lift the quarantine of worker {worker}"),
        ),
    };
    let mut body = json!({"quarantineUntil": moment.to_string()});
    if let Some(reason) = reason {
        body["quarantineInfo"] = json!(reason);
    }
    let call = Call::put(QUEUE, &worker.segments_in_queue(), body)
        .to(purpose)
        .list_command(LIST_COMMAND);
    let text = match until {
        Some(_) => format!("{worker} gets no tasks until {}", output::clock(moment)),
        None => format!("{worker} may get tasks again"),
    };
    session.order(&call, &text).await
}

async fn should_terminate(worker: &Name, session: &Session) -> Result<(), Failure> {
    let mut segments = worker.segments().to_vec();
    segments.push("should-terminate");
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!("check whether worker {worker} should terminate"))
        .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    let decision = match reply["terminate"].as_bool() {
        Some(true) => "should terminate",
        Some(false) | None => "should keep running",
    };
    let reason = reply["reason"].as_str().unwrap_or("none");
    session.done(&reply, &format!("{worker} {decision} (reason: {reason})"));
    Ok(())
}

async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let in_a_year = session.now.plus_seconds(365 * 24 * 60 * 60);
    let mut fields = Map::from_iter([("expires".to_owned(), json!(in_a_year.to_string()))]);
    let secret = definition.apply(&mut fields, true, session)?;
    let name = definition.name;
    let call = Call::put(WORKER_MANAGER, &name.segments(), Value::Object(fields))
        .to(format!("create worker {name}"))
        .list_command("fleetwright pool list");
    finish(&call, secret, &format!("created worker {name}"), session).await
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let mut fields = Map::new();
    let secret = definition.apply(&mut fields, definition.new_secret, session)?;
    let name = definition.name;
    if !fields.contains_key("expires") {
        // The only required field; omitted fields are unchanged.
        let existing = name.read().to(format!("update worker {name}"));
        let existing = session.client.call(&existing).await?;
        set(&mut fields, "expires", existing.get("expires").cloned());
    }
    let call = Call::post(WORKER_MANAGER, &name.segments(), Value::Object(fields))
        .to(format!("update worker {name}"))
        .list_command(LIST_COMMAND);
    finish(&call, secret, &format!("updated worker {name}"), session).await
}

/// Sends the call, and prints a secret created here, which is not shown again.
async fn finish(
    call: &Call,
    secret: Option<String>,
    done: &str,
    session: &Session,
) -> Result<(), Failure> {
    let mut reply = session.client.call(call).await?;
    let Some(secret) = secret else {
        session.done(&reply, done);
        return Ok(());
    };
    if let Value::Object(reply) = &mut reply {
        reply.insert("staticSecret".to_owned(), json!(secret));
    }
    session.done(&reply, done);
    if !session.json {
        output::out(&format!("secret (staticSecret; not shown again): {secret}"));
    }
    Ok(())
}

impl Definition {
    /// Sets the fields; returns a created secret.
    fn apply(
        &self,
        fields: &mut Map<String, Value>,
        make_secret: bool,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        if let Some(text) = &self.expires {
            let expires = session.moment("--expires", text)?;
            set(fields, "expires", Some(expires.to_string()));
        }
        set(fields, "capacity", self.capacity);
        set(fields, "launchConfigId", self.launch_config.as_deref());
        if let Some(text) = &self.parameters {
            let parameters = json_argument("--parameters", text)?;
            set(fields, "providerInfo", Some(parameters));
        }
        if let Some(path) = &self.secret_file {
            let secret = read_text(path)?;
            let info = json!({"staticSecret": secret.trim()});
            set(fields, "providerInfo", Some(info));
        } else if make_secret && !fields.contains_key("providerInfo") {
            let secret = slugid::secret(&mut machine::random_source());
            let info = json!({"staticSecret": secret});
            set(fields, "providerInfo", Some(info));
            return Ok(Some(secret));
        }
        Ok(None)
    }
}

fn capacity(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "expected a number that is not negative, such as 4".to_owned())
}
