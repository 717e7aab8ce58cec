//! Azure's log records in the form of Taskcluster's worker manager.

use domain::id::{PoolId, ProviderId};
use domain::worker::Worker;
use reqwest::Method;
use reqwest::header::HeaderMap;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::sha256_of;
use crate::taskcluster_record::{Record, Severity};

/// Characters of an address that a record shows: anybody can send one.
const MAX_URL_CHARS: usize = 500;

/// A call was refused, because there were too many.
pub(super) fn throttled(provider_id: &ProviderId, method: &Method, headers: &HeaderMap) -> Record {
    let operation = match method.as_str() {
        "GET" | "HEAD" => "read",
        "DELETE" => "delete",
        _ => "write",
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|text| text.trim().parse::<u64>().ok());
    let left = |kind: &str| number(&format!("x-ms-ratelimit-remaining-subscription-{kind}"));
    let fields = json!({
        "providerId": provider_id.as_str(),
        "operationType": operation,
        "retryAfterSeconds": number("retry-after"),
        "remainingReads": left("reads"),
        "remainingWrites": left("writes"),
        "remainingDeletes": left("deletes"),
        "remainingResource": text("x-ms-ratelimit-remaining-resource"),
    });
    Record::first("azure-throttled", Severity::Warning, fields)
}

/// A resource group that launch configs name was made.
pub(super) fn made_group(pool_id: &PoolId, group: &str, location: &str) -> Record {
    let fields = json!({
        "workerPoolId": pool_id.as_str(),
        "resourceGroupName": group,
        "location": location,
    });
    Record::first("azure-resource-group-ensure", Severity::Notice, fields)
}

/// The end of a machine begins. `is_fast`: Azure removes its parts with it.
pub(super) fn teardown(worker: &Worker, is_fast: bool) -> Record {
    let mut fields = of_worker(worker);
    let launch_config = worker.launch_config_id.as_ref();
    fields["launchConfigId"] = json!(launch_config.map(|id| id.as_str()));
    fields["mode"] = json!(if is_fast { "fast" } else { "slow" });
    Record::first("azure-teardown-mode", Severity::Info, fields)
}

/// Azure knows no machine of a worker that has registered. The first answer of this kind decides:
/// it is asked for only when the list of all machines lacks this one.
pub(super) fn missing(worker: &Worker) -> Record {
    let mut fields = of_worker(worker);
    fields["workerGroup"] = json!(worker.key.group.as_str());
    fields["vmName"] = json!(worker.key.id.as_str());
    fields["provisioningState"] = Value::Null;
    fields["instanceView404Streak"] = json!(1);
    Record::first(
        "azure-instance-view-repeated-404",
        Severity::Warning,
        fields,
    )
}

/// An intermediate certificate was downloaded, and belongs to a root.
pub(super) fn new_intermediate(der: &CertificateDer<'_>, url: &str) -> Record {
    let certificate = Certificate::from_der(der).ok();
    let content = certificate.map(|certificate| certificate.tbs_certificate);
    let fields = json!({
        "subject": content.as_ref().map(|content| content.subject.to_string()),
        "issuer": content.as_ref().map(|content| content.issuer.to_string()),
        "fingerprint": sha256_of(der),
        "url": url,
    });
    let kind = "registration-new-intermediate-certificate";
    Record::first(kind, Severity::Warning, fields)
}

/// A document names an address that certificates are not downloaded from.
pub(super) fn rejected_address(worker: &Worker, url: &str) -> Record {
    let mut fields = of_worker(worker);
    let url: String = url.chars().take(MAX_URL_CHARS).collect();
    fields["url"] = json!(url);
    let kind = "registration-rejected-intermediate-certificate-url";
    Record::first(kind, Severity::Warning, fields)
}

fn of_worker(worker: &Worker) -> Value {
    json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "workerId": worker.key.id.as_str(),
    })
}
