//! Overrides: temporary pauses and capacity limits.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::set;
use super::{Confirmed, Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::code::Kind;
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// Also list overrides that ended by their time; removed ones are in `audit show`
        #[arg(long)]
        ended: bool,
        #[command(flatten)]
        limit: Limit,
    },
    Show(Name),
    Set(Box<OverrideArguments>),
    Remove(Confirmed<Name>),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Override id
    #[arg(value_name = "OVERRIDE", value_parser = name::an_override)]
    id: String,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true))]
#[command(group = clap::ArgGroup::new("effect").required(true).multiple(true))]
pub(crate) struct OverrideArguments {
    /// Override id; any new name
    #[arg(value_name = "OVERRIDE", value_parser = name::an_override)]
    id: String,
    /// Target: this pool
    #[arg(long, group = "target", value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Target: only this launch config of the pool
    #[arg(long, requires = "pool", conflicts_with_all = ["configuration", "provider", "region"], value_name = "ID")]
    launch_config: Option<String>,
    /// Target: this worker type: its name in a worker configuration, or its pool
    #[arg(long, group = "target", value_name = "TYPE")]
    worker_type: Option<String>,
    /// Target: the pools of all worker types of this worker configuration
    #[arg(long, group = "target", value_name = "CONFIGURATION")]
    configuration: Option<String>,
    /// Target: all pools of this provider
    #[arg(long, group = "target", value_name = "PROVIDER")]
    provider: Option<String>,
    /// Target: this region (the worker group of its machines)
    #[arg(long, group = "target", value_name = "REGION")]
    region: Option<String>,
    /// Launch no new workers
    #[arg(long, group = "effect", conflicts_with_all = ["min_capacity", "max_capacity"])]
    pause: bool,
    /// Minimum capacity of the pool
    #[arg(long, group = "effect", value_name = "N", allow_negative_numbers = true, value_parser = units)]
    min_capacity: Option<u64>,
    /// Maximum capacity of the pool
    #[arg(long, group = "effect", value_name = "N", allow_negative_numbers = true, value_parser = units)]
    max_capacity: Option<u64>,
    /// End: a time, or a duration from now such as 2h; at most 90d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: String,
    /// Reason, for other users
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

fn units(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "expected a number that is not negative, such as 4".to_owned())
}

const KEY: &str = "overrides";

/// The fields of a row with its target and effect, which the API does not have.
pub(super) const TARGET: &str = "target";
pub(super) const EFFECT: &str = "effect";
const END_COMMAND: &str = "endCommand";

const LIST: &[Column] = &[
    Column::text("OVERRIDE", "overrideId"),
    Column::text("TARGET", TARGET),
    Column::text("EFFECT", EFFECT),
    Column::age("UNTIL", "until"),
    Column::text("BY", "owner"),
    Column::prose("REASON", "reason"),
];

const DETAILS: &[Column] = &[
    Column::text("Override", "overrideId"),
    Column::text("Target", TARGET),
    Column::text("Effect", EFFECT),
    Column::text("Reason", "reason"),
    Column::text("By", "owner"),
    Column::age("Created", "created"),
    Column::age("Until", "until"),
    Column::text("To end it now", END_COMMAND),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List { ended, limit } => {
            let call = Call::get(WORKER_MANAGER, &["overrides"])
                .query("includeEnded", ended.then_some(true))
                .to("list overrides");
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            let items = document[KEY].as_array();
            let is_any_in_force = items.is_some_and(|items| items.iter().any(is_in_force));
            session.described_rows(document, KEY, LIST, describe);
            if is_any_in_force && !session.json {
                output::note("`fleetwright override remove OVERRIDE` ends an override now");
            }
            Ok(())
        }
        Verb::Show(Name { id }) => {
            let call = Kind::Override.read_call("show", &id);
            let reply = session.client.call(&call).await?;
            session.described_details(reply, DETAILS, describe);
            Ok(())
        }
        Verb::Set(arguments) => {
            let id = arguments.id.clone();
            let body = arguments.body(session)?;
            let call = Call::put(WORKER_MANAGER, &["override", &id], body)
                .to(format!("set override {id}"))
                .list_command("fleetwright pool list");
            let mut reply = session.client.call(&call).await?;
            if session.json {
                output::json(&reply);
                return Ok(());
            }
            describe(&mut reply);
            let word = |name: &str| reply[name].as_str().unwrap_or_default();
            let (target, effect) = (word(TARGET), word(EFFECT));
            let until = output::clock_of(&reply["until"]);
            output::out(&format!("{target}: {effect} until {until}"));
            Ok(())
        }
        Verb::Remove(Confirmed { name, consent }) => {
            let call = Kind::Override.remove_call("remove", &name.id);
            consent.confirm(&call)?;
            session
                .order(&call, &format!("removed override {}", name.id))
                .await
        }
    }
}

