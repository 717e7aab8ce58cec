//! Traces for a collector: the lives of machines with the runs on them, and requests.
//!
//! Spans are known when they have ended, and wait in a list until a background task sends them. The
//! ids of a machine's trace follow from its worker, so that all processes write into one trace.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use domain::id::WorkerKey;
use domain::task::EndReason;
use domain::time::Timestamp;
use engine::life_spans::{LifeObserver, LifePart, LifeSpan};
use engine::random::Random;
use metrics::counter;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use rand::RngExt as _;

use super::SPANS;
use crate::config::{ConfigError, TracesSettings, one_secret};

/// The header that names the trace of the caller (W3C Trace Context).
pub const TRACE_PARENT: &str = "traceparent";
/// Spans that wait at most; others are dropped and counted.
pub(crate) const MAX_WAITING: usize = 20_000;
/// Spans of one message.
pub(crate) const BATCH: usize = 500;
/// Messages of one activation; the next one goes on.
pub(crate) const MAX_BATCHES: usize = 20;
/// Bytes of a path that a span keeps.
const MAX_PATH: usize = 200;
const SEND_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("cannot send traces")]
    Exporter(#[from] ExporterBuildError),
    #[error("the settings of traces are not valid")]
    Config(#[from] ConfigError),
}

/// Spans on their way to the collector.
pub struct Traces {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    waiting: Mutex<VecDeque<SpanData>>,
    n_dropped: AtomicU64,
    requests: f64,
}

/// A request that was answered.
pub struct TracedRequest<'a> {
    pub name: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
}

impl Traces {
    /// `None`: no collector is configured.
    pub fn of(settings: &TracesSettings) -> Result<Option<Self>, TracesError> {
        let Some(endpoint) = &settings.endpoint else {
            return Ok(None);
        };
        let authorization = one_secret(None, settings.authorization_file.as_deref())?;
        let headers = authorization.map(|value| {
            let value = value.expose().to_owned();
            HashMap::from([("authorization".to_owned(), value)])
        });
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(SEND_LIMIT)
            .with_headers(headers.unwrap_or_default())
            .build()?;
        let version = env!("CARGO_PKG_VERSION");
        let resource = Resource::builder_empty()
            .with_service_name("fleetwright")
            .with_attribute(KeyValue::new("service.version", version))
            .build();
        exporter.set_resource(&resource);
        Ok(Some(Self {
            exporter,
            scope: InstrumentationScope::builder("fleetwright").build(),
            waiting: Mutex::default(),
            n_dropped: AtomicU64::new(0),
            requests: settings.requests,
        }))
    }

    /// Notes a request that has just been answered.
    pub fn request(
        &self,
        request: &TracedRequest<'_>,
        parent: Option<&str>,
        now: Timestamp,
        took: Duration,
        random: &Random,
    ) {
        let parent = parent.and_then(parse_parent);
        let (is_chosen, trace_id, span_id) = random.with(|chance| {
            let ids = (chance.random::<u128>(), chance.random::<u64>());
            (chance.random_bool(self.requests), ids.0, ids.1)
        });
        let is_wanted = parent.as_ref().is_some_and(SpanContext::is_sampled);
        if !is_chosen && !is_wanted {
            return;
        }
        let (until, status) = (system_time(now), i64::from(request.status));
        let trace_id = parent
            .as_ref()
            .map_or_else(|| TraceId::from(trace_id), SpanContext::trace_id);
        let parent_id = parent.map_or(SpanId::INVALID, |parent| parent.span_id());
        let mut span = self.span(trace_id, SpanId::from(span_id), parent_id);
        span.span_kind = SpanKind::Server;
        span.name = Cow::Owned(request.name.to_owned());
        (span.start_time, span.end_time) = (until - took, until);
        let path = &request.path[..request.path.floor_char_boundary(MAX_PATH)];
        span.attributes = vec![
            KeyValue::new("http.request.method", request.method.to_owned()),
            KeyValue::new("url.path", path.to_owned()),
            KeyValue::new("http.response.status_code", status),
        ];
        if request.status >= 500 {
            span.status = Status::error("the request ended with an error of the server");
        }
        self.add(span);
    }

