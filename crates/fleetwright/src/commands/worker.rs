//! Workers.

use access::slugid;
use clap::{Args, Subcommand, ValueEnum};
use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use super::body::{Shape, set};
use super::{Consent, Limit, Session, name, runs};
use crate::client::{Call, QUEUE, WORKER_MANAGER};
use crate::failure::Failure;
use crate::input::read_text;
use crate::machine;
use crate::output::{self, Column};

const LOOK: &str = "fleetwright worker list POOL";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        /// Only of this worker group
        #[arg(long, value_name = "GROUP", conflicts_with_all = ["state", "launch_config"])]
        group: Option<String>,
        /// Only in this state
        #[arg(long)]
        state: Option<State>,
        /// Only of this launch config
        #[arg(long, value_name = "ID")]
        launch_config: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    Show(Name),
    Create(Definition),
    /// Change a worker: when it expires, its capacity, its secret
    ///
    /// What no flag names stays as it is.
    Update(Definition),
    #[command(visible_alias = "terminate")]
    Remove {
        #[command(flatten)]
        worker: Name,
        #[command(flatten)]
        consent: Consent,
    },
    ShouldTerminate(Name),
    Runs {
        #[command(flatten)]
        worker: Name,
        #[command(flatten)]
        limit: Limit,
    },
    /// Keep a worker from getting tasks, for a while
    ///
    /// It goes on asking for work and gets none; its machine stays, so that somebody can look at it.
    Quarantine {
        #[command(flatten)]
        worker: Name,
        /// Until when: a time, or a length from now such as 2h
        #[arg(
            long,
            value_name = "WHEN",
            required_unless_present = "lift",
            allow_hyphen_values = true
        )]
        until: Option<String>,
        /// Why, for those who find it quarantined
        #[arg(long, value_name = "TEXT", conflicts_with = "lift")]
        reason: Option<String>,
        /// End the quarantine
        #[arg(long, conflicts_with = "until")]
        lift: bool,
    },
}

/// A state that workers can be listed by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum State {
    Requested,
    Running,
    Stopping,
    Stopped,
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The worker pool, such as demo/linux
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pool: String,
    /// Its worker group
    #[arg(value_name = "GROUP", value_parser = name::worker)]
    group: String,
    /// Its id
    #[arg(value_name = "WORKER", value_parser = name::worker)]
    id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    name: Name,
    /// Until when it may work: a time, or a length from now such as 90d (when created: 365d)
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    expires: Option<String>,
    /// How many tasks it does at a time
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = capacity)]
    capacity: Option<u32>,
    /// A file with the 44 characters the worker proves itself with (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "new_secret")]
    secret_file: Option<String>,
    /// Make a new secret and print it, once (when created: what happens without --secret-file)
    #[arg(long)]
    new_secret: bool,
    /// A JSON file with the fields of the API (`-`: standard input); flags come on top
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

const SHAPE: Shape = Shape {
    writable: &["expires", "capacity", "providerInfo"],
    read_only: &[
        "workerPoolId",
        "workerGroup",
        "workerId",
        "providerId",
        "created",
        "state",
        "lastModified",
        "lastChecked",
        "launchConfigId",
    ],
};

const LIST: &[Column] = &[
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("STATE", "state"),
    Column::number("CAPACITY", "capacity"),
    Column::age("CREATED", "created"),
    Column::age("EXPIRES", "expires"),
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("PROVIDER", "providerId"),
];

const DETAILS: &[Column] = &[
    Column::text("Worker pool", "workerPoolId"),
    Column::text("Worker group", "workerGroup"),
    Column::text("Worker", "workerId"),
    Column::text("State", "state"),
    Column::text("Provider", "providerId"),
    Column::text("Launch config", "launchConfigId"),
    Column::number("Capacity", "capacity"),
    Column::age("Created", "created"),
    Column::age("Changed", "lastModified"),
    Column::age("Checked", "lastChecked"),
    Column::age("Expires", "expires"),
    Column::age("Last active", LAST_ACTIVE),
    Column::age("Quarantined until", QUARANTINED),
];

const LAST_ACTIVE: &str = "lastDateActive";
const QUARANTINED: &str = "quarantineUntil";

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List {
            pool,
            group,
            state,
            launch_config,
            limit,
        } => {
            let segments: Vec<_> = ["workers", &pool]
                .into_iter()
                .chain(group.as_deref())
                .collect();
            let call = Call::get(WORKER_MANAGER, &segments)
                .query("state", state.map(State::name))
                .query("launchConfigId", launch_config)
                .to(format!("list the workers of pool {pool}"))
                .look_with("fleetwright pool list");
            session.list(&call, "workers", LIST, &limit).await
        }
        Verb::Show(worker) => {
            let mut reply = session.client.call(&worker.read()).await?;
            if session.json {
                session.details(&reply, DETAILS);
                return Ok(());
            }
            // The queue knows those that have asked it for work.
            if let Ok(seen) = session.client.call(&worker.seen_by_queue()).await {
                for field in [LAST_ACTIVE, QUARANTINED] {
                    reply[field] = seen[field].clone();
                }
                let until = seen[QUARANTINED]
                    .as_str()
                    .and_then(|text| text.parse().ok());
                if until.is_none_or(|until: Timestamp| until < session.now) {
                    reply[QUARANTINED] = Value::Null;
                }
            }
            session.details(&reply, DETAILS);
            Ok(())
        }
        Verb::Create(definition) => create(definition, session).await,
        Verb::Update(definition) => update(definition, session).await,
        Verb::Remove { worker, consent } => {
            let purpose = format!("remove worker {worker}");
            output::confirm(&purpose, consent.yes)?;
            let call = Call::delete(WORKER_MANAGER, &worker.segments());
            let reply = session
                .client
                .call(&call.to(purpose).look_with(LOOK))
                .await?;
            session.done(&reply, &format!("removed worker {worker}"));
            Ok(())
        }
        Verb::Runs { worker, limit } => {
            let Name { pool, group, id } = &worker;
            runs::of_worker([pool, group, id], &limit, session).await
        }
        Verb::ShouldTerminate(worker) => should_terminate(&worker, session).await,
        Verb::Quarantine {
            worker,
            until,
            reason,
            lift: _,
        } => quarantine(&worker, until.as_deref(), reason, session).await,
    }
}

