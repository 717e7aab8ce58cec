//! The section `[metrics]`: where `/metrics` answers, to whom, and under which names.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// An address for `/metrics` alone. It answers there then, and not at the main address.
    pub listen: Option<SocketAddr>,
    /// File with a token. Requests for `/metrics` need it then, and may come from other machines.
    pub token_file: Option<PathBuf>,
    /// Whether to show the metrics of Taskcluster's services, too, under their names.
    pub taskcluster_names: bool,
}
