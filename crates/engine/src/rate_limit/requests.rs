//! Counts the requests to the cloud of a provider, for a log record of Taskcluster's form.

use std::sync::{Mutex, PoisonError};

use cloud::CloudRequests;
use domain::id::ProviderId;
use domain::time::{SECOND_MS, Timestamp};

use crate::taskcluster_records::{Record, of_requests};

/// Requests of this time are one record.
const RECORD_MS: i64 = 30 * SECOND_MS;

/// Requests that no record has counted yet, and the time of the first ones.
#[derive(Default)]
pub(super) struct RequestsSince(Mutex<(Option<Timestamp>, CloudRequests)>);

impl RequestsSince {
    /// Adds requests; after a while, returns the record of all.
    pub(super) fn add(
        &self,
        provider_id: &ProviderId,
        more: CloudRequests,
        now: Timestamp,
    ) -> Option<Record> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *kept.0.get_or_insert(now);
        kept.1.append(more);
        if now.millis_since(since) < RECORD_MS {
            return None;
        }
        let (_, requests) = std::mem::take(&mut *kept);
        of_requests(provider_id, &requests)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_of_half_a_minute_are_one_record() {
        let since = RequestsSince::default();
        let id: ProviderId = "one".parse().unwrap();
        let add = |statuses: &[u16], millis: i64| {
            let mut requests = CloudRequests::default();
            statuses.iter().for_each(|status| requests.add(*status, 10));
            since.add(&id, requests, Timestamp::from_millis(millis))
        };
        assert_eq!(add(&[200], 5), None);
        assert_eq!(add(&[429], 4 + RECORD_MS), None);
        let record = add(&[200], 5 + RECORD_MS).unwrap();
        let expected = json!({
            "providerId": "one", "total": 3, "success": 2, "failed": 1, "retries": 0,
            "byStatus": {"200": 2, "429": 1},
            "min": 10, "max": 10, "avg": 10, "median": 10, "p95": 10, "p99": 10,
        });
        assert_eq!(
            (record.kind, record.fields),
            ("cloud-api-metrics", expected)
        );
        assert_eq!(add(&[], 6 + RECORD_MS), None);
        assert_eq!(add(&[], 6 + 2 * RECORD_MS), None, "there were no requests");
    }
}
