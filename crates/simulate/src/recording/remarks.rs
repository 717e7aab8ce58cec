//! Remarks for people: gaps in a recording, and how long they are.

use std::collections::BTreeSet;

use domain::id::PoolId;
use domain::plan::StrategyName;
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::Value;

use super::{Past, Recording};

/// At most this many pools are named.
const MAX_NAMED: usize = 5;
/// A shorter time at the start without runs is not remarkable: one part of so many.
const REMARKABLE_PART: i64 = 20;

impl Recording {
    /// Notes about what is missing. `simulated`: the pools that are simulated.
    pub fn remarks(&self, simulated: &BTreeSet<PoolId>, past: &Past) -> Vec<String> {
        let mut remarks = self.notes.clone();
        remarks.extend(self.gap_remark());
        remarks.extend(self.start_remarks(simulated));
        remarks.extend(self.pool_remarks(simulated));
        let tasks = |count: Option<u64>, what: &str| {
            let count = count.filter(|count| *count > 0)?;
            Some(format!("{count} tasks {what}"))
        };
        let open = [
            tasks(self.header.waiting, "still waited"),
            tasks(self.header.running, "still ran"),
        ];
        let open: Vec<String> = open.into_iter().flatten().collect();
        if !open.is_empty() {
            remarks.push(format!(
                "at the end {}: their durations are not known, so they are left out",
                open.join(" and ")
            ));
        }
        if past.unpriced_hours > 0.0 {
            remarks.push(format!(
                "{:.1} of {:.1} machine-hours have no price and cost nothing here; compare the \
                 hours",
                past.unpriced_hours, past.machine_hours
            ));
        }
        remarks
    }

    fn gap_remark(&self) -> Option<String> {
        let longest = self
            .gaps
            .iter()
            .max_by_key(|gap| gap.until.millis_since(gap.since))?;
        // Gaps may overlap after a clock was set.
        let (mut sum_ms, mut covered) = (0, self.header.since);
        for gap in &self.gaps {
            sum_ms += gap.until.millis_since(gap.since.max(covered)).max(0);
            covered = covered.max(gap.until);
        }
        Some(format!(
            "nothing was recorded for {} of {}: no server worked, or its clock was set ({}; the \
             longest from {} to {})",
            duration(sum_ms),
            duration(self.length_ms()),
            counted(self.gaps.len(), "gap"),
            longest.since,
            longest.until,
        ))
    }

    fn start_remarks(&self, simulated: &BTreeSet<PoolId>) -> Vec<String> {
        let mut remarks = Vec::new();
        let since = self.header.since;
        match self.header.runs_since {
            None => remarks.push(
                "no run of a task is recorded: the server reads runs from its own queue, or over \
                 AMQP from an outside one"
                    .to_owned(),
            ),
            Some(first) => {
                let missing_ms = first.millis_since(since);
                if missing_ms > self.length_ms() / REMARKABLE_PART {
                    remarks.push(format!(
                        "no run is recorded before {first}: the first {} of {} are empty (the \
                         history is kept for {} days)",
                        duration(missing_ms),
                        duration(self.length_ms()),
                        self.header.recording_days,
                    ));
                }
            }
        }
        let is_live = |at: Timestamp| {
            let workers = self.workers.iter();
            let live = workers.filter(move |worker| {
                simulated.contains(&worker.worker_pool_id)
                    && worker.created < at
                    && worker.stopped.is_none_or(|stopped| stopped > at)
            });
            live.count()
        };
        let n_live = is_live(since);
        if n_live > 0 {
            remarks.push(format!(
                "{} existed at the start: simulations begin without workers",
                counted(n_live, "worker")
            ));
        }
        remarks
    }

    fn pool_remarks(&self, simulated: &BTreeSet<PoolId>) -> Vec<String> {
        let mut remarks = Vec::new();
        let runs = self.runs.iter();
        let outside = runs.filter(|run| !simulated.contains(&run.worker_pool_id));
        let (mut n_outside, mut names) = (0, BTreeSet::new());
        for run in outside {
            n_outside += 1;
            names.insert(run.worker_pool_id.to_string());
        }
        if n_outside > 0 {
            remarks.push(format!(
                "{} of pools that are not simulated are left out: {}",
                counted(n_outside, "run"),
                listed(&names)
            ));
        }
        let changed = self.pools.iter().filter(|pool| {
            simulated.contains(&pool.worker_pool_id) && pool.last_modified > self.header.since
        });
        let changed: BTreeSet<String> = changed
            .map(|pool| format!("{} ({})", pool.worker_pool_id, pool.last_modified))
            .collect();
        if !changed.is_empty() {
            remarks.push(format!(
                "pools were created or changed during the recording, and are simulated as they are \
                 now: {}",
                listed(&changed)
            ));
        }
        let by_service = self.pools.iter().filter_map(|pool| {
            let text = |key: &str| pool.config.get(key).and_then(Value::as_str);
            let id = &pool.worker_pool_id;
            let is_external = text("strategy") == Some(StrategyName::External.as_str());
            (is_external && simulated.contains(id))
                .then(|| format!("{id} ({})", text("fallbackStrategy").unwrap_or_default()))
        });
        let by_service: BTreeSet<String> = by_service.collect();
        if !by_service.is_empty() {
            remarks.push(format!(
                "a strategy service decides about pools, and cannot be asked in a simulation: their \
                 fallback strategies decide in its place: {}",
                listed(&by_service)
            ));
        }
        remarks
    }
}

/// Some names, and how many others there are.
pub(super) fn listed(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} others", shown.join(", ")),
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// `2 d 3 h`, `5 min 7 s`.
pub(super) fn duration(ms: i64) -> String {
    let seconds = ms / SECOND_MS;
    let (minutes, hours, days) = (ms / MINUTE_MS, seconds / 3_600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days} d {} h", hours % 24),
        () if hours > 0 => format!("{hours} h {} min", minutes % 60),
        () if minutes > 0 => format!("{minutes} min {} s", seconds % 60),
        () => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_long_list_is_cut_and_counted() {
        for size in sizes_around("simulate::recording::remarks::MAX_NAMED", MAX_NAMED) {
            let names: BTreeSet<String> = (0..size).map(|number| format!("{number:03}")).collect();
            let text = listed(&names);
            let shown = text.split(", ").filter(|name| !name.is_empty()).count();
            assert_eq!(shown, size.min(MAX_NAMED));
            let more = size.saturating_sub(MAX_NAMED);
            assert_eq!(
                text.ends_with(&format!(" and {more} others")),
                more > 0,
                "{text}"
            );
        }
    }

    #[test]
    fn a_duration_has_its_two_largest_units() {
        let of = |seconds| duration(seconds * SECOND_MS);
        assert_eq!((of(0), of(59)), ("0 s".to_owned(), "59 s".to_owned()));
        assert_eq!(of(61), "1 min 1 s");
        assert_eq!(of(3_660), "1 h 1 min");
        assert_eq!(of(7 * 86_400 + 3_600), "7 d 1 h");
    }
}
