//! The health of launches over all pools: what is shut off, and why.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueEnum};
use domain::time::{HOUR_MS, Timestamp};
use serde_json::{Value, json};

use super::Session;
use super::launch_config::{fraction, state_text};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column, counted};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Start: a duration before now such as 90m, or a time; at most 24h ago (default: 1h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Table of launches
    #[arg(long, value_name = "COLUMN", default_value = "region")]
    by: Grouping,
}

/// The rows of the table of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouping {
    /// One row for each region of a provider
    Region,
    /// One row for each kind of machine at its place, such as `us-east-1 m5.large`
    Machine,
    /// One row for each cause of failures
    Cause,
    /// One row for each launch config
    LaunchConfig,
}

const KEY: &str = "launchConfigs";

const FAILING: &[Column] = &[
    Column::text("LAUNCH CONFIG", "id"),
    Column::text("POOL", "pool"),
    Column::text("REGION", "region"),
    Column::text("STATE", "state"),
    Column::age("SINCE", "since"),
    Column::text("CAUSE", "cause"),
    Column::number("FAILED", "failed"),
    Column::age("NEXT TRY", "nextTry"),
    Column::text("THEN EVERY", "thenEvery"),
    Column::text("OWN × BALANCE × HEALTH", "weight"),
    Column::prose("WHY", "why"),
];

const BY_REGION: &[Column] = &[
    Column::text("PROVIDER", "provider"),
    Column::text("REGION", "region"),
    Column::number("LAUNCH CONFIGS", "configs"),
    Column::number("TRIED", "tried"),
    Column::number("REGISTERED", "registered"),
    Column::number("CLAIMED", "claimed"),
    Column::number("REFUSED", "refused"),
    Column::number("CLAIMED OF TRIED", "share"),
    Column::text("STATE", "state"),
];

const BY_MACHINE: &[Column] = &[
    Column::text("PROVIDER", "provider"),
    Column::text("MACHINE", "place"),
    Column::number("LAUNCH CONFIGS", "configs"),
    Column::number("TRIED", "tried"),
    Column::number("REGISTERED", "registered"),
    Column::number("CLAIMED", "claimed"),
    Column::number("REFUSED", "refused"),
    Column::number("CLAIMED OF TRIED", "share"),
    Column::text("STATE", "state"),
];

const BY_CAUSE: &[Column] = &[
    Column::text("CAUSE", "cause"),
    Column::number("FAILED", "failed"),
    Column::age("LAST", "last"),
    Column::age("FIRST", "first"),
    Column::text("WHERE", "where"),
    Column::prose("EXAMPLE", "example"),
];

const BY_LAUNCH_CONFIG: &[Column] = &[
    Column::text("LAUNCH CONFIG", "id"),
    Column::text("POOL", "pool"),
    Column::text("REGION", "region"),
    Column::text("STATE", "state"),
    Column::number("TRIED", "tried"),
    Column::number("REGISTERED", "registered"),
    Column::number("CLAIMED", "claimed"),
    Column::number("REFUSED", "refused"),
    Column::text("OWN × BALANCE × HEALTH", "weight"),
    Column::prose("MACHINE", "place"),
];

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let since = since(arguments.since.as_deref(), session.now)?;
    let call = Call::get(WORKER_MANAGER, &["launch-config-health"])
        .query("since", Some(since))
        .to("show the health of launches");
    let document = session.client.pages(&call, KEY, None).await?;
    if session.json {
        output::json(&document);
        return Ok(());
    }
    let items = document[KEY].as_array().map_or(&[][..], Vec::as_slice);
    output::out(&report(
        items,
        arguments.by,
        since,
        session.now,
        output::screen_width(),
    ));
    Ok(())
}

fn since(text: Option<&str>, now: Timestamp) -> Result<Timestamp, Failure> {
    let Some(text) = text else {
        return Ok(now.plus_millis(-HOUR_MS));
    };
    output::parse_past_moment(text, now)
        .map_err(|error| Failure::usage(format!("--since: {error}")))
}

/// A sentence, what is wrong, and the table.
fn report(
    items: &[Value],
    by: Grouping,
    since: Timestamp,
    now: Timestamp,
    width: Option<u16>,
) -> String {
    let mut text = format!("{}\n", summary(items, since));
    let failing: Vec<Value> = items.iter().filter(|it| !is_well(it)).map(row).collect();
    let mut add = |rows: &[Value], columns| {
        if !rows.is_empty() {
            text.push('\n');
            text.push_str(&output::table(rows, columns, now, width));
        }
    };
    add(&failing, FAILING);
    match by {
        Grouping::Region => add(&board(items, "region"), BY_REGION),
        Grouping::Machine => add(&board(items, "place"), BY_MACHINE),
        Grouping::Cause => add(&causes(items), BY_CAUSE),
        Grouping::LaunchConfig => {
            let rows: Vec<Value> = items.iter().map(row).collect();
            add(&rows, BY_LAUNCH_CONFIG);
        }
    }
    text
}

