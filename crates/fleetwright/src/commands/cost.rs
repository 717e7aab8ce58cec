//! Where the money went: the cost of machines, by pool, day and so on.

use clap::{Args, ValueEnum};
use domain::cost::CostKind;
use domain::time::{HOUR_MS, Timestamp};
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Kind};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Start: a duration before now such as 36h or 30d, or a time (default: 7d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// One line for each of these
    #[arg(long, value_name = "WHAT", default_value = "pool")]
    by: Grouping,
    /// Lines at most; the others are summed up
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: Option<u32>,
    /// Only machines of this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool, group = "scope")]
    pool: Option<String>,
    /// Only machines of this provider
    #[arg(long, value_name = "PROVIDER", group = "scope")]
    provider: Option<String>,
    /// Only machines of the pools of this owner
    #[arg(long, value_name = "OWNER", group = "scope")]
    owner: Option<String>,
    /// Print CSV: money in millionths, time in milliseconds
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// The lines of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouping {
    /// One line for each use: useful, booting, idle, failed, leaving, lost, unknown
    Kind,
    /// One line for each pool
    Pool,
    /// One line for each launch config
    LaunchConfig,
    /// One line for each provider
    Provider,
    /// One line for each owner of pools
    Owner,
    /// One line for each day (UTC)
    Day,
}

impl Grouping {
    fn as_str(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Pool => "pool",
            Self::LaunchConfig => "launch-config",
            Self::Provider => "provider",
            Self::Owner => "owner",
            Self::Day => "day",
        }
    }

    /// The keys of a line, each with the title of its column.
    fn keys(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Kind => &[("USE", "kind")],
            Self::Pool => &[("POOL", "workerPoolId")],
            Self::LaunchConfig => &[
                ("POOL", "workerPoolId"),
                ("LAUNCH CONFIG", "launchConfigId"),
            ],
            Self::Provider => &[("PROVIDER", "providerId")],
            Self::Owner => &[("OWNER", "owner")],
            Self::Day => &[("DAY", "day")],
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Kind => "uses",
            Self::Pool => "pools",
            Self::LaunchConfig => "launch configs",
            Self::Provider => "providers",
            Self::Owner => "owners",
            Self::Day => "days",
        }
    }
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let since = since(arguments.since.as_deref(), session.now)?;
    let path = match (&arguments.pool, &arguments.provider, &arguments.owner) {
        (Some(pool), _, _) => vec!["cost", "pool", pool],
        (None, Some(provider), _) => vec!["cost", "provider", provider],
        (None, None, Some(owner)) => vec!["cost", "owner", owner],
        (None, None, None) => vec!["cost"],
    };
    let call = Call::get(FLEETWRIGHT, &path)
        .query("by", Some(arguments.by.as_str()))
        .query("since", since)
        .query("top", arguments.top)
        .list_command(match (&arguments.pool, &arguments.provider) {
            (None, Some(_)) => "fleetwright provider list",
            (Some(_), _) | (None, None) => "fleetwright pool list",
        })
        .to("show costs");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else if arguments.csv {
        output::out(csv(&reply, arguments.by).trim_end());
    } else {
        let text = text(&reply, arguments.by, output::screen_width());
        output::out(text.trim_end());
    }
    Ok(())
}

fn since(text: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
    let since = text.map(|text| output::parse_past_moment(text, now));
    let since = since.transpose();
    since.map_err(|error| Failure::usage(format!("--since: {error}")))
}

fn number(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or(0)
}

fn micros_of(line: &Value, kind: CostKind) -> i64 {
    number(&line["uses"][kind.as_str()], "costMicros")
}

/// A sentence, the table, and what is not in it.
fn text(reply: &Value, by: Grouping, width: Option<u16>) -> String {
    let total = &reply["total"];
    let decimals = decimals(number(total, "costMicros"));
    let mut text = summary(reply, decimals);
    let lines = reply["lines"].as_array().map_or(&[][..], Vec::as_slice);
    if !lines.is_empty() {
        text.push('\n');
        text.push_str(&table(reply, lines, by, decimals, width));
    }
    let unpriced = number(total, "unpricedMs");
    if unpriced > 0 {
        let hours = hours(unpriced);
        text.push_str(&format!(
            "\nThe price of {hours} machine-hours is not known. They are not in these sums.\n"
        ));
    }
    text
}

