//! The providers of the configuration, for servers and for builders without a server.

use std::sync::Arc;

use access::seal::Keyring;
use cloud::{Provider, ProviderConfig, ProviderContext};
use contract::Schemas;
use domain::id::ProviderId;
use domain::time::Clock;
use engine::rate_limit::{RateLimitedProvider, SystemTimer};

use crate::config::{Config, LogFormat};

/// The providers of the configuration. Calls to clouds are rate-limited.
pub(crate) fn build_providers(
    config: &Config,
    keyring: &Arc<Keyring>,
    clock: &Arc<dyn Clock>,
    schemas: Schemas,
) -> Vec<(ProviderId, Arc<dyn Provider>)> {
    let build = |(id, provider): &(ProviderId, ProviderConfig)| {
        let context = ProviderContext {
            id: id.clone(),
            schemas,
            keyring: Arc::clone(keyring),
            root_url: config.root_url(),
            data: config.data.clone(),
            clock: Arc::clone(clock),
        };
        let built = provider.build(context);
        if !provider.calls_a_cloud() {
            return (id.clone(), built);
        }
        let limits = config.fleet.rate_limits.get(id.as_str()).copied();
        let limited = RateLimitedProvider::new(
            id.clone(),
            built,
            limits.unwrap_or_default(),
            Arc::clone(clock),
            Arc::new(SystemTimer),
        )
        .with_records(config.log.format == LogFormat::Taskcluster);
        (id.clone(), Arc::new(limited) as Arc<dyn Provider>)
    };
    config.providers.0.iter().map(build).collect()
}
