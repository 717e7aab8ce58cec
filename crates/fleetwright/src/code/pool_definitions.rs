//! The pools and worker configurations that files define, without a server.

use std::collections::BTreeSet;
use std::path::PathBuf;

use domain::configuration::Configuration;
use domain::id::PoolId;
use domain::time::Timestamp;
use serde_json::Value;

use super::kind::Kind;
use super::read;
use crate::failure::Failure;

/// Each with its place in a file.
#[derive(Debug, Default)]
pub(crate) struct DefinedPools {
    pub(crate) pools: Vec<(PoolId, String, Value)>,
    pub(crate) configurations: Vec<(String, String, Configuration)>,
    /// The kinds of items that define no pools.
    pub(crate) ignored: BTreeSet<&'static str>,
}

/// Reads files and folders as `plan` and `apply` do.
pub(crate) fn read_pools(paths: &[PathBuf], now: Timestamp) -> Result<DefinedPools, Failure> {
    let definitions = read::read(paths, now)?;
    let mut defined = DefinedPools::default();
    for ((kind, id), item) in definitions.items {
        match kind {
            Kind::Role | Kind::Client | Kind::Image | Kind::Override | Kind::Budget => {
                defined.ignored.insert(kind.noun());
            }
            Kind::WorkerPool => {
                let parsed = id.parse::<PoolId>();
                let id = parsed.map_err(|bad| Failure::usage(format!("{}: {bad}", item.place)))?;
                defined.pools.push((id, item.place, item.content));
            }
            Kind::WorkerConfiguration => {
                let parsed = Configuration::parse(&item.content);
                let parsed = parsed.map_err(|problems| {
                    let lines = problems.iter().map(|problem| {
                        format!("{}: {}: {}", item.place, problem.pointer, problem.message)
                    });
                    Failure::usage(lines.collect::<Vec<_>>().join("\n"))
                })?;
                defined.configurations.push((id, item.place, parsed));
            }
        }
    }
    Ok(defined)
}
