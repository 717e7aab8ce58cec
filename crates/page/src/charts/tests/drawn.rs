//! The markup of the charts.

use maud::Render;

use super::{MINUTE_MS, MORNING_MS, minutes, range};
use crate::charts::{
    BarPart, Bin, Board, BoardCell, BoardRow, CanaryChart, CanaryPoint, CapacityChart, FailureRate,
    Gather, Gauge, HeatMap, HeatRow, Histogram, Life, LifeLine, Line, LineChart, Mark, MarkKind,
    MomentLinks, Row, RowChart, RowShape, Scrubber, Segment, Series, ShareBar, SparkLine, TimeBars,
    TimeRange, Tone, Unit, WorkerStates,
};

const ATTACK: &str = "<script>alert(1)</script>\"'& onload=x";

/// All charts of these values, with a text of others in every place for texts.
fn all_charts(range: TimeRange, series: &Series) -> Vec<(&'static str, String)> {
    let value = series.values.first().copied().flatten();
    let value = value.unwrap_or(f64::NAN);
    let mut charts = charts_over_time(range, series);
    charts.extend(charts_of_numbers(value));
    charts.push(("heat", heat_map(series)));
    charts
}

fn draw(chart: &impl Render) -> String {
    chart.render().into_string()
}

fn charts_over_time(range: TimeRange, series: &Series) -> Vec<(&'static str, String)> {
    let mark = Mark {
        at_ms: range.from_ms(),
        kind: MarkKind::Change,
        text: ATTACK,
        href: ATTACK,
    };
    let part = BarPart {
        name: ATTACK,
        tone: Tone::Busy,
        series,
    };
    let bars = |gather| TimeBars {
        title: ATTACK,
        range,
        unit: Unit::Money,
        gather,
        parts: std::slice::from_ref(&part),
    };
    let lines = LineChart {
        title: ATTACK,
        range,
        unit: Unit::Count,
        ground: Some((ATTACK, series)),
        lines: &[Line {
            name: ATTACK,
            tone: Tone::Category(9),
            is_dashed: true,
            series,
        }],
    };
    let segment = Segment {
        from_ms: range.from_ms(),
        to_ms: None,
        tone: Tone::Failed,
        name: ATTACK,
        text: ATTACK,
        href: Some(ATTACK),
    };
    let life = LifeLine {
        title: ATTACK,
        range,
        lives: &[Life {
            name: ATTACK,
            segments: &[segment],
        }],
    };
    let scrubber = Scrubber {
        range,
        step_ms: 0,
        label: ATTACK,
        keep: &[(ATTACK, ATTACK)],
    };
    vec![
        ("spark", draw(&spark(range, series))),
        ("capacity", draw(&capacity(range, series, &[mark]))),
        ("sums", draw(&bars(Gather::Sum))),
        ("peaks", draw(&bars(Gather::Peak))),
        ("lines", draw(&lines)),
        ("life", draw(&life)),
        ("canary", canary(range, series)),
        ("scrubber", draw(&scrubber)),
    ]
}

fn charts_of_numbers(value: f64) -> Vec<(&'static str, String)> {
    let shares = ShareBar {
        label: ATTACK,
        unit: Unit::Money,
        parts: &[(ATTACK, Tone::Busy, value), ("", Tone::Idle, 2.0)],
    };
    let gauge = Gauge {
        name: ATTACK,
        unit: Unit::Money,
        used: value,
        limit: 3.0,
        expected: Some(value),
    };
    let cell = BoardCell {
        href: ATTACK,
        n_tried: value,
        n_failed: value,
        n_lost: 1.0,
        note: ATTACK,
    };
    let board = Board {
        title: ATTACK,
        row_head: ATTACK,
        columns: &[ATTACK],
        rows: &[BoardRow {
            name: ATTACK,
            href: Some(ATTACK),
            cells: &[Some(cell)],
        }],
    };
    let histogram = Histogram {
        title: ATTACK,
        unit: Unit::Duration,
        tone: Tone::Booting,
        bins: &[Bin {
            from: 0.0,
            to: value,
            count: value,
        }],
        quantiles: &[(ATTACK, value)],
    };
    vec![
        ("shares", draw(&shares)),
        ("gauge", draw(&gauge)),
        ("board", draw(&board)),
        ("histogram", draw(&histogram)),
        ("rows", row_chart(value)),
    ]
}