fn summary(reply: &Value, decimals: u32) -> String {
    let total = &reply["total"];
    let (all, wasted) = (number(total, "costMicros"), number(total, "wastedMicros"));
    let useful = micros_of(total, CostKind::Useful);
    let period = period(reply);
    if all == 0 {
        return format!("$0 {period}.\n");
    }
    let mut text = format!(
        "{} {period}, of which {} ran tasks that counted.\n",
        money(all, decimals),
        percent(useful, all)
    );
    if wasted > 0 {
        let mut parts: Vec<(CostKind, i64)> = CostKind::ALL
            .into_iter()
            .filter(|kind| !matches!(kind, CostKind::Useful | CostKind::Unknown))
            .map(|kind| (kind, micros_of(total, kind)))
            .filter(|(_, micros)| *micros > 0)
            .collect();
        parts.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
        let parts = parts
            .into_iter()
            .map(|(kind, micros)| format!("{kind} {}", money(micros, decimals)));
        let parts = parts.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("{} did not: {parts}.\n", money(wasted, decimals)));
    }
    let unknown = micros_of(total, CostKind::Unknown);
    if unknown > 0 {
        let unknown = money(unknown, decimals);
        text.push_str(&format!(
            "{unknown} are of machines that ended recently: what they did last is not known yet.\n"
        ));
    }
    text
}

/// Like `since 2026-11-11 00:00 UTC`: the time of a report begins with an hour or a day.
fn period(reply: &Value) -> String {
    let since = reply["since"].as_str().unwrap_or_default();
    let (day, time) = since.split_once('T').unwrap_or((since, ""));
    let time = time.get(..5).unwrap_or_default();
    format!("since {day} {time} UTC")
}

fn table(
    reply: &Value,
    lines: &[Value],
    by: Grouping,
    decimals: u32,
    width: Option<u16>,
) -> String {
    let mut headings: Vec<(&str, Kind)> = by
        .keys()
        .iter()
        .map(|(title, _)| (*title, Kind::Text))
        .collect();
    let sums: &[&str] = match by {
        Grouping::Kind => &["DOLLARS", "OF ALL", "MACHINE-HOURS"],
        Grouping::Pool
        | Grouping::LaunchConfig
        | Grouping::Provider
        | Grouping::Owner
        | Grouping::Day => &[
            "ALL", "USEFUL", "BOOTING", "IDLE", "FAILED", "LEAVING", "LOST", "WASTED", "UNKNOWN",
        ],
    };
    headings.extend(sums.iter().map(|title| (*title, Kind::Number)));
    let all = number(&reply["total"], "costMicros");
    let amounts = |line: &Value| match by {
        Grouping::Kind => {
            let micros = number(line, "costMicros");
            let hours = hours(number(line, "machineMs"));
            vec![plain(micros, decimals), percent(micros, all), hours]
        }
        Grouping::Pool
        | Grouping::LaunchConfig
        | Grouping::Provider
        | Grouping::Owner
        | Grouping::Day => amounts(line, decimals),
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let names = by.keys().iter().map(|(_, key)| {
            let name = line[*key].as_str().unwrap_or_default();
            output::printable(if name.is_empty() { "-" } else { name })
        });
        rows.push(names.chain(amounts(line)).collect());
    }
    let others = &reply["others"];
    let n_others = number(others, "count");
    let n_lines = i64::try_from(lines.len()).unwrap_or(i64::MAX);
    let mut add = |name: String, line: &Value| {
        let mut row = vec![name];
        row.resize(by.keys().len(), String::new());
        row.extend(amounts(line));
        rows.push(row);
    };
    if n_others > 0 {
        add(format!("{n_others} other {}", by.plural()), others);
    }
    if n_lines + n_others > 1 {
        let name = match by {
            Grouping::Kind => "all".to_owned(),
            Grouping::Pool
            | Grouping::LaunchConfig
            | Grouping::Provider
            | Grouping::Owner
            | Grouping::Day => format!("{} {}", n_lines + n_others, by.plural()),
        };
        add(name, &reply["total"]);
    }
    output::grid(&headings, rows, width)
}

fn amounts(line: &Value, decimals: u32) -> Vec<String> {
    let all = number(line, "costMicros");
    let of = |kind| plain(micros_of(line, kind), decimals);
    vec![
        plain(all, decimals),
        percent(micros_of(line, CostKind::Useful), all),
        of(CostKind::Booting),
        of(CostKind::Idle),
        of(CostKind::Failed),
        of(CostKind::Leaving),
        of(CostKind::Lost),
        plain(number(line, "wastedMicros"), decimals),
        of(CostKind::Unknown),
    ]
}

/// Small sums are shown with more digits.
fn decimals(micros: i64) -> u32 {
    match micros {
        100_000_000.. => 2,
        1_000_000.. => 4,
        _ => 6,
    }
}

