//! The charts of the pages.

use maud::{Markup, Render as _, html};
use page::charts::{
    BarPart, Bin, Board, BoardCell, BoardRow, CanaryChart, CanaryPoint, CapacityChart, FailureRate,
    Gather, Gauge, HeatMap, HeatRow, Histogram, Life, LifeLine, Line, LineChart, Mark, MarkKind,
    MomentLinks, Row, RowChart, RowShape, Scrubber, Segment, Series, ShareBar, SparkLine, TimeBars,
    TimeRange, Tone, Unit, WorkerStates, interval_of,
};

use crate::data::{HOUR_MS, MINUTE_MS, N_MINUTES, PoolSeries, START_MS, noise, pool};

fn range() -> TimeRange {
    TimeRange::new(START_MS, START_MS + N_MINUTES * MINUTE_MS)
}

pub(crate) fn usual() -> Markup {
    let build = pool(1, 120.0);
    html! {
        h2 { "Workers of a pool" }
        (capacity("proj-build/linux-large", range(), &build))
        (Scrubber { range: range(), step_ms: MINUTE_MS, label: "Time", keep: &[("pool", "a&b")] })
        h2 { "Spark lines" }
        (spark_table())
        h2 { "Cost by use" }
        (cost())
        h2 { "Waiting tasks by cause" }
        (causes())
        (bars())
        h2 { "Start-up by place" }
        (heat())
        h2 { "Health" }
        (board())
        h2 { "A task" }
        (task())
        h2 { "Start-up times" }
        (times())
        h2 { "Canary" }
        (canary())
        h2 { "Strategies" }
        (strategies())
    }
}

pub(crate) fn extreme() -> Markup {
    let small = PoolSeries {
        waiting: Series::new(
            START_MS,
            MINUTE_MS,
            (0..N_MINUTES).map(|it| noise(3, it) * 12.0),
        ),
        ..pool(2, 2_400.0)
    };
    let none = || Series::new(START_MS, MINUTE_MS, vec![0.0; 360]);
    let zero = PoolSeries {
        waiting: none(),
        busy: none(),
        idle: none(),
        booting: none(),
        requested: none(),
        leaving: none(),
        refused: none(),
        capacity: none(),
        limit: none(),
    };
    let empty = Series::default();
    let huge = Series::new(
        START_MS,
        MINUTE_MS,
        [1.0, f64::MAX, f64::NAN, 5e14, f64::INFINITY],
    );
    let single = Series::new(START_MS, HOUR_MS, [7.0]);
    let lines = |series| {
        LineChart {
            title: "Line",
            range: range(),
            unit: Unit::Count,
            ground: None,
            lines: &[Line {
                name: "value",
                tone: Tone::Busy,
                is_dashed: false,
                series,
            }],
        }
        .render()
    };
    html! {
        h2 { "Few tasks, many workers" } (capacity("proj-test/linux", range(), &small))
        h2 { "Only zeros" } (capacity("proj-old/none", range(), &zero))
        h2 { "Nothing recorded" } (lines(&empty))
        h2 { "Huge" } (lines(&huge))
        h2 { "One value" } (lines(&single))
        h2 { "Ninety days" } (ninety_days())
        h2 { "Script in a name" }
        (capacity("<script>alert(1)</script>\"'&", range(), &pool(4, 9.0)))
    }
}

fn capacity(title: &str, range: TimeRange, pool: &PoolSeries) -> Markup {
    let at = |minute: i64| START_MS + minute * MINUTE_MS;
    let mut marks = vec![Mark {
        at_ms: at(100),
        kind: MarkKind::Change,
        text: "limit raised to 120 by you@example.org",
        href: "#edit",
    }];
    let decisions = pool.requested.values.iter().zip(0..);
    let decisions = decisions.filter(|(n, _)| n.is_some_and(|n| n > 0.0));
    marks.extend(decisions.map(|(_, minute)| Mark {
        at_ms: at(minute),
        kind: MarkKind::Decision,
        text: "workers launched",
        href: "#decision",
    }));
    CapacityChart {
        title,
        range,
        states: WorkerStates {
            busy: &pool.busy,
            idle: &pool.idle,
            booting: &pool.booting,
            requested: &pool.requested,
            leaving: &pool.leaving,
        },
        waiting: &pool.waiting,
        max: Some(&pool.limit),
        refused: &pool.refused,
        marks: &marks,
        moments: Some(MomentLinks {
            before: "?at=",
            after: "",
        }),
    }
    .render()
}