fn canary(range: TimeRange, series: &Series) -> String {
    let values = series.values.iter().flatten();
    let points = values.take(20).map(|value| CanaryPoint {
        at_ms: range.from_ms(),
        worse: *value,
        as_good: -value,
    });
    let value = series.values.first().copied().flatten();
    let value = value.unwrap_or(f64::NAN);
    let rate = FailureRate {
        of: ATTACK,
        is_new: true,
        n: value,
        n_failed: value,
        interval: (value, 1.0),
    };
    draw(&CanaryChart {
        title: ATTACK,
        range,
        points: &points.collect::<Vec<_>>(),
        rates: &[rate],
    })
}

fn row_chart(value: f64) -> String {
    let dot = RowShape::Dot {
        mean: value,
        interval: Some((value, 9.0)),
        tone: Tone::Idle,
    };
    let bar = RowShape::Bar {
        parts: &[(ATTACK, Tone::Lost, value)],
        interval: None,
    };
    let quantiles = RowShape::Quantiles {
        values: [value; 3],
        tone: Tone::Busy,
    };
    let row = |shape| Row {
        group: ATTACK,
        name: ATTACK,
        href: Some(ATTACK),
        shape,
        text: ATTACK,
    };
    draw(&RowChart {
        title: ATTACK,
        unit: Unit::Percent,
        ends: (0.0, value),
        rows: &[row(dot), row(bar), row(quantiles), row(RowShape::Nothing)],
    })
}

fn heat_map(series: &Series) -> String {
    let values: Vec<Option<f64>> = series.values.iter().copied().take(20).collect();
    draw(&HeatMap {
        title: ATTACK,
        unit: Unit::Duration,
        row_head: ATTACK,
        columns: &[ATTACK; 20],
        rows: &[HeatRow {
            name: ATTACK,
            href: Some(ATTACK),
            values: &values,
        }],
    })
}

fn spark(range: TimeRange, series: &Series) -> SparkLine<'_> {
    SparkLine {
        range,
        waiting: series,
        capacity: series,
        limit: Some(10.0),
    }
}

pub(super) fn capacity<'a>(
    range: TimeRange,
    series: &'a Series,
    marks: &'a [Mark<'a>],
) -> CapacityChart<'a> {
    CapacityChart {
        title: ATTACK,
        range,
        states: WorkerStates {
            busy: series,
            idle: series,
            booting: series,
            requested: series,
            leaving: series,
        },
        waiting: series,
        max: Some(series),
        refused: series,
        marks,
        moments: Some(MomentLinks {
            before: ATTACK,
            after: ATTACK,
        }),
    }
}

/// The series that a chart must survive.
fn all_series() -> Vec<(&'static str, Series)> {
    vec![
        ("none", minutes([])),
        ("one", minutes([7.0])),
        (
            "1,500",
            minutes((0..1_500).map(|number| f64::from(number % 37))),
        ),
        ("zeros", minutes([0.0; 360])),
        ("huge", minutes([f64::MAX, f64::MIN, f64::INFINITY, 1e-300])),
        ("no numbers", minutes([f64::NAN; 5])),
        (
            "gaps",
            Series {
                values: vec![Some(3.0), None, Some(9.0), None],
                ..minutes([])
            },
        ),
        (
            "long ago",
            Series {
                from_ms: 0,
                ..minutes([5.0; 10])
            },
        ),
        (
            "without a step",
            Series {
                step_ms: 0,
                ..minutes([5.0; 10])
            },
        ),
    ]
}

/// The values of an attribute in markup.
fn attributes<'a>(markup: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    let found = markup.split(start.as_str()).skip(1);
    found
        .map(|rest| rest.split('"').next().unwrap_or_default())
        .collect()
}

/// The points of a path, as absolute places.
fn points(path: &str) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let (mut x, mut y) = (0.0, 0.0);
    let mut rest = path;
    while let Some(command) = rest.chars().next() {
        let numbers = &rest[1..];
        let end = numbers.find(char::is_alphabetic).unwrap_or(numbers.len());
        let arguments: Vec<f64> = numbers[..end]
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        match command {
            'M' | 'L' => {
                for pair in arguments.chunks(2) {
                    (x, y) = (pair[0], pair[1]);
                    points.push((x, y));
                }
            }
            'h' => x += arguments[0],
            'v' => y += arguments[0],
            'H' => x = arguments[0],
            'V' => y = arguments[0],
            'z' | 'Z' => {}
            other => panic!("{other} in {path}"),
        }
        points.push((x, y));
        rest = &numbers[end..];
    }
    points
}

