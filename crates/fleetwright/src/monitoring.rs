//! The dashboard for Grafana and the alerts for Prometheus, made of one table.

mod alerts;
mod dashboard;
mod table;

pub(crate) use alerts::alerts;
pub(crate) use dashboard::dashboard;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regex::Regex;
    use server::telemetry::catalogue::{Kind, METRICS};

    use super::table::{ALERTS, PANELS};

    /// Names in a query, without the endings that Prometheus gives to the parts of a histogram.
    fn metrics(query: &str) -> BTreeSet<String> {
        let name = Regex::new(r"\b(?:http|fleetwright|worker_manager)_[a-z_]+").unwrap();
        let found = name.find_iter(query).map(|found| found.as_str());
        let part_of = |name: &str| {
            let histograms = METRICS.iter().filter(|one| one.kind == Kind::Histogram);
            let mut names = histograms.map(|one| one.name);
            names
                .find(|one| {
                    let rest = name.strip_prefix(one);
                    rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
                })
                .map_or_else(|| name.to_owned(), str::to_owned)
        };
        found.map(part_of).collect()
    }

    #[test]
    fn every_query_asks_for_metrics_that_there_are() {
        let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        let of_panels = PANELS.iter().flat_map(|panel| panel.queries);
        let of_panels = of_panels.map(|(_, query)| *query);
        for query in of_panels.chain(ALERTS.iter().map(|alert| alert.query)) {
            let names = metrics(query);
            assert!(!names.is_empty() || query.starts_with("up{"), "{query}");
            for name in names {
                assert!(known.contains(name.as_str()), "{name} in {query}");
            }
        }
    }

    #[test]
    fn each_alert_says_what_happened_and_what_to_do() {
        let names: BTreeSet<&str> = ALERTS.iter().map(|alert| alert.name).collect();
        assert_eq!(names.len(), ALERTS.len());
        for alert in ALERTS {
            assert!(alert.summary.ends_with('.'), "{}", alert.name);
            assert!(alert.action.contains("fleetwright "), "{}", alert.name);
        }
    }
}
