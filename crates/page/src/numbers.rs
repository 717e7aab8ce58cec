//! Numbers, durations, money and shares for readers: one format for pages and charts.

const SECOND_MS: f64 = 1_000.0;

/// At most two decimals, with separators: `1,234.5`.
pub(crate) fn plain(value: f64) -> String {
    thousands(&digits(value, 2))
}

/// A share of 1 in percent: `1.7 %`.
pub(crate) fn share(value: f64) -> String {
    if value > 0.0 && value < 0.000_5 {
        return "< 0.1 %".to_owned();
    }
    format!("{} %", thousands(&digits(value * 100.0, 1)))
}

/// Dollars, with as many digits as people read: `$0.034`, `$2.50`, `$2,913`.
pub(crate) fn dollars(value: f64) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    let size = value.abs();
    let text = if size == 0.0 {
        "0".to_owned()
    } else if size < 0.000_5 {
        return format!("{sign}< $0.001");
    } else if size < 1.0 {
        // Cents at least.
        let text = format!("{size:.3}");
        text.strip_suffix('0').map_or(text.clone(), str::to_owned)
    } else if size < 100.0 {
        format!("{size:.2}")
    } else {
        thousands(&format!("{size:.0}"))
    };
    format!("{sign}${text}")
}

/// Milliseconds in their two largest units: `850 ms`, `2.5 s`, `3 h 20 min`.
pub(crate) fn duration(milliseconds: f64) -> String {
    let sign = if milliseconds < 0.0 { "−" } else { "" };
    let magnitude = milliseconds.abs();
    if magnitude == 0.0 {
        return "0 s".to_owned();
    }
    if magnitude < SECOND_MS {
        return format!("{sign}{} ms", digits(magnitude, 0));
    }
    let seconds = (magnitude / SECOND_MS).round();
    if seconds < 10.0 {
        return format!("{sign}{} s", digits(magnitude / SECOND_MS, 1));
    }
    let part = |seconds: f64, large: f64, large_name: &str, small: f64, small_name: &str| {
        let first = (seconds / large).floor();
        let rest = ((seconds - first * large) / small).floor();
        let first = thousands(&digits(first, 0));
        if rest > 0.0 {
            format!("{sign}{first} {large_name} {rest:.0} {small_name}")
        } else {
            format!("{sign}{first} {large_name}")
        }
    };
    if seconds < 60.0 {
        format!("{sign}{seconds:.0} s")
    } else if seconds < 3_600.0 {
        part(seconds, 60.0, "min", 1.0, "s")
    } else if seconds < 86_400.0 {
        part(seconds, 3_600.0, "h", 60.0, "min")
    } else {
        part(seconds, 86_400.0, "d", 3_600.0, "h")
    }
}

/// At most this many decimals, and none that are zero.
pub(crate) fn digits(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if text == "-0" {
        "0".to_owned()
    } else {
        text.replacen('-', "−", 1)
    }
}

pub(crate) fn thousands(number: &str) -> String {
    let (number, sign) = match number.strip_prefix('−') {
        Some(rest) => (rest, "−"),
        None => (number, ""),
    };
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = sign.to_owned();
    for (place, digit) in whole.char_indices() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let seconds = [0.0, 0.85, 2.5, 59.6, 130.0, 7_500.0, 86_400.0, 100_000.0];
        let texts = seconds.map(|seconds| duration(seconds * SECOND_MS));
        let wanted = [
            "0 s",
            "850 ms",
            "2.5 s",
            "1 min",
            "2 min 10 s",
            "2 h 5 min",
            "1 d",
            "1 d 3 h",
        ];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn money_has_as_many_digits_as_people_read() {
        let texts = [0.0, 0.000_005, 0.034, 0.5, 2.5, 2_913.0, -3.0].map(dollars);
        let wanted = [
            "$0", "< $0.001", "$0.034", "$0.50", "$2.50", "$2,913", "−$3.00",
        ];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn numbers_have_separators_and_no_needless_decimals() {
        assert_eq!(
            [0.0, 1_234_567.0, 0.5].map(plain),
            ["0", "1,234,567", "0.5"]
        );
        assert_eq!(
            [0.0, 0.000_1, 0.017, 1.0].map(share),
            ["0 %", "< 0.1 %", "1.7 %", "100 %"]
        );
        assert_eq!(
            [digits(-0.001, 2), digits(10.0, 0), digits(1.50, 2)],
            ["0", "10", "1.5"]
        );
    }
}