/// Without an end it is lifted: an end that has passed does that.
async fn quarantine(
    worker: &Name,
    until: Option<&str>,
    reason: Option<String>,
    session: &Session,
) -> Result<(), Failure> {
    let moment = match until {
        Some(text) => output::parse_moment(text, session.now)
            .map_err(|problem| Failure::usage(format!("--until: {problem}")))?,
        None => session.now.plus_seconds(-60 * 60),
    };
    let mut body = json!({"quarantineUntil": moment.to_string()});
    if let Some(reason) = reason {
        body["quarantineInfo"] = json!(reason);
    }
    let purpose = match until {
        Some(_) => format!("quarantine worker {worker}"),
        None => format!("lift the quarantine of worker {worker}"),
    };
    let call = Call::put(QUEUE, &worker.segments_in_queue(), body)
        .to(purpose)
        .look_with(LOOK);
    let reply = session.client.call(&call).await?;
    let text = match until {
        Some(_) => format!("{worker} gets no tasks until {moment}"),
        None => format!("{worker} may get tasks again"),
    };
    session.done(&reply, &text);
    Ok(())
}

async fn should_terminate(worker: &Name, session: &Session) -> Result<(), Failure> {
    let mut segments = worker.segments().to_vec();
    segments.push("should-terminate");
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!("ask whether worker {worker} should end"))
        .look_with(LOOK);
    let reply = session.client.call(&call).await?;
    let decision = match reply["terminate"].as_bool() {
        Some(true) => "should end",
        Some(false) | None => "should go on",
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
        .look_with("fleetwright pool list");
    let mut reply = session.client.call(&call).await?;
    add_secret(&mut reply, secret.as_deref());
    session.done(&reply, &format!("created worker {name}"));
    tell_secret(secret.as_deref(), session);
    Ok(())
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let mut fields = Map::new();
    let secret = definition.apply(&mut fields, definition.new_secret, session)?;
    let name = definition.name;
    if !fields.contains_key("expires") {
        // The one field that the API demands; the others stay as they are when left out.
        let existing = name.read().to(format!("update worker {name}"));
        let existing = session.client.call(&existing).await?;
        set(&mut fields, "expires", existing.get("expires").cloned());
    }
    let call = Call::post(WORKER_MANAGER, &name.segments(), Value::Object(fields))
        .to(format!("update worker {name}"))
        .look_with(LOOK);
    let mut reply = session.client.call(&call).await?;
    add_secret(&mut reply, secret.as_deref());
    session.done(&reply, &format!("updated worker {name}"));
    tell_secret(secret.as_deref(), session);
    Ok(())
}

/// A program finds a secret that was made here next to what the API replied.
fn add_secret(reply: &mut Value, secret: Option<&str>) {
    if let (Value::Object(reply), Some(secret)) = (reply, secret) {
        reply.insert("staticSecret".to_owned(), json!(secret));
    }
}

/// The only moment at which a secret that was made here can be seen.
fn tell_secret(secret: Option<&str>, session: &Session) {
    if let (false, Some(secret)) = (session.json, secret) {
        output::out(&format!(
            "its secret (staticSecret), shown only this once: {secret}"
        ));
    }
}

impl Definition {
    /// Sets the fields; returns the secret if one was made.
    fn apply(
        &self,
        fields: &mut Map<String, Value>,
        make_secret: bool,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        let expires = self
            .expires
            .as_deref()
            .map(|text| output::parse_moment(text, session.now))
            .transpose()
            .map_err(|problem| Failure::usage(format!("--expires: {problem}")))?;
        set(fields, "expires", expires.map(|moment| moment.to_string()));
        set(fields, "capacity", self.capacity);
        if let Some(path) = &self.secret_file {
            let secret = read_text(path)?;
            let info = json!({"staticSecret": secret.trim()});
            set(fields, "providerInfo", Some(info));
        } else if make_secret && !fields.contains_key("providerInfo") {
            let secret = slugid::secret(&mut machine::chance());
            let info = json!({"staticSecret": secret});
            set(fields, "providerInfo", Some(info));
            return Ok(Some(secret));
        }
        Ok(None)
    }
}

fn capacity(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "give a whole number that is not negative, such as 4".to_owned())
}

impl Name {
    fn segments(&self) -> [&str; 4] {
        ["workers", &self.pool, &self.group, &self.id]
    }

    fn segments_in_queue(&self) -> [&str; 7] {
        let (provisioner, worker_type) = self.pool.split_once('/').unwrap_or((&self.pool, ""));
        [
            "provisioners",
            provisioner,
            "worker-types",
            worker_type,
            "workers",
            &self.group,
            &self.id,
        ]
    }

    fn seen_by_queue(&self) -> Call {
        Call::get(QUEUE, &self.segments_in_queue()).to(format!("show worker {self}"))
    }

    fn read(&self) -> Call {
        Call::get(WORKER_MANAGER, &self.segments())
            .to(format!("show worker {self}"))
            .look_with(LOOK)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} of pool {}", self.group, self.id, self.pool)
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}