#[test]
fn every_shape_is_inside_its_box_whatever_the_data() {
    for range in [range(), TimeRange::new(0, i64::MAX), TimeRange::elapsed(1)] {
        for (name, series) in all_series() {
            for (chart, markup) in all_charts(range, &series) {
                let place = format!("{chart} of {name}");
                for attribute in ["x", "x1", "x2", "cx", "width"] {
                    for value in attributes(&markup, attribute) {
                        let Some(percent) = value.strip_suffix('%') else {
                            continue;
                        };
                        let percent: f64 = percent.parse().expect(&place);
                        assert!(
                            (0.0..=100.0).contains(&percent),
                            "{place}: {attribute}={value}"
                        );
                    }
                }
                for path in attributes(&markup, "d") {
                    for (x, y) in points(path) {
                        // Small marks around a point reach out of it.
                        assert!((-4.0..=2_000.0).contains(&x), "{place}: {path}");
                        assert!((-4.0..=514.0).contains(&y), "{place}: {path}");
                    }
                }
                assert!(
                    !markup.contains("NaN") && !markup.contains("inf"),
                    "{place}: {markup}"
                );
            }
        }
    }
}

#[test]
fn bars_do_not_reach_beyond_their_column() {
    for (_, markup) in all_charts(range(), &minutes((0..360).map(f64::from))) {
        let rects = markup.split("<rect ").skip(1);
        for rect in rects.map(|rest| rest.split('>').next().unwrap_or_default()) {
            let rect = format!(" {rect}");
            let number = |name| {
                let found = attributes(&rect, name).first().copied()?;
                found.strip_suffix('%')?.parse::<f64>().ok()
            };
            if let (Some(x), Some(width)) = (number("x"), number("width")) {
                assert!(x + width <= 100.02, "{rect}");
            }
        }
    }
}

#[test]
fn texts_of_others_stay_texts_and_nothing_is_inline() {
    for (chart, markup) in all_charts(range(), &minutes([3.0, 4.0])) {
        assert!(!markup.contains("<script"), "{chart}: {markup}");
        assert!(!markup.contains("\"'&"), "{chart}: {markup}");
        assert!(!markup.contains(" style="), "{chart}: {markup}");
    }
}

#[test]
fn every_picture_has_a_text() {
    for (chart, markup) in all_charts(range(), &minutes([3.0, 4.0])) {
        let pictures = markup.matches("<svg ").count();
        assert!(
            chart == "heat" || chart == "scrubber" || pictures > 0,
            "{chart}"
        );
        let mut depth = 0_usize;
        for part in markup.split('<') {
            let is_picture = part.starts_with("svg ");
            // Pieces within a picture are covered by its text.
            if is_picture && depth == 0 {
                let tag = part.split('>').next().unwrap_or_default();
                let is_told = tag.contains("role=\"img\"") && tag.contains("aria-label=\"");
                let is_told = is_told || tag.contains("aria-hidden=\"true\"");
                assert!(is_told, "{chart}: {tag}");
            }
            depth += usize::from(is_picture);
            depth -= usize::from(part.starts_with("/svg>"));
        }
        assert_eq!(depth, 0, "{chart}");
    }
}

