//! Publishes events to an AMQP broker, in order, at least once.
//!
//! One process at a time does this, under a lease of the reader `amqp`. Its position is the last
//! event that the broker has confirmed. The order does not depend on the lease: every publisher
//! reads the stream from the confirmed position. So two concurrent publishers repeat events but
//! never reorder new ones. While the broker is unavailable, events wait in the stream, which keeps
//! unconfirmed events.

use std::sync::Arc;

use api_client::with_causes;
use async_trait::async_trait;
use backplane::{Broker, BrokerError, Message, PublishResult, Publisher};
use domain::event::{EXCHANGES, Exchange, Rfc191};
use domain::time::Timestamp;
use metrics::{counter, gauge};
use serde_json::{Value, json};
use store::StoreError;
use store::event_readers::EventReader;
use store::outbox::OutboxRow;

use super::super::backoff::Backoff;
use super::super::batches::Batches;
use super::super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;
use crate::telemetry::{BROKER_UP, EVENTS_PUBLISHED};

/// The reader of the stream for the broker.
pub const READER: &str = "amqp";
/// Longer than a successful batch takes. After a crash, another process waits this long.
const LEASE_MS: i64 = 10_000;
const BATCH: u32 = 500;
const MAX_BATCHES: usize = 20;

pub struct BrokerPublisher {
    app: Arc<App>,
    broker: Broker,
    batches: Batches,
    /// Kept while the connection to the broker works.
    publisher: Option<Publisher>,
    lease: Option<EventReader>,
    backoff: Backoff,
}

/// Why publishing stopped.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("another process publishes")]
    NotOurs,
}

impl BrokerPublisher {
    pub fn new(app: Arc<App>, broker: Broker) -> Self {
        Self::in_batches(app, broker, Batches::new(BATCH, MAX_BATCHES))
    }

    /// With other limits for one activation.
    pub fn in_batches(app: Arc<App>, broker: Broker, batches: Batches) -> Self {
        Self {
            app,
            broker,
            batches,
            publisher: None,
            lease: None,
            backoff: Backoff::default(),
        }
    }

    async fn publish(&mut self) -> Result<u64, Stop> {
        let mut n_published = 0;
        // After a failure, one event tests the connection: events after a refused one would be
        // repeated with each try.
        let Batches { size, most } = self.batches;
        let mut limit = if self.backoff.is_failing() { 1 } else { size };
        for _ in 0..most {
            let lease = self.lease().await?;
            let place = lease.position;
            let read = self.app.engine.store.read("event_list_after", move |tx| {
                store::events::list_after(tx, place, limit)
            });
            let rows = read.await?;
            let Some(first) = rows.items.first() else {
                // Nothing to publish; a lost connection is noticed with the next event.
                self.connect().await?;
                break;
            };
            log_expired(place, first.position);
            n_published += self.batch(lease, &rows.items).await?;
            if !rows.may_have_more(limit) {
                break;
            }
            limit = size;
        }
        Ok(n_published)
    }

    /// Publishes some events, and moves the position by the number that the broker has confirmed.
    async fn batch(&mut self, lease: EventReader, rows: &[OutboxRow]) -> Result<u64, Stop> {
        let rfc191 = self.app.config.events.rfc191;
        // Each message, with the number of events that are complete after it.
        let mut messages: Vec<Message> = Vec::with_capacity(rows.len());
        let mut ends: Vec<usize> = Vec::with_capacity(rows.len());
        for row in rows {
            messages.extend(messages_of(row, rfc191));
            ends.push(messages.len());
        }
        let publisher = self.connect().await?;
        let PublishResult { n_confirmed, error } = publisher.publish(&messages).await;
        let n_done = ends.partition_point(|end| *end <= n_confirmed);
        if let Some(last) = n_done.checked_sub(1).and_then(|last| rows.get(last)) {
            self.move_to(lease, last.position).await?;
        }
        counter!(EVENTS_PUBLISHED).increment(n_done as u64);
        error.map_or(Ok(n_done as u64), |error| Err(error.into()))
    }

    async fn move_to(&mut self, lease: EventReader, position: i64) -> Result<(), Stop> {
        let fence = lease.fence;
        let moving = self.app.engine.store.write("event_reader_move", move |tx| {
            store::event_readers::advance(tx, READER, fence, position)
        });
        if !moving.await? {
            return Err(Stop::NotOurs);
        }
        self.lease = Some(EventReader { position, ..lease });
        Ok(())
    }