/// Rounded to this many digits, for people only.
fn plain(micros: i64, decimals: u32) -> String {
    let step = 10_i64.pow(6 - decimals.min(6));
    let rounded = micros.saturating_add(step / 2) / step;
    let one = 10_i64.pow(decimals.min(6));
    let (whole, part) = (rounded / one, rounded % one);
    let width = decimals.min(6) as usize;
    format!("{}.{part:0width$}", grouped(whole))
}

fn money(micros: i64, decimals: u32) -> String {
    format!("${}", plain(micros, decimals))
}

/// With a comma before each three digits.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn percent(part: i64, all: i64) -> String {
    if all <= 0 {
        return "-".to_owned();
    }
    let percent = (i128::from(part) * 200 + i128::from(all)) / (i128::from(all) * 2);
    format!("{percent} %")
}

/// With one digit after the point.
fn hours(ms: i64) -> String {
    let tenths = ms.saturating_add(HOUR_MS / 20) / (HOUR_MS / 10);
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// Exact numbers. Others and the total are left out.
fn csv(reply: &Value, by: Grouping) -> String {
    let mut heading: Vec<String> = by.keys().iter().map(|(_, key)| (*key).to_owned()).collect();
    heading.extend(["currency", "machineMs", "costMicros", "unpricedMs"].map(str::to_owned));
    for kind in CostKind::ALL {
        heading.extend([format!("{kind}Ms"), format!("{kind}Micros")]);
    }
    let mut text = heading.join(",") + "\n";
    for line in reply["lines"].as_array().into_iter().flatten() {
        let names = by.keys().iter().map(|(_, key)| quoted(&line[*key]));
        let mut cells: Vec<String> = names.collect();
        cells.push(quoted(&reply["currency"]));
        cells.extend(
            ["machineMs", "costMicros", "unpricedMs"].map(|key| number(line, key).to_string()),
        );
        for kind in CostKind::ALL {
            let amount = &line["uses"][kind.as_str()];
            cells.extend(["machineMs", "costMicros"].map(|key| number(amount, key).to_string()));
        }
        text.push_str(&(cells.join(",") + "\n"));
    }
    text
}

fn quoted(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A line with these millionths, for each use, and 0.1 hours for each.
    fn line(names: &Value, micros: [i64; 6]) -> Value {
        line_with(names, micros, 0)
    }

    fn line_with(names: &Value, micros: [i64; 6], unknown: i64) -> Value {
        let mut line = names.clone();
        let micros_and_unknown = micros.into_iter().chain([unknown]);
        let uses = CostKind::ALL.into_iter().zip(micros_and_unknown);
        let uses = uses.map(|(kind, micros)| {
            let amount = json!({"machineMs": 360_000, "costMicros": micros});
            (kind.to_string(), amount)
        });
        line["uses"] = Value::Object(uses.collect());
        line["machineMs"] = json!(6 * 360_000);
        let all: i64 = micros.iter().sum();
        line["costMicros"] = json!(all + unknown);
        line["wastedMicros"] = json!(all - micros[0]);
        line["unpricedMs"] = json!(0);
        line
    }

    fn reply(lines: &[Value], total: Value) -> Value {
        json!({"since": "2026-11-11T00:00:00.000Z", "until": "2026-11-17T14:32:00.000Z",
            "currency": "USD", "lines": lines, "total": total})
    }

    fn pools() -> Value {
        let linux = [
            4_980_000_000,
            610_000_000,
            520_000_000,
            70_000_000,
            96_000_000,
            41_000_000,
        ];
        let windows = [
            1_320_000_000,
            188_000_000,
            170_000_000,
            206_000_000,
            22_000_000,
            10_000_000,
        ];
        let rest = [
            12_138_000_000,
            1_462_000_000,
            2_123_000_000,
            504_000_000,
            252_000_000,
            211_000_000,
        ];
        let sum: Vec<i64> = (0..6)
            .map(|at| linux[at] + windows[at] + rest[at])
            .collect();
        let lines = [
            line(&json!({"workerPoolId": "proj-test/linux"}), linux),
            line(&json!({"workerPoolId": "proj-test/win11"}), windows),
        ];
        let mut reply = reply(&lines, line(&json!({}), sum.try_into().unwrap()));
        reply["others"] = line(&json!({"count": 382}), rest);
        reply
    }

    #[test]
    fn the_report_says_where_the_money_went() {
        insta::assert_snapshot!(text(&pools(), Grouping::Pool, None), @r#"
        $24,923.00 since 2026-11-11 00:00 UTC, of which 74 % ran tasks that counted.
        $6,485.00 did not: idle $2,813.00, booting $2,260.00, failed $780.00, leaving $370.00, lost $262.00.

        POOL                   ALL  USEFUL   BOOTING      IDLE  FAILED  LEAVING    LOST    WASTED  UNKNOWN
        proj-test/linux   6,317.00    79 %    610.00    520.00   70.00    96.00   41.00  1,337.00     0.00
        proj-test/win11   1,916.00    69 %    188.00    170.00  206.00    22.00   10.00    596.00     0.00
        382 other pools  16,690.00    73 %  1,462.00  2,123.00  504.00   252.00  211.00  4,552.00     0.00
        384 pools        24,923.00    74 %  2,260.00  2,813.00  780.00   370.00  262.00  6,485.00     0.00
        "#);
    }

    #[test]
    fn a_small_sum_has_more_digits_and_unknown_prices_are_named() {
        let sums = [120_001, 3_000, 0, 0, 0, 0];
        let mut total = line(&json!({}), sums);
        total["unpricedMs"] = json!(4_500_000);
        let lines = CostKind::CHARGED.map(|kind| {
            let mut micros = [0; 6];
            let place = CostKind::CHARGED
                .iter()
                .position(|other| *other == kind)
                .unwrap();
            micros[place] = sums[place];
            let mut line = line(&json!({"kind": kind.as_str()}), micros);
            line["machineMs"] = json!(360_000);
            line
        });
        insta::assert_snapshot!(text(&reply(&lines, total), Grouping::Kind, None), @r#"
        $0.123001 since 2026-11-11 00:00 UTC, of which 98 % ran tasks that counted.
        $0.003000 did not: booting $0.003000.

        USE       DOLLARS  OF ALL  MACHINE-HOURS
        useful   0.120001    98 %            0.1
        booting  0.003000     2 %            0.1
        idle     0.000000     0 %            0.1
        failed   0.000000     0 %            0.1
        leaving  0.000000     0 %            0.1
        lost     0.000000     0 %            0.1
        all      0.123001   100 %            0.6

        The price of 1.3 machine-hours is not known. They are not in these sums.
        "#);
    }

    #[test]
    fn machines_that_ended_a_moment_ago_are_not_called_wasted() {
        let sums = [2_000_000, 0, 500_000, 0, 0, 0];
        let lines = [line_with(&json!({"workerPoolId": "a/b"}), sums, 1_500_000)];
        let reply = reply(&lines, line_with(&json!({}), sums, 1_500_000));
        insta::assert_snapshot!(text(&reply, Grouping::Pool, None), @r"
        $4.0000 since 2026-11-11 00:00 UTC, of which 50 % ran tasks that counted.
        $0.5000 did not: idle $0.5000.
        $1.5000 are of machines that ended recently: what they did last is not known yet.

        POOL     ALL  USEFUL  BOOTING    IDLE  FAILED  LEAVING    LOST  WASTED  UNKNOWN
        a/b   4.0000    50 %   0.0000  0.5000  0.0000   0.0000  0.0000  0.5000   1.5000
        ");
    }

    #[test]
    fn no_cost_is_no_table() {
        let reply = reply(&[], line(&json!({}), [0; 6]));
        insta::assert_snapshot!(text(&reply, Grouping::Pool, None), @"$0 since 2026-11-11 00:00 UTC.");
    }

    #[test]
    fn csv_has_exact_numbers_and_quotes_names() {
        let lines = [line(&json!({"owner": "a,\"b\""}), [1, 2, 3, 4, 5, 6])];
        let reply = reply(&lines, lines[0].clone());
        insta::assert_snapshot!(csv(&reply, Grouping::Owner), @r#"
        owner,currency,machineMs,costMicros,unpricedMs,usefulMs,usefulMicros,bootingMs,bootingMicros,idleMs,idleMicros,failedMs,failedMicros,leavingMs,leavingMicros,lostMs,lostMicros,unknownMs,unknownMicros
        "a,""b""",USD,2160000,21,0,360000,1,360000,2,360000,3,360000,4,360000,5,360000,6,360000,0
        "#);
    }

    #[test]
    fn money_is_rounded_for_people_only() {
        assert_eq!(plain(1_234_567_890_123, 2), "1,234,567.89");
        assert_eq!(plain(4_999, 2), "0.00");
        assert_eq!(plain(5_000, 2), "0.01");
        assert_eq!(
            (plain(7, 6), plain(1_000_050, 4)),
            ("0.000007".to_owned(), "1.0001".to_owned())
        );
        assert_eq!(
            (percent(1, 3), percent(2, 3), percent(0, 0)),
            ("33 %".to_owned(), "67 %".to_owned(), "-".to_owned())
        );
        assert_eq!(
            (hours(0), hours(5_400_000)),
            ("0.0".to_owned(), "1.5".to_owned())
        );
    }
}
