//! Lengths of time and shares, for people.

use crate::time::{MINUTE_MS, SECOND_MS};

/// `400 ms`, `9 s`, `2 min 31 s`, `3 h 05 min`
pub fn length(millis: i64) -> String {
    let (seconds, minutes) = (millis.max(0) / SECOND_MS, millis.max(0) / MINUTE_MS);
    match (minutes / 60, minutes % 60, seconds % 60) {
        (0, 0, 0) if millis > 0 => format!("{millis} ms"),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// A share of all, in percents without decimals.
pub fn percent(part: i64, all: i64) -> String {
    let (part, all) = (i128::from(part.max(0)), i128::from(all.max(1)));
    format!("{} %", (part * 100 + all / 2) / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_shares_are_as_precise_as_people_need() {
        let lengths = [-5, 0, 400, 9_999, 151_000, 11_100_000].map(length);
        assert_eq!(
            lengths,
            ["0 s", "0 s", "400 ms", "9 s", "2 min 31 s", "3 h 05 min",]
        );
        let shares = [percent(1, 3), percent(2, 3), percent(0, 0)];
        assert_eq!(shares, ["33 %", "67 %", "0 %"]);
    }
}
