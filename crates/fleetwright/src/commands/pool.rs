//! Pools.

use std::collections::HashMap;

use clap::{Args, Subcommand};
use domain::id::PoolId;
use domain::launch_config::{id_of, without_id};
use domain::provider_list::PROVIDERS_KEY;
use serde_json::{Map, Value};

use super::body::{Shape, defaults, json_argument, require, set};
use super::first_pool::FIRST_POOL_OWNER;
use super::{Confirmed, Limit, Session, error, name, pool_defaults, runs, status};
use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::code::Kind;
use crate::failure::{Exit, Failure};
use crate::launch_config_keys::warn_of_pool;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    Show(name::Pool),
    #[command(after_help = "\
--provider is required, unless --file has it. For providers such as local, --config may be left out.
--owner is required, unless --file has it or the server is on this machine.")]
    Create(Definition),
    /// Change some fields of a pool
    ///
    /// Fields that are neither in flags nor in the file keep their values. The config is one
    /// field: a new config replaces the old one completely.
    Update(Definition),
    Delete(Confirmed<name::Pool>),
    /// Show the capacity and number of workers of all pools, or of one pool by launch config
    Stats {
        /// Pool id, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    Errors(error::Errors),
    Runs {
        #[command(flatten)]
        name: name::Pool,
        #[command(flatten)]
        limit: Limit,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    name: name::Pool,
    /// Provider that launches its workers; repeat it for several, the first one first
    #[arg(long, value_name = "PROVIDER")]
    provider: Vec<String>,
    /// E-mail address of the owner
    #[arg(long, value_name = "E-MAIL")]
    owner: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Config of the pool, as JSON or @FILE
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Minimum capacity: this much is kept when nothing waits
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = units)]
    min_capacity: Option<u64>,
    /// Maximum capacity
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = units)]
    max_capacity: Option<u64>,
    /// Whether to send the owner an e-mail for each error
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    email_on_error: Option<bool>,
    /// File with the API's fields: YAML, JSON or TOML (`-`: standard input); flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

fn units(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "expected a number that is not negative, such as 4".to_owned())
}

const SHAPE: Shape = Shape {
    writable: &[
        "providerId",
        "description",
        "config",
        "owner",
        "emailOnError",
    ],
    read_only: "kind workerPoolId created lastModified currentCapacity requestedCount \
        runningCount stoppingCount stoppedCount requestedCapacity runningCapacity \
        stoppingCapacity stoppedCapacity",
};

const LIST: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("PROVIDERS", "providers"),
    Column::text("OWNER", "owner"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("DESCRIPTION", "description"),
];

/// For callers that may read the levels.
const LIST_LEVELS: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::number("WAITING", "levels/waiting"),
    Column::number("STARTING", "levels/starting"),
    Column::number("BUSY", "levels/busy"),
    Column::number("IDLE", "levels/idle"),
    Column::number("MAX", "levels/maximum"),
    Column::text("PROVIDERS", "providers"),
    Column::prose("NOTES", "levels/notes"),
    Column::prose("DESCRIPTION", "description"),
];

const DETAILS: &[Column] = &[
    Column::text("Pool", "workerPoolId"),
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
        Verb::List(limit) => list(&limit, session).await,
        Verb::Show(name::Pool { pool }) => show(&pool, session).await,
        Verb::Create(definition) => create(definition, session).await,
        Verb::Update(definition) => update(definition, session).await,
        Verb::Delete(Confirmed { name, consent }) => {
            let pool = name.pool;
            let call = Kind::WorkerPool.remove_call("delete", &pool);
            consent.confirm(&call)?;
            let text = format!(
                "deleted pool {pool}: it launches no more workers, and is removed minutes after \
                 its last worker stops"
            );
            session.order(&call, &text).await
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
                .list_command("fleetwright pool list");
            let document = session.client.call(&call).await?;
            session.rows(&document, "launchConfigStats", STATS_OF_ONE);
            Ok(())
        }
        Verb::Runs { name, limit } => runs::of_pool(&name.pool, &limit, session).await,
        Verb::Errors(errors) => error::list(errors, session).await,
    }
}

