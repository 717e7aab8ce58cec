//! Launch configs: their states, and pauses.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// Pool id, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        /// Also list launch configs that are no longer used for new workers
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        limit: Limit,
    },
    Show(Name),
    Pause(PauseArguments),
    Resume(Name),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Pool id, such as demo/linux
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pub(super) pool: String,
    /// Launch config id
    #[arg(value_name = "ID", value_parser = name::launch_config)]
    pub(super) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    name: Name,
    /// End: a time, or a duration from now such as 10m; at most 90d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: String,
    /// Reason, for other users
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

const KEY: &str = "launchConfigs";
const LIST_COMMAND: &str = "fleetwright launch-config list POOL";

/// Fields of rows that the API does not have.
const STATE: &str = "stateText";
const WEIGHT: &str = "weightText";
const CHANCE: &str = "chanceText";
const GIST: &str = "gist";
const REFUSED: &str = "refusedText";
const ERROR: &str = "errorText";

const LIST: &[Column] = &[
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("STATE", STATE),
    Column::text("REGION", "region"),
    Column::number("WEIGHT", WEIGHT),
    Column::number("CHANCE", CHANCE),
    Column::number("RUNNING", "workers/running"),
    Column::number("REQUESTED", "workers/requested"),
    Column::age("NEXT TRY", "availability/nextTry"),
    Column::prose("MACHINE", GIST),
];

const DETAILS: &[Column] = &[
    Column::text("Launch config", "launchConfigId"),
    Column::text("Pool", "workerPoolId"),
    Column::text("Provider", "providerId"),
    Column::text("Region", "region"),
    Column::text("Machine", GIST),
    Column::text("State", STATE),
    Column::text("Why", "reasonText"),
    Column::text("Fails since", "availability/since"),
    Column::text("Next try", "availability/nextTry"),
    Column::text("Initial weight", "weight/initial"),
    Column::text("Balance share", "weight/balance"),
    Column::text("Health share", "weight/health"),
    Column::text("Weight", WEIGHT),
    Column::text("Chance", CHANCE),
    Column::text("Attempts", "launches/attempts"),
    Column::text("Refused", REFUSED),
    Column::text("Registered", "launches/registered"),
    Column::text("Never registered", "launches/neverRegistered"),
    Column::text("Claimed work", "launches/claimed"),
    Column::text("Never claimed", "launches/neverClaimed"),
    Column::text("Running", "workers/running"),
    Column::text("Requested", "workers/requested"),
    Column::text("Last error", ERROR),
    Column::age("Created", "created"),
    Column::age("Last modified", "lastModified"),
];

/// The fields of launch configs with the machine type and its location.
const SUMMARIZED: &[&str] = &[
    "/location",
    "/region",
    "/zone",
    "/machineType",
    "/hardwareProfile/vmSize",
    "/launchConfig/InstanceType",
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List {
            pool,
            archived,
            limit,
        } => {
            let call = Call::get(WORKER_MANAGER, &["launch-configs", &pool])
                .query("includeArchived", archived.then_some(true))
                .to(format!("list the launch configs of pool {pool}"))
                .list_command("fleetwright pool list");
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            session.described_rows(document, KEY, LIST, describe);
            Ok(())
        }
        Verb::Show(name) => {
            let call = Call::get(WORKER_MANAGER, &name.segments())
                .to(format!("show {}", name.text()))
                .list_command(LIST_COMMAND);
            let reply = session.client.call(&call).await?;
            session.described_details(reply, DETAILS, describe);
            Ok(())
        }
        Verb::Pause(arguments) => pause(&arguments, session).await,
        Verb::Resume(name) => {
            let segments = [&name.segments()[..], &["resume"]].concat();
            let call = Call::order(WORKER_MANAGER, &segments)
                .to(format!("resume {}", name.text()))
                .list_command(LIST_COMMAND);
            let done = format!("resumed {}", name.text());
            session.order(&call, &done).await
        }
    }
}

async fn pause(arguments: &PauseArguments, session: &Session) -> Result<(), Failure> {
    let name = &arguments.name;
    let until = session.moment("--until", &arguments.until)?;
    let body = json!({"until": until.to_string(), "reason": arguments.reason});
    let segments = [&name.segments()[..], &["pause"]].concat();
    let call = Call::post(WORKER_MANAGER, &segments, body)
        .to(format!("pause {}", name.text()))
        .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    let until = output::clock_of(&reply["until"]);
    let done = format!("{}: paused until {until}", name.text());
    session.done(&reply, &done);
    Ok(())
}

impl Name {
    fn segments(&self) -> [&str; 3] {
        ["launch-config", &self.pool, &self.id]
    }

    fn text(&self) -> String {
        format!("launch config {} of {}", self.id, self.pool)
    }
}

