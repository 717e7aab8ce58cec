//! Sends notices of errors in worker pools by one channel.

use std::sync::Arc;

use async_trait::async_trait;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use engine::Engine;
use metrics::{counter, gauge};
use serde::Deserialize;
use store::StoreError;
use store::notices::Notice;

use super::backoff::Backoff;
use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;
use crate::notify::{
    BATCH, Channel, CollectLimits, Content, MAX_CAUSES, MAX_DUE, Notification, Pace, SendError,
    collect, compose,
};
use crate::telemetry::{NOTICES, NOTICES_UP};

const MAX_BATCHES: usize = 20;
const MAX_SENT: usize = 20;
/// Sending a notice may take this long, which exceeds every channel's time limit; then other
/// processes may try.
const LEASE_MS: i64 = 5 * MINUTE_MS;
/// Maximum wait before a failed channel is tried again.
const LONGEST_WAIT_MS: i64 = 30 * MINUTE_MS;
/// Wait after the first refusal of a notice; each further one doubles it. The last try is after
/// about four hours.
const FIRST_REFUSAL_MS: i64 = MINUTE_MS;
const MAX_REFUSALS: u32 = 8;
/// Notices that are not sent by then are dropped, and other records expire, too.
const FORGOTTEN_MS: i64 = 7 * DAY_MS;
const FORGET_BATCH: u32 = 500;
/// How often expired notices are deleted.
const FORGET_EVERY_MS: i64 = 10 * MINUTE_MS;

/// Limits of one activation; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct NotifierLimits {
    /// Of errors that are counted.
    pub errors: Batches,
    /// Maximum number of causes per pool that are kept apart.
    pub causes: u64,
    /// Maximum number of causes that are examined for one notice.
    pub due: u32,
    /// Maximum number of notices that are sent.
    pub sent: usize,
    /// Maximum number of rows that one statement deletes.
    pub forgotten: u32,
}

impl Default for NotifierLimits {
    fn default() -> Self {
        Self {
            errors: Batches::new(BATCH, MAX_BATCHES),
            causes: MAX_CAUSES,
            due: MAX_DUE,
            sent: MAX_SENT,
            forgotten: FORGET_BATCH,
        }
    }
}

/// One channel. Each has a task of its own, so that a slow one delays no other.
pub struct Notifier {
    engine: Arc<Engine>,
    channel: Arc<dyn Channel>,
    pace: Pace,
    limits: NotifierLimits,
    backoff: Backoff,
    forget_at: Option<Timestamp>,
}

#[async_trait]
impl BackgroundTask for Notifier {
    fn name(&self) -> String {
        "notify".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.collect().await?;
        let mut n_sent = 0;
        for _ in 0..self.limits.sent {
            if self.backoff.must_wait(self.engine.clock.now()) {
                break;
            }
            let Some(notice) = self.next().await? else {
                break;
            };
            let outcome = self.send(&notice).await;
            n_sent += u64::from(outcome.is_ok());
            self.settle(notice, outcome).await?;
        }
        let up = if self.backoff.is_failing() { 0.0 } else { 1.0 };
        gauge!(NOTICES_UP, "channel" => self.channel.name().to_owned()).set(up);
        self.forget().await?;
        Ok(summary(&[("sent", n_sent)]))
    }
}

impl Notifier {
    pub fn new(app: Arc<App>, channel: Arc<dyn Channel>) -> Self {
        Self::with_limits(app, channel, NotifierLimits::default())
    }

    pub fn with_limits(app: Arc<App>, channel: Arc<dyn Channel>, limits: NotifierLimits) -> Self {
        Self {
            engine: Arc::clone(&app.engine),
            channel,
            pace: Pace::from(&app.config.notify),
            limits,
            backoff: Backoff::up_to(LONGEST_WAIT_MS),
            forget_at: None,
        }
    }

