//! The section `[traces]`: which collector gets the lives of machines and the requests, by OTLP.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesSettings {
    /// The collector, like `http://127.0.0.1:4318`. Without it, there are no traces.
    pub endpoint: Option<String>,
    /// File with the value of the header `Authorization`, if the collector needs one.
    pub authorization_file: Option<PathBuf>,
    /// The share of requests that are traced, from 0 to 1. A request that belongs to a sampled
    /// trace of its caller is always traced.
    pub requests: f64,
}

impl Default for TracesSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            authorization_file: None,
            requests: 1.0,
        }
    }
}

impl TracesSettings {
    /// The key with an invalid value, and what is wrong.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if let Some(endpoint) = &self.endpoint
            && !["http://", "https://"]
                .iter()
                .any(|scheme| endpoint.starts_with(scheme))
        {
            let problem = "must be the address of a collector, like http://127.0.0.1:4318";
            return Some(("traces.endpoint", problem));
        }
        if !(0.0..=1.0).contains(&self.requests) {
            return Some(("traces.requests", "must be a share from 0 to 1"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_the_key() {
        let problem = |endpoint: Option<&str>, requests: f64| {
            let settings = TracesSettings {
                endpoint: endpoint.map(str::to_owned),
                authorization_file: None,
                requests,
            };
            settings.problem().map(|(key, _)| key)
        };
        for fits in [None, Some("http://a:1"), Some("https://a")] {
            for share in [0.0, 0.5, 1.0] {
                assert_eq!(problem(fits, share), None);
            }
        }
        for wrong in ["", "a:4318", "grpc://a", "httpx://a"] {
            assert_eq!(problem(Some(wrong), 1.0), Some("traces.endpoint"));
        }
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(problem(None, wrong), Some("traces.requests"));
        }
    }
}