impl OverrideArguments {
    fn body(self, session: &Session) -> Result<Value, Failure> {
        let until = session.moment("--until", &self.until)?;
        let mut fields = Map::new();
        set(&mut fields, "workerPoolId", self.pool);
        set(&mut fields, "launchConfigId", self.launch_config);
        set(&mut fields, "workerType", self.worker_type);
        set(&mut fields, "workerConfigurationId", self.configuration);
        set(&mut fields, "providerId", self.provider);
        set(&mut fields, "region", self.region);
        set(&mut fields, "pause", self.pause.then_some(true));
        set(&mut fields, "minCapacity", self.min_capacity);
        set(&mut fields, "maxCapacity", self.max_capacity);
        set(&mut fields, "reason", Some(self.reason));
        set(&mut fields, "until", Some(until.to_string()));
        Ok(Value::Object(fields))
    }
}

/// Adds the target and the effect to a row.
pub(super) fn describe(item: &mut Value) {
    let word = |name: &str| item[name].as_str();
    let target = match (word("workerPoolId"), word("launchConfigId")) {
        (Some(pool), Some(config)) => format!("launch config {config} of {pool}"),
        (Some(pool), None) => format!("pool {pool}"),
        (None, _) => {
            let wide = ["workerConfigurationId", "providerId", "region"].map(word);
            match wide {
                [Some(id), _, _] => format!("worker configuration {id}"),
                [None, Some(provider), _] => format!("provider {provider}"),
                [None, None, region] => format!("region {}", region.unwrap_or("?")),
            }
        }
    };
    let limit = |name: &str, words: &str| {
        let units = item[name].as_u64()?;
        Some(format!("{words} {units}"))
    };
    let limits = [
        limit("minCapacity", "at least"),
        limit("maxCapacity", "at most"),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let mut effect = if limits.is_empty() {
        "paused".to_owned()
    } else {
        limits.join(", ")
    };
    let end = is_in_force(item).then(|| {
        let id = item["overrideId"].as_str().unwrap_or_default();
        json!(format!("fleetwright override remove {id}"))
    });
    if end.is_none() {
        effect.push_str(" (ended)");
    }
    if let Some(fields) = item.as_object_mut() {
        fields.extend(end.map(|command| (END_COMMAND.to_owned(), command)));
        fields.insert(TARGET.to_owned(), json!(target));
        fields.insert(EFFECT.to_owned(), json!(effect));
    }
}

/// Replies about one override do not say it while it is in force.
fn is_in_force(item: &Value) -> bool {
    item["inForce"] != json!(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_target_and_effect() {
        let said = |item: Value| {
            let mut item = item;
            describe(&mut item);
            let word = |name: &str| item[name].as_str().unwrap().to_owned();
            (word(TARGET), word(EFFECT))
        };
        let pair = |target: &str, effect: &str| (target.to_owned(), effect.to_owned());
        let config = json!({"workerPoolId": "a/b", "launchConfigId": "lc", "inForce": true});
        assert_eq!(said(config), pair("launch config lc of a/b", "paused"));
        let limits = json!({"workerPoolId": "a/b", "minCapacity": 2, "maxCapacity": 3});
        assert_eq!(said(limits), pair("pool a/b", "at least 2, at most 3"));
        let rules = json!({"workerConfigurationId": "build"});
        assert_eq!(said(rules), pair("worker configuration build", "paused"));
        let provider = json!({"providerId": "aws", "inForce": false});
        assert_eq!(said(provider), pair("provider aws", "paused (ended)"));
        assert_eq!(said(json!({"region": "r"})), pair("region r", "paused"));
    }
}