    fn span(&self, trace_id: TraceId, span_id: SpanId, parent_id: SpanId) -> SpanData {
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::NONE);
        SpanData {
            span_context: SpanContext::new(trace_id, span_id, flags, false, state),
            parent_span_id: parent_id,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(""),
            start_time: UNIX_EPOCH,
            end_time: UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<SpanData>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, span: SpanData) {
        let mut waiting = self.waiting();
        if waiting.len() < MAX_WAITING {
            waiting.push_back(span);
        } else {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what waits. After a failure, the spans wait for the next call. Returns the number of
    /// those that were sent.
    pub(crate) async fn send(&self) -> Result<u64, String> {
        let n_dropped = self.n_dropped.swap(0, Ordering::Relaxed);
        if n_dropped > 0 {
            counter!(SPANS, "outcome" => "dropped").increment(n_dropped);
        }
        let mut n_sent = 0;
        for _ in 0..MAX_BATCHES {
            let batch: Vec<SpanData> = {
                let mut waiting = self.waiting();
                let count = waiting.len().min(BATCH);
                waiting.drain(..count).collect()
            };
            if batch.is_empty() {
                break;
            }
            if let Err(problem) = self.exporter.export(batch.clone()).await {
                let mut waiting = self.waiting();
                for span in batch.into_iter().rev() {
                    waiting.push_front(span);
                }
                return Err(problem.to_string());
            }
            n_sent += batch.len() as u64;
            counter!(SPANS, "outcome" => "sent").increment(batch.len() as u64);
        }
        Ok(n_sent)
    }

    #[cfg(test)]
    fn n_waiting(&self) -> usize {
        self.waiting().len()
    }
}

impl LifeObserver for Traces {
    fn observe(&self, observed: LifeSpan) {
        let LifeSpan {
            worker,
            part,
            since,
            until,
        } = observed;
        let (trace_id, root_id) = ids_of(&worker);
        let mut attributes = vec![
            KeyValue::new("fleetwright.pool", worker.pool_id.to_string()),
            KeyValue::new("fleetwright.worker_group", worker.group.to_string()),
            KeyValue::new("fleetwright.worker", worker.id.to_string()),
        ];
        let (name, own_id, parent_id, status) = match part {
            LifePart::Life {
                provider_id,
                launch_config_id,
                has_registered,
                end_reason,
            } => {
                attributes.push(KeyValue::new(
                    "fleetwright.provider",
                    provider_id.to_string(),
                ));
                let further = [
                    (
                        "fleetwright.launch_config",
                        launch_config_id.map(|id| id.to_string()),
                    ),
                    ("fleetwright.end_reason", end_reason),
                ];
                for (key, value) in further {
                    attributes.extend(value.map(|value| KeyValue::new(key, value)));
                }
                let status = if has_registered {
                    Status::Unset
                } else {
                    Status::error("it never registered")
                };
                ("worker", root_id, SpanId::INVALID, status)
            }
            LifePart::Step(phase) => {
                let own_id = span_id_of(&worker, phase.as_str());
                (phase.as_str(), own_id, root_id, Status::Unset)
            }
            LifePart::Run {
                task_id,
                run_id,
                end,
            } => {
                let own_id = span_id_of(&worker, &format!("{task_id}/{run_id}"));
                attributes.push(KeyValue::new("fleetwright.task", task_id.to_string()));
                attributes.push(KeyValue::new("fleetwright.run", i64::from(run_id)));
                let status = if end == EndReason::Completed {
                    Status::Ok
                } else {
                    Status::error(end.as_str())
                };
                ("run", own_id, root_id, status)
            }
        };
        let mut span = self.span(trace_id, own_id, parent_id);
        span.name = Cow::Borrowed(name);
        span.attributes = attributes;
        span.status = status;
        // After the clock was set back, a span may seem to end before it began.
        span.start_time = system_time(since.min(until));
        span.end_time = system_time(until);
        self.add(span);
    }
}

/// The trace of a worker, and the span of its life.
fn ids_of(worker: &WorkerKey) -> (TraceId, SpanId) {
    let digest = digest(&SHA256, format!("worker {worker}").as_bytes());
    let trace_id = digest.as_ref().first_chunk::<16>();
    let trace_id = TraceId::from_bytes(trace_id.copied().unwrap_or_default());
    (trace_id, span_id_of(worker, ""))
}

fn span_id_of(worker: &WorkerKey, part: &str) -> SpanId {
    let digest = digest(&SHA256, format!("span {worker} {part}").as_bytes());
    let id = digest.as_ref().first_chunk::<8>();
    SpanId::from_bytes(id.copied().unwrap_or_default())
}

fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0))
}

