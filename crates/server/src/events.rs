//! The stream of events within this process: recent events, and a wake-up for listeners.
//!
//! Every listener has its own position and reads from there, so no queue can overflow. A slow
//! listener that falls behind the recent events reads from the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use backplane::Broker;
use bytes::Bytes;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::outbox::OutboxRow;
use tokio::sync::{Notify, watch};

mod catch_up;
mod event_subject;

pub use catch_up::CatchUp;
pub use event_subject::EventSubject;

/// Maximum number of recent events that are kept, and their maximum size together.
const MAX_RECENT: usize = 4_096;
const MAX_RECENT_BYTES: usize = 16 * 1024 * 1024;

/// An event in the form that listeners get.
#[derive(Debug)]
pub struct StreamEvent {
    /// Its position in the stream.
    pub position: i64,
    pub created: Timestamp,
    pub about: EventSubject,
    /// The bytes that listeners get.
    pub frame: Bytes,
}

pub struct EventStream {
    /// Names this process among the readers of the stream.
    pub process: String,
    /// The broker to which events are published as well.
    pub broker: Option<Broker>,
    /// Listeners that are behind.
    pub catch_up: CatchUp<Arc<StreamEvent>>,
    recent: Mutex<Recent>,
    head: watch::Sender<i64>,
    /// Wakes the task that publishes events to a broker.
    pub published: Arc<Notify>,
}

struct Recent {
    /// The position before the first of the events.
    begins_after: i64,
    events: VecDeque<Arc<StreamEvent>>,
    n_bytes: usize,
}

impl EventStream {
    /// `head` is the position of the last event that was published before this process started.
    pub fn new(
        process: String,
        broker: Option<Broker>,
        head: i64,
        catch_up: CatchUp<Arc<StreamEvent>>,
    ) -> Self {
        Self {
            process,
            broker,
            catch_up,
            recent: Mutex::new(Recent {
                begins_after: head,
                events: VecDeque::new(),
                n_bytes: 0,
            }),
            head: watch::Sender::new(head),
            published: Arc::default(),
        }
    }

    /// Publishes events, which are in order and follow the last published one.
    pub fn publish(&self, rows: &[OutboxRow]) {
        let head = *self.head.borrow();
        let news: Vec<Arc<StreamEvent>> = rows
            .iter()
            .filter(|row| row.position > head)
            .map(|row| Arc::new(StreamEvent::new(row)))
            .collect();
        let Some(last) = news.last().map(|event| event.position) else {
            return;
        };
        self.recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keep(news);
        self.head.send_replace(last);
        self.published.notify_one();
    }

    /// The position of the last published event.
    pub fn head(&self) -> i64 {
        *self.head.borrow()
    }

    /// Changes whenever events were published.
    pub fn listen(&self) -> watch::Receiver<i64> {
        self.head.subscribe()
    }

    /// The current number of listeners.
    pub fn n_listeners(&self) -> usize {
        self.head.receiver_count()
    }

    /// Events after this position, at most `limit`. `None`: they are in the store only.
    pub fn after(&self, position: i64, limit: usize) -> Option<Vec<Arc<StreamEvent>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if position < recent.begins_after {
            return None;
        }
        let events = &recent.events;
        let first = events.partition_point(|event| event.position <= position);
        Some(events.range(first..).take(limit).cloned().collect())
    }
}

impl Recent {
    fn keep(&mut self, news: Vec<Arc<StreamEvent>>) {
        self.n_bytes += news.iter().map(|event| event.frame.len()).sum::<usize>();
        self.events.extend(news);
        while self.events.len() > MAX_RECENT || self.n_bytes > MAX_RECENT_BYTES {
            let Some(oldest) = self.events.pop_front() else {
                return;
            };
            self.n_bytes -= oldest.frame.len();
            self.begins_after = oldest.position;
        }
    }
}

impl StreamEvent {
    pub fn new(row: &OutboxRow) -> Self {
        let about = EventSubject::of(row);
        let event = json!({
            "id": row.event_id,
            "sequence": row.position,
            "exchange": row.topic,
            "routingKey": row.routing_key,
            "created": row.created.to_string(),
            "payload": row.payload,
        });
        Self {
            position: row.position,
            created: row.created,
            frame: frame(Some(row.position), Some(&about.exchange), Some(&event)),
            about,
        }
    }
}

