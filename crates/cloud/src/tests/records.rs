//! Keeps the log records of this thread, to compare them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Metadata, Subscriber};

use crate::{Record, Severity, TARGET};

#[derive(Clone, Default)]
pub(crate) struct WrittenRecords(Arc<Mutex<Vec<Value>>>);

impl WrittenRecords {
    /// Keeps them until the guard is dropped.
    pub(crate) fn keep() -> (Self, DefaultGuard) {
        let records = Self::default();
        let guard = tracing::subscriber::set_default(records.clone());
        // A thread without a subscriber may have been the first to write a record: then none is
        // wanted, until the interest is asked for again.
        let first = Record::first("first", Severity::Debug, Value::Null);
        while records.0.lock().unwrap().is_empty() {
            tracing::callsite::rebuild_interest_cache();
            first.write();
        }
        (records, guard)
    }

    /// Those of a kind, in their order, and forgets all.
    pub(crate) fn take(&self, kind: &str) -> Vec<Value> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        let of_kind = all.into_iter().filter(|record| record["kind"] == kind);
        of_kind.map(|mut record| record["fields"].take()).collect()
    }
}

/// The fields of an event.
struct Fields(Value);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "record.kind" {
            self.0["kind"] = json!(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "record.fields" {
            self.0["fields"] = serde_json::from_str(&format!("{value:?}")).unwrap();
        }
    }
}

impl Subscriber for WrittenRecords {
    /// Other threads keep other records.
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(json!({}));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
