//! The verdict of a canary, in words.

use std::fmt;

use super::evidence::GroupEvidence;
use super::metric::CanaryMetric;
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// The starts of machines of the canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryStarts {
    /// Those that succeeded or failed.
    pub known: u32,
    pub all: u32,
}

/// The verdict of a canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryVerdict {
    Undecided {
        starts: CanaryStarts,
        /// After about this many more without a failure it is promoted. `None`: not in sight.
        more_starts: Option<u32>,
        /// False: machines started from the new image only, so nothing can be compared.
        has_control: bool,
    },
    /// It is as good as the image in use.
    Promote { starts: CanaryStarts },
    /// It is worse.
    RollBack {
        starts: CanaryStarts,
        /// Where it is worse.
        metric: CanaryMetric,
        canary: GroupEvidence,
        control: GroupEvidence,
    },
    /// The test took its longest time without a result: people are asked.
    Expired {
        starts: CanaryStarts,
        max_seconds: u32,
    },
}

impl fmt::Display for CanaryVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided {
                starts,
                more_starts,
                has_control,
            } => {
                write!(f, "Undecided after {}.", starts)?;
                match more_starts {
                    _ if !has_control => {
                        f.write_str(" No machine started from the image in use to compare with.")
                    }
                    Some(0) | None => Ok(()),
                    Some(more) => {
                        write!(
                            f,
                            " About {more} more without a failure and it is promoted."
                        )
                    }
                }
            }
            Self::Promote { starts } => write!(f, "as good after {}", starts),
            Self::RollBack {
                starts,
                metric,
                canary,
                control,
            } => {
                write!(f, "Worse after {}: ", starts)?;
                write_difference(f, *metric, canary, control)
            }
            Self::Expired {
                starts,
                max_seconds,
            } => {
                let limit = period(i64::from(*max_seconds) * SECOND_MS);
                write!(f, "Undecided after {} in {limit}", starts)
            }
        }
    }
}

/// Such as "4 of 24 never claimed, control 0.9 %".
fn write_difference(
    f: &mut fmt::Formatter<'_>,
    metric: CanaryMetric,
    canary: &GroupEvidence,
    control: &GroupEvidence,
) -> fmt::Result {
    let (text, failed, all, control_failed, control_all) = match metric {
        CanaryMetric::Starts => {
            let failures = |group: &GroupEvidence| {
                [group.never_registered, group.never_claimed, group.refused]
            };
            let texts = ["never registered", "never claimed", "refused"];
            let differences = failures(canary)
                .into_iter()
                .zip(failures(control))
                .zip(texts);
            let excess = |((failed, control_failed), _): &((u32, u32), &str)| {
                share(*failed, canary.decided()) - share(*control_failed, control.decided())
            };
            // The first of equal ones.
            let largest = differences
                .rev()
                .max_by(|one, other| excess(one).total_cmp(&excess(other)));
            let Some(((failed, control_failed), text)) = largest else {
                return Ok(());
            };
            (
                text,
                failed,
                canary.decided(),
                control_failed,
                control.decided(),
            )
        }
        CanaryMetric::Tasks => {
            let (failed, control_failed) = (canary.failed_runs, control.failed_runs);
            (
                "tasks failed",
                failed,
                canary.runs,
                control_failed,
                control.runs,
            )
        }
        CanaryMetric::ReadyTime => {
            let medians = (canary.ready_median_ms, control.ready_median_ms);
            return write_medians(f, "ready", medians);
        }
        CanaryMetric::TaskTime => {
            let medians = (canary.run_median_ms, control.run_median_ms);
            return write_medians(f, "tasks end", medians);
        }
    };
    let percent = 100.0 * share(control_failed, control_all);
    write!(f, "{failed} of {all} {text}, control {percent:.1} %")
}

/// Such as "ready in 95 s (median), control 74 s".
fn write_medians(
    f: &mut fmt::Formatter<'_>,
    text: &str,
    (canary, control): (Option<i64>, Option<i64>),
) -> fmt::Result {
    let seconds = |ms: Option<i64>| match ms {
        Some(ms) if ms < 10 * SECOND_MS => format!("{:.1} s", ms as f64 / SECOND_MS as f64),
        Some(ms) => format!("{} s", (ms + SECOND_MS / 2) / SECOND_MS),
        None => "an unknown time".to_owned(),
    };
    write!(
        f,
        "{text} in {} (median), control {}",
        seconds(canary),
        seconds(control)
    )
}

fn share(part: u32, all: u32) -> f64 {
    f64::from(part) / f64::from(all.max(1))
}

/// Such as "5 starts", or "5 known of 19 starts".
impl fmt::Display for CanaryStarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { known, all } = *self;
        if all > known {
            write!(f, "{known} known of ")?;
        }
        match all.max(known) {
            1 => f.write_str("1 start"),
            all => write!(f, "{all} starts"),
        }
    }
}

/// A period in its largest unit without a remainder.
fn period(ms: i64) -> String {
    let units = [(DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")];
    let fitting = units.into_iter().find(|(unit, _)| ms > 0 && ms % unit == 0);
    let (unit, name) = fitting.unwrap_or((SECOND_MS, "second"));
    match ms / unit {
        1 => format!("1 {name}"),
        n => format!("{n} {name}s"),
    }
}