/// A message of a stream of server-sent events. JSON in one line has no line breaks, so neither has
/// this.
pub fn frame(position: Option<i64>, event: Option<&str>, payload: Option<&Value>) -> Bytes {
    let mut text = String::new();
    if let Some(position) = position {
        text.push_str(&format!("id: {position}\n"));
    }
    if let Some(event) = event {
        text.push_str(&format!("event: {event}\n"));
    }
    if let Some(payload) = payload {
        text.push_str(&format!("data: {payload}\n"));
    }
    text.push('\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn rows(positions: impl IntoIterator<Item = i64>, size: usize) -> Vec<OutboxRow> {
        let row = |position: i64| OutboxRow {
            position,
            event_id: format!("id-{position}"),
            topic: "exchange/taskcluster-worker-manager/v1/worker-running".to_owned(),
            routing_key: "primary.a".to_owned(),
            routes: Vec::new(),
            pool_id: None,
            payload: json!({"workerPoolId": "a/b", "filler": "x".repeat(size)}),
            created: Timestamp::from_millis(1_790_000_000_000),
        };
        positions.into_iter().map(row).collect()
    }

    fn stream(head: i64) -> EventStream {
        EventStream::new(String::new(), None, head, CatchUp::new(0))
    }

    fn places(stream: &EventStream, after: i64) -> Option<Vec<i64>> {
        let events = stream.after(after, usize::MAX)?;
        Some(events.iter().map(|event| event.position).collect())
    }

    #[test]
    fn a_listener_reads_from_its_own_position() {
        let stream = stream(10);
        assert_eq!(places(&stream, 10), Some(vec![]));
        stream.publish(&rows(11..=13, 0));
        assert_eq!(places(&stream, 10), Some(vec![11, 12, 13]));
        assert_eq!(places(&stream, 12), Some(vec![13]));
        assert_eq!(places(&stream, 99), Some(vec![]));
        assert_eq!(stream.after(10, 2).unwrap().len(), 2);
        assert_eq!(places(&stream, 9), None, "that was before this process");
    }

    #[test]
    fn an_event_is_published_once() {
        let stream = stream(0);
        stream.publish(&rows(1..=3, 0));
        stream.publish(&rows(2..=4, 0));
        stream.publish(&rows(1..=2, 0));
        assert_eq!(places(&stream, 0), Some(vec![1, 2, 3, 4]));
        assert_eq!(stream.head(), 4);
    }

    #[test]
    fn a_bounded_number_of_events_is_kept() {
        let all = rows(1..=10 * i64::try_from(MAX_RECENT).unwrap(), 0);
        for count in sizes_around("server::events::MAX_RECENT", MAX_RECENT) {
            let stream = stream(0);
            for some in all[..count].chunks(500) {
                stream.publish(some);
            }
            let n_gone = count.saturating_sub(MAX_RECENT);
            let begin = i64::try_from(n_gone).unwrap();
            assert_eq!(places(&stream, begin).unwrap().len(), count - n_gone);
            // Older events are in the store.
            assert_eq!(places(&stream, begin - 1), None);
        }
    }

    #[test]
    fn a_bounded_size_of_events_is_kept() {
        let stream = stream(0);
        stream.publish(&rows(1..=30, 1024 * 1024));
        assert_eq!(places(&stream, 14), None);
        assert_eq!(places(&stream, 15).unwrap().len(), 15);
    }

    #[test]
    fn an_event_is_one_message() {
        let event = StreamEvent::new(&rows([7], 0)[0]);
        assert_eq!(
            std::str::from_utf8(&event.frame).unwrap(),
            "id: 7\nevent: worker-running\ndata: {\"created\":\"2026-09-21T14:13:20.000Z\",\
             \"exchange\":\"exchange/taskcluster-worker-manager/v1/worker-running\",\"id\":\"id-7\",\
             \"payload\":{\"filler\":\"\",\"workerPoolId\":\"a/b\"},\"routingKey\":\"primary.a\",\
             \"sequence\":7}\n\n"
        );
    }

    #[test]
    fn line_breaks_in_an_event_do_not_break_its_message() {
        let mut row = rows([7], 0).remove(0);
        row.payload = json!({"title": "two\nlines\r\n\n"});
        let event = StreamEvent::new(&row);
        let text = std::str::from_utf8(&event.frame).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
