//! Makes rule sets from worker pools: worker configurations that compile to exactly these pools.
#![doc = include_str!("../README.md")]

mod applications;
mod bits;
mod cloud;
mod configuration_file;
mod cover;
mod factor;
mod leaves;
mod list_changes;
mod merge;
mod names;
mod nodepool;
mod parts;
mod patterns;
mod places;
mod pool;
mod render;
mod sets;
mod solve;
mod source;
mod table;
mod templates;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_common;
#[cfg(test)]
mod tests_of_files;
mod verify;
mod words;

use std::collections::BTreeMap;

use domain::id::PoolId;

use source::Source;

pub use configuration_file::{ConfigurationFile, PartFile, Unproven};
pub use nodepool::{
    MappedProvider, NodepoolConversion, NodepoolOptions, NodepoolProblem, ProviderKind, Remark,
    convert_nodepool,
};
pub use parts::{FilesBy, IDS_FILE};
pub use pool::Pool;

/// The id of the configuration if all pools are in one.
const ALL_POOLS: &str = "fleet";

/// Without a count, so that a further pool changes as few lines as possible.
const DESCRIPTION: &str = "Worker pools, as they were when the rules were made";

/// How pools are divided among configurations.
#[derive(Clone, Copy, Debug)]
pub enum Grouping {
    One,
    /// By the provisioner, the part of the worker pool id before the slash.
    ByProvisioner,
}

/// A pool that does not become rules, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExcludedPool {
    pub id: PoolId,
    pub reason: String,
}

/// The pools that become rules, and the others.
#[derive(Debug)]
pub struct PoolSelection {
    sources: Vec<Source>,
    /// Pools that need no rules.
    pub left_out: Vec<ExcludedPool>,
    /// The numbers of left out pools that are made of rules already, by worker configuration.
    pub compiled: BTreeMap<String, usize>,
    /// Pools that rules cannot express.
    pub refused: Vec<ExcludedPool>,
}

impl PoolSelection {
    pub fn new(pools: &BTreeMap<PoolId, Pool>) -> Self {
        let mut selection = Self {
            sources: Vec::new(),
            left_out: Vec::new(),
            compiled: BTreeMap::new(),
            refused: Vec::new(),
        };
        let lasting = pools.values().filter(|pool| !pool.is_being_deleted());
        let takes = source::what_providers_take(lasting);
        for (id, pool) in pools {
            let excluded = |reason| ExcludedPool {
                id: id.clone(),
                reason,
            };
            if pool.is_being_deleted() {
                let reason = "it is being deleted".to_owned();
                selection.left_out.push(excluded(reason));
            } else if let Some(configuration) = &pool.worker_configuration_id {
                let reason = format!("it is made of the rules of {configuration} already");
                selection.left_out.push(excluded(reason));
                *selection.compiled.entry(configuration.clone()).or_default() += 1;
            } else {
                match Source::new(id, pool, takes[pool.provider_id.as_str()]) {
                    Ok(source) => selection.sources.push(source),
                    Err(reason) => selection.refused.push(excluded(reason)),
                }
            }
        }
        selection
    }

    /// The ids of the pools that become rules.
    pub fn pool_ids(&self) -> impl Iterator<Item = &PoolId> {
        self.sources.iter().map(|source| &source.id)
    }

    pub fn n_pools(&self) -> usize {
        self.sources.len()
    }

    pub fn n_launch_configs(&self) -> usize {
        let sources = self.sources.iter();
        sources.map(|source| source.launch_configs.len()).sum()
    }

    /// The pools as configurations. Pools that fit into no configuration become refused pools. They
    /// are searched only if a configuration fails, because the search takes as long as writing.
    pub fn configurations(
        &mut self,
        grouping: Grouping,
        files_by: Option<FilesBy>,
    ) -> Result<Vec<ConfigurationFile>, Unproven> {
        let failure = match configurations(&self.sources, grouping, files_by) {
            Err(failure) => failure,
            done @ Ok(_) => return done,
        };
        let before = self.refused.len();
        for source in std::mem::take(&mut self.sources) {
            match configuration_file::obstacle(&source)? {
                None => self.sources.push(source),
                Some(reason) => self.refused.push(ExcludedPool {
                    id: source.id,
                    reason,
                }),
            }
        }
        if self.refused.len() == before {
            return Err(failure);
        }
        self.refused.sort();
        configurations(&self.sources, grouping, files_by)
    }
}

fn configurations(
    sources: &[Source],
    grouping: Grouping,
    files_by: Option<FilesBy>,
) -> Result<Vec<ConfigurationFile>, Unproven> {
    let mut files = Vec::new();
    for (id, sources) in grouped(sources.to_vec(), grouping) {
        let found = configuration_file::configurations(&id, DESCRIPTION, &sources, files_by)?;
        files.extend(found);
    }
    Ok(files)
}

fn grouped(sources: Vec<Source>, grouping: Grouping) -> BTreeMap<String, Vec<Source>> {
    let mut groups: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in sources {
        let group = match grouping {
            Grouping::One => ALL_POOLS,
            Grouping::ByProvisioner => source.id.as_str().split('/').next().unwrap_or(ALL_POOLS),
        };
        groups.entry(group.to_owned()).or_default().push(source);
    }
    groups
}