/// Reads `00-<trace>-<span>-<flags>`. A header of another form is ignored, as the standard wants.
fn parse_parent(header: &str) -> Option<SpanContext> {
    let parts: Vec<&str> = header.trim().split('-').collect();
    let [version, trace_id, span_id, flags, ..] = parts[..] else {
        return None;
    };
    let is_hex = |text: &str, length: usize| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == length && text.bytes().all(digit)
    };
    let fits = is_hex(version, 2)
        && version != "ff"
        && (version != "00" || parts.len() == 4)
        && is_hex(trace_id, 32)
        && is_hex(span_id, 16)
        && is_hex(flags, 2);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(
        TraceId::from_hex(trace_id).ok()?,
        SpanId::from_hex(span_id).ok()?,
        flags,
        true,
        TraceState::NONE,
    );
    (fits && context.is_valid()).then_some(context)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use domain::phases::Phase;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use testing::sizes_around;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn traces(requests: f64) -> Traces {
        traces_to("http://127.0.0.1:1", requests)
    }

    fn traces_to(endpoint: &str, requests: f64) -> Traces {
        let settings = TracesSettings {
            endpoint: Some(endpoint.to_owned()),
            authorization_file: None,
            requests,
        };
        Traces::of(&settings).unwrap().unwrap()
    }

    fn step() -> LifeSpan {
        LifeSpan {
            worker: WorkerKey {
                pool_id: "a/b".parse().unwrap(),
                group: "g".parse().unwrap(),
                id: "w".parse().unwrap(),
            },
            part: LifePart::Step(Phase::Registered),
            since: Timestamp::from_millis(2_000),
            until: Timestamp::from_millis(1_000),
        }
    }

    fn ping() -> TracedRequest<'static> {
        TracedRequest {
            name: "queue.ping",
            method: "GET",
            path: "/api/queue/v1/ping",
            status: 200,
        }
    }

    fn ask(traces: &Traces, parent: Option<&str>) {
        let request = ping();
        let now = Timestamp::from_millis(5_000);
        let random = Random::new(StdRng::seed_from_u64(7));
        traces.request(&request, parent, now, Duration::from_millis(20), &random);
    }

    #[test]
    fn spans_of_a_worker_belong_to_one_trace_whoever_writes_them() {
        let (one, other) = (traces(0.0), traces(0.0));
        for traces in [&one, &other] {
            traces.observe(step());
        }
        let (one, other) = (one.waiting().pop_front(), other.waiting().pop_front());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.span_context, other.span_context);
        let (trace_id, root_id) = ids_of(&step().worker);
        assert_eq!(one.span_context.trace_id(), trace_id);
        assert_eq!(one.parent_span_id, root_id);
        assert_ne!(one.span_context.span_id(), root_id);
        assert!(one.start_time <= one.end_time);
    }

    #[test]
    fn a_share_of_requests_is_traced_and_those_of_a_traced_caller() {
        let of_caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let not_sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let none = traces(0.0);
        for parent in [None, Some(not_sampled), Some("nonsense")] {
            ask(&none, parent);
        }
        assert_eq!(none.n_waiting(), 0);
        ask(&none, Some(of_caller));
        let span = none.waiting().pop_front().unwrap();
        let trace_id = span.span_context.trace_id().to_string();
        assert_eq!(trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        let all = traces(1.0);
        (0..3).for_each(|_| ask(&all, None));
        assert_eq!(all.n_waiting(), 3);
    }

    #[test]
    fn a_span_keeps_the_start_of_a_long_path() {
        let traces = traces(1.0);
        for length in sizes_around("server::telemetry::traces::MAX_PATH", MAX_PATH) {
            let kept = length.min(MAX_PATH) as u64;
            for (text, bytes) in [("a", kept), ("é", kept - kept % 2)] {
                let path = text.repeat(length / text.len());
                let path = path.as_str();
                let request = TracedRequest { path, ..ping() };
                let random = Random::new(StdRng::seed_from_u64(7));
                traces.request(
                    &request,
                    None,
                    Timestamp::from_millis(0),
                    Duration::ZERO,
                    &random,
                );
                let span = traces.waiting().pop_front().unwrap();
                let known = span
                    .attributes
                    .into_iter()
                    .find(|known| known.key.as_str() == "url.path");
                let shown = known.unwrap().value.to_string();
                assert_eq!(shown.len() as u64, bytes.min(path.len() as u64));
                assert!(path.starts_with(&shown));
            }
        }
    }

    #[test]
    fn other_forms_of_the_header_are_ignored() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for wrong in [
            String::new(),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{trace}-é0f067aa0ba902b7-01"),
        ] {
            assert!(parse_parent(&wrong).is_none(), "{wrong}");
        }
        let later = format!("01-{trace}-00f067aa0ba902b7-01-more");
        assert!(parse_parent(&later).is_some());
    }

    #[test]
    fn spans_beyond_the_limit_are_dropped() {
        for count in sizes_around("server::telemetry::traces::MAX_WAITING", MAX_WAITING) {
            let traces = traces(0.0);
            (0..count).for_each(|_| traces.observe(step()));
            assert_eq!(traces.n_waiting(), count.min(MAX_WAITING));
            let n_dropped = traces.n_dropped.load(Ordering::Relaxed);
            assert_eq!(n_dropped, count.saturating_sub(MAX_WAITING) as u64);
        }
    }

    /// A collector that counts messages.
    async fn collector() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(take_messages(BufReader::new(stream), counted));
            }
        });
        (url, count)
    }

    async fn take_messages(mut stream: BufReader<TcpStream>, count: Arc<AtomicUsize>) {
        let mut length = 0;
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            let header = line.trim().to_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.is_empty() {
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
            line.clear();
        }
    }

    async fn sent(n_spans: usize) -> (u64, usize) {
        let (url, count) = collector().await;
        let traces = traces_to(&url, 0.0);
        (0..n_spans).for_each(|_| traces.observe(step()));
        let n_sent = traces.send().await.unwrap();
        (n_sent, count.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_message_has_some_spans_and_a_call_sends_some_messages() {
        for count in sizes_around("server::telemetry::traces::BATCH", BATCH) {
            let expected = (count as u64, count.div_ceil(BATCH));
            assert_eq!(sent(count).await, expected);
        }
        for messages in sizes_around("server::telemetry::traces::MAX_BATCHES", MAX_BATCHES) {
            let made = messages.min(MAX_BATCHES);
            let expected = ((made * BATCH) as u64, made);
            assert_eq!(sent(messages * BATCH).await, expected);
        }
    }

    #[tokio::test]
    async fn spans_wait_while_the_collector_is_away() {
        let traces = traces(0.0);
        traces.observe(step());
        traces.send().await.unwrap_err();
        assert_eq!(traces.n_waiting(), 1);
    }
}