async fn list(limit: &Limit, session: &Session) -> Result<(), Failure> {
    const KEY: &str = "workerPools";
    let call = Call::get(WORKER_MANAGER, &["worker-pools"]).to("list pools");
    if session.json {
        return session.list(&call, KEY, LIST, limit).await;
    }
    let of_levels = Call::get(FLEETWRIGHT, &["status", "pools"]).to("read the levels of pools");
    let (document, levels) = tokio::join!(
        session.client.pages(&call, KEY, limit.limit),
        session.client.pages(&of_levels, "pools", None),
    );
    let document = document?;
    let levels = match levels {
        Ok(levels) => levels,
        Err(failure) => {
            session.described_rows(document, KEY, LIST, name_providers);
            // The caller may list pools only, or the server is another one.
            if !matches!(failure.exit, Exit::NotAllowed | Exit::NotFound) {
                output::note(&failure.message);
            }
            return Ok(());
        }
    };
    let levels = levels["pools"].as_array().into_iter().flatten();
    let levels = levels.filter_map(|pool| Some((pool["workerPoolId"].as_str()?, pool)));
    let levels: HashMap<&str, &Value> = levels.collect();
    session.described_rows(document, KEY, LIST_LEVELS, |pool| {
        name_providers(pool);
        let of_pool = levels.get(pool["workerPoolId"].as_str().unwrap_or_default());
        if let Some(of_pool) = of_pool {
            pool["levels"] = status::pool_levels(of_pool, session.now);
        }
    });
    Ok(())
}

async fn show(pool: &str, session: &Session) -> Result<(), Failure> {
    let mut reply = session
        .client
        .call(&Kind::WorkerPool.read_call("show", pool))
        .await?;
    if !session.json {
        name_providers(&mut reply);
    }
    session.details(&reply, DETAILS);
    if !session.json {
        output::out(&format!("Config\n{}", output::pretty(&reply["config"])));
    }
    Ok(())
}

/// Adds the list of all providers of a pool: its own, those that its config lists, and those of its
/// launch configs.
fn name_providers(pool: &mut Value) {
    let config = &pool["config"];
    let listed = config[PROVIDERS_KEY].as_array().into_iter().flatten();
    let configs = config["launchConfigs"].as_array().into_iter().flatten();
    let named = configs.map(|config| &config["workerManager"]["providerId"]);
    let further = listed.chain(named);
    let mut providers: Vec<Value> = Vec::new();
    for provider in std::iter::once(&pool["providerId"]).chain(further) {
        if !provider.is_null() && !providers.contains(provider) {
            providers.push(provider.clone());
        }
    }
    pool["providers"] = Value::Array(providers);
}

async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let pool = definition.name.pool.clone();
    let mut fields = defaults(Kind::WorkerPool);
    let has_config = definition.config.is_some();
    let of_file = definition.apply(&mut fields)?;
    require(&fields, "providerId", "--provider")?;
    if session.client.is_on_this_machine() {
        fields.entry("owner").or_insert(FIRST_POOL_OWNER.into());
    }
    require(&fields, "owner", "--owner")?;
    if !has_config && !of_file {
        pool_defaults::complete(&mut fields, &session.client).await?;
    }
    let call = Kind::WorkerPool.create_call(&pool, Value::Object(fields));
    finish("created", &pool, &call, session).await
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    if definition.is_empty() {
        return Err(Failure::usage("nothing to change: no flag says what")
            .with_hint("`fleetwright pool update --help` lists the flags"));
    }
    let pool = definition.name.pool.clone();
    let call = Kind::WorkerPool.read_call("update", &pool);
    let mut fields = SHAPE.of_existing(&session.client.call(&call).await?);
    remove_computed_ids(&pool, &mut fields);
    definition.apply(&mut fields)?;
    let call = Kind::WorkerPool.update_call(&pool, Value::Object(fields));
    finish("updated", &pool, &call, session).await
}

async fn finish(done: &str, pool: &str, call: &Call, session: &Session) -> Result<(), Failure> {
    let reply = session.client.call(call).await?;
    let provider = reply["providerId"].as_str().unwrap_or_default();
    session.done(
        &reply,
        &format!("{done} pool {pool} with provider {provider}"),
    );
    warn_of_pool(&reply, &session.client).await;
    Ok(())
}