/// The launches of some launch configs, by result.
#[derive(Clone, Copy, Default)]
struct Sums {
    configs: u64,
    tried: u64,
    registered: u64,
    claimed: u64,
    refused: u64,
    shut_off: u64,
    on_trial: u64,
    paused: u64,
}

impl Sums {
    fn of<'a>(items: impl Iterator<Item = &'a Value>) -> Self {
        items.fold(Self::default(), |mut sums, item| {
            let number = |name: &str| item["launches"][name].as_u64().unwrap_or(0);
            sums.configs += 1;
            sums.tried += number("attempts");
            sums.registered += number("registered");
            sums.claimed += number("claimed");
            sums.refused += refused(item);
            match state_text(item).as_str() {
                "shut-off" => sums.shut_off += 1,
                "due" | "on-trial" => sums.on_trial += 1,
                "paused" => sums.paused += 1,
                _ => {}
            }
            sums
        })
    }

    fn state(&self) -> String {
        let parts = [
            (self.shut_off, "shut off"),
            (self.on_trial, "on trial"),
            (self.paused, "paused"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        parts.join(", ")
    }
}

fn summary(items: &[Value], since: Timestamp) -> String {
    let sums = Sums::of(items.iter());
    let launches = format!(
        "{} tried since {since}, {} registered, {} claimed work, {} refused.",
        counted(sums.tried, "machine"),
        sums.registered,
        sums.claimed,
        sums.refused,
    );
    let all = counted(sums.configs, "launch config");
    let state = sums.state();
    if state.is_empty() {
        return format!("{launches} {all}: none is shut off, on trial or paused.");
    }
    format!("{launches} {all}: {state}.")
}

fn refused(item: &Value) -> u64 {
    let causes = item["launches"]["refused"].as_object();
    let counts = causes.into_iter().flatten();
    counts.filter_map(|(_, count)| count.as_u64()).sum()
}

fn is_well(item: &Value) -> bool {
    !matches!(
        state_text(item).as_str(),
        "shut-off" | "due" | "on-trial" | "paused"
    )
}

/// One launch config.
fn row(item: &Value) -> Value {
    let availability = &item["availability"];
    let share = |name: &str| {
        let text = fraction(&item["weight"][name], 1.0, "");
        text.as_str().map(str::to_owned)
    };
    let weight = match (share("initial"), share("balance"), share("health")) {
        (Some(own), Some(balance), Some(health)) => Some(format!("{own} × {balance} × {health}")),
        _ => None,
    };
    let failures = failures(item);
    let failed: u64 = failures
        .iter()
        .filter_map(|it| it["machines"].as_u64())
        .sum();
    let newest = failures.iter().max_by_key(|it| it["last"].as_str());
    let pause = &item["pause"];
    let until = if pause.is_object() {
        &pause["until"]
    } else {
        &availability["nextTry"]
    };
    let why = if pause.is_object() {
        &pause["reason"]
    } else {
        newest.map_or(&availability["reason"], |newest| &newest["example"])
    };
    let pause_seconds = availability["nextPauseSeconds"].as_u64();
    let launches = &item["launches"];
    json!({
        "id": item["launchConfigId"],
        "pool": item["workerPoolId"],
        "region": item["region"],
        "place": item["place"],
        "state": state_text(item),
        "since": availability["since"],
        "cause": newest.map(|newest| newest["cause"].clone()),
        "failed": failed,
        "nextTry": until,
        "thenEvery": pause_seconds.map(|seconds| format!("{seconds} s")),
        "weight": weight,
        "why": why,
        "tried": launches["attempts"],
        "registered": launches["registered"],
        "claimed": launches["claimed"],
        "refused": refused(item),
    })
}

fn failures(item: &Value) -> &[Value] {
    item["failures"].as_array().map_or(&[][..], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// One row for each region of a provider, or for what else the launch configs have in common.
fn board(items: &[Value], column: &str) -> Vec<Value> {
    let mut places: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for item in items {
        let place = (text_of(&item["providerId"]), text_of(&item[column]));
        places.entry(place).or_default().push(item);
    }
    let row = |((provider, place), items): ((String, String), Vec<&Value>)| {
        let sums = Sums::of(items.into_iter());
        let share = (sums.tried > 0).then(|| format!("{} %", sums.claimed * 100 / sums.tried));
        let state = Some(sums.state()).filter(|state| !state.is_empty());
        json!({"provider": provider, column: place, "configs": sums.configs,
            "tried": sums.tried, "registered": sums.registered, "claimed": sums.claimed,
            "refused": sums.refused, "share": share, "state": state})
    };
    places.into_iter().map(row).collect()
}

/// The failures for one cause, in all launch configs.
#[derive(Default)]
struct CauseSums {
    failed: u64,
    first: Option<String>,
    last: Option<String>,
    places: BTreeSet<String>,
    example: String,
}

/// One row for each cause, the most frequent first.
fn causes(items: &[Value]) -> Vec<Value> {
    let mut causes: BTreeMap<String, CauseSums> = BTreeMap::new();
    for item in items {
        let provider = text_of(&item["providerId"]);
        let place = match item["region"].as_str() {
            Some(region) => format!("{provider} {region}"),
            None => provider,
        };
        for failure in failures(item) {
            let sums = causes.entry(text_of(&failure["cause"])).or_default();
            let (first, last) = (text_of(&failure["first"]), text_of(&failure["last"]));
            sums.failed += failure["machines"].as_u64().unwrap_or(0);
            if sums.first.as_ref().is_none_or(|known| first < *known) {
                sums.first = Some(first);
            }
            if sums.last.as_ref().is_none_or(|known| last > *known) {
                sums.last = Some(last);
                sums.example = text_of(&failure["example"]);
            }
            sums.places.insert(place.clone());
        }
    }
    let mut causes: Vec<(String, CauseSums)> = causes.into_iter().collect();
    causes.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.failed));
    let row = |(cause, sums): (String, CauseSums)| {
        let places: Vec<String> = sums.places.into_iter().collect();
        json!({"cause": cause, "failed": sums.failed, "first": sums.first, "last": sums.last,
            "where": places, "example": sums.example})
    };
    causes.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-09-21T14:32:00.000Z".parse().unwrap()
    }

    fn at(minute: u32) -> String {
        format!("2026-09-21T14:{minute:02}:00.000Z")
    }

    /// A launch config of a region with attempts, claims and a refusal of this many for a cause.
    fn item(id: &str, region: &str, tried: u64, claimed: u64, refused: (&str, u64)) -> Value {
        let (cause, count) = refused;
        let failures = if count > 0 {
            json!([{"cause": cause, "machines": count, "first": at(2), "last": at(30),
                "example": format!("no {id}")}])
        } else {
            json!([])
        };
        json!({
            "launchConfigId": id, "workerPoolId": "proj/ci", "providerId": "aws",
            "region": region, "place": format!("{region}a {id}"), "state": "active",
            "availability": {"status": "usable"},
            "weight": {"initial": 0.4, "balance": 1.0, "health": 1.0, "weight": 0.4},
            "launches": {"attempts": tried, "registered": claimed, "claimed": claimed,
                "refused": {cause: count}},
            "failures": failures,
        })
    }

    fn items() -> Vec<Value> {
        let mut off = item("m5.xlarge", "eu-west-1", 41, 0, ("capacity", 41));
        off["availability"] = json!({"status": "shut-off", "since": at(19), "nextTry": at(36),
            "nextPauseSeconds": 480});
        off["weight"]["health"] = json!(0.0);
        let mut trial = item("m5.large", "eu-west-1", 9, 0, ("quota", 9));
        trial["availability"] = json!({"status": "due", "since": at(2)});
        let mut paused = item("c6i", "us-east-1", 0, 0, ("capacity", 0));
        paused["state"] = json!("paused");
        paused["availability"] = json!({"status": "unusable"});
        paused["pause"] = json!({"until": "2026-09-21T16:00:00.000Z", "reason": "ticket 123"});
        vec![
            off,
            trial,
            paused,
            item("m5", "us-east-1", 120, 117, ("capacity", 2)),
        ]
    }

    fn said(by: Grouping) -> String {
        let since = now().plus_millis(-HOUR_MS);
        report(&items(), by, since, now(), None)
    }

    #[test]
    fn the_board_shows_what_is_wrong_and_each_region() {
        insta::assert_snapshot!(said(Grouping::Region), @r"
        170 machines tried since 2026-09-21T13:32:00.000Z, 117 registered, 117 claimed work, 52 refused. 4 launch configs: 1 shut off, 1 on trial, 1 paused.

        LAUNCH CONFIG  POOL     REGION     STATE     SINCE    CAUSE     FAILED  NEXT TRY  THEN EVERY  OWN × BALANCE × HEALTH  WHY
        m5.xlarge      proj/ci  eu-west-1  shut-off  13m ago  capacity      41  in 4m     480 s       0.40 × 1.00 × 0.00      no m5.xlarge
        m5.large       proj/ci  eu-west-1  due       30m ago  quota          9  -         -           0.40 × 1.00 × 1.00      no m5.large
        c6i            proj/ci  us-east-1  paused    -        -              0  in 1h     -           0.40 × 1.00 × 1.00      ticket 123

        PROVIDER  REGION     LAUNCH CONFIGS  TRIED  REGISTERED  CLAIMED  REFUSED  CLAIMED OF TRIED  STATE
        aws       eu-west-1               2     50           0        0       50               0 %  1 shut off, 1 on trial
        aws       us-east-1               2    120         117      117        2              97 %  1 paused
        ");
    }

    #[test]
    fn launch_configs_with_the_same_machine_are_one_row() {
        let mut same = items();
        same.push(item("m5", "us-east-1", 30, 10, ("capacity", 0)));
        let text = report(&same, Grouping::Machine, now(), now(), None);
        insta::assert_snapshot!(text.rsplit("\n\n").next().unwrap(), @r"
        PROVIDER  MACHINE               LAUNCH CONFIGS  TRIED  REGISTERED  CLAIMED  REFUSED  CLAIMED OF TRIED  STATE
        aws       eu-west-1a m5.large                1      9           0        0        9               0 %  1 on trial
        aws       eu-west-1a m5.xlarge               1     41           0        0       41               0 %  1 shut off
        aws       us-east-1a c6i                     1      0           0        0        0                 -  1 paused
        aws       us-east-1a m5                      2    150         127      127        2              84 %  -
        ");
    }

    #[test]
    fn causes_are_shown_with_the_most_frequent_first() {
        let text = said(Grouping::Cause);
        let table = text.rsplit("\n\n").next().unwrap();
        insta::assert_snapshot!(table, @r"
        CAUSE     FAILED  LAST    FIRST    WHERE                         EXAMPLE
        capacity      43  2m ago  30m ago  aws eu-west-1, aws us-east-1  no m5.xlarge
        quota          9  2m ago  30m ago  aws eu-west-1                 no m5.large
        ");
    }

    #[test]
    fn each_launch_config_has_a_row() {
        let text = said(Grouping::LaunchConfig);
        let table = text.rsplit("\n\n").next().unwrap();
        insta::assert_snapshot!(table, @r"
        LAUNCH CONFIG  POOL     REGION     STATE     TRIED  REGISTERED  CLAIMED  REFUSED  OWN × BALANCE × HEALTH  MACHINE
        m5.xlarge      proj/ci  eu-west-1  shut-off     41           0        0       41  0.40 × 1.00 × 0.00      eu-west-1a m5.xlarge
        m5.large       proj/ci  eu-west-1  due           9           0        0        9  0.40 × 1.00 × 1.00      eu-west-1a m5.large
        c6i            proj/ci  us-east-1  paused        0           0        0        0  0.40 × 1.00 × 1.00      us-east-1a c6i
        m5             proj/ci  us-east-1  active      120         117      117        2  0.40 × 1.00 × 1.00      us-east-1a m5
        ");
    }

    #[test]
    fn a_fleet_without_failures_says_so() {
        let well = [item("m5", "r", 1, 1, ("quota", 0))];
        let text = report(&well, Grouping::Cause, now(), now(), None);
        assert_eq!(
            text,
            "1 machine tried since 2026-09-21T14:32:00.000Z, 1 registered, 1 claimed work, 0 \
             refused. 1 launch config: none is shut off, on trial or paused.\n"
        );
        let none = report(&[], Grouping::Region, now(), now(), None);
        assert!(none.ends_with("0 launch configs: none is shut off, on trial or paused.\n"));
        // A reply of another shape.
        let odd = report(
            &[json!({}), json!(1)],
            Grouping::LaunchConfig,
            now(),
            now(),
            None,
        );
        assert!(odd.contains("LAUNCH CONFIG"), "{odd}");
    }

    #[test]
    fn the_start_is_an_hour_ago_or_what_is_given() {
        let ago = |text: Option<&str>| since(text, now()).map(|since| now().millis_since(since));
        assert_eq!(ago(None).unwrap(), HOUR_MS);
        assert_eq!(ago(Some("90m")).unwrap(), 90 * 60_000);
        assert_eq!(ago(Some("2026-09-21T14:00:00Z")).unwrap(), 32 * 60_000);
        let wrong = ago(Some("soon")).unwrap_err().message;
        assert!(wrong.starts_with("--since: \"soon\" is neither"), "{wrong}");
    }
}
