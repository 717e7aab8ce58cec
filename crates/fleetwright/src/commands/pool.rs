//! Worker pools.

use clap::{Args, Subcommand};
use domain::id::PoolId;
use domain::launch_config::{id_of, without_id};
use serde_json::{Map, Value, json};

use super::body::{Shape, json_argument, require, set};
use super::{Consent, Limit, Session, error, name, runs};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

const LIST_COMMAND: &str = "fleetwright pool list";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    Show {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
    },
    #[command(after_help = "--provider and --owner are required, unless a --file has them.")]
    Create(Definition),
    /// Change some fields of a worker pool
    ///
    /// A field that no flag and no file names keeps its value. The config is one field: a new one
    /// replaces all of the old one.
    Update(Definition),
    Delete {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Count workers and capacity: of all pools, or of one by launch config
    Stats {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    Errors(error::Errors),
    Runs {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        #[command(flatten)]
        limit: Limit,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    /// Its name, such as demo/linux
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pool: String,
    /// The provider that makes its workers
    #[arg(long, value_name = "ID")]
    provider: Option<String>,
    /// The e-mail address of whoever looks after it
    #[arg(long, value_name = "E-MAIL")]
    owner: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// What the provider is to know, as JSON or as @FILE
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Whether the owner gets an e-mail for each error
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    email_on_error: Option<bool>,
    /// A file with the fields of the API: YAML, JSON or TOML (`-`: standard input); flags come on top
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

const SHAPE: Shape = Shape {
    writable: &[
        "providerId",
        "description",
        "config",
        "owner",
        "emailOnError",
    ],
    read_only: &[
        "kind",
        "workerPoolId",
        "created",
        "lastModified",
        "currentCapacity",
        "requestedCount",
        "runningCount",
        "stoppingCount",
        "stoppedCount",
        "requestedCapacity",
        "runningCapacity",
        "stoppingCapacity",
        "stoppedCapacity",
    ],
};

const LIST: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("PROVIDERS", "providers"),
    Column::text("OWNER", "owner"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("DESCRIPTION", "description"),
];

const DETAILS: &[Column] = &[
    Column::text("Worker pool", "workerPoolId"),
    Column::text("Providers", "providers"),
    Column::text("Owner", "owner"),
    Column::text("E-mail on error", "emailOnError"),
    Column::text("Description", "description"),
    Column::age("Created", "created"),
    Column::age("Changed", "lastModified"),
    Column::number("Capacity now", "currentCapacity"),
    Column::number("Requested", "requestedCount"),
    Column::number("Running", "runningCount"),
    Column::number("Stopping", "stoppingCount"),
    Column::number("Stopped", "stoppedCount"),
];

const STATS: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::number("CAPACITY", "currentCapacity"),
    Column::number("REQUESTED", "requestedCount"),
    Column::number("RUNNING", "runningCount"),
    Column::number("STOPPING", "stoppingCount"),
    Column::number("STOPPED", "stoppedCount"),
];

const STATS_OF_ONE: &[Column] = &[
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::number("CAPACITY", "currentCapacity"),
    Column::number("REQUESTED", "requestedCount"),
    Column::number("RUNNING", "runningCount"),
    Column::number("STOPPING", "stoppingCount"),
    Column::number("STOPPED", "stoppedCount"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => {
            let call = Call::get(WORKER_MANAGER, &["worker-pools"]).to("list worker pools");
            let mut document = session
                .client
                .pages(&call, "workerPools", limit.limit)
                .await?;
            if !session.json {
                let pools = document["workerPools"].as_array_mut();
                pools.into_iter().flatten().for_each(name_providers);
            }
            session.rows(&document, "workerPools", LIST);
            Ok(())
        }
        Verb::Show { pool } => show(&pool, session).await,
        Verb::Create(definition) => create(definition, session).await,
        Verb::Update(definition) => update(definition, session).await,
        Verb::Delete { pool, consent } => {
            let purpose = format!("delete worker pool {pool}");
            output::confirm(&purpose, consent.yes)?;
            let call = Call::delete(WORKER_MANAGER, &["worker-pool", &pool]);
            let reply = session
                .client
                .call(&call.to(purpose).list_command(LIST_COMMAND))
                .await?;
            session.done(
                &reply,
                &format!(
                    "deleted worker pool {pool}: it launches nothing more, and is removed some minutes after its last \
                     worker has stopped"
                ),
            );
            Ok(())
        }
        Verb::Stats { pool: None, limit } => {
            let call = Call::get(WORKER_MANAGER, &["worker-pools", "stats"])
                .to("count the workers of all pools");
            session.list(&call, "workerPoolsStats", STATS, &limit).await
        }
        Verb::Stats {
            pool: Some(pool), ..
        } => {
            let call = Call::get(WORKER_MANAGER, &["worker-pool", &pool, "stats"])
                .to(format!("count the workers of pool {pool}"))
                .list_command(LIST_COMMAND);
            let document = session.client.call(&call).await?;
            session.rows(&document, "launchConfigStats", STATS_OF_ONE);
            Ok(())
        }
        Verb::Runs { pool, limit } => runs::of_pool(&pool, &limit, session).await,
        Verb::Errors(errors) => error::list(errors, session).await,
    }
}

/// The call that reads a pool.
pub(crate) fn read(pool: &str) -> Call {
    Call::get(WORKER_MANAGER, &["worker-pool", pool])
        .to(format!("show worker pool {pool}"))
        .list_command(LIST_COMMAND)
}

async fn show(pool: &str, session: &Session) -> Result<(), Failure> {
    let mut reply = session.client.call(&read(pool)).await?;
    if !session.json {
        name_providers(&mut reply);
    }
    session.details(&reply, DETAILS);
    if !session.json {
        output::out(&format!("Config\n{}", output::pretty(&reply["config"])));
    }
    Ok(())
}

/// Lists all providers of a pool, for people: its own, and those that its launch configs name.
fn name_providers(pool: &mut Value) {
    let configs = pool["config"]["launchConfigs"].as_array();
    let further = configs.into_iter().flatten();
    let further = further.map(|config| &config["workerManager"]["providerId"]);
    let mut providers: Vec<Value> = Vec::new();
    for provider in std::iter::once(&pool["providerId"]).chain(further) {
        if !provider.is_null() && !providers.contains(provider) {
            providers.push(provider.clone());
        }
    }
    pool["providers"] = Value::Array(providers);
}

async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let pool = definition.pool.clone();
    let mut fields = Map::from_iter([
        ("description".to_owned(), json!("")),
        ("emailOnError".to_owned(), json!(false)),
        ("config".to_owned(), json!({})),
    ]);
    definition.apply(&mut fields)?;
    require(&fields, "providerId", "--provider")?;
    require(&fields, "owner", "--owner")?;
    let call = Call::put(
        WORKER_MANAGER,
        &["worker-pool", &pool],
        Value::Object(fields),
    )
    .to(format!("create worker pool {pool}"));
    let reply = session.client.call(&call).await?;
    session.done(
        &reply,
        &format!(
            "created worker pool {pool} with provider {}",
            provider(&reply)
        ),
    );
    Ok(())
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let pool = definition.pool.clone();
    let existing = read(&pool).to(format!("update worker pool {pool}"));
    let existing = session.client.call(&existing).await?;
    let mut fields = SHAPE.of_existing(&existing);
    as_written(&pool, &mut fields);
    definition.apply(&mut fields)?;
    let call = Call::post(
        WORKER_MANAGER,
        &["worker-pool", &pool],
        Value::Object(fields),
    )
    .to(format!("update worker pool {pool}"))
    .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    session.done(
        &reply,
        &format!(
            "updated worker pool {pool} with provider {}",
            provider(&reply)
        ),
    );
    Ok(())
}

/// Takes out the ids that the server computed, with which it shows launch configs: sent back, they would be settings
/// that nobody made.
fn as_written(pool: &str, fields: &mut Map<String, Value>) {
    let Ok(pool) = pool.parse::<PoolId>() else {
        return;
    };
    let config = fields.get_mut("config");
    let listed = config.and_then(|config| config.get_mut("launchConfigs")?.as_array_mut());
    for config in listed.into_iter().flatten() {
        let Value::Object(config) = config else {
            continue;
        };
        let content = without_id(config);
        if id_of(&pool, &content).ok() == id_of(&pool, config).ok() {
            *config = content;
        }
    }
}

fn provider(reply: &Value) -> &str {
    reply["providerId"].as_str().unwrap_or_default()
}

impl Definition {
    fn apply(self, fields: &mut Map<String, Value>) -> Result<(), Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        let config = self
            .config
            .map(|text| json_argument("--config", &text))
            .transpose()?;
        set(fields, "providerId", self.provider);
        set(fields, "owner", self.owner);
        set(fields, "description", self.description);
        set(fields, "config", config);
        set(fields, "emailOnError", self.email_on_error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_three_providers_lists_all_of_them_once() {
        let steered = |provider: &str| json!({"workerManager": {"providerId": provider}});
        let mut pool = json!({"providerId": "aws", "config": {"launchConfigs": [
            {}, steered("google"), steered("racks"), steered("google")]}});
        name_providers(&mut pool);
        assert_eq!(pool["providers"], json!(["aws", "google", "racks"]));
        let mut declared = json!({"providerId": "static", "config": {}});
        name_providers(&mut declared);
        assert_eq!(declared["providers"], json!(["static"]));
    }

    #[test]
    fn only_ids_that_the_server_computed_are_taken_out() {
        let plain = json!({"region": "r"});
        let id = id_of(&"a/b".parse().unwrap(), plain.as_object().unwrap()).unwrap();
        let shown = |id: &str, more: Value| {
            let mut shown = plain.clone();
            shown["workerManager"] = more;
            shown["workerManager"]["launchConfigId"] = json!(id);
            shown
        };
        let listed = json!([
            shown(id.as_str(), json!({})),
            shown(id.as_str(), json!({"maxCapacity": 1})),
            shown("lc-mine", json!({}))
        ]);
        let mut fields = Map::from_iter([("config".to_owned(), json!({"launchConfigs": listed}))]);
        as_written("a/b", &mut fields);
        let steered = json!({"region": "r", "workerManager": {"maxCapacity": 1}});
        let kept = json!([plain, steered, shown("lc-mine", json!({}))]);
        assert_eq!(fields["config"]["launchConfigs"], kept);
        let mut declared = Map::from_iter([("config".to_owned(), json!({}))]);
        as_written("a/b", &mut declared);
        assert_eq!(declared["config"], json!({}));
    }
}
