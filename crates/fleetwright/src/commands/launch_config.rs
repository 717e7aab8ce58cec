//! Launch configs.

use clap::Subcommand;

use super::{Limit, Session};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::Column;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL")]
        pool: String,
        /// Also those that are no longer used for new workers
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        limit: Limit,
    },
}

const LIST: &[Column] = &[
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("ARCHIVED", "isArchived"),
    Column::age("CREATED", "created"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("CONFIGURATION", "configuration"),
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
                .look_with("fleetwright pool list");
            session
                .list(&call, "workerPoolLaunchConfigs", LIST, &limit)
                .await
        }
    }
}
