//! Simulates a change of pools with the recorded load. The form is the address.

mod question;

use api_client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use domain::time::{SECOND_MS, Timestamp};
use futures_util::future::join;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::charts::{Line, LineChart, Row, RowChart, RowShape, Series, TimeRange, Tone, Unit};
use crate::json::Json as _;
use crate::parts::{empty, first_lines, heads, table};
use crate::view::{Listens, Part, Shown, View, Visit};
use crate::words::count;
use question::Question;

/// Pools whose names the form offers.
const OFFERED: u32 = 200;

/// A row of the table: its name, the measure, that of the recording, and its unit.
type Measure = (&'static str, &'static str, &'static str, Unit);

const MEASURES: [Measure; 9] = [
    ("Median wait", "delayP50", "delay.p50", Unit::Duration),
    (
        "95 of 100 tasks waited at most",
        "delayP95",
        "delay.p95",
        Unit::Duration,
    ),
    ("Longest wait", "delayWorst", "delay.worst", Unit::Duration),
    ("Cost", "cost", "cost", Unit::Money),
    (
        "Cost of machines without a task",
        "wastedCost",
        "",
        Unit::Money,
    ),
    (
        "Unused hours of machines",
        "overProvisionedHours",
        "overProvisionedHours",
        Unit::Plain,
    ),
    ("Launches", "launches", "launches", Unit::Count),
    ("Refused launches", "refused", "refused", Unit::Count),
    ("Tasks that did not end", "unfinished", "", Unit::Count),
];

pub(super) async fn show(visit: &Visit<'_>) -> Shown {
    let question = Question::of(visit);
    let pools = Call::get(FLEETWRIGHT, &["status", "pools"]).query("limit", Some(OFFERED));
    let providers = Call::get(WORKER_MANAGER, &["providers"]);
    let lists = join(visit.api.call(pools), visit.api.call(providers));
    let asking = async {
        match question.body(visit.now) {
            Some(Ok(body)) => {
                let call = Call::post(FLEETWRIGHT, &["what-if"], &body);
                Some(visit.api.call(call).await)
            }
            Some(Err(error)) => Some(Err(crate::form::wrong(&error))),
            None => None,
        }
    };
    let ((pools, providers), reply) = join(lists, asking).await;
    let listens = match &reply {
        Some(Ok(reply)) if reply.text("state") != "done" => Listens::Soon,
        _ => Listens::Never,
    };
    let form = question::form(
        visit,
        pools.as_ref().map_or(&[][..], |it| it.list("pools")),
        providers
            .as_ref()
            .map_or(&[][..], |it| it.list("providers")),
    );
    let view = View::new(Part::Waiting, "What if")
        .section("head", head(reply.as_ref()))
        .section("question", form);
    // One section, since an open page can change those that it has.
    let answer = match &reply {
        Some(Ok(reply)) if reply.text("state") == "done" => answer(reply.at("result")),
        Some(Ok(reply)) => progress(visit, reply),
        Some(Err(refusal)) => refused(refusal),
        None => html! {},
    };
    let view = view.section("answer", answer);
    Ok(view.command(question.command()).listens(listens))
}

fn head(reply: Option<&Result<Value, Refusal>>) -> Markup {
    let done = reply.and_then(|reply| reply.as_ref().ok());
    let sentence = done.map_or("", |reply| reply.text("result.sentence"));
    html! {
        p .crumb { a href="/waiting" { "Waiting" } }
        h1 { "What if" }
        @if sentence.is_empty() {
            p .lede {
                "Choose a change: the recorded tasks are simulated with it, and with the pools as "
                "they are now. Nothing is changed."
            }
        } @else {
            p .lede { (sentence) }
        }
    }
}

fn refused(refusal: &Refusal) -> Markup {
    html! {
        h2 { "No answer" }
        @if refusal.is_forbidden() {
            p .note { "You may not ask: your client lacks the scope fleetwright:read-recording." }
        } @else {
            @for line in first_lines(&refusal.message) { p .err role="alert" { (line) } }
        }
    }
}

fn progress(visit: &Visit<'_>, reply: &Value) -> Markup {
    let (n_done, n_all) = (reply.count("simulationsDone"), reply.count("simulations"));
    let text = match (reply.text("state"), n_all) {
        ("waiting", _) => "Another question is being answered. This one is next.".to_owned(),
        (_, 0) => "The recording is being read.".to_owned(),
        _ => format!(
            "{} of {} simulations are done.",
            count(n_done),
            count(n_all)
        ),
    };
    html! {
        h2 { "Simulating" }
        p role="status" { (text) " The answer comes by itself if the page is live; else "
            a href=(visit.with("", "")) { "look again" } "." }
    }
}

fn answer(result: &Value) -> Markup {
    if result.count("recorded.tasks") == 0 {
        return nothing_recorded(result);
    }
    let fleets = fleets(result);
    html! {
        (waits(&fleets))
        (costs(&fleets))
        (course(result))
        (measures(&fleets, result))
        (notes(result))
    }
}

fn nothing_recorded(result: &Value) -> Markup {
    html! {
        (empty("No task of these pools ended in this time, so nothing can be simulated. Choose a \
            longer time, or other pools. The server records the runs of its own queue, and those \
            of another deployment's queue that it hears of over AMQP, for `fleet.recording_days` \
            days: with 0 it records nothing."))
        (notes(result))
    }
}

/// A value, and half the width of its interval.
type Estimate = (f64, Option<f64>);

/// A fleet of the answer: its title, and its values in the order of the measures.
struct Fleet {
    title: &'static str,
    tone: Tone,
    values: [Option<Estimate>; MEASURES.len()],
}

/// The recorded fleet, that of the present configuration, and the changed one.
fn fleets(result: &Value) -> Vec<Fleet> {
    let recorded = result.at("recorded");
    let mut fleets = vec![Fleet {
        title: "Recorded",
        tone: Tone::Category(0),
        values: MEASURES.map(|(_, _, path, _)| Some((recorded.number(path)?, None))),
    }];
    let simulated = result.list("configurations").iter();
    let titles = ["Simulated as now", "Simulated with the change"];
    fleets.extend(simulated.zip(titles).zip(1..).map(|((of, title), number)| {
        let value = |(_, name, _, _): Measure| {
            let estimate = of.at("mean").at(name);
            let margin = estimate.number("margin").filter(|margin| *margin > 0.0);
            Some((estimate.number("mean")?, margin))
        };
        Fleet {
            title,
            tone: Tone::Category(number),
            values: MEASURES.map(value),
        }
    }));
    fleets
}

/// The value as charts and texts take it.
fn scaled(unit: Unit, value: f64) -> f64 {
    match unit {
        Unit::Duration => (value * SECOND_MS as f64).round(),
        Unit::Count | Unit::Money | Unit::Percent | Unit::Plain => value,
    }
}

fn text(unit: Unit, value: f64) -> String {
    let value = match unit {
        Unit::Count => value.round(),
        Unit::Money | Unit::Duration | Unit::Percent | Unit::Plain => scaled(unit, value),
    };
    unit.text(value)
}

fn waits(fleets: &[Fleet]) -> Markup {
    let rows = fleets.iter().map(|fleet| {
        let values = [0, 1, 2].map(|place: usize| {
            let value = fleet.values[place];
            value.map_or(0.0, |(value, _)| scaled(Unit::Duration, value))
        });
        let shape = RowShape::Quantiles {
            values,
            tone: fleet.tone,
        };
        let text = format!(
            "{}, {}, {}",
            Unit::Duration.text(values[0]),
            Unit::Duration.text(values[1]),
            Unit::Duration.text(values[2])
        );
        (fleet.title, shape, text)
    });
    html! {
        h2 { "Waits" }
        p .note { "The median, the 95th percentile and, lightest, the longest." }
        (row_chart("Waits", Unit::Duration, rows.collect()))
    }
}

fn costs(fleets: &[Fleet]) -> Markup {
    let values = fleets.iter().map(|fleet| {
        let (value, margin) = fleet.values[3].unwrap_or_default();
        (fleet, [("cost", fleet.tone, value)], margin)
    });
    let values: Vec<_> = values.collect();
    let rows = values.iter().map(|(fleet, parts, margin)| {
        let value = parts[0].2;
        let interval = margin.map(|margin| (value - margin, value + margin));
        let shape = RowShape::Bar { parts, interval };
        (fleet.title, shape, with_margin(Unit::Money, value, *margin))
    });
    html! {
        h2 { "Cost" }
        (row_chart("Cost", Unit::Money, rows.collect()))
    }
}

fn row_chart(title: &str, unit: Unit, rows: Vec<(&str, RowShape<'_>, String)>) -> Markup {
    let (texts, shapes): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .map(|(name, shape, text)| ((name, text), shape))
        .unzip();
    let rows = texts.iter().zip(shapes).map(|((name, text), shape)| Row {
        group: "",
        name,
        href: None,
        shape,
        text,
    });
    let chart = RowChart {
        title,
        unit,
        ends: (0.0, 0.0),
        rows: &rows.collect::<Vec<_>>(),
    };
    html! { (chart) }
}

/// Machines and waiting tasks over time.
fn course(result: &Value) -> Markup {
    let moment = |name: &str| result.moment(name).map_or(0, Timestamp::as_millis);
    let (since, until) = (moment("since"), moment("until"));
    let names = [
        ("recorded", "recorded"),
        ("present", "as now"),
        ("changed", "with the change"),
    ];
    let series_of = |fleet: &str, values: &str| {
        let of = result.at("series").at(fleet);
        let step_ms = i64::try_from(of.count("stepMs")).unwrap_or(i64::MAX);
        let values = of.list(values).iter().map(Value::as_f64);
        Series {
            from_ms: since,
            step_ms,
            values: values.collect(),
        }
    };
    let chart = |title: &str, values: &str, with_load: bool| {
        let known = names
            .into_iter()
            .filter(|(fleet, _)| !result.at("series").at(fleet).is_null());
        let series: Vec<_> = known
            .enumerate()
            .map(|(number, (fleet, name))| (number, name, series_of(fleet, values)))
            .collect();
        let lines = series.iter().map(|(number, name, series)| Line {
            name,
            tone: Tone::Category(*number),
            is_dashed: *number == 0,
            series,
        });
        let load = series_of("recorded", "wanted");
        let chart = LineChart {
            title,
            range: TimeRange::new(since, until),
            unit: Unit::Count,
            ground: with_load.then_some(("tasks that would run if none waited", &load)),
            lines: &lines.collect::<Vec<_>>(),
        };
        html! { (chart) }
    };
    html! {
        h2 { "Over time" }
        h3 { "Machines" }
        (chart("Machines", "machines", true))
        h3 { "Waiting tasks" }
        (chart("Waiting tasks", "waiting", false))
    }
}

fn measures(fleets: &[Fleet], result: &Value) -> Markup {
    let changed = result.list("configurations").get(1);
    let rows = html! {
        @for (place, measure) in MEASURES.iter().enumerate() {
            tr {
                th scope="row" { (measure.0) }
                @for fleet in fleets {
                    td .n { (match fleet.values[place] {
                        Some((value, margin)) => with_margin(measure.3, value, margin),
                        None => "–".to_owned(),
                    }) }
                }
                @if let Some(changed) = changed {
                    td .n { (difference(changed, measure)) }
                }
            }
        }
    };
    let mut names = vec!["Measure".to_owned()];
    names.extend(fleets.iter().map(|fleet| format!("#{}", fleet.title)));
    names.extend(changed.map(|_| "#Difference".to_owned()));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    html! {
        h2 { "Measures" }
        (table("Measures of the fleets", &heads(&names), &rows))
        p .note {
            "± is the 95 % confidence interval over "
            (count(result.list("seeds").len() as u64)) " seeds, which differ in the luck with the "
            "clouds. The difference compares the simulations with each other, seed by seed."
        }
    }
}

/// The difference between the simulations, if chance does not explain it.
fn difference(changed: &Value, measure: &Measure) -> String {
    let (_, name, _, unit) = measure;
    let estimate = changed.at("difference").at(name);
    let Some(mean) = estimate.number("mean") else {
        return "–".to_owned();
    };
    let margin = estimate.number("margin");
    if mean == 0.0 && margin == Some(0.0) {
        return "none".to_owned();
    }
    if margin.is_some_and(|margin| mean.abs() <= margin) {
        return "no clear one".to_owned();
    }
    let sign = if mean < 0.0 { "−" } else { "+" };
    format!(
        "{sign}{}",
        with_margin(*unit, mean.abs(), margin.filter(|margin| *margin > 0.0))
    )
}

fn with_margin(unit: Unit, value: f64, margin: Option<f64>) -> String {
    match margin {
        Some(margin) => format!("{} ± {}", text(unit, value), text(unit, margin)),
        None => text(unit, value),
    }
}

fn notes(result: &Value) -> Markup {
    let notes = result.list("notes").iter().filter_map(Value::as_str);
    html! {
        h2 { "How sure this is" }
        p { (result.text("accuracy")) " If that is much, the change is no better known." }
        ul {
            @for note in notes { li { (note) "." } }
        }
    }
}
