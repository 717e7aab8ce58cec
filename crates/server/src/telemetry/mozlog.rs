//! The log format `taskcluster`: lines of JSON as Taskcluster's services write them.

use std::fmt;

use domain::time::Clock as _;
use engine::clock::SystemClock;
use engine::taskcluster_records::TARGET;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

const LOGGER: &str = "taskcluster.fleetwright";

/// Writes a record as one line of JSON.
pub(super) struct Mozlog {
    host: String,
    /// The time of this machine, in milliseconds since 1970.
    clock: fn() -> i64,
}

impl Mozlog {
    pub(super) fn new() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            host: host.trim().to_owned(),
            clock: || SystemClock.now().as_millis(),
        }
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.0.insert(field.name().to_owned(), json!(text));
    }
}

impl<S, N> FormatEvent<S, N> for Mozlog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = line(event, fields.0);
        if let Some(span) = context.lookup_current()
            && let Some(text) = span.extensions().get::<FormattedFields<N>>()
            && let Ok(Value::Object(of_span)) = serde_json::from_str(text)
            && let Some(fields) = line["Fields"].as_object_mut()
        {
            // Those of the request that caused the record.
            fields.extend(of_span);
        }
        line["Timestamp"] = json!((self.clock)().saturating_mul(1_000_000));
        line["Logger"] = json!(LOGGER);
        line["Hostname"] = json!(self.host);
        line["Pid"] = json!(std::process::id());
        line["EnvVersion"] = json!("2.0");
        writeln!(writer, "{line}")
    }
}

/// The type, the severity and the fields of a record.
fn line(event: &Event<'_>, mut fields: Map<String, Value>) -> Value {
    if event.metadata().target() == TARGET {
        let text = fields.get("record.fields").and_then(Value::as_str);
        let typed = text.and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok());
        let mut typed = typed.unwrap_or_default();
        let value = |name: &str| fields.get(name).cloned().unwrap_or_default();
        typed.insert("v".to_owned(), value("record.version"));
        return json!({
            "Type": value("record.kind"),
            "Severity": value("record.severity"),
            "Fields": typed,
        });
    }
    let (kind, severity) = match *event.metadata().level() {
        Level::ERROR => ("monitor.error", 3),
        Level::WARN => ("monitor.generic", 4),
        Level::INFO => ("monitor.generic", 6),
        Level::DEBUG | Level::TRACE => ("monitor.generic", 7),
    };
    let message = fields.remove("message");
    fields.insert("target".to_owned(), json!(event.metadata().target()));
    let mut line = json!({"Type": kind, "Severity": severity, "Fields": fields});
    if let Some(message) = message {
        line["Fields"]["message"] = message;
    }
    line
}

#[cfg(test)]
mod tests {
    use engine::taskcluster_records::{Record, Severity};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::telemetry::lines::Lines;

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn written(write: impl FnOnce()) -> Vec<Value> {
        let lines = Lines::default();
        let format = Mozlog {
            host: "host-1".to_owned(),
            clock: || 1_790_000_000_000,
        };
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(lines.clone())
            .event_format(format)
            .finish();
        tracing::subscriber::with_default(subscriber, write);
        let text = lines.text();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    #[test]
    fn a_record_of_a_type_has_its_fields() {
        let record = Record {
            kind: "worker-running",
            version: 2,
            severity: Severity::Notice,
            fields: json!({"workerId": "i-1\n\"quoted\"", "registrationDuration": 12}),
        };
        let [line] = written(|| record.write()).try_into().unwrap();
        let expected = json!({
            "Type": "worker-running",
            "Severity": 5,
            "Fields": {"workerId": "i-1\n\"quoted\"", "registrationDuration": 12, "v": 2},
            "Timestamp": 1_790_000_000_000_000_000_u64,
            "Logger": "taskcluster.fleetwright",
            "Hostname": "host-1",
            "Pid": std::process::id(),
            "EnvVersion": "2.0",
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn other_records_are_generic_or_errors() {
        let lines = written(|| {
            tracing::info!(pool.id = "a/b", n = 3, "three for {}", "a/b");
            let request = tracing::info_span!("request", request.id = "r-1");
            let _inside = request.enter();
            tracing::error!(error = "broken\nline", "cannot go on");
        });
        let [info, error] = lines.try_into().unwrap();
        assert_eq!(info["Type"], "monitor.generic");
        assert_eq!(info["Severity"], 6);
        assert_eq!(info["Fields"]["pool.id"], "a/b");
        assert_eq!(info["Fields"]["n"], 3);
        assert_eq!(info["Fields"]["message"], "three for a/b");
        assert_eq!(error["Type"], "monitor.error");
        assert_eq!(error["Severity"], 3);
        assert_eq!(error["Fields"]["error"], "broken\nline");
        assert_eq!(error["Fields"]["request.id"], "r-1");
        assert_eq!(info["Fields"].get("request.id"), None);
    }
}
