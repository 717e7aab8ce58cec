//! The subject of a request: a configuration, or a worker type by either of its names.

use access::scope::Params;
use domain::documentation::Subject;
use domain::id::PoolId;

use super::super::super::call::Call;
use super::super::super::error::ApiError;

/// The provisioner of worker types without a given provisioner (RFC 124).
const PROVISIONER: &str = "worker-manager/";

/// A worker type has two names but only one scope, so the caller is authorised after the lookup.
pub(super) async fn subject(call: &mut Call) -> Result<Subject, ApiError> {
    let name = call.parameter("workerTypeId").to_owned();
    if name.is_empty() {
        return Ok(Subject::Configuration(
            call.parameter("workerConfigurationId").parse()?,
        ));
    }
    let pool_id: PoolId = if name.contains('/') {
        name.parse()?
    } else {
        format!("{PROVISIONER}{name}").parse()?
    };
    let id = pool_id.as_str();
    let short = id.strip_prefix(PROVISIONER).unwrap_or(id);
    let params = Params::new().text("workerType", short);
    call.authorize(params).await?;
    Ok(Subject::WorkerType(pool_id))
}
