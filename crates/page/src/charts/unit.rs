//! Texts of numbers, money, durations and shares.

use crate::numbers::{self, digits, thousands};

/// The kind of quantity that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Dollars.
    Money,
    /// Milliseconds.
    Duration,
    /// A share of 1.
    Percent,
    /// A number without a unit, such as evidence.
    Plain,
}

const SECOND_MS: f64 = 1_000.0;
const MINUTE_MS: f64 = 60.0 * SECOND_MS;
const HOUR_MS: f64 = 60.0 * MINUTE_MS;
const DAY_MS: f64 = 24.0 * HOUR_MS;

/// Larger values are drawn as this one.
const LARGEST: f64 = 1e15;

/// The value within the limits of a drawing. `None`: it is not a number.
pub(super) fn drawable(value: f64) -> Option<f64> {
    (!value.is_nan()).then(|| value.clamp(-LARGEST, LARGEST))
}

impl Unit {
    /// The value for a reader: `1,234`, `$12.30`, `2 min 10 s`, `1.7 %`.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        let Some(value) = drawable(value) else {
            return "–".to_owned();
        };
        match self {
            Self::Count | Self::Plain => numbers::plain(value),
            Self::Money => numbers::dollars(value),
            Self::Duration => numbers::duration(value),
            Self::Percent => numbers::share(value),
        }
    }

    /// The value beside an axis, as short as possible: `12k`, `$1.5M`, `2 h`.
    pub(super) fn label(self, value: f64) -> String {
        match self {
            Self::Count | Self::Plain => short(value),
            Self::Money if value < 0.0 => format!("−${}", short(-value)),
            Self::Money => format!("${}", short(value)),
            Self::Duration => {
                let magnitude = value.abs();
                let (size, name) = if magnitude >= DAY_MS {
                    (DAY_MS, "d")
                } else if magnitude >= HOUR_MS {
                    (HOUR_MS, "h")
                } else if magnitude >= MINUTE_MS {
                    (MINUTE_MS, "min")
                } else if magnitude >= SECOND_MS || magnitude == 0.0 {
                    (SECOND_MS, "s")
                } else {
                    (1.0, "ms")
                };
                format!("{} {name}", short(value / size))
            }
            Self::Percent => format!("{} %", short(value * 100.0)),
        }
    }

    /// The distance of round values, not shorter than this one.
    pub(super) fn round_step(self, rough: f64) -> f64 {
        match self {
            Self::Count => decimal_step(rough.max(1.0)),
            Self::Money | Self::Plain | Self::Percent => decimal_step(rough),
            Self::Duration => duration_step(rough),
        }
    }
}

fn decimal_step(rough: f64) -> f64 {
    let power = 10.0_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= rough);
    step.unwrap_or(10.0) * power
}

fn duration_step(rough: f64) -> f64 {
    const STEPS: [f64; 19] = [
        SECOND_MS,
        2.0 * SECOND_MS,
        5.0 * SECOND_MS,
        10.0 * SECOND_MS,
        15.0 * SECOND_MS,
        30.0 * SECOND_MS,
        MINUTE_MS,
        2.0 * MINUTE_MS,
        5.0 * MINUTE_MS,
        10.0 * MINUTE_MS,
        15.0 * MINUTE_MS,
        30.0 * MINUTE_MS,
        HOUR_MS,
        2.0 * HOUR_MS,
        3.0 * HOUR_MS,
        6.0 * HOUR_MS,
        12.0 * HOUR_MS,
        DAY_MS,
        2.0 * DAY_MS,
    ];
    if rough < SECOND_MS {
        return decimal_step(rough);
    }
    let known = STEPS.into_iter().find(|step| *step >= rough);
    known.unwrap_or_else(|| decimal_step(rough / DAY_MS) * DAY_MS)
}

fn short(value: f64) -> String {
    const SIZES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let magnitude = value.abs();
    let size = SIZES.into_iter().find(|(size, _)| magnitude >= *size);
    match size {
        // From 10,000 on, in thousands.
        Some((_, "k")) => format!("{}k", digits(value / 1e3, 1)),
        Some((size, name)) => format!("{}{name}", thousands(&digits(value / size, 1))),
        None if magnitude < 0.1 && magnitude > 0.0 => digits(value, 4),
        None => thousands(&digits(value, 2)),
    }
}