    /// The lease; it is renewed after half of its time.
    async fn lease(&mut self) -> Result<EventReader, Stop> {
        let now = self.app.engine.clock.now();
        if let Some(lease) = &self.lease
            && lease.held_until.millis_since(now) > LEASE_MS / 2
        {
            return Ok(lease.clone());
        }
        let holder = self.app.events.process.clone();
        let taking = self.app.engine.store.write("event_reader_take", move |tx| {
            store::event_readers::take(tx, READER, &holder, now, LEASE_MS)
        });
        self.lease = taking.await?;
        self.lease.clone().ok_or(Stop::NotOurs)
    }

    async fn connect(&mut self) -> Result<&Publisher, Stop> {
        let publisher = match self.publisher.take().filter(Publisher::is_connected) {
            Some(publisher) => publisher,
            None => {
                let exchanges = exchanges(self.app.config.events.rfc191);
                Publisher::connect(&self.broker, &exchanges).await?
            }
        };
        Ok(self.publisher.insert(publisher))
    }

    async fn stopped(&mut self, stop: Stop, now: Timestamp) -> ActivationResult {
        self.publisher = None;
        self.lease = None;
        let problem = match stop {
            Stop::Store(problem) => return Err(problem.into()),
            Stop::NotOurs => return Ok(Value::Null),
            Stop::Broker(problem) => problem,
        };
        gauge!(BROKER_UP).set(0.0);
        let problem = with_causes(&problem);
        if self.backoff.failed(now, &self.app.engine.random) {
            tracing::warn!(error = %problem,
                "cannot publish events to the broker, they wait: {problem}");
        } else {
            tracing::debug!(error = %problem, "still cannot publish events to the broker: \
                                               {problem}");
        }
        // Perhaps another process can reach the broker.
        let (holder, now) = (self.app.events.process.clone(), self.app.engine.clock.now());
        let leaving = self
            .app
            .engine
            .store
            .write("event_reader_leave", move |tx| {
                store::event_readers::leave(tx, READER, &holder, now)
            });
        leaving.await?;
        Ok(Value::Null)
    }
}

#[async_trait]
impl BackgroundTask for BrokerPublisher {
    fn name(&self) -> String {
        "publish_to_broker".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let now = self.app.engine.clock.now();
        if self.backoff.must_wait(now) {
            gauge!(BROKER_UP).set(0.0);
            return Ok(Value::Null);
        }
        match self.publish().await {
            Ok(n_published) => {
                gauge!(BROKER_UP).set(1.0);
                if let Some(since) = self.backoff.succeeded() {
                    tracing::info!(
                        events.published = n_published,
                        "the broker accepts events again, after a failure since {since}"
                    );
                    return Ok(json!({"published": n_published}));
                }
                Ok(Value::Null)
            }
            Err(stop) => self.stopped(stop, now).await,
        }
    }
}

/// Lets other processes read events at once: those for the broker, and those for our accounts.
/// Takes this process, which ends, off the list of processes.
pub async fn leave_readers(app: &App) -> Result<(), StoreError> {
    let (holder, now) = (app.events.process.clone(), app.engine.clock.now());
    let leaving = app.engine.store.write("event_reader_leave_all", move |tx| {
        store::processes::delete(tx, &holder)?;
        store::event_readers::leave_all(tx, &holder, now)
    });
    leaving.await
}

/// All exchanges that may get events.
fn exchanges(rfc191: bool) -> Vec<String> {
    let ours = EXCHANGES.iter().map(Exchange::topic);
    let further = Rfc191::ALL.iter().filter(|_| rfc191).map(Rfc191::topic);
    ours.chain(further).collect()
}

/// The event under its own name, and under its name in RFC 191 if it has one.
fn messages_of(row: &OutboxRow, rfc191: bool) -> Vec<Message> {
    let message = Message {
        exchange: row.topic.clone(),
        routing_key: row.routing_key.clone(),
        routes: row.routes.clone(),
        id: row.event_id.clone(),
        created: row.created,
        body: row.payload.to_string().into_bytes(),
    };
    if message.is_too_long() {
        tracing::error!(event.id = %row.event_id, event.topic = %row.topic,
            event.key = %row.routing_key,
            "the routing key of event {} is too long for AMQP and is omitted", row.event_id);
        return Vec::new();
    }
    let further = Rfc191::of(&row.topic).filter(|_| rfc191);
    let further = further.map(|further| Message {
        exchange: further.topic(),
        ..message.clone()
    });
    std::iter::once(message).chain(further).collect()
}

/// The stream keeps unconfirmed events unless the broker was unavailable for longer than the
/// retention time.
fn log_expired(place: i64, first: i64) {
    let n_lost = first - place - 1;
    if n_lost > 0 {
        tracing::error!(
            events.lost = n_lost,
            "{n_lost} events expired before they could be published"
        );
    }
}
