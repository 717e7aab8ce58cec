//! Log records for people, one line each.
//!
//! Values may contain text from others. A line break in them must not begin a line that looks like
//! a record of ours, and no control character may reach a terminal.

use std::fmt::{self, Write as _};

use domain::text::is_harmful;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Writes `message name=value …`, with every control character of every value escaped.
pub(super) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let name = field.name().trim_start_matches("r#");
    // Readers of our log cannot use the place in the source of a library.
    if name.starts_with(LIBRARY_FIELDS) {
        return Ok(());
    }
    match (name, writer.has_ansi_escapes()) {
        ("message", _) => {}
        (name, true) => write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
        (name, false) => write!(writer, "{name}=")?,
    }
    write!(Escaped(writer), "{value:?}")
}

/// The names of fields that records of libraries have begin so.
const LIBRARY_FIELDS: &str = "log.";

struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(place) = rest.find(is_harmful) {
            let (harmless, dangerous) = rest.split_at(place);
            self.0.write_str(harmless)?;
            let mut characters = dangerous.chars();
            if let Some(character) = characters.next() {
                write!(self.0, "{}", character.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::lines::Lines;

    /// The log record with these fields.
    fn logged(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .fmt_fields(fields())
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        lines.text()
    }

    #[test]
    fn text_from_others_cannot_begin_a_line_or_reach_the_terminal() {
        let evil = "a\nERROR forged\r\u{1b}[31m\u{7}\u{85}\u{9b}\u{2028}\u{202e}\0é🦀";
        let all = logged(|| {
            let span = tracing::info_span!("request", id = %evil);
            let _in_span = span.enter();
            tracing::info!(title = %evil, kind = evil, debug = ?evil, "{evil} and {}", 1);
        });
        assert_eq!(all.matches('\n').count(), 1, "{all:?}");
        let line = all.trim_end_matches('\n');
        assert!(!line.chars().any(is_harmful), "{line:?}");
        let escaped = r"a\nERROR forged\r\u{1b}[31m\u{7}\u{85}\u{9b}\u{2028}\u{202e}\u{0}é🦀";
        for part in [
            format!("id={escaped}}}"),
            format!(": {escaped} and 1"),
            format!(" title={escaped} "),
        ] {
            assert!(line.contains(&part), "{part} in {line}");
        }
    }

    #[test]
    fn the_source_of_a_library_is_left_out() {
        let line = logged(|| {
            tracing::info!(
                log.target = "t",
                log.file = "/root/.cargo/x.rs",
                log.line = 1,
                "NOTICE"
            );
        });
        assert_eq!(line.trim(), "INFO NOTICE");
    }

    #[test]
    fn harmless_values_are_not_escaped() {
        let line =
            logged(|| tracing::warn!(pool.id = %"a/b", n = 3, text = "x y", "größe: {}", "ok"));
        assert_eq!(line.trim(), "WARN größe: ok pool.id=a/b n=3 text=\"x y\"");
    }
}
