//! The status as one screen of text: problems, totals, and tables that fit.

use domain::budgets::dollars;
use domain::time::Timestamp;
use serde_json::Value;

use super::parts::{Parts, is_quiet, items};
use super::pool_rows;
use crate::commands::overrides::{EFFECT, TARGET, describe as describe_override};
use crate::output::{self, Kind, counted, printable};

/// Problems that are printed; the others are counted.
const MAX_PROBLEMS: usize = 5;
/// Rows of each further list; the others are counted.
const MAX_ROWS: usize = 5;
/// Rows of pools, however small the screen is.
const LEAST_POOLS: usize = 4;
/// The height of a screen of unknown size.
pub(super) const USUAL_HEIGHT: usize = 24;

/// How much to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Everything, however long.
    pub(super) all: bool,
    pub(super) height: usize,
    /// `None`: nothing is cut.
    pub(super) width: Option<u16>,
}

impl Extent {
    fn problems(self) -> usize {
        if self.all { usize::MAX } else { MAX_PROBLEMS }
    }

    fn rows(self) -> usize {
        if self.all { usize::MAX } else { MAX_ROWS }
    }
}

pub(super) fn text(parts: &Parts, extent: Extent, now: Timestamp) -> String {
    let mut text = verdict(&parts.status);
    text.push_str(&problems(&parts.status, extent, now));
    text.push_str(&totals_text(&parts.status));
    for lines in [
        pauses(parts, extent, now),
        canaries(parts, extent),
        budgets(parts, extent),
    ] {
        text.push_str(&lines);
    }
    text.push_str(&table(&providers(parts, extent)));
    text.push_str(&table(&members(parts, extent, now)));
    let end = left_out(parts);
    // A blank line, the titles and the last line stand beside the rows.
    let used = text.lines().count() + end.lines().count() + 4;
    text.push_str(&pools(
        parts,
        extent,
        extent.height.saturating_sub(used),
        now,
    ));
    text.push_str(&end);
    text
}

