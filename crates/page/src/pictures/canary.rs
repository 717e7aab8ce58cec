//! The canary of an image: is the new build safe?

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{CanaryChart, CanaryPoint, FailureRate, TimeRange, interval_of};
use crate::json::Json as _;
use crate::numbers;
use crate::parts::{heads, table};
use crate::view::Visit;
use crate::words::{ago, count_cell, time_taken};

/// Entries of the audit log in which the last canary is looked for.
const ENTRIES: u32 = 50;

/// The canary that runs, or the last canary with a verdict.
pub(super) struct Canary {
    of: Value,
    /// When and how it ended.
    ended: Option<(Option<domain::time::Timestamp>, String)>,
}

impl Canary {
    pub(super) async fn find(visit: &Visit<'_>, id: &str, status: &Value) -> Option<Self> {
        let of = status.at("canary").clone();
        if of.is_object() {
            return Some(Self { of, ended: None });
        }
        let call = Call::get(FLEETWRIGHT, &["audit"])
            .query("entityType", Some("image"))
            .query("entityId", Some(id))
            .query("limit", Some(ENTRIES));
        // People who may not read the audit log see the canaries that run.
        let reply = visit.api.call(call).await.ok()?;
        let entries = reply.list("entries");
        let judged = entries
            .iter()
            .find(|entry| entry.at("detail.evidence").is_object())?;
        let action = judged.text("actionType").replace("build-", "");
        Some(Self {
            of: judged.at("detail").clone(),
            ended: Some((judged.moment("created"), action.replace('-', " "))),
        })
    }

    pub(super) fn build(&self) -> u64 {
        self.of.count("build")
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// The answer, the course of the evidence, and the failures of both groups.
    pub(super) fn show(&self, visit: &Visit<'_>, actions: &Markup) -> Markup {
        let of = &self.of;
        let end = match &self.ended {
            Some((Some(at), _)) => at.as_millis(),
            _ => visit.now.as_millis(),
        };
        let points = points(of);
        let since = of.moment("since").map(|at| at.as_millis());
        let since = since.or(points.first().map(|point| point.at_ms));
        let title = format!("Build {} against the build in use", self.build());
        html! {
            div .hd {
                h2 { "Canary of build " (self.build()) }
                div .r { (actions) }
            }
            p {
                @match &self.ended {
                    Some((at, action)) => { (word(action)) " " (ago(*at, visit.now)) ": " (of.text("reason")) },
                    None => {
                        "Since " (ago(of.moment("since"), visit.now)) ", with "
                        (numbers::share(of.number("share").unwrap_or_default()))
                        " of the new machines, by " (of.text("by")) ". " (progress(of))
                    },
                }
            }
            (CanaryChart {
                title: &title,
                range: TimeRange::new(since.unwrap_or(end), end),
                points: &points,
                rates: &rates(of.at("evidence")),
            })
            (groups(of.at("evidence")))
        }
    }
}

fn word(action: &str) -> Markup {
    let class = if action == "promoted" { "good" } else { "bad" };
    let mut text = action.to_owned();
    if let Some(initial) = text.get_mut(..1) {
        initial.make_ascii_uppercase();
    }
    html! { b .(class) { (text) } }
}

/// How far the evidence is from each bound.
fn progress(canary: &Value) -> Markup {
    let [good, worse] = ["asGood", "worse"].map(|name| {
        let share = canary.number(&format!("evidence.{name}"));
        share.unwrap_or_default()
    });
    html! {
        b { (numbers::share(good)) } " of the way to its promotion, "
        b .bad[worse > 0.0] { (numbers::share(worse)) } " of the way to its roll back."
    }
}

fn points(canary: &Value) -> Vec<CanaryPoint> {
    let point = |point: &Value| {
        Some(CanaryPoint {
            at_ms: point.moment("time")?.as_millis(),
            worse: point.number("worse")?,
            as_good: point.number("asGood")?,
        })
    };
    canary.list("course").iter().filter_map(point).collect()
}

fn rates(evidence: &Value) -> Vec<FailureRate<'static>> {
    let groups = [("canary", true), ("control", false)];
    let of = |what, count: &dyn Fn(&Value) -> (f64, f64)| {
        groups.map(|(name, is_new)| {
            let (n_failed, n) = count(evidence.at(name));
            FailureRate {
                of: what,
                is_new,
                n,
                n_failed,
                interval: interval_of(n_failed, n),
            }
        })
    };
    let number = |group: &Value, name: &str| group.number(name).unwrap_or_default();
    let starts = of("Starts", &|group| {
        let failed = ["neverRegistered", "neverClaimed", "refused"];
        let failed: f64 = failed.iter().map(|name| number(group, name)).sum();
        (failed, failed + number(group, "good"))
    });
    let tasks = of("Tasks", &|group| {
        (number(group, "failedRuns"), number(group, "runs"))
    });
    starts.into_iter().chain(tasks).collect()
}

fn groups(evidence: &Value) -> Markup {
    let rows = html! {
        @for (name, word) in [("canary", "new"), ("control", "control")] {
            @let group = evidence.at(name);
            tr {
                th scope="row" { (word) }
                @for member in ["started", "pending", "good", "neverRegistered", "neverClaimed",
                    "refused", "besideImage"] {
                    (count_cell(group.count(member)))
                }
                td .n { (time_taken(group.number("readyMedianMs"))) }
                td .n { (time_taken(group.number("ready95Ms"))) }
                td .n { (time_taken(group.number("runMedianMs"))) }
            }
        }
    };
    let head = heads(&[
        "Machines",
        "#Started",
        "#Starting",
        "#Good",
        "#Never registered",
        "#Never claimed",
        "#Refused",
        "#Left out",
        "#Ready, half within",
        "#95 % within",
        "#Tasks, half within",
    ]);
    html! { @if evidence.is_object() { (table("Machines of both groups", &head, &rows)) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failed_starts_are_a_share_of_those_that_are_known() {
        let evidence = json!({
            "canary": {"started": 9, "pending": 2, "good": 4, "neverRegistered": 2, "refused": 1,
                "runs": 4, "failedRuns": 1},
            "control": {"good": 30},
        });
        let rates: Vec<_> = rates(&evidence)
            .iter()
            .map(|rate| (rate.of, rate.is_new, rate.n_failed, rate.n))
            .collect();
        let wanted = [
            ("Starts", true, 3.0, 7.0),
            ("Starts", false, 0.0, 30.0),
            ("Tasks", true, 1.0, 4.0),
            ("Tasks", false, 0.0, 0.0),
        ];
        assert_eq!(rates, wanted);
    }

    #[test]
    fn a_canary_says_how_far_each_bound_is() {
        let canary = json!({"evidence": {"asGood": 0.161, "worse": 0.0, "moreStarts": 43}});
        let text = progress(&canary).into_string();
        assert!(
            text.contains("<b>16.1 %</b> of the way to its promotion"),
            "{text}"
        );
        assert!(
            text.contains("0 %</b> of the way to its roll back"),
            "{text}"
        );
    }
}
