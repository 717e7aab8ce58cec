//! "Is all well?" in ten lines.

use clap::Args;
use domain::budgets::dollars;
use domain::time::Timestamp;
use serde_json::Value;

use super::Session;
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::{Exit, Failure};
use crate::output::{self, counted, printable};

/// Problems that are printed; the others are counted.
const MAX_SHOWN: usize = 5;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Print all problems
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let call = Call::get(FLEETWRIGHT, &["status"]).to("show the status");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else {
        let most = if arguments.all { usize::MAX } else { MAX_SHOWN };
        output::out(text(&reply, most, session.now).trim_end());
    }
    if reply["isWell"] == true {
        return Ok(());
    }
    // The problems are printed already.
    Err(Failure {
        is_logged: true,
        ..Failure::new(Exit::Failed, "not all is well")
    })
}

fn text(reply: &Value, most: usize, now: Timestamp) -> String {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (ill, warned) = (count(&reply["ill"]), count(&reply["warned"]));
    let mut text = match (ill, warned) {
        (0, 0) => "All is well.\n".to_owned(),
        (0, _) => format!("Nothing is ill. {}.\n", counted(warned, "warning")),
        (_, 0) => format!("{} ill.\n", are(ill)),
        _ => format!("{} ill, and {}.\n", are(ill), counted(warned, "warning")),
    };
    let problems = reply["problems"].as_array().map_or(&[][..], Vec::as_slice);
    for problem in problems.iter().take(most) {
        text.push_str(&problem_text(problem, now));
    }
    let n_more = usize::try_from(ill + warned)
        .unwrap_or(usize::MAX)
        .saturating_sub(problems.len().min(most));
    if n_more > 0 {
        let hint = if problems.len() > most {
            ": fleetwright status --all"
        } else {
            ""
        };
        text.push_str(&format!("{n_more} more{hint}\n"));
    }
    text.push_str(&totals_text(reply));
    let missing = reply["missingScopes"].as_array().into_iter().flatten();
    let missing: Vec<String> = missing.filter_map(Value::as_str).map(printable).collect();
    if !missing.is_empty() {
        text.push_str(&format!(
            "Left out without these scopes: {}\n",
            missing.join(", ")
        ));
    }
    text
}

fn are(count: u64) -> String {
    match count {
        1 => "1 problem is".to_owned(),
        count => format!("{count} problems are"),
    }
}

fn problem_text(problem: &Value, now: Timestamp) -> String {
    let get = |key: &str| problem[key].as_str().map(printable);
    let since = problem["since"]
        .as_str()
        .and_then(|since| since.parse().ok());
    let since = since.map_or_else(String::new, |since| {
        format!(" ({})", output::age(since, now))
    });
    let severity = get("severity").unwrap_or_default().to_uppercase();
    let mut text = format!("{severity}: {}{since}\n", get("reason").unwrap_or_default());
    let parts = [
        get("words"),
        get("next").map(|next| format!("by itself: {next}")),
    ];
    for part in parts.into_iter().flatten() {
        text.push_str(&format!("  {part}\n"));
    }
    if let Some(action) = get("action") {
        text.push_str(&format!("  > {action}\n"));
    }
    text
}

fn totals_text(reply: &Value) -> String {
    let (totals, pools) = (&reply["totals"], &reply["pools"]);
    let mut text = format!(
        "Waiting {}; capacity: {} requested, {} booting, {} idle, {} busy, {} leaving\n",
        totals["waiting"],
        totals["requested"],
        totals["booting"],
        totals["idle"],
        totals["busy"],
        totals["leaving"]
    );
    if let (Some(today), Some(hourly)) =
        (totals["costToday"].as_i64(), totals["costPerHour"].as_i64())
    {
        let (today, hourly) = (dollars(today), dollars(hourly));
        text.push_str(&format!(
            "Cost ${today:.2} today (UTC), now ${hourly:.2} an hour\n"
        ));
    }
    text.push_str(&format!(
        "Pools {}: {} ill, {} with warnings, {} with waiting tasks, {} quiet\n",
        pools["all"], pools["ill"], pools["warned"], pools["waiting"], pools["quiet"]
    ));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn problems_beyond_the_limit_are_counted() {
        let now = Timestamp::from_millis(0);
        for count in sizes_around("fleetwright::commands::status::MAX_SHOWN", MAX_SHOWN) {
            let problem = json!({"severity": "ill", "reason": "r"});
            let reply = reply(&vec![problem; count], count as u64, 0);
            let text = text(&reply, MAX_SHOWN, now);
            assert_eq!(text.matches("ILL: r").count(), count.min(MAX_SHOWN));
            let more = format!("{} more:", count.saturating_sub(MAX_SHOWN));
            assert_eq!(text.contains(&more), count > MAX_SHOWN, "{text}");
        }
    }

    fn reply(problems: &[Value], ill: u64, warned: u64) -> Value {
        json!({
            "isWell": ill == 0, "ill": ill, "warned": warned, "problems": problems,
            "totals": {"waiting": 12, "requested": 0, "booting": 3, "idle": 1, "busy": 40,
                "leaving": 0, "costToday": 12_340_000, "costPerHour": 1_200_000},
            "pools": {"all": 12, "waiting": 3, "ill": 1, "warned": 2, "quiet": 4},
            "missingScopes": ["worker-manager:list-budgets"],
        })
    }

    #[test]
    fn a_person_sees_the_worst_first_and_what_to_do() {
        let now = Timestamp::from_millis(1_790_000_240_000);
        let problem = json!({
            "kind": "tasks-wait", "severity": "ill", "since": "2026-09-21T14:13:20.000Z",
            "reason": "12 tasks wait in demo/linux: every launch config is refused",
            "next": "the launch configs are tried again",
            "action": "fleetwright explain pool demo/linux",
        });
        let problems = vec![problem; 3];
        // A reply has a limit, too: of problems that it lacks, the command can show no more.
        let cut = text(&reply(&problems[..1], 1, 2), 1, now);
        assert!(cut.contains("\n2 more\n"), "{cut}");
        insta::assert_snapshot!(text(&reply(&problems, 1, 2), 1, now), @r"
        1 problem is ill, and 2 warnings.
        ILL: 12 tasks wait in demo/linux: every launch config is refused (4m ago)
          by itself: the launch configs are tried again
          > fleetwright explain pool demo/linux
        2 more: fleetwright status --all
        Waiting 12; capacity: 0 requested, 3 booting, 1 idle, 40 busy, 0 leaving
        Cost $12.34 today (UTC), now $1.20 an hour
        Pools 12: 1 ill, 2 with warnings, 3 with waiting tasks, 4 quiet
        Left out without these scopes: worker-manager:list-budgets
        ");
        insta::assert_snapshot!(text(&reply(&[], 0, 0), 5, now), @r"
        All is well.
        Waiting 12; capacity: 0 requested, 3 booting, 1 idle, 40 busy, 0 leaving
        Cost $12.34 today (UTC), now $1.20 an hour
        Pools 12: 1 ill, 2 with warnings, 3 with waiting tasks, 4 quiet
        Left out without these scopes: worker-manager:list-budgets
        ");
    }
}