pub(super) fn verdict(status: &Value) -> String {
    let (ill, warned) = (count(&status["ill"]), count(&status["warned"]));
    match (ill, warned) {
        (0, 0) => "All is well.\n".to_owned(),
        (0, _) => format!("Nothing is ill. {}.\n", counted(warned, "warning")),
        (_, 0) => format!("{} ill.\n", are(ill)),
        _ => format!("{} ill, and {}.\n", are(ill), counted(warned, "warning")),
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn are(count: u64) -> String {
    match count {
        1 => "1 problem is".to_owned(),
        count => format!("{count} problems are"),
    }
}

fn problems(status: &Value, extent: Extent, now: Timestamp) -> String {
    let (problems, most) = (items(status, "problems"), extent.problems());
    let mut text = String::new();
    for problem in problems.iter().take(most) {
        text.push_str(&problem_text(problem, extent.all, now));
    }
    let all = count(&status["ill"]) + count(&status["warned"]);
    let n_more = usize::try_from(all)
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
    text
}

fn problem_text(problem: &Value, all: bool, now: Timestamp) -> String {
    let get = |key: &str| problem[key].as_str().map(printable);
    let since = moment(&problem["since"]);
    let since = since.map_or_else(String::new, |since| {
        format!(" ({})", output::age(since, now))
    });
    let severity = get("severity").unwrap_or_default().to_uppercase();
    let mut text = format!("{severity}: {}{since}\n", get("reason").unwrap_or_default());
    let next = get("next").filter(|_| all);
    let parts = [
        get("words"),
        next.map(|next| format!("by itself: {next}")),
        get("action").map(|action| format!("> {action}")),
    ];
    for part in parts.into_iter().flatten() {
        text.push_str(&format!("  {part}\n"));
    }
    text
}

fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The sums over all pools.
pub(super) fn totals_text(status: &Value) -> String {
    let (totals, pools) = (&status["totals"], &status["pools"]);
    let sum = |keys: [&str; 2]| keys.iter().map(|key| count(&totals[key])).sum::<u64>();
    let mut text = format!(
        "Waiting {}; capacity: {} starting, {} busy, {} idle, {} leaving\n",
        count(&totals["waiting"]),
        sum(["requested", "booting"]),
        count(&totals["busy"]),
        count(&totals["idle"]),
        count(&totals["leaving"])
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

/// The first lines of a list, and the command that lists all.
fn some_lines(lines: Vec<String>, extent: Extent, command: &str) -> String {
    let n_more = lines.len().saturating_sub(extent.rows());
    let mut text: String = lines.into_iter().take(extent.rows()).collect();
    if n_more > 0 {
        text.push_str(&format!("and {n_more} more: {command}\n"));
    }
    text
}

/// Overrides that are in force: pauses first.
fn pauses(parts: &Parts, extent: Extent, now: Timestamp) -> String {
    let overrides = items(&parts.overrides, "overrides").iter();
    let mut overrides: Vec<Value> = overrides
        .filter(|item| item["inForce"] != false)
        .cloned()
        .collect();
    overrides.sort_by_key(|item| item["pause"] != true);
    let lines = overrides.into_iter().map(|mut item| {
        describe_override(&mut item);
        let word = |key: &str| printable(item[key].as_str().unwrap_or_default());
        let until = moment(&item["until"]);
        let until = until.map_or_else(String::new, |until| {
            format!(", ends {}", output::age(until, now))
        });
        let line = format!(
            "Override: {} {}{until}: {}",
            word(TARGET),
            word(EFFECT),
            word("reason")
        );
        format!("{}\n", cut(&line, extent.width))
    });
    some_lines(lines.collect(), extent, "fleetwright override list")
}

fn canaries(parts: &Parts, extent: Extent) -> String {
    let images = items(&parts.images, "images").iter();
    let lines = images.filter_map(|image| {
        let canary = image.get("canary").filter(|canary| canary.is_object())?;
        let percent = canary["share"].as_f64().unwrap_or_default() * 100.0;
        let name = printable(image["imageId"].as_str().unwrap_or_default());
        Some(format!(
            "Canary: build {} of image {name}, {percent:.0} % of the new machines: fleetwright \
             explain image {name}\n",
            canary["build"]
        ))
    });
    some_lines(lines.collect(), extent, "fleetwright image list")
}

/// Budgets, the most spent first.
fn budgets(parts: &Parts, extent: Extent) -> String {
    let spent = |item: &Value| {
        let amount = |key: &str| item[key].as_f64().unwrap_or_default();
        (amount("limit") > 0.0).then(|| amount("spent") / amount("limit") * 100.0)
    };
    let mut budgets: Vec<(f64, &Value)> = items(&parts.budgets, "budgets")
        .iter()
        .map(|item| (spent(item).unwrap_or(100.0), item))
        .collect();
    budgets.sort_by(|one, other| other.0.total_cmp(&one.0));
    let lines = budgets.into_iter().map(|(percent, item)| {
        let word = |key: &str| printable(item[key].as_str().unwrap_or_default());
        let limit = item["limit"].as_f64().unwrap_or_default();
        let raise = format!("(`fleetwright budget set {}` raises it)", word("budgetId"));
        let step = match word("step").as_str() {
            "within" => String::new(),
            "lowered" => format!(": the maximum of its pools is lowered {raise}"),
            "spent" => format!(": nothing is launched {raise}"),
            step => format!(": {step}"),
        };
        format!(
            "Budget {}: {percent:.0} % of ${limit} a {} spent{step}\n",
            word("budgetId"),
            word("per")
        )
    });
    some_lines(lines.collect(), extent, "fleetwright budget list")
}

/// A table: titles, rows, and the line below.
struct Grid {
    titles: &'static [(&'static str, Kind)],
    rows: Vec<Vec<String>>,
    below: String,
    width: Option<u16>,
}

fn table(grid: &Grid) -> String {
    if grid.rows.is_empty() {
        return String::new();
    }
    let table = output::grid(grid.titles, grid.rows.clone(), grid.width);
    format!("\n{table}{}", grid.below)
}

impl Grid {
    fn new(
        titles: &'static [(&'static str, Kind)],
        mut rows: Vec<Vec<String>>,
        extent: Extent,
        command: &str,
    ) -> Self {
        let n_more = rows.len().saturating_sub(extent.rows());
        rows.truncate(extent.rows());
        let below = match n_more {
            0 => String::new(),
            n_more => format!("and {n_more} more: {command}\n"),
        };
        Self {
            titles,
            rows,
            below,
            width: extent.width,
        }
    }
}

const PROVIDERS: &[(&str, Kind)] = &[
    ("PROVIDER", Kind::Text),
    ("KIND", Kind::Text),
    ("STATE", Kind::Text),
    ("STARTING", Kind::Number),
    ("RUNNING", Kind::Number),
    ("FAILED 1 H", Kind::Number),
    ("ERROR", Kind::Prose),
];

