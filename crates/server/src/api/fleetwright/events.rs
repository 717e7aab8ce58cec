//! The live stream of events, as server-sent events.
//!
//! Each listener has a position in the stream and reads from there: from memory if possible, else
//! from the store. So a slow listener misses nothing and costs no memory. Only expired events are
//! missed, and the listener is notified of that.

use std::sync::Arc;
use std::time::Duration;

use access::scope::ScopeSet;
use bytes::{Bytes, BytesMut};
use domain::time::{MINUTE_MS, Timestamp};
use futures_util::stream;
use serde_json::json;
use store::{StoreError, Tx, events};
use tokio::sync::watch;

use crate::api::{
    call::Call,
    error::{ApiError, Code},
    reply::Reply,
};
use crate::app::App;
use crate::events::{EventSubject, StreamEvent, frame};

pub(super) const CONTENT_TYPE: &str = "text/event-stream";
/// A silent connection is used at least this often, so that proxies do not close it.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// After this time the listener must reconnect and send its credentials again.
const MAX_LISTENING_MS: i64 = 15 * MINUTE_MS;
/// How long a client should wait before it reconnects.
const COME_AGAIN_MS: u32 = 500;
/// Maximum number of events that are examined at once.
const PAGE: u32 = 200;
/// Maximum bytes of events that are sent at once, except for a single larger event.
const PIECE_BYTES: usize = 256 * 1024;
/// How long a listener that does not follow the stream waits until the events that were committed
/// before its request are in it.
const IN_STREAM_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of exchanges in the `exchange` filter.
const MAX_EXCHANGES: usize = 50;

pub(super) async fn listen(call: Call) -> Result<Reply, ApiError> {
    let filter = Filter::of(&call)?;
    let from = From::of(&call)?;
    let follows = call.query("follow") != Some("false");
    if !follows {
        let arrived = await_committed(&call.app);
        // Later than that, it gets what is in the stream.
        if let Ok(failed) = tokio::time::timeout(IN_STREAM_WITHIN, arrived).await {
            failed?;
        }
    }
    let start = call.read("event_start", move |tx| from.place(tx)).await?;
    let expires = call.caller.as_ref().map(|caller| caller.expires);
    let until = call.now.plus_millis(MAX_LISTENING_MS);
    let listener = Listener {
        scopes: call.scopes(),
        filter,
        position: start.position,
        head: call.app.events.listen(),
        until: expires.map_or(until, |expires| expires.min(until)),
        follows,
        first: Some(start.greeting()),
        is_over: false,
        app: call.app,
    };
    let frames = stream::unfold(listener, async |mut listener| {
        let next = listener.next().await?;
        Some((next, listener))
    });
    Ok(Reply::stream(CONTENT_TYPE, Box::pin(frames)))
}

/// Returns once all events that are committed now are in the stream, and in the memory of this
/// process. Otherwise a caller might miss the event of its own change.
async fn await_committed(app: &App) -> Result<(), StoreError> {
    let (store, mut head) = (&app.engine.store, app.events.listen());
    let Some(last) = store.read("event_start", events::last_waiting).await? else {
        return await_head(app, head).await;
    };
    while let Some(first) = store.read("event_start", events::first_waiting).await?
        && first <= last
        && head.changed().await.is_ok()
    {}
    await_head(app, head).await
}

/// Returns once this process has read all events that have positions now.
async fn await_head(app: &App, mut head: watch::Receiver<i64>) -> Result<(), StoreError> {
    let stored = app.engine.store.read("event_start", events::head).await?;
    // It fails when the server stops.
    let _ = head.wait_for(|head| *head >= stored).await;
    Ok(())
}

/// The filter of a listener.
#[derive(Default)]
struct Filter {
    /// Empty: all.
    exchanges: Vec<String>,
    pool: Option<String>,
    worker_group: Option<String>,
    worker_id: Option<String>,
    task: Option<String>,
    task_group: Option<String>,
    since: Option<Timestamp>,
}

impl Filter {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let text = |name| call.query(name).map(str::to_owned);
        let exchanges: Vec<String> = call
            .query("exchange")
            .map(|list| list.split(',').map(last_part).map(str::to_owned).collect())
            .unwrap_or_default();
        if exchanges.len() > MAX_EXCHANGES {
            let problem = format!("`exchange` names more than {MAX_EXCHANGES} exchanges");
            return Err(ApiError::new(Code::InvalidRequestArguments, problem));
        }
        Ok(Self {
            exchanges,
            pool: text("workerPoolId"),
            worker_group: text("workerGroup"),
            worker_id: text("workerId"),
            task: text("taskId"),
            task_group: text("taskGroupId"),
            since: since(call)?,
        })
    }

    fn wants(&self, event: &StreamEvent) -> bool {
        let EventSubject {
            exchange,
            pool,
            worker_group,
            worker_id,
            task,
            task_group,
            ..
        } = &event.about;
        let is =
            |wanted: &Option<String>, given: &Option<String>| wanted.is_none() || wanted == given;
        (self.exchanges.is_empty() || self.exchanges.contains(exchange))
            && is(&self.pool, pool)
            && is(&self.worker_group, worker_group)
            && is(&self.worker_id, worker_id)
            && is(&self.task, task)
            && is(&self.task_group, task_group)
            && self.since.is_none_or(|since| event.created >= since)
    }
}

/// Exchanges may be given by their full names, too.
fn last_part(exchange: &str) -> &str {
    exchange.rsplit('/').next().unwrap_or(exchange)
}

/// Where to begin.
enum From {
    Now,
    /// After the last event that the listener has seen.
    After(i64),
    Since(Timestamp),
}

