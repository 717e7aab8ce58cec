//! Round ticks and short texts.

use super::MORNING_MS;
use crate::charts::unit::Unit;
use crate::charts::value_axis::ValueAxis;
use crate::charts::{TimeRange, interval_of};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn labels(unit: Unit, low: f64, high: f64) -> Vec<String> {
    let axis = ValueAxis::between(low, high, unit, 5.0);
    axis.ticks.iter().map(|tick| unit.label(*tick)).collect()
}

#[test]
fn ticks_of_values_are_round() {
    assert_eq!(
        labels(Unit::Count, 0.0, 100.0),
        ["0", "20", "40", "60", "80", "100"]
    );
    assert_eq!(labels(Unit::Count, 0.0, 1.0), ["0", "1"]);
    assert_eq!(labels(Unit::Count, 0.0, 54_000.0), ["0", "20k", "40k"]);
    assert_eq!(
        labels(Unit::Money, 0.0, 0.07),
        ["$0", "$0.02", "$0.04", "$0.06"]
    );
    assert_eq!(
        labels(Unit::Money, -1_500.0, 600.0),
        ["−$1,500", "−$1,000", "−$500", "$0", "$500"]
    );
    assert_eq!(
        labels(Unit::Duration, 0.0, 100_000.0),
        ["0 s", "30 s", "1 min", "1.5 min"]
    );
    assert_eq!(
        labels(Unit::Duration, 0.0, 700.0),
        ["0 s", "200 ms", "400 ms", "600 ms"]
    );
    assert_eq!(
        labels(Unit::Percent, -0.41, 0.03),
        ["−40 %", "−30 %", "−20 %", "−10 %", "0 %"]
    );
}

#[test]
fn an_axis_of_extreme_values_has_few_ticks_and_places_everything_inside() {
    let extreme = [
        0.0,
        1.0,
        -1.0,
        1e-12,
        1e15,
        f64::MAX,
        f64::MIN,
        f64::NAN,
        f64::INFINITY,
    ];
    for low in extreme {
        for high in extreme {
            for unit in [
                Unit::Count,
                Unit::Money,
                Unit::Duration,
                Unit::Percent,
                Unit::Plain,
            ] {
                let axis = ValueAxis::between(low, high, unit, 5.0);
                assert!(axis.ticks.len() <= 12, "{low} to {high}: {:?}", axis.ticks);
                for value in extreme {
                    let place = axis.place(value);
                    assert!((0.0..=1.0).contains(&place), "{value} of {low} to {high}");
                }
            }
        }
    }
}

#[test]
fn an_axis_of_zeros_goes_up_to_one() {
    let axis = ValueAxis::from_zero([0.0, 0.0].into_iter(), Unit::Count, 4.0);
    assert_eq!((axis.low, axis.high), (0.0, 1.0));
    assert_eq!(axis.place(0.0), 0.0);
}

#[test]
fn values_are_written_for_readers() {
    let texts = |unit: Unit, values: &[f64]| {
        let texts = values.iter().map(|value| unit.text(*value));
        texts.collect::<Vec<_>>().join(" | ")
    };
    let counts = [0.0, 12.0, 1_234.0, 1_234_567.0, 0.5, f64::NAN];
    assert_eq!(
        texts(Unit::Count, &counts),
        "0 | 12 | 1,234 | 1,234,567 | 0.5 | –"
    );
    assert_eq!(texts(Unit::Money, &[12.3, -0.5]), "$12.30 | −$0.50");
    assert_eq!(texts(Unit::Duration, &[130_000.0]), "2 min 10 s");
    assert_eq!(texts(Unit::Percent, &[0.017, 1.0]), "1.7 % | 100 %");
}

#[test]
fn ticks_of_time_are_those_of_a_clock_and_of_a_calendar() {
    let labels = |range: TimeRange| {
        let labels = range.ticks().into_iter().map(|(_, label)| label);
        labels.collect::<Vec<_>>().join(" ")
    };
    let before = |ms| TimeRange::new(MORNING_MS - ms, MORNING_MS);
    assert_eq!(
        labels(before(20_000)),
        "07:59:40 07:59:45 07:59:50 07:59:55 08:00:00"
    );
    assert_eq!(
        labels(before(HOUR_MS)),
        "07:00 07:10 07:20 07:30 07:40 07:50 08:00"
    );
    assert_eq!(
        labels(before(DAY_MS)),
        "09:00 12:00 15:00 18:00 21:00 30 Nov 03:00 06:00"
    );
    assert_eq!(
        labels(before(40 * DAY_MS)),
        "22 Oct 29 Oct 5 Nov 12 Nov 19 Nov 26 Nov"
    );
    assert_eq!(labels(before(300 * DAY_MS)), "Mar May Jul Sep Nov");
    assert_eq!(
        labels(before(3 * 366 * DAY_MS)),
        "2024 Jul 2025 Jul 2026 Jul"
    );
    assert_eq!(
        labels(TimeRange::elapsed(10 * HOUR_MS)),
        "0 s 2 h 4 h 6 h 8 h 10 h"
    );
    assert_eq!(range_text(MORNING_MS + 61_000), "30 Nov, 08:01");
    assert_eq!(range_text(1_709_164_800_000), "29 Feb, 00:00");
}

fn range_text(at_ms: i64) -> String {
    super::range().text(at_ms)
}

#[test]
fn any_range_has_few_ticks_within_it() {
    let ends = [
        i64::MIN,
        -1,
        0,
        1,
        999,
        MORNING_MS,
        253_402_300_799_999,
        i64::MAX,
    ];
    for from_ms in ends {
        for to_ms in ends {
            for range in [TimeRange::new(from_ms, to_ms), TimeRange::elapsed(to_ms)] {
                let ticks = range.ticks();
                assert!(ticks.len() <= 10, "{range:?}: {ticks:?}");
                assert!(ticks.iter().all(|(at_ms, _)| range.contains(*at_ms)));
            }
        }
    }
}

#[test]
fn an_interval_contains_the_share_and_narrows_with_more_starts() {
    let width = |(low, high): (f64, f64)| high - low;
    assert_eq!(interval_of(0.0, 0.0), (0.0, 1.0));
    let (low, high) = interval_of(2.0, 10.0);
    assert!(
        low > 0.05 && low < 0.2 && high > 0.2 && high < 0.52,
        "{low} {high}"
    );
    assert!(width(interval_of(20.0, 100.0)) < width((low, high)));
    let none = interval_of(0.0, 30.0);
    assert!(none.0 == 0.0 && none.1 < 0.13, "{none:?}");
}
