//! Canaries of images: starts them, and shows what they found.

use clap::Args;
use serde_json::{Value, json};

use super::Name;
use super::work::build_number;
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Args, Debug)]
pub(crate) struct Canary {
    #[command(flatten)]
    image: Name,
    /// Number of the build
    #[arg(value_name = "BUILD", value_parser = build_number)]
    build: u64,
    /// Share of the new machines, such as `5%` or `0.05` (default: that of the definition)
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: Option<f64>,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

const EVIDENCE: &[Column] = &[
    Column::text("", "what"),
    Column::text("CANARY", "canary"),
    Column::text("CONTROL", "control"),
];

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map(|number| number / unit);
    share
        .ok()
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| "must be a share above 0 and below 1, such as `5%`".to_owned())
}

pub(super) async fn start(canary: &Canary, session: &Session) -> Result<(), Failure> {
    let (id, build) = (&canary.image.id, canary.build);
    let mut body = json!({});
    if let Some(share) = canary.share {
        body["share"] = json!(share);
    }
    if let Some(reason) = &canary.reason {
        body["reason"] = json!(reason);
    }
    let number = build.to_string();
    let call = Call::post(
        FLEETWRIGHT,
        &["image", id, "builds", &number, "canary"],
        body,
    )
    .to(format!("start a canary of build {build} of image {id}"))
    .list_command(format!("fleetwright image show {id}"));
    let text = format!("build {build} of image {id} starts as a canary");
    session.order(&call, &text).await
}

/// The canary that runs, with what is known of both groups.
pub(super) fn print(status: &Value, session: &Session) {
    let Some(canary) = status.get("canary") else {
        return;
    };
    let text = |key: &str| output::printable(canary[key].as_str().unwrap_or_default());
    let percent = canary["share"].as_f64().unwrap_or_default() * 100.0;
    output::out(&format!(
        "canary: build {}, {percent:.0} % of the new machines since {}, by {}",
        canary["build"],
        text("since"),
        text("by")
    ));
    if !text("reason").is_empty() {
        output::out(&format!("reason: {}", text("reason")));
    }
    if !text("verdict").is_empty() {
        output::out(&format!("verdict so far: {}", text("verdict")));
    }
    let Some(evidence) = canary.get("evidence") else {
        return;
    };
    let share = |key: &str| evidence[key].as_f64().unwrap_or_default() * 100.0;
    output::out(&format!(
        "evidence: {:.0} % of what rolls back, {:.0} % of what promotes",
        share("worse"),
        share("asGood")
    ));
    output::out("");
    session.rows(&json!({"rows": rows(evidence)}), "rows", EVIDENCE);
}

fn rows(evidence: &Value) -> Vec<Value> {
    let row = |what: &str, cell: fn(&Value) -> String| json!({"what": what, "canary": cell(&evidence["canary"]), "control": cell(&evidence["control"])});
    vec![
        row("started", |group| group["started"].to_string()),
        row("never registered", |group| {
            part(group, "neverRegistered", "started")
        }),
        row("never claimed", |group| {
            part(group, "neverClaimed", "started")
        }),
        row("refused", |group| part(group, "refused", "started")),
        row("left out: not in the image", |group| {
            group["besideImage"]
                .as_u64()
                .unwrap_or_default()
                .to_string()
        }),
        row("ready in, median / 95 %", |group| {
            let seconds = |key: &str| match group[key].as_f64() {
                Some(ms) => format!("{:.0}", ms / 1_000.0),
                None => "-".to_owned(),
            };
            format!("{} / {} s", seconds("readyMedianMs"), seconds("ready95Ms"))
        }),
        row("tasks that failed", |group| {
            part(group, "failedRuns", "runs")
        }),
    ]
}

/// `4 (17 %)`
fn part(group: &Value, key: &str, of: &str) -> String {
    let count = group[key].as_u64().unwrap_or_default();
    match (count, group[of].as_f64()) {
        (0, _) | (_, None) => count.to_string(),
        #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
        (count, Some(of)) => format!("{count} ({:.1} %)", count as f64 * 100.0 / of.max(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.25"), Ok(0.25));
        for bad in ["", "0", "1", "100%", "-5%", "nan", "half"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