#[test]
fn a_thousand_spark_lines_are_a_small_page() {
    let bytes: usize = (0..1_000_u32)
        .map(|number| {
            let wave = |minute: u32| f64::from((minute * 7 + number * 13) % 97 * (minute % 11));
            let (waiting, capacity) = (minutes((0..360).map(wave)), minutes((0..360).map(wave)));
            let line = SparkLine {
                waiting: &waiting,
                capacity: &capacity,
                ..spark(range(), &waiting)
            };
            line.render().into_string().len()
        })
        .sum();
    // Values that change in each column, which those of a fleet do not.
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn waiting_tasks_have_a_strip_of_their_own_if_the_scales_are_far_apart() {
    let drawn = |waiting: f64, busy: f64| {
        let (waiting, busy) = (minutes([waiting; 360]), minutes([busy; 360]));
        let none = minutes([0.0; 360]);
        let chart = capacity(range(), &none, &[]);
        let states = WorkerStates {
            busy: &busy,
            ..chart.states
        };
        let chart = CapacityChart {
            states,
            waiting: &waiting,
            max: None,
            ..chart
        };
        chart.render().into_string().contains("Waiting tasks</p>")
    };
    assert_eq!(
        [
            (10.0, 2_000.0),
            (2_000.0, 10.0),
            (200.0, 2_000.0),
            (0.0, 2_000.0),
            (5.0, 0.0)
        ]
        .map(|(waiting, busy)| drawn(waiting, busy)),
        [true, true, false, false, false]
    );
}

#[test]
fn bars_are_as_high_as_their_sums() {
    let (one, other) = (minutes([30.0, 0.0]), minutes([10.0, 20.0]));
    let range = TimeRange::new(MORNING_MS, MORNING_MS + 2 * MINUTE_MS);
    let bars = TimeBars {
        title: "Cost",
        range,
        unit: Unit::Money,
        gather: Gather::Sum,
        parts: &[
            BarPart {
                name: "useful",
                tone: Tone::Busy,
                series: &one,
            },
            BarPart {
                name: "failed",
                tone: Tone::Failed,
                series: &other,
            },
        ],
    };
    let markup = bars.render().into_string();
    let rects: Vec<&str> = markup.split("<rect class=\"").skip(1).collect();
    let heights: Vec<(String, f64)> = rects
        .into_iter()
        .filter_map(|rect| {
            let rect = format!(" class=\"{}", rect.split('>').next()?);
            let height = attributes(&rect, "height").first()?.parse().ok()?;
            Some((attributes(&rect, "class").first()?.to_string(), height))
        })
        .collect();
    // 40 dollars and a little room are 180 pixels.
    let pixels = |dollars: f64| (dollars / (40.0 * 1.04) * 180.0 * 10.0).round() / 10.0;
    assert_eq!(heights.len(), 3);
    assert_eq!(heights[0], ("c-busy".to_owned(), pixels(30.0)));
    assert!(
        (heights[0].1 + heights[1].1 - pixels(40.0)).abs() < 0.2,
        "{heights:?}"
    );
    assert_eq!(heights[2], ("h-fail".to_owned(), pixels(20.0)));
}

#[test]
fn the_board_names_columns_without_launches_instead_of_drawing_them() {
    let cell = |n_tried, n_failed| {
        Some(BoardCell {
            href: "/x",
            n_tried,
            n_failed,
            n_lost: 0.0,
            note: "",
        })
    };
    let board = Board {
        title: "Health",
        row_head: "Launch config",
        columns: &["one", "two", "three"],
        rows: &[BoardRow {
            name: "m5",
            href: None,
            cells: &[cell(100.0, 2.0), cell(0.0, 0.0), None],
        }],
    };
    let markup = board.render().into_string();
    assert_eq!(markup.matches("scope=\"col\"").count(), 2);
    assert!(markup.contains("Without launches: two, three."), "{markup}");
    // 2 of 100 are 40 % of a bar of 5 %.
    assert!(
        markup.contains("class=\"h-fail\" width=\"40%\""),
        "{markup}"
    );
}

#[test]
fn the_legend_has_the_values_at_the_cursor() {
    let (waiting, range) = (
        minutes([1.0, 1.0, 4.0]),
        range().at(MORNING_MS + 2 * MINUTE_MS),
    );
    let lines = [Line {
        name: "waiting",
        tone: Tone::Busy,
        is_dashed: false,
        series: &waiting,
    }];
    let chart = LineChart {
        title: "Tasks",
        range,
        unit: Unit::Count,
        ground: None,
        lines: &lines,
    };
    let markup = chart.render().into_string();
    assert!(markup.contains(">30 Nov, 08:02<"), "{markup}");
    assert!(
        markup.contains("<dd data-values=\"1*2|4|–*357\">4</dd>"),
        "{markup}"
    );
    assert!(
        markup.contains("Tasks. 30 Nov, 08:02: 4 waiting"),
        "{markup}"
    );
}

#[test]
fn a_spark_line_is_short() {
    let (waiting, capacity) = (minutes([0.0, 0.0, 5.0, 2.0]), minutes([2.0, 4.0, 4.0, 4.0]));
    let range = TimeRange::new(MORNING_MS, MORNING_MS + 4 * MINUTE_MS);
    let line = SparkLine {
        range,
        waiting: &waiting,
        capacity: &capacity,
        limit: Some(5.0),
    };
    insta::assert_snapshot!(line.render().into_string(), @r#"<svg class="sp" viewBox="0 0 96 26" preserveAspectRatio="none" role="img" aria-label="2 waiting, 4 workers, limit 5"><path class="c-area" d="M0 24V15h24v-9h72V24z"></path><path class="lim" d="M0 1h96"></path><path class="ln" d="M0 24h48v-23h24v14h24"></path></svg>"#);
}
