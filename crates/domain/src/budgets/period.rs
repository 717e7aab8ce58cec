//! The periods of budgets: hours, days and months in UTC.

use ::time::{Date, Month, OffsetDateTime};

use crate::id::{names, text_in_json};
use crate::time::{DAY_MS, HOUR_MS, Timestamp};

/// For how long the amount of a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetPeriod {
    Hour,
    Day,
    Month,
}

names! {
    BudgetPeriod, "not a period of budgets (hour, day, month)",
    Hour = "hour",
    Day = "day",
    Month = "month",
}

text_in_json!(BudgetPeriod);

/// One hour, day or month. The end is the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodSpan {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl BudgetPeriod {
    /// `a day`, after an amount.
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Hour => "an hour",
            Self::Day => "a day",
            Self::Month => "a month",
        }
    }

    /// The period that contains this moment, in UTC.
    pub fn span(self, at: Timestamp) -> PeriodSpan {
        let fixed = |length_ms: i64| {
            let start = at.start_of(length_ms);
            PeriodSpan {
                start,
                end: start.plus_millis(length_ms),
            }
        };
        match self {
            Self::Hour => fixed(HOUR_MS),
            Self::Day => fixed(DAY_MS),
            // Every moment of a timestamp is in a month of the calendar.
            Self::Month => month_of(at).unwrap_or_else(|| fixed(30 * DAY_MS)),
        }
    }
}

fn month_of(at: Timestamp) -> Option<PeriodSpan> {
    let nanos = i128::from(at.as_millis()) * 1_000_000;
    let date = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?;
    let (year, month) = (date.year(), date.month());
    let next_year = match month == Month::December {
        true => year.checked_add(1)?,
        false => year,
    };
    Some(PeriodSpan {
        start: first_of(year, month)?,
        end: first_of(next_year, month.next())?,
    })
}

fn first_of(year: i32, month: Month) -> Option<Timestamp> {
    let first = Date::from_calendar_date(year, month, 1).ok()?;
    let seconds = first.midnight().assume_utc().unix_timestamp();
    Some(Timestamp::from_millis(seconds.checked_mul(1_000)?))
}

impl PeriodSpan {
    pub fn contains(&self, at: Timestamp) -> bool {
        self.start <= at && at < self.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(period: BudgetPeriod, at: &str) -> (String, String) {
        let span = period.span(at.parse().unwrap());
        (span.start.to_string(), span.end.to_string())
    }

    fn pair(start: &str, end: &str) -> (String, String) {
        let whole = |day: &str| format!("{day}:00:00.000Z");
        (whole(start), whole(end))
    }

    #[test]
    fn hours_days_and_months_begin_and_end_in_utc() {
        use BudgetPeriod::{Day, Hour, Month};
        let at = "2028-02-29T23:59:59.999Z";
        assert_eq!(span(Hour, at), pair("2028-02-29T23", "2028-03-01T00"));
        assert_eq!(span(Day, at), pair("2028-02-29T00", "2028-03-01T00"));
        assert_eq!(span(Month, at), pair("2028-02-01T00", "2028-03-01T00"));
        let end_of_year = "2026-12-31T23:59:59.999Z";
        assert_eq!(
            span(Month, end_of_year),
            pair("2026-12-01T00", "2027-01-01T00")
        );
        // In UTC it is the next day already.
        let zoned = "2026-11-30T23:30:00-02:00";
        assert_eq!(span(Month, zoned), pair("2026-12-01T00", "2027-01-01T00"));
    }

    #[test]
    fn the_last_moment_of_a_month_is_in_it_and_the_next_is_not() {
        let month = BudgetPeriod::Month.span("2026-04-17T12:00:00Z".parse().unwrap());
        assert!(month.contains(month.start) && month.contains(month.end.plus_millis(-1)));
        assert!(!month.contains(month.end) && !month.contains(month.start.plus_millis(-1)));
    }

    proptest! {
        #[test]
        fn every_moment_is_in_its_own_period(millis in -62_000_000_000_000_i64..253_000_000_000_000) {
            let at = Timestamp::from_millis(millis);
            for period in BudgetPeriod::ALL {
                let span = period.span(at);
                prop_assert!(span.contains(at));
                prop_assert_eq!(period.span(span.start), span);
                prop_assert_eq!(period.span(span.end).start, span.end);
            }
        }
    }
}
