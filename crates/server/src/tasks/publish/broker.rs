//! Publishes events to an AMQP broker, in their order, at least once.
//!
//! Of several processes one does it at a time, by a lease on the reader `amqp`; its place is how far the
//! broker has confirmed. Order does not depend on the lease: whoever publishes goes through the stream from
//! the confirmed place on, so two that do it at once repeat events and swap none that come for the first
//! time. While the broker is away, events wait in the stream, which forgets none that it has not confirmed.

use std::sync::Arc;

use api_client::with_causes;
use async_trait::async_trait;
use backplane::{Broker, BrokerError, Message, PublishResult, Publisher};
use domain::event::{EXCHANGES, Exchange, Rfc191};
use domain::time::Timestamp;
use metrics::{counter, gauge};
use rand::RngExt;
use serde_json::{Value, json};
use store::StoreError;
use store::event_readers::EventReader;
use store::outbox::OutboxRow;

use super::super::backoff::Backoff;
use super::super::batches::Batches;
use super::super::driver::Task;
use crate::app::App;
use crate::telemetry::{BROKER_UP, EVENTS_PUBLISHED};

/// The reader of the stream whose place is that of the broker.
pub const READER: &str = "amqp";
/// Longer than a batch takes that goes well. After a crash another process waits this long.
const LEASE_MS: i64 = 10_000;
const BATCH: u32 = 500;
const MAX_BATCHES: usize = 20;

pub struct PublishToBroker {
    app: Arc<App>,
    broker: Broker,
    batches: Batches,
    /// Held for as long as the broker does what it should.
    publisher: Option<Publisher>,
    lease: Option<EventReader>,
    backoff: Backoff,
}

/// Why publishing came to a stop for now.
enum Stop {
    Store(StoreError),
    Broker(BrokerError),
    /// Another process publishes.
    NotOurs,
}

impl PublishToBroker {
    pub fn new(app: Arc<App>, broker: Broker) -> Self {
        let usual = Batches {
            size: BATCH,
            most: MAX_BATCHES,
        };
        Self::in_batches(app, broker, usual)
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
        // After a failure one event shows whether the way is free: what comes behind one that is refused would be
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
                // Nothing to do; a broker that has gone away is noticed when there is.
                self.connect().await?;
                break;
            };
            tell_forgotten(place, first.position);
            n_published += self.batch(lease, &rows.items).await?;
            if !rows.may_have_more(limit) {
                break;
            }
            limit = size;
        }
        Ok(n_published)
    }

    /// Publishes some events, and moves on by as many as the broker has confirmed.
    async fn batch(&mut self, lease: EventReader, rows: &[OutboxRow]) -> Result<u64, Stop> {
        let rfc191 = self.app.config.events.rfc191;
        // Each message with the number of events that are done when it is.
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
        match error {
            Some(error) => Err(Stop::Broker(error)),
            None => Ok(n_done as u64),
        }
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

    /// The lease, prolonged when half of it has passed.
    async fn lease(&mut self) -> Result<EventReader, Stop> {
        let now = self.app.engine.clock.now();
        if let Some(lease) = &self.lease
            && lease.held_until.millis_since(now) > LEASE_MS / 2
        {
            return Ok(lease.clone());
        }
        let (holder, until) = (self.app.events.process.clone(), now.plus_millis(LEASE_MS));
        let taking = self.app.engine.store.write("event_reader_take", move |tx| {
            store::event_readers::take(tx, READER, &holder, now, until)
        });
        self.lease = taking.await?;
        self.lease.clone().ok_or(Stop::NotOurs)
    }

    async fn connect(&mut self) -> Result<&Publisher, Stop> {
        let connected = self.publisher.take().filter(Publisher::is_connected);
        let publisher = match connected {
            Some(publisher) => publisher,
            None => {
                let exchanges = exchanges(self.app.config.events.rfc191);
                Publisher::connect(&self.broker, &exchanges).await?
            }
        };
        Ok(self.publisher.insert(publisher))
    }

    async fn stopped(&mut self, stop: Stop, now: Timestamp) -> Result<Value, String> {
        self.publisher = None;
        self.lease = None;
        let problem = match stop {
            Stop::Store(problem) => return Err(problem.to_string()),
            Stop::NotOurs => return Ok(Value::Null),
            Stop::Broker(problem) => problem,
        };
        gauge!(BROKER_UP).set(0.0);
        let chance = self.app.engine.random.with(|random| random.random());
        let problem = with_causes(&problem);
        if self.backoff.failed(now, chance) {
            tracing::warn!(error = %problem,
                "events wait for the broker: {problem}");
        } else {
            tracing::debug!(error = %problem, "events still wait for the broker: {problem}");
        }
        // Perhaps another process can reach it.
        leave(&self.app)
            .await
            .map_err(|problem| problem.to_string())?;
        Ok(Value::Null)
    }
}

#[async_trait]
impl Task for PublishToBroker {
    const NAME: &'static str = "publish_to_broker";

    async fn activate(&mut self) -> Result<Value, String> {
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
                        "the broker takes events again; they waited since {since}"
                    );
                    return Ok(json!({"published": n_published}));
                }
                Ok(Value::Null)
            }
            Err(stop) => self.stopped(stop, now).await,
        }
    }
}

/// Lets another process publish at once. For the end of this one.
pub async fn leave(app: &App) -> Result<(), StoreError> {
    let (holder, now) = (app.events.process.clone(), app.engine.clock.now());
    let leaving = app.engine.store.write("event_reader_leave", move |tx| {
        store::event_readers::leave(tx, READER, &holder, now)
    });
    leaving.await
}

/// All that there may be something to publish to.
fn exchanges(rfc191: bool) -> Vec<String> {
    let ours = EXCHANGES.iter().map(Exchange::topic);
    let further = Rfc191::ALL.iter().filter(|_| rfc191).map(Rfc191::topic);
    ours.chain(further).collect()
}

/// The event under its own name, and under RFC 191's if that has one for it.
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
            "AMQP has no room for the routing key of event {}, which is left out", row.event_id);
        return Vec::new();
    }
    let further = Rfc191::of(&row.topic).filter(|_| rfc191);
    let further = further.map(|further| Message {
        exchange: further.topic(),
        ..message.clone()
    });
    std::iter::once(message).chain(further).collect()
}

/// The stream keeps what a broker lacks, unless that broker was away for longer than events are kept.
fn tell_forgotten(place: i64, first: i64) {
    let n_lost = first - place - 1;
    if n_lost > 0 {
        tracing::error!(
            events.lost = n_lost,
            "{n_lost} events had been forgotten before they could be published"
        );
    }
}

impl From<StoreError> for Stop {
    fn from(problem: StoreError) -> Self {
        Self::Store(problem)
    }
}

impl From<BrokerError> for Stop {
    fn from(problem: BrokerError) -> Self {
        Self::Broker(problem)
    }
}
