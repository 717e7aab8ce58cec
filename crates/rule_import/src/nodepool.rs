//! Makes image definitions and rules from the configuration of a Nodepool.
//!
//! The result is a document that `fleetwright plan` reads, and a remark for each key that it could
//! not take over. Errors are returned together, each with its place.

mod disk_image;
mod document;
mod image_documents;
mod label_documents;
mod launch_config;
mod notes;
mod provider;
mod section;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use domain::id::{ConfigurationId, ProviderId};
use serde_json::Value;

pub use notes::{NodepoolProblem, Remark};
pub use provider::ProviderKind;

/// The owner of pools if none is given.
const DEFAULT_OWNER: &str = "nodepool@example.com";

/// A provider of ours, to which a provider of Nodepool is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedProvider {
    pub id: ProviderId,
    /// `None`: the kind that is nearest to Nodepool's driver.
    pub kind: Option<ProviderKind>,
}

/// The choices that the file does not answer.
#[derive(Clone, Debug)]
pub struct NodepoolOptions {
    /// By the names of Nodepool's providers. Others keep their names.
    pub providers: BTreeMap<String, MappedProvider>,
    pub configuration_id: ConfigurationId,
    pub owner: Option<String>,
    /// The capacity of labels in a pool without `max-servers`.
    pub max_capacity: u32,
}

/// The converted file.
#[derive(Debug)]
pub struct NodepoolConversion {
    /// The lists `images` and `workerConfigurations`, as YAML.
    pub text: String,
    pub n_images: usize,
    pub n_worker_types: usize,
    pub n_rules: usize,
    /// A key that was not taken over, or that has another meaning here.
    pub remarks: Vec<Remark>,
}

/// Converts the parsed file.
pub fn convert_nodepool(
    file: &Value,
    options: &NodepoolOptions,
) -> Result<NodepoolConversion, Vec<NodepoolProblem>> {
    document::convert(file, options)
}
