//! The reasons of a plan while they are collected, with a limit.

/// Further reasons are only counted.
const MAX_REASONS: usize = 100;

#[derive(Default)]
pub(super) struct Notes {
    lines: Vec<String>,
    left_out: usize,
    alarms: Vec<String>,
    is_unserved: bool,
}

impl Notes {
    pub(super) fn add(&mut self, line: String) {
        if self.lines.len() < MAX_REASONS {
            self.lines.push(line);
        } else {
            self.left_out += 1;
        }
    }

    /// A situation that a person should look at.
    pub(super) fn alarm(&mut self, line: String) {
        if self.alarms.len() < MAX_REASONS {
            self.alarms.push(line);
        }
    }

    /// Tasks wait for which no launch config can ever be used.
    pub(super) fn unserved(&mut self, why: &'static str) {
        self.alarm(why.to_owned());
        self.is_unserved = true;
    }

    pub(super) fn is_unserved(&self) -> bool {
        self.is_unserved
    }

    pub(super) fn close(mut self) -> (Vec<String>, Option<String>) {
        if self.left_out > 0 {
            self.lines.push(format!("and {} more", self.left_out));
        }
        let alarm = (!self.alarms.is_empty()).then(|| self.alarms.join("; "));
        (self.lines, alarm)
    }
}

/// An amount of capacity: integers without, other numbers with at most two decimals.
pub(super) fn units(amount: f64) -> String {
    let text = format!("{amount:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_beyond_the_bound_are_counted() {
        let mut notes = Notes::default();
        for number in 0..103 {
            notes.add(number.to_string());
        }
        let (lines, alarm) = notes.close();
        assert_eq!(lines.len(), 101);
        assert_eq!(lines[100], "and 3 more");
        assert_eq!(alarm, None);
    }

    #[test]
    fn amounts_are_as_short_as_they_can_be() {
        let amounts = [0.0, 5.0, 100.0, 1.5, 62.25, -3.0];
        let texts = amounts.map(units);
        assert_eq!(texts, ["0", "5", "100", "1.5", "62.25", "-3"]);
    }
}