fn spark_table() -> Markup {
    html! {
        div class="tw" role="region" aria-label="Pools" tabindex="0" { table {
            thead { tr { th { "Pool" } th { "6 h" } } }
            tbody {
                @for number in 1..=3 {
                    @let limit = (20.0 + 70.0 * noise(9, number)).round();
                    @let pool = pool(number, limit);
                    tr {
                        th scope="row" { "proj-" (number) "/linux" }
                        td {
                            (SparkLine {
                                range: range(), waiting: &pool.waiting, capacity: &pool.capacity,
                                limit: Some(limit),
                            })
                        }
                    }
                }
            }
        } }
    }
}

fn hourly(seed: i64, most: f64) -> Series {
    let values = (0..6).map(|hour| (noise(seed, hour) * most * 100.0).round() / 100.0);
    Series::new(
        START_MS - 31 * MINUTE_MS,
        HOUR_MS,
        values.chain([most / 2.0]),
    )
}

fn cost() -> Markup {
    let uses = [
        ("useful", Tone::Busy, hourly(21, 90.0)),
        ("starting", Tone::Booting, hourly(22, 12.0)),
        ("idle", Tone::Idle, hourly(23, 14.0)),
        ("leaving", Tone::Leaving, hourly(24, 4.0)),
        ("failed", Tone::Failed, hourly(25, 9.0)),
        ("lost", Tone::Lost, hourly(26, 7.0)),
    ];
    time_bars("Cost by use", Unit::Money, Gather::Sum, &uses)
}

fn time_bars(title: &str, unit: Unit, gather: Gather, parts: &[(&str, Tone, Series)]) -> Markup {
    let parts: Vec<BarPart<'_>> = parts
        .iter()
        .map(|(name, tone, series)| BarPart {
            name,
            tone: *tone,
            series,
        })
        .collect();
    TimeBars {
        title,
        range: range(),
        unit,
        gather,
        parts: &parts,
    }
    .render()
}

fn causes() -> Markup {
    let names = [
        "limit", "quota", "refused", "price", "budget", "paused", "image",
    ];
    let parts = names.iter().zip(0_i64..).map(|(name, number)| {
        let values = (0..N_MINUTES / 5).map(|it| {
            let level = noise(40 + number, it / 6);
            (level * level * 30.0).floor()
        });
        let series = Series::new(START_MS, 5 * MINUTE_MS, values);
        (
            *name,
            Tone::Category(usize::try_from(number).unwrap_or_default()),
            series,
        )
    });
    let parts: Vec<_> = parts.collect();
    time_bars("Waiting tasks by cause", Unit::Count, Gather::Peak, &parts)
}

fn bars() -> Markup {
    let parts = [
        ("useful", Tone::Busy, 4_312.0),
        ("starting", Tone::Booting, 527.0),
        ("idle", Tone::Idle, 440.0),
        ("failed", Tone::Failed, 160.0),
        ("lost", Tone::Lost, 90.0),
    ];
    html! {
        h2 { "Shares and budgets" }
        div class="bars" {
            (ShareBar { label: "Cost of proj-build", unit: Unit::Money, parts: &parts })
            (ShareBar { label: "Cost of nothing", unit: Unit::Money, parts: &[] })
            (Gauge {
                name: "Budget of November", unit: Unit::Money, used: 3_120.0, limit: 5_000.0,
                expected: Some(4_833.0),
            })
            (Gauge {
                name: "Budget of a day", unit: Unit::Money, used: 260.0, limit: 240.0,
                expected: None,
            })
            (Gauge {
                name: "Quota of aws us-east-1", unit: Unit::Count, used: 1_850.0, limit: 2_000.0,
                expected: None,
            })
        }
    }
}