fn providers(parts: &Parts, extent: Extent) -> Grid {
    let mut providers: Vec<&Value> = items(&parts.providers, "providers").iter().collect();
    let running = |item: &Value| item["workers"]["running"].as_i64().unwrap_or(0);
    providers.sort_by_key(|item| {
        let is_out = item["state"] == "out-of-service";
        (!is_out, count(&item["failed"]) == 0, -running(item))
    });
    let rows = providers.into_iter().map(|item| {
        let word = |key: &str| item[key].as_str().map(printable);
        let number = |value: &Value| count(value).to_string();
        let error = word("problem").or_else(|| word("warning"));
        vec![
            word("providerId").unwrap_or_default(),
            word("providerType").unwrap_or_default(),
            word("state").unwrap_or_default().replace('-', " "),
            number(&item["workers"]["requested"]),
            number(&item["workers"]["running"]),
            number(&item["failed"]),
            error
                .or_else(|| causes(item))
                .unwrap_or_else(|| "-".to_owned()),
        ]
    });
    Grid::new(
        PROVIDERS,
        rows.collect(),
        extent,
        "fleetwright provider list",
    )
}

/// `3 quota, 1 capacity`.
fn causes(provider: &Value) -> Option<String> {
    let failures = items(provider, "failures").iter();
    let causes = failures.map(|it| {
        let cause = printable(it["cause"].as_str().unwrap_or_default());
        format!("{} {cause}", count(&it["machines"]))
    });
    let causes = causes.collect::<Vec<_>>().join(", ");
    (!causes.is_empty()).then_some(causes)
}

const MEMBERS: &[(&str, Kind)] = &[
    ("PROCESS", Kind::Text),
    ("VERSION", Kind::Text),
    ("STARTED", Kind::Age),
    ("SEEN", Kind::Age),
    ("ROLES", Kind::Prose),
];

fn members(parts: &Parts, extent: Extent, now: Timestamp) -> Grid {
    let mut members: Vec<&Value> = items(&parts.processes, "processes").iter().collect();
    members.sort_by_key(|item| item["silent"] != true);
    let rows = members.into_iter().map(|item| {
        let word = |key: &str| printable(item[key].as_str().unwrap_or_default());
        let ago = |key: &str| {
            let then = moment(&item[key]);
            then.map_or_else(|| "-".to_owned(), |then| output::age(then, now))
        };
        let seen = match item["silent"].as_bool() {
            Some(true) => format!("silent, {}", ago("lastSeen")),
            Some(false) | None => ago("lastSeen"),
        };
        let roles = items(item, "roles").iter().filter_map(Value::as_str);
        vec![
            format!("{}:{}", word("host"), count(&item["pid"])),
            word("version"),
            ago("started"),
            seen,
            printable(&roles.collect::<Vec<_>>().join(", ")),
        ]
    });
    Grid::new(MEMBERS, rows.collect(), extent, "fleetwright process list")
}

fn pools(parts: &Parts, extent: Extent, room: usize, now: Timestamp) -> String {
    let all = items(&parts.pools, "pools");
    let most = match extent.all {
        true => usize::MAX,
        false => room.max(LEAST_POOLS),
    };
    // A small fleet has room for its quiet pools.
    let has_room = all.len() <= most;
    let shown = all.iter().filter(|pool| has_room || !is_quiet(pool));
    let shown: Vec<&Value> = shown.collect();
    let n_busy = shown.len().saturating_sub(most);
    let quiet = all.iter().filter(|pool| is_quiet(pool)).count();
    let more = |count: usize, kind: &str| {
        let pools = counted(count, kind);
        (count > 0 && !has_room).then_some(pools)
    };
    // The server sends the first pools only.
    let unread = parts.n_matching_pools().saturating_sub(all.len());
    let unread = (unread > 0).then(|| counted(unread, "pool without trouble"));
    let below = [more(n_busy, "more pool"), more(quiet, "quiet pool"), unread];
    let below: Vec<String> = below.into_iter().flatten().collect();
    let below = match below.as_slice() {
        [] => String::new(),
        below => format!("and {}: fleetwright pool list\n", below.join(" and ")),
    };
    if shown.is_empty() {
        return below;
    }
    let table = pool_rows::table(shown.into_iter().take(most), extent.width, now);
    format!("\n{table}{below}")
}

fn left_out(parts: &Parts) -> String {
    let missing = items(&parts.status, "missingScopes").iter();
    let missing: Vec<String> = missing.filter_map(Value::as_str).map(printable).collect();
    let mut text = String::new();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        text.push_str(&format!("Left out without these scopes: {missing}\n"));
    }
    if !parts.not_allowed.is_empty() {
        let names = parts.not_allowed.join(", ");
        text.push_str(&format!(
            "Left out, since your scopes do not allow to list them: {names}\n"
        ));
    }
    for error in &parts.errors {
        text.push_str(&format!("Left out: {}\n", printable(error)));
    }
    text
}

/// Cuts a line to the width of the screen.
pub(super) fn cut(line: &str, width: Option<u16>) -> String {
    match width.map(usize::from).filter(|width| *width > 0) {
        Some(width) if line.chars().count() > width => {
            let kept: String = line.chars().take(width - 1).collect();
            format!("{kept}…")
        }
        Some(_) | None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
