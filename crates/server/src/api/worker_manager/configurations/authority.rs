//! Who may make a worker configuration say this: its worker types and providers are asked for as well.

use access::scope::Params;
use domain::configuration::{Configuration, WorkerType};
use domain::id::ConfigurationId;

use super::super::super::call::Call;
use super::super::super::error::ApiError;

/// For everything that a configuration names.
pub(super) async fn for_whole(
    call: &mut Call,
    id: &ConfigurationId,
    wanted: &Configuration,
    adopts: bool,
) -> Result<(), ApiError> {
    let names = |text: fn(&WorkerType) -> &str| {
        let worker_types = wanted.worker_types.iter();
        worker_types
            .map(|worker_type| text(worker_type).to_owned())
            .collect::<Vec<_>>()
    };
    let adopted = match adopts {
        true => names(|worker_type| worker_type.pool_id().as_str()),
        false => Vec::new(),
    };
    let params = Params::new()
        .text("workerConfigurationId", id.as_str())
        .list("workerTypes", names(WorkerType::name))
        .list("providers", wanted.named_providers().into_iter().collect())
        .list("adoptedPools", adopted);
    call.authorize(params).await
}

/// For the configuration, whatever it names.
pub(super) async fn for_itself(call: &mut Call) -> Result<(), ApiError> {
    let nothing = ["workerTypes", "providers", "adoptedPools"];
    let params = nothing.into_iter().fold(call.url_params(), |params, list| {
        params.list(list, Vec::new())
    });
    call.authorize(params).await
}

/// For one rule, which may opt in to providers, too.
pub(super) async fn for_rule(
    call: &mut Call,
    providers: impl IntoIterator<Item = String>,
) -> Result<(), ApiError> {
    let params = call
        .url_params()
        .list("providers", providers.into_iter().collect());
    call.authorize(params).await
}