fn heat() -> Markup {
    let places = [
        "mdc1",
        "aws us-east-1",
        "aws us-west-2",
        "google us-central1",
        "azure eastus",
    ];
    let rows: Vec<Vec<Option<f64>>> = (0..5)
        .map(|row| {
            let value = |column| 12_000.0 + 90_000.0 * noise(60 + row, column).powi(3);
            (0..6)
                .map(|column| (row != 0 || column < 4).then(|| value(column)))
                .collect()
        })
        .collect();
    let rows: Vec<HeatRow<'_>> = places
        .iter()
        .zip(&rows)
        .map(|(name, values)| HeatRow {
            name,
            href: Some("#place"),
            values,
        })
        .collect();
    HeatMap {
        title: "Start-up by place and hour",
        unit: Unit::Duration,
        row_head: "Place",
        columns: &["09:00", "10:00", "11:00", "12:00", "13:00", "14:00"],
        rows: &rows,
    }
    .render()
}

fn board() -> Markup {
    let cell = |n_tried, n_failed, n_lost, note| {
        Some(BoardCell {
            href: "#config",
            n_tried,
            n_failed,
            n_lost,
            note,
        })
    };
    let rows = [
        (
            "m5.large",
            [
                cell(1_204.0, 18.0, 4.0, ""),
                cell(48.0, 0.0, 0.0, ""),
                None,
                cell(0.0, 0.0, 0.0, ""),
            ],
        ),
        (
            "n2-standard-4",
            [
                None,
                cell(220.0, 3.0, 0.0, ""),
                cell(31.0, 19.0, 0.0, "shut off, next try 14:36"),
                cell(0.0, 0.0, 0.0, ""),
            ],
        ),
    ];
    let rows: Vec<BoardRow<'_>> = rows
        .iter()
        .map(|(name, cells)| BoardRow {
            name,
            href: Some("#config"),
            cells,
        })
        .collect();
    Board {
        title: "Launches by launch config and region",
        row_head: "Launch config",
        columns: &["us-east-1", "us-west-2", "eu-west-1", "ap-south-1"],
        rows: &rows,
    }
    .render()
}

fn task() -> Markup {
    let at = |second: i64| START_MS + second * 1_000;
    let segment = |from, to: Option<i64>, tone, name, text| Segment {
        from_ms: at(from),
        to_ms: to.map(at),
        tone,
        name,
        text,
        href: Some("#why"),
    };
    let first = [
        segment(0, Some(3), Tone::Ground, "pending", "a worker was idle"),
        segment(3, Some(24), Tone::Requested, "requested", "aws us-east-1"),
        segment(24, Some(108), Tone::Booting, "booting", "i-0abc"),
        segment(
            108,
            Some(1_098),
            Tone::Busy,
            "ran",
            "taken away by the cloud",
        ),
    ];
    let second = [
        segment(1_098, Some(1_200), Tone::Leaving, "pending", "retried"),
        segment(
            1_200,
            None,
            Tone::Failed,
            "quota",
            "google us-central1 has no quota",
        ),
    ];
    LifeLine {
        title: "Runs of the task",
        range: TimeRange::new(at(0), at(2_040)),
        lives: &[
            Life {
                name: "run 0",
                segments: &first,
            },
            Life {
                name: "run 1",
                segments: &second,
            },
        ],
    }
    .render()
}

