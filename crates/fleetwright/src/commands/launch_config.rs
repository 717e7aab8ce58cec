//! Launch configs.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::Column;

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
}

const KEY: &str = "workerPoolLaunchConfigs";

const LIST: &[Column] = &[
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("ARCHIVED", "isArchived"),
    Column::age("CREATED", "created"),
    Column::prose("MACHINE", GIST),
];

/// The field of a row with the summary, which the API does not have.
const GIST: &str = "gist";

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
            let call = Call::get(WORKER_MANAGER, &["worker-pool", &pool, "launch-configs"])
                .query("includeArchived", archived.then_some(true))
                .to(format!("list the launch configs of pool {pool}"))
                .list_command("fleetwright pool list");
            let mut document = session.client.pages(&call, KEY, limit.limit).await?;
            if !session.json {
                add_gists(&mut document[KEY]);
            }
            session.rows(&document, KEY, LIST);
            Ok(())
        }
    }
}

fn add_gists(launch_configs: &mut Value) {
    for item in launch_configs.as_array_mut().into_iter().flatten() {
        let gist = gist(&item["configuration"]);
        if let Some(item) = item.as_object_mut() {
            item.insert(GIST.to_owned(), json!(gist));
        }
    }
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
    fn a_list_of_another_shape_is_left_alone() {
        let mut odd = json!([{}, {"configuration": 1}, 1]);
        add_gists(&mut odd);
        assert_eq!(odd[0][GIST], "");
        add_gists(&mut Value::Null);
    }
}