/// Adds the fields that the API does not have.
fn describe(item: &mut Value) {
    let gist = gist(&item["configuration"]);
    let place = item["place"].as_str().unwrap_or_default();
    let machine = if gist.is_empty() {
        place.to_owned()
    } else {
        gist
    };
    let fields = [
        (GIST, json!(machine)),
        (STATE, json!(state_text(item))),
        (WEIGHT, fraction(&item["weight"]["weight"], 1.0, "")),
        (CHANCE, fraction(&item["weight"]["chance"], 100.0, " %")),
        (REFUSED, json!(refused_text(&item["launches"]["refused"]))),
        (ERROR, json!(error_text(&item["lastError"]))),
        ("reasonText", reason_text(item)),
    ];
    if let Some(item) = item.as_object_mut() {
        let fields = fields.into_iter();
        item.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
}

/// `active`, `paused`, `archived`, or why an active one is not chosen by its weight.
pub(super) fn state_text(item: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let status = word(&item["availability"]["status"]);
    match item["state"].as_str() {
        Some("active") if !matches!(status.as_str(), "usable" | "-") => status,
        _ => word(&item["state"]),
    }
}

/// Why nothing is launched from it, or only on trial.
fn reason_text(item: &Value) -> Value {
    let pause = &item["pause"];
    let word = |name: &str| pause[name].as_str().unwrap_or_default();
    if pause.is_object() {
        let (until, owner, id) = (word("until"), word("owner"), word("overrideId"));
        let reason = word("reason");
        return json!(format!(
            "paused until {until} by {owner} (override {id}): {reason}"
        ));
    }
    item["availability"]["reason"].clone()
}

/// `3 capacity, 1 quota`
fn refused_text(refused: &Value) -> String {
    let causes = refused.as_object().into_iter().flatten();
    let causes: Vec<String> = causes
        .map(|(cause, count)| format!("{count} {cause}"))
        .collect();
    if causes.is_empty() {
        return "0".to_owned();
    }
    causes.join(", ")
}

fn error_text(error: &Value) -> Option<String> {
    let word = |name: &str| error[name].as_str();
    let (at, title) = (word("reported")?, word("title")?);
    let description = word("description").unwrap_or_default();
    Some(format!("{at} {title}: {description}"))
}

/// The number times a factor, with two digits (none for a percentage); `null` if there is none.
pub(super) fn fraction(number: &Value, factor: f64, unit: &str) -> Value {
    let number = number.as_f64().map(|number| number * factor);
    let digits = if factor > 1.0 { 0 } else { 2 };
    json!(number.map(|number| format!("{number:.digits$}{unit}")))
}

/// A summary of the machine; `--json` prints the complete launch config.
fn gist(configuration: &Value) -> String {
    let parts: Vec<_> = SUMMARIZED
        .iter()
        .filter_map(|place| configuration.pointer(place)?.as_str())
        // A machine type may be a path.
        .map(|text| text.rsplit('/').next().unwrap_or(text))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_machine_type_and_location() {
        let google = json!({"region": "r", "zone": "z", "machineType": "zones/z/machineTypes/n2"});
        assert_eq!(gist(&google), "r z n2");
        let aws = json!({"region": "r", "launchConfig": {"InstanceType": "m5"}});
        assert_eq!(gist(&aws), "r m5");
        assert_eq!(gist(&json!({"zone": 1})), "");
        assert_eq!(gist(&Value::Null), "");
    }

    #[test]
    fn a_row_says_whether_it_is_used_and_why_not() {
        let shown = |item: Value| {
            let mut item = item;
            describe(&mut item);
            let word = |name: &str| item[name].as_str().unwrap_or("-").to_owned();
            [STATE, WEIGHT, CHANCE, "reasonText"].map(word).join("; ")
        };
        let used = json!({"state": "active", "availability": {"status": "usable"},
            "weight": {"weight": 1.0 / 3.0, "chance": 0.5}});
        assert_eq!(shown(used), "active; 0.33; 50 %; -");
        let off = json!({"state": "active", "weight": {"weight": 0.0},
            "availability": {"status": "shut-off", "reason": "quota, tried again at 14:36:00"}});
        assert_eq!(
            shown(off),
            "shut-off; 0.00; -; quota, tried again at 14:36:00"
        );
        let paused = json!({"state": "paused", "availability": {"status": "unusable"},
            "pause": {"until": "noon", "owner": "ann", "overrideId": "o", "reason": "prices"}});
        assert_eq!(
            shown(paused),
            "paused; -; -; paused until noon by ann (override o): prices"
        );
        assert_eq!(shown(json!({"state": "archived"})), "archived; -; -; -");
    }

    #[test]
    fn refusals_and_the_last_error_have_one_line_each() {
        assert_eq!(refused_text(&json!({})), "0");
        let refused = json!({"capacity": 3, "quota": 1});
        assert_eq!(refused_text(&refused), "3 capacity, 1 quota");
        let error = json!({"reported": "noon", "title": "T", "description": "d"});
        assert_eq!(error_text(&error).as_deref(), Some("noon T: d"));
        assert_eq!(error_text(&Value::Null), None);
    }

    #[test]
    fn a_reply_of_another_shape_is_shown_as_far_as_possible() {
        let mut odd = json!([{}, {"configuration": 1}, 1]);
        odd.as_array_mut().into_iter().flatten().for_each(describe);
        assert_eq!(odd[0][GIST], "");
        assert_eq!(odd[1][STATE], "-");
        describe(&mut Value::Null);
    }
}
