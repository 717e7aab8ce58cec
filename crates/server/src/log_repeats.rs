//! Leaves out warnings and errors that repeat themselves, and counts them.
//!
//! While the database is away, many requests and background tasks fail in the same way. The log
//! must not fill a disk with that: it may be the disk whose lack of space is the cause.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// Lines that are remembered. Beyond it, lines are written each time.
const MAX_KNOWN: usize = 1_000;

/// Formats log records, apart from repetitions. The first line after a while has their number.
pub(crate) struct Repeats<F> {
    inner: F,
    format: LogFormat,
    known: Mutex<KnownLines>,
    /// The time since the start.
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
}

struct KnownLines {
    /// A line is written once in this time.
    interval: Duration,
    lines: HashMap<u64, KnownLine>,
}

struct KnownLine {
    written: Duration,
    n_left_out: u64,
}

impl<F> Repeats<F> {
    pub(crate) fn new(
        inner: F,
        format: LogFormat,
        interval: Duration,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let lines = HashMap::new();
        Self {
            inner,
            format,
            known: Mutex::new(KnownLines { interval, lines }),
            clock: Box::new(clock),
        }
    }
}

impl KnownLines {
    /// The number of repetitions that were left out since the line was written last. `None`: it is
    /// left out, too.
    fn admit(&mut self, line: u64, now: Duration) -> Option<u64> {
        let interval = self.interval;
        let is_recent = move |known: &KnownLine| now.saturating_sub(known.written) < interval;
        let n_left_out = match self.lines.get_mut(&line) {
            Some(known) if is_recent(known) => {
                known.n_left_out += 1;
                return None;
            }
            Some(known) => known.n_left_out,
            None => 0,
        };
        if self.lines.len() >= MAX_KNOWN {
            self.lines.retain(|_, known| is_recent(known));
        }
        if self.lines.len() < MAX_KNOWN {
            let (written, n_left_out) = (now, 0);
            self.lines.insert(
                line,
                KnownLine {
                    written,
                    n_left_out,
                },
            );
        }
        Some(n_left_out)
    }
}

impl<S, N, F> FormatEvent<S, N> for Repeats<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut n_left_out = 0;
        if *event.metadata().level() <= Level::WARN {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match known.admit(line_of(event), (self.clock)()) {
                Some(number) => n_left_out = number,
                None => return Ok(()),
            }
        }
        if n_left_out == 0 {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&with_count(&line, n_left_out, self.format))
    }
}

/// The place in the code and the message. The message has all that makes two records differ.
fn line_of(event: &Event<'_>) -> u64 {
    struct Message(DefaultHasher);

    impl Visit for Message {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                format!("{value:?}").hash(&mut self.0);
            }
        }
    }

    let mut message = Message(DefaultHasher::new());
    event.metadata().callsite().hash(&mut message.0);
    event.record(&mut message);
    message.0.finish()
}

/// The line with a further field: how often it was left out before.
fn with_count(line: &str, n_left_out: u64, format: LogFormat) -> String {
    let line = line.trim_end_matches('\n');
    match (format, line.strip_suffix('}')) {
        (LogFormat::Json | LogFormat::Taskcluster, Some(object)) => {
            format!("{object},\"n_left_out\":{n_left_out}}}\n")
        }
        (LogFormat::Json | LogFormat::Taskcluster | LogFormat::Pretty, _) => {
            format!("{line} n_left_out={n_left_out}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use testing::sizes_around;

    use super::*;
    use crate::telemetry::lines::Lines;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// The lines that this writes, which gets a function that sets the time in seconds.
    fn logged(format: LogFormat, log: impl FnOnce(&dyn Fn(u64))) -> Vec<String> {
        let (lines, now) = (Lines::default(), Arc::new(AtomicU64::new(0)));
        let (writer, clock) = (lines.clone(), Arc::clone(&now));
        let repeats = Repeats::new(
            tracing_subscriber::fmt::format()
                .without_time()
                .with_target(false),
            LogFormat::Pretty,
            INTERVAL,
            move || Duration::from_secs(clock.load(Ordering::SeqCst)),
        );
        let builder = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let set = |seconds| now.store(seconds, Ordering::SeqCst);
        match format {
            LogFormat::Pretty => {
                let subscriber = builder.event_format(repeats).finish();
                tracing::subscriber::with_default(subscriber, || log(&set));
            }
            LogFormat::Json | LogFormat::Taskcluster => {
                let builder = builder.json().flatten_event(true).without_time();
                let subscriber = builder.map_event_format(|inner| Repeats {
                    inner,
                    format,
                    known: repeats.known,
                    clock: repeats.clock,
                });
                tracing::subscriber::with_default(subscriber.finish(), || log(&set));
            }
        }
        let text = lines.text();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn fail(pool: &str) {
        tracing::error!(pool.id = pool, "cannot decide on {pool}");
    }

    #[test]
    fn a_repeated_line_is_written_once_in_a_while_and_counted() {
        let lines = logged(LogFormat::Pretty, |set| {
            for second in 0..25 {
                set(second);
                fail("a/b");
            }
        });
        assert_eq!(
            lines,
            [
                "ERROR cannot decide on a/b pool.id=\"a/b\"",
                "ERROR cannot decide on a/b pool.id=\"a/b\" n_left_out=9",
                "ERROR cannot decide on a/b pool.id=\"a/b\" n_left_out=9",
            ]
        );
    }

    #[test]
    fn a_line_that_differs_or_informs_is_always_written() {
        let lines = logged(LogFormat::Pretty, |_| {
            for _ in 0..3 {
                fail("a/b");
                tracing::info!("launched a worker");
            }
            fail("a/c");
            tracing::warn!("cannot decide on a/b");
        });
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("launched"), 3);
        assert_eq!(count("ERROR cannot decide on a/b"), 1);
        assert_eq!(count("ERROR cannot decide on a/c"), 1);
        assert_eq!(count("WARN cannot decide on a/b"), 1);
    }

    #[test]
    fn json_stays_json() {
        let lines = logged(LogFormat::Json, |set| {
            for second in 0..12 {
                set(second);
                fail("a/b");
            }
        });
        let parse = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let lines: Vec<_> = lines.iter().map(parse).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["n_left_out"], 9);
        assert_eq!(lines[1]["message"], "cannot decide on a/b");
    }

    fn known(interval: Duration) -> KnownLines {
        let lines = HashMap::new();
        KnownLines { interval, lines }
    }

    #[test]
    fn without_an_interval_all_lines_are_written() {
        let mut known = known(Duration::ZERO);
        for _ in 0..3 {
            assert_eq!(known.admit(1, Duration::ZERO), Some(0));
        }
    }

    #[test]
    fn a_bounded_number_of_lines_is_remembered_and_the_others_are_written() {
        for count in sizes_around("server::log_repeats::MAX_KNOWN", MAX_KNOWN) {
            let mut known = known(INTERVAL);
            let mut n_written = 0;
            for _ in 0..2 {
                for line in 0..count as u64 {
                    n_written += usize::from(known.admit(line, Duration::ZERO).is_some());
                }
            }
            assert_eq!(n_written, count + count.saturating_sub(MAX_KNOWN));
            assert!(known.lines.len() <= MAX_KNOWN);
            // Expired lines make room.
            assert_eq!(known.admit(u64::MAX, INTERVAL), Some(0));
            assert_eq!(known.admit(u64::MAX, INTERVAL), None);
        }
    }
}