    /// Counts the errors that were reported since the last activation.
    async fn collect(&self) -> Result<(), StoreError> {
        for _ in 0..self.limits.errors.most {
            if !self.has_news().await? {
                return Ok(());
            }
            let (channel, pace) = (Arc::clone(&self.channel), self.pace);
            let now = self.engine.clock.now();
            let limits = CollectLimits {
                errors: self.limits.errors.size,
                causes: self.limits.causes,
            };
            let counted = self.engine.store.write("notice_collect", move |tx| {
                collect(tx, &channel, pace, limits, now)
            });
            if counted.await? < limits.errors as usize {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads before it writes: usually nothing has happened.
    async fn has_news(&self) -> Result<bool, StoreError> {
        let name = self.channel.id().to_owned();
        let read = self.engine.store.read("notice_look", move |tx| {
            let Some(reader) = store::event_readers::get(tx, &name)? else {
                return Ok(true);
            };
            let head = store::events::head(tx)?;
            let first = store::notice_causes::list_errors_after(tx, reader.position, head, 1)?;
            Ok::<_, StoreError>(!first.is_empty())
        });
        read.await
    }

    /// The next notice to send, under a lease.
    async fn next(&self) -> Result<Option<Notice>, StoreError> {
        let now = self.engine.clock.now();
        let until = now.plus_millis(LEASE_MS);
        let (channel, name) = (Arc::clone(&self.channel), self.channel.id().to_owned());
        let (pace, limit, id) = (self.pace, self.limits.due, self.engine.random.slugid());
        let looked = self.engine.store.read("notice_due", move |tx| {
            let is_due = store::notices::next(tx, &name, now)?.is_some()
                || !store::notice_causes::list_due(tx, &name, now, 1)?.is_empty();
            Ok::<_, StoreError>(is_due)
        });
        if !looked.await? {
            return Ok(None);
        }
        let taken = self.engine.store.write("notice_take", move |tx| {
            let Some(notice) = store::notices::next(tx, channel.id(), now)? else {
                return compose(tx, &channel, &id, pace, limit, now, until);
            };
            let due = until;
            let taken = store::notices::update(tx, Notice { due, ..notice })?;
            taken.map(Some).ok_or_else(|| tx.lost_race())
        });
        taken.await
    }

    async fn send(&self, notice: &Notice) -> Result<(), SendError> {
        let content = Content::deserialize(&notice.content)
            .map_err(|problem| SendError::Refused(format!("cannot read the notice: {problem}")))?;
        let letter = Notification {
            id: &notice.id,
            recipient: &notice.recipient,
            content: &content,
            created: notice.created,
            now: self.engine.clock.now(),
        };
        self.channel.send(&letter).await
    }

    /// Stores the result of sending a notice.
    async fn settle(
        &mut self,
        notice: Notice,
        outcome: Result<(), SendError>,
    ) -> Result<(), StoreError> {
        let now = self.engine.clock.now();
        let name = self.channel.name().to_owned();
        let count = |outcome| counter!(NOTICES, "channel" => name.clone(), "outcome" => outcome);
        if !matches!(outcome, Err(SendError::Channel(_))) {
            self.works_again();
        }
        match outcome {
            Ok(()) => {
                count("sent").increment(1);
                let sent = self.engine.store.write("notice_sent", move |tx| {
                    store::notices::mark_sent(tx, &notice, now)
                });
                sent.await.map(drop)
            }
            Err(SendError::Refused(problem)) if notice.refusals + 1 >= MAX_REFUSALS => {
                count("given-up").increment(1);
                tracing::warn!(notice.id = %notice.id, "a notice to {} by {name} was refused \
                                                        {MAX_REFUSALS} times and is dropped: \
                                                        {problem}", notice.recipient);
                let given_up = self.engine.store.write("notice_give_up", move |tx| {
                    store::notices::delete(tx, &notice)
                });
                given_up.await.map(drop)
            }
            Err(SendError::Refused(problem)) => {
                count("refused").increment(1);
                if notice.refusals == 0 {
                    tracing::warn!(notice.id = %notice.id,
                        "a notice to {} by {name} was refused: {problem}", notice.recipient);
                }
                let wait = doubled(FIRST_REFUSAL_MS, notice.refusals);
                let refusals = notice.refusals + 1;
                self.put_back(Notice { refusals, ..notice }, now.plus_millis(wait))
                    .await
            }
            Err(SendError::Channel(problem)) => {
                count("failed").increment(1);
                self.note_channel_failure(&problem, now);
                self.put_back(notice, now).await
            }
        }
    }

    async fn put_back(&self, notice: Notice, due: Timestamp) -> Result<(), StoreError> {
        let notice = Notice { due, ..notice };
        let written = self.engine.store.write("notice_put_back", move |tx| {
            store::notices::update(tx, notice.clone())
        });
        written.await.map(drop)
    }

    /// Only the first failure is logged as a warning, and the recovery.
    fn note_channel_failure(&mut self, problem: &str, now: Timestamp) {
        let name = self.channel.name();
        if self.backoff.failed(now, &self.engine.random) {
            tracing::warn!(
                notice.channel = name,
                "cannot send notices by {name}, they wait: {problem}"
            );
        } else {
            tracing::debug!(
                notice.channel = name,
                "still no notices by {name}: {problem}"
            );
        }
    }

    fn works_again(&mut self) {
        if let Some(since) = self.backoff.succeeded() {
            let name = self.channel.name();
            tracing::info!(
                notice.channel = name,
                "notices by {name} are sent again, after a failure since {since}"
            );
        }
    }

    async fn forget(&mut self) -> Result<(), StoreError> {
        let now = self.engine.clock.now();
        if self.forget_at.is_some_and(|moment| now < moment) {
            return Ok(());
        }
        let old = now.plus_millis(-FORGOTTEN_MS);
        let settled = now.plus_millis(-self.pace.repeat_ms);
        let limit = self.limits.forgotten;
        let forgotten = self.engine.store.write("notice_forget", move |tx| {
            let n_notices = store::notices::delete_older_than(tx, old, limit)?;
            let n_causes = store::notice_causes::delete_settled(tx, settled, old, limit)?;
            Ok::<_, StoreError>(n_notices + n_causes)
        });
        // A full batch: the next activation deletes more.
        if forgotten.await? < u64::from(limit) {
            self.forget_at = Some(now.plus_millis(FORGET_EVERY_MS));
        }
        Ok(())
    }
}

fn doubled(millis: i64, times: u32) -> i64 {
    millis.saturating_mul(1 << times.min(20))
}