fn times() -> Markup {
    let edges = [
        0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ];
    let counts = [0.0, 2.0, 40.0, 380.0, 912.0, 640.0, 210.0, 33.0, 4.0, 1.0];
    let bins: Vec<Bin> = edges
        .windows(2)
        .zip(counts)
        .map(|(ends, count)| Bin {
            from: ends[0] * 1e3,
            to: ends[1] * 1e3,
            count,
        })
        .collect();
    Histogram {
        title: "Time from decision to first claim",
        unit: Unit::Duration,
        tone: Tone::Booting,
        bins: &bins,
        quantiles: &[("median", 18_000.0), ("95 %", 52_000.0)],
    }
    .render()
}

fn canary() -> Markup {
    let points: Vec<CanaryPoint> = (0..24)
        .map(|number| CanaryPoint {
            at_ms: START_MS + number * 15 * MINUTE_MS,
            worse: if number > 8 { 0.3 } else { 0.0 },
            as_good: (noise(9, number) * 0.1) + number as f64 * 0.03,
        })
        .collect();
    let rate = |of, is_new, n_failed, n| FailureRate {
        of,
        is_new,
        n,
        n_failed,
        interval: interval_of(n_failed, n),
    };
    html! {
        (CanaryChart {
            title: "linux-amd64 212 against 211",
            range: range(),
            points: &points,
            rates: &[
                rate("starts", true, 1.0, 61.0),
                rate("starts", false, 11.0, 548.0),
                rate("tasks", true, 0.0, 0.0),
                rate("tasks", false, 3.0, 400.0),
            ],
        })
    }
}

fn strategies() -> Markup {
    let costs = [("cost", Tone::Busy, 412.0), ("delay", Tone::Idle, 160.0)];
    let cheaper = [("cost", Tone::Busy, 380.0), ("delay", Tone::Idle, 95.0)];
    let row = |group, name, shape, text| Row {
        group,
        name,
        href: None,
        shape,
        text,
    };
    let dot = |mean, low, high| RowShape::Dot {
        mean,
        interval: Some((low, high)),
        tone: Tone::Category(1),
    };
    html! {
        (RowChart {
            title: "Difference", unit: Unit::Percent, ends: (-0.05, 0.05),
            rows: &[
                row("steady", "weighted", dot(-0.12, -0.15, -0.09), "−12 ± 3 %"),
                row("burst", "weighted", dot(0.02, -0.03, 0.07), "+2 ± 5 %"),
            ],
        })
        (RowChart {
            title: "Cost and delay", unit: Unit::Money, ends: (0.0, 0.0),
            rows: &[
                row("", "first", RowShape::Bar { parts: &costs, interval: Some((540.0, 600.0)) }, "$572"),
                row("", "second", RowShape::Bar { parts: &cheaper, interval: None }, "$475"),
            ],
        })
        (RowChart {
            title: "Delay", unit: Unit::Duration, ends: (0.0, 0.0),
            rows: &[row(
                "", "first",
                RowShape::Quantiles { values: [8e3, 61e3, 140e3], tone: Tone::Busy },
                "1 min 1 s",
            )],
        })
    }
}

fn ninety_days() -> Markup {
    const DAY_MS: i64 = 24 * HOUR_MS;
    let range = TimeRange::new(START_MS - 90 * DAY_MS, START_MS);
    let values = (0..90).map(|day| 400.0 + 300.0 * noise(70, day));
    let useful = Series::new(START_MS - 90 * DAY_MS, DAY_MS, values);
    let parts = [BarPart {
        name: "useful",
        tone: Tone::Busy,
        series: &useful,
    }];
    let hours = (0..90 * 24).map(|hour| (noise(71, hour / 5) * 4_000.0).floor());
    let hours = Series::new(START_MS - 90 * DAY_MS, HOUR_MS, hours);
    let lines = [Line {
        name: "workers",
        tone: Tone::Busy,
        is_dashed: false,
        series: &hours,
    }];
    html! {
        (TimeBars { title: "Cost", range, unit: Unit::Money, gather: Gather::Sum, parts: &parts })
        (LineChart { title: "Workers", range, unit: Unit::Count, ground: None, lines: &lines })
    }
}
