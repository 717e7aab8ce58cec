//! The hosts that asked last, and the numbers of requests, for announcements.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use domain::id::WorkerKey;
use domain::time::Timestamp;
use serde_json::{Value, json};

use crate::host_name::HostName;

/// Hosts of an announcement, at most as many as its schema allows.
const MAX_HOSTS: usize = 200;
/// As the schema of announcements says.
const MAX_REASON_CHARACTERS: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Served,
    Refused,
    /// The host is known, but the worker manager was away.
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// A request, with what is known of its host.
pub(crate) struct Sighting {
    pub(crate) host: Option<HostName>,
    pub(crate) worker: Option<WorkerKey>,
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<String>,
    pub(crate) at: Timestamp,
}

#[derive(Default)]
pub(crate) struct Sightings(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    last: HashMap<IpAddr, Sighting>,
    served: u64,
    refused: u64,
    failed: u64,
}

impl Sightings {
    pub(crate) fn note(&self, address: IpAddr, sighting: Sighting) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match sighting.outcome {
            Outcome::Served => seen.served += 1,
            Outcome::Refused => seen.refused += 1,
            Outcome::Failed => seen.failed += 1,
        }
        if seen.last.len() >= MAX_HOSTS && !seen.last.contains_key(&address) {
            let oldest = seen.last.iter().min_by_key(|(_, last)| last.at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                seen.last.remove(&oldest);
            }
        }
        seen.last.insert(address, sighting);
    }

    /// Adds the numbers and the hosts to an announcement, newest first.
    pub(crate) fn add_to(&self, announcement: &mut Value) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hosts: Vec<_> = seen.last.iter().collect();
        hosts.sort_by_key(|(address, last)| (std::cmp::Reverse(last.at), **address));
        let hosts: Vec<Value> = hosts
            .iter()
            .map(|(address, last)| last.wire(address))
            .collect();
        announcement["served"] = json!(seen.served);
        announcement["refused"] = json!(seen.refused);
        announcement["failed"] = json!(seen.failed);
        announcement["hosts"] = Value::Array(hosts);
    }
}

impl Sighting {
    fn wire(&self, address: &IpAddr) -> Value {
        let mut host = json!({
            "address": address.to_string(),
            "lastAsked": self.at.to_string(),
            "outcome": self.outcome.as_str(),
        });
        if let Some(name) = &self.host {
            host["hostName"] = json!(name.as_str());
        }
        if let Some(worker) = &self.worker {
            host["worker"] = json!(worker.to_string());
        }
        if let Some(reason) = &self.reason {
            let reason: String = reason.chars().take(MAX_REASON_CHARACTERS).collect();
            host["reason"] = json!(reason);
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testing::sizes_around;

    use super::*;

    #[test]
    fn an_announcement_has_a_bounded_number_of_hosts_the_newest_ones() {
        for size in sizes_around("relay::sightings::MAX_HOSTS", MAX_HOSTS) {
            let sightings = Sightings::default();
            for number in 0..size {
                let number = u32::try_from(number).unwrap();
                let sighting = Sighting {
                    host: None,
                    worker: None,
                    outcome: Outcome::Refused,
                    reason: Some("é".repeat(600)),
                    at: Timestamp::from_millis(number.into()),
                };
                sightings.note(Ipv4Addr::from_bits(number).into(), sighting);
            }
            let mut announcement = json!({});
            sightings.add_to(&mut announcement);
            let hosts = announcement["hosts"].as_array().unwrap();
            assert_eq!(hosts.len(), size.min(MAX_HOSTS));
            assert_eq!(announcement["refused"], size);
            if let Some(first) = hosts.first() {
                let newest = Ipv4Addr::from_bits(u32::try_from(size - 1).unwrap());
                assert_eq!(first["address"], newest.to_string());
                assert_eq!(first["reason"].as_str().unwrap().chars().count(), 500);
            }
        }
    }
}
