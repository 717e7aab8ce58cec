//! The time range of a page: its ticks, its texts and its cursor.

use maud::{Markup, Render, html};

use super::unit::Unit;

/// The span of time that all charts of a page show, with the moment of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    from_ms: i64,
    to_ms: i64,
    at_ms: i64,
    /// Times are durations since the beginning, not times of a day.
    is_elapsed: bool,
}

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The end of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;

/// Distances of ticks: each is a multiple that people expect on a clock or in a calendar.
const STEPS_MS: [i64; 21] = [
    SECOND_MS,
    2 * SECOND_MS,
    5 * SECOND_MS,
    10 * SECOND_MS,
    15 * SECOND_MS,
    30 * SECOND_MS,
    MINUTE_MS,
    2 * MINUTE_MS,
    5 * MINUTE_MS,
    10 * MINUTE_MS,
    15 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    2 * HOUR_MS,
    3 * HOUR_MS,
    6 * HOUR_MS,
    12 * HOUR_MS,
    DAY_MS,
    2 * DAY_MS,
    7 * DAY_MS,
    14 * DAY_MS,
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

impl TimeRange {
    /// Times in UTC, in milliseconds since 1970. The cursor stands at the end.
    #[must_use]
    pub fn new(from_ms: i64, to_ms: i64) -> Self {
        let from_ms = from_ms.clamp(0, LAST_MS);
        let to_ms = to_ms.clamp(from_ms + 1, LAST_MS + 1);
        Self {
            from_ms,
            to_ms,
            at_ms: to_ms,
            is_elapsed: false,
        }
    }

    /// From 0 on: the axis shows how much time has passed.
    #[must_use]
    pub fn elapsed(to_ms: i64) -> Self {
        Self {
            is_elapsed: true,
            ..Self::new(0, to_ms)
        }
    }

    /// The same range with its cursor at this moment.
    #[must_use]
    pub fn at(self, at_ms: i64) -> Self {
        Self {
            at_ms: at_ms.clamp(self.from_ms, self.to_ms),
            ..self
        }
    }

    #[must_use]
    pub fn from_ms(self) -> i64 {
        self.from_ms
    }

    #[must_use]
    pub fn to_ms(self) -> i64 {
        self.to_ms
    }

    #[must_use]
    pub fn at_ms(self) -> i64 {
        self.at_ms
    }

    /// The place of a moment between 0 and 1. Moments outside are at the ends.
    pub(super) fn place(self, at_ms: i64) -> f64 {
        let from_start = at_ms.clamp(self.from_ms, self.to_ms) - self.from_ms;
        from_start as f64 / (self.to_ms - self.from_ms) as f64
    }

    pub(super) fn contains(self, at_ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }

    /// The name of the time zone, which stands beside the axis.
    pub(super) fn zone(self) -> &'static str {
        if self.is_elapsed { "" } else { "UTC" }
    }

    /// The moment for a reader: `30 Nov, 14:31`.
    pub(crate) fn text(self, at_ms: i64) -> String {
        if self.is_elapsed {
            return Unit::Duration.text(at_ms as f64);
        }
        let (_, month, day) = date(at_ms);
        let seconds = if self.to_ms - self.from_ms < HOUR_MS {
            format!(":{:02}", at_ms.div_euclid(SECOND_MS).rem_euclid(60))
        } else {
            String::new()
        };
        format!("{day} {month}, {}{seconds}", clock(at_ms))
    }

    /// Round moments with their labels, at most about nine.
    pub(super) fn ticks(self) -> Vec<(i64, String)> {
        let rough = (self.to_ms - self.from_ms) / 8;
        match STEPS_MS.into_iter().find(|step| *step >= rough) {
            Some(step) => self.regular_ticks(step),
            None if self.is_elapsed => {
                let step = Unit::Duration.round_step(rough as f64);
                let numbers = (0..).map(|number| f64::from(number) * step);
                let ticks = numbers.take_while(|at| *at <= self.to_ms as f64);
                ticks
                    .map(|at| (whole(at), Unit::Duration.label(at)))
                    .collect()
            }
            None => self.month_ticks(rough),
        }
    }

    fn regular_ticks(self, step: i64) -> Vec<(i64, String)> {
        let first = self.from_ms.div_euclid(step) * step;
        let all = (0..).map(|number| first + number * step);
        let ticks = all.take_while(|at_ms| *at_ms <= self.to_ms);
        let ticks = ticks.filter(|at_ms| *at_ms >= self.from_ms);
        ticks
            .map(|at_ms| (at_ms, self.label(at_ms, step)))
            .collect()
    }

    fn label(self, at_ms: i64, step: i64) -> String {
        if self.is_elapsed {
            return Unit::Duration.label(at_ms as f64);
        }
        let (_, month, day) = date(at_ms);
        if at_ms.rem_euclid(DAY_MS) == 0 {
            format!("{day} {month}")
        } else if step < MINUTE_MS {
            let seconds = at_ms.div_euclid(SECOND_MS).rem_euclid(60);
            format!("{}:{seconds:02}", clock(at_ms))
        } else {
            clock(at_ms)
        }
    }

    /// The first day of every month, or of each second, third or later one.
    fn month_ticks(self, rough: i64) -> Vec<(i64, String)> {
        let months = [1, 2, 3, 6, 12, 24, 60, 120, 600, 1_200, 6_000, 12_000];
        let step = months
            .into_iter()
            .find(|months| months * 31 * DAY_MS >= rough);
        let step = step.unwrap_or(12_000);
        let (year, _, _) = date(self.from_ms);
        let starts = (0..).map(|number| year * 12 + number * step);
        let starts = starts.map(|month| (month, month_start_ms(month)));
        let starts = starts.take_while(|(_, at_ms)| *at_ms <= self.to_ms);
        let starts = starts.filter(|(_, at_ms)| *at_ms >= self.from_ms);
        let labelled = starts.map(|(month, at_ms)| {
            let label = match usize::try_from(month.rem_euclid(12)).unwrap_or_default() {
                0 => (month / 12).to_string(),
                month => MONTHS[month].to_owned(),
            };
            (at_ms, label)
        });
        labelled.collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a moment within a range")]
fn whole(at_ms: f64) -> i64 {
    at_ms as i64
}

fn clock(at_ms: i64) -> String {
    let minutes = at_ms.div_euclid(MINUTE_MS);
    format!(
        "{:02}:{:02}",
        minutes.div_euclid(60).rem_euclid(24),
        minutes.rem_euclid(60)
    )
}

/// The year, month and day of a moment, by the usual arithmetic on the civil calendar.
fn date(at_ms: i64) -> (i64, &'static str, i64) {
    let days = at_ms.div_euclid(DAY_MS) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March here.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = usize::try_from((month + 2) % 12).unwrap_or_default();
    let year = era * 400 + year_of_era + i64::from(is_next_year);
    (year, MONTHS[month], day)
}

/// The beginning of a month, counted from the year 0.
fn month_start_ms(month: i64) -> i64 {
    let from_march = month - 2;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5;
    (era * 146_097 + day_of_era - 719_468) * DAY_MS
}

/// The field that moves the cursor of all charts. Without the script, its button loads the page
/// with the parameter `at`.
pub struct Scrubber<'a> {
    pub range: TimeRange,
    /// The time from one place to the next.
    pub step_ms: i64,
    /// The name of the field, for screen readers.
    pub label: &'a str,
    /// The other parameters of the page's address.
    pub keep: &'a [(&'a str, &'a str)],
}

impl Render for Scrubber<'_> {
    fn render(&self) -> Markup {
        let range = self.range;
        html! {
            form class="scrub" method="get" {
                @for (name, value) in self.keep {
                    input type="hidden" name=(name) value=(value);
                }
                input type="range" name="at" data-scrub min=(range.from_ms()) max=(range.to_ms())
                    step=(self.step_ms.max(1)) value=(range.at_ms()) aria-label=(self.label)
                    aria-valuetext=(range.text(range.at_ms()));
                button class="no-js" { "Show" }
            }
        }
    }
}