/// Removes the computed ids of launch configs: sent back, they would become settings.
fn remove_computed_ids(pool: &str, fields: &mut Map<String, Value>) {
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

/// The first provider is the pool's own; the config lists all if there are several.
fn set_providers(fields: &mut Map<String, Value>, providers: &[String]) {
    let Some(first) = providers.first() else {
        return;
    };
    fields.insert("providerId".to_owned(), Value::String(first.clone()));
    let is_several = providers.len() > 1;
    let config = fields.entry("config");
    if let Value::Object(config) = config.or_insert_with(|| Value::Object(Map::new())) {
        match is_several {
            true => config.insert(PROVIDERS_KEY.to_owned(), providers.into()),
            false => config.remove(PROVIDERS_KEY),
        };
    }
}

impl Definition {
    fn is_empty(&self) -> bool {
        let Self {
            name: _,
            provider,
            owner,
            description,
            config,
            min_capacity,
            max_capacity,
            email_on_error,
            file,
        } = self;
        let texts = [owner, description, config, file];
        let units = [min_capacity, max_capacity];
        provider.is_empty()
            && texts.iter().all(|text| text.is_none())
            && units.iter().all(|units| units.is_none())
            && email_on_error.is_none()
    }

    /// Sets the fields; returns whether the file has a config.
    fn apply(self, fields: &mut Map<String, Value>) -> Result<bool, Failure> {
        let of_file = SHAPE.read(self.file.as_deref())?;
        let has_config = of_file.contains_key("config");
        fields.extend(of_file);
        let config = self
            .config
            .map(|text| json_argument("--config", &text))
            .transpose()?;
        set(fields, "owner", self.owner);
        set(fields, "description", self.description);
        set(fields, "config", config);
        if let Some(config) = fields.get_mut("config").and_then(Value::as_object_mut) {
            set(config, "minCapacity", self.min_capacity);
            set(config, "maxCapacity", self.max_capacity);
        }
        set_providers(fields, &self.provider);
        set(fields, "emailOnError", self.email_on_error);
        Ok(has_config)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_of_three_providers_lists_all_of_them_once() {
        let steered = |provider: &str| json!({"workerManager": {"providerId": provider}});
        let mut pool = json!({"providerId": "aws", "config": {"launchConfigs": [
            {}, steered("google"), steered("racks"), steered("google")]}});
        name_providers(&mut pool);
        assert_eq!(pool["providers"], json!(["aws", "google", "racks"]));
        let mut listed = json!({"providerId": "aws", "config": {"providers": ["racks", "aws"],
            "launchConfigs": [steered("aws")]}});
        name_providers(&mut listed);
        assert_eq!(listed["providers"], json!(["aws", "racks"]));
        let mut declared = json!({"providerId": "static", "config": {}});
        name_providers(&mut declared);
        assert_eq!(declared["providers"], json!(["static"]));
    }

    #[test]
    fn providers_of_flags_replace_those_of_a_definition() {
        let set = |definition: Value, providers: &[&str]| {
            let mut fields: Map<String, Value> = serde_json::from_value(definition).unwrap();
            let providers: Vec<String> = providers.iter().map(|&id| id.to_owned()).collect();
            set_providers(&mut fields, &providers);
            Value::Object(fields)
        };
        let of_two = json!({"providerId": "a", "config": {"x": 1, "providers": ["a", "b"]}});
        let plain = json!({"providerId": "z", "config": {"x": 1}});
        assert_eq!(set(plain.clone(), &["a", "b"]), of_two);
        assert_eq!(set(of_two.clone(), &["z"]), plain);
        assert_eq!(set(of_two.clone(), &[]), of_two);
        let new = json!({"providerId": "a", "config": {"providers": ["a", "b"]}});
        assert_eq!(set(json!({}), &["a", "b"]), new);
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
        remove_computed_ids("a/b", &mut fields);
        let steered = json!({"region": "r", "workerManager": {"maxCapacity": 1}});
        let kept = json!([plain, steered, shown("lc-mine", json!({}))]);
        assert_eq!(fields["config"]["launchConfigs"], kept);
        let mut declared = Map::from_iter([("config".to_owned(), json!({}))]);
        remove_computed_ids("a/b", &mut declared);
        assert_eq!(declared["config"], json!({}));
    }
}