impl From {
    /// The client's `Last-Event-ID` has precedence over the query of its first URL.
    fn of(call: &Call) -> Result<Self, ApiError> {
        let after = call.last_event_id.as_deref().or(call.query("after"));
        if let Some(after) = after {
            let after = after.parse().ok().filter(|place| *place >= 0);
            let problem = "Last-Event-ID and `after` are the `id` of a message of this stream";
            return after
                .map(Self::After)
                .ok_or_else(|| ApiError::new(Code::InvalidRequestArguments, problem));
        }
        Ok(since(call)?.map_or(Self::Now, Self::Since))
    }

    fn place(&self, tx: &mut Tx<'_>) -> Result<Start, StoreError> {
        let head = events::head(tx)?;
        let (position, wanted) = match self {
            Self::Now => (head, None),
            // The order of events is only nearly that of their times, so the filter decides.
            Self::Since(time) => {
                let margin = time.plus_millis(-MINUTE_MS);
                (events::position_before(tx, margin)?, None)
            }
            Self::After(place) => {
                let first = events::time_after(tx, 0)?.map_or(head + 1, |(first, _)| first);
                ((*place).clamp(first - 1, head), Some(*place))
            }
        };
        Ok(Start { position, wanted })
    }
}

fn since(call: &Call) -> Result<Option<Timestamp>, ApiError> {
    let parse = |text: &str| {
        let problem = format!("`since` is a time like {}, not {text:?}", call.now);
        text.parse()
            .map_err(|_| ApiError::new(Code::InvalidRequestArguments, problem))
    };
    call.query("since").map(parse).transpose()
}

struct Start {
    position: i64,
    /// The position of the listener's last connection, if any.
    wanted: Option<i64>,
}

impl Start {
    fn greeting(&self) -> Bytes {
        let mut text = BytesMut::from(format!("retry: {COME_AGAIN_MS}\n\n").as_bytes());
        // Zero means the first stored event.
        if let Some(wanted) = self.wanted.filter(|wanted| *wanted > 0)
            && wanted != self.position
        {
            text.extend_from_slice(&missed(wanted, self.position));
        }
        text.extend_from_slice(&frame(Some(self.position), None, None));
        text.freeze()
    }
}

/// Notifies a listener that the events after one position have expired.
fn missed(after: i64, until: i64) -> Bytes {
    let places = json!({"after": after, "until": until});
    frame(Some(until), Some("missed"), Some(&places))
}

struct Listener {
    app: Arc<App>,
    scopes: Arc<ScopeSet>,
    filter: Filter,
    /// The last event that was examined.
    position: i64,
    head: watch::Receiver<i64>,
    until: Timestamp,
    follows: bool,
    first: Option<Bytes>,
    is_over: bool,
}

impl Listener {
    /// The next bytes to send; `None` at the end of the stream.
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        if self.is_over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            if self.app.engine.clock.now() >= self.until {
                return self.goodbye("reconnect with your credentials");
            }
            let seen = self.position;
            if self.app.events.head().saturating_sub(seen) > i64::from(PAGE) {
                self.app.events.catch_up.turn().await;
            }
            match self.look().await {
                Ok(found) if !found.is_empty() => return Some(Ok(found)),
                Ok(_) => {}
                Err(problem) => {
                    tracing::warn!(error = %problem, "disconnecting a listener to events: \
                                                      {problem}");
                    return self.goodbye("the events cannot be read at the moment");
                }
            }
            let n_examined = self.position - seen;
            // No event of a full page matched. The position shows that the connection lives, and
            // the listener resumes here.
            if n_examined >= i64::from(PAGE) {
                return Some(Ok(frame(Some(self.position), None, None)));
            }
            if n_examined > 0 {
                continue;
            }
            if !self.follows {
                return self.goodbye("these were all");
            }
            let position = self.position;
            let news = self.head.wait_for(|head| *head > position);
            match tokio::time::timeout(HEARTBEAT, news).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return None,
                // The position is sent along, so that a listener with few matches resumes near the
                // end.
                Err(_) => return Some(Ok(frame(Some(position), None, None))),
            }
        }
    }

    /// The matching ones among the next events.
    async fn look(&mut self) -> Result<Bytes, StoreError> {
        let mut found = BytesMut::new();
        let events = match self.app.events.after(self.position, PAGE as usize) {
            Some(events) => events.into(),
            None => self.read(&mut found).await?,
        };
        for event in &*events {
            if event.position > self.position + 1 {
                found.extend_from_slice(&missed(self.position, event.position - 1));
            }
            self.position = event.position;
            if self.filter.wants(event) && event.about.may_be_heard_with(&self.scopes) {
                found.extend_from_slice(&event.frame);
            }
            if found.len() >= PIECE_BYTES {
                break;
            }
        }
        Ok(found.freeze())
    }

    /// Events from the store alone. If they have expired, the listener is notified and continues
    /// after them.
    async fn read(&mut self, found: &mut BytesMut) -> Result<Arc<[Arc<StreamEvent>]>, StoreError> {
        let (position, head) = (self.position, self.app.events.head());
        // The messages are made there, too, on a thread that leaves the processor to others.
        let read = self.app.engine.store.survey("event_list_after", move |tx| {
            let rows = events::list_after(tx, position, PAGE)?.items;
            let events = rows.iter().map(|row| Arc::new(StreamEvent::new(row)));
            Ok::<_, StoreError>(events.collect())
        });
        let page = self.app.events.catch_up.page(position, read).await?;
        if page.is_empty() && head > position {
            found.extend_from_slice(&missed(position, head));
            self.position = head;
        }
        Ok(page)
    }

    fn goodbye(&mut self, reason: &str) -> Option<std::io::Result<Bytes>> {
        self.is_over = true;
        let last = json!({"reason": reason});
        Some(Ok(frame(Some(self.position), Some("end"), Some(&last))))
    }
}
