//! The stream of events within this process: what was told last, and a bell for those who listen.
//!
//! Every listener keeps its own place and reads from there, so none has a queue that could overflow: who
//! falls behind what is kept here goes on reading in the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use backplane::Broker;
use bytes::Bytes;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::outbox::OutboxRow;
use tokio::sync::{Notify, watch};

mod about;

pub use about::About;

/// So many events are kept at most, and no more than so many bytes of them.
const MAX_RECENT: usize = 4_096;
const MAX_RECENT_BYTES: usize = 16 * 1024 * 1024;

/// An event as listeners get it.
#[derive(Debug)]
pub struct Told {
    /// Its place in the stream.
    pub position: i64,
    pub created: Timestamp,
    pub about: About,
    /// As it is sent to listeners.
    pub frame: Bytes,
}

pub struct EventStream {
    /// Names this process among those that read the same stream.
    pub process: String,
    /// Where events are published, beside here.
    pub broker: Option<Broker>,
    recent: Mutex<Recent>,
    head: watch::Sender<i64>,
    /// Rung after something was told, for the task that passes it on to a broker.
    pub told: Arc<Notify>,
}

struct Recent {
    /// The place before the first of the events.
    begins_after: i64,
    events: VecDeque<Arc<Told>>,
    n_bytes: usize,
}

impl EventStream {
    /// `head` is the place of the last event that was told before this process began.
    pub fn new(process: String, broker: Option<Broker>, head: i64) -> Self {
        Self {
            process,
            broker,
            recent: Mutex::new(Recent {
                begins_after: head,
                events: VecDeque::new(),
                n_bytes: 0,
            }),
            head: watch::Sender::new(head),
            told: Arc::default(),
        }
    }

    /// Tells events, which are in order and follow what was told last.
    pub fn tell(&self, rows: &[OutboxRow]) {
        let head = *self.head.borrow();
        let news: Vec<Arc<Told>> = rows
            .iter()
            .filter(|row| row.position > head)
            .map(|row| Arc::new(Told::new(row)))
            .collect();
        let Some(last) = news.last().map(|told| told.position) else {
            return;
        };
        self.recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .keep(news);
        self.head.send_replace(last);
        self.told.notify_one();
    }

    /// The place of the last event that was told.
    pub fn head(&self) -> i64 {
        *self.head.borrow()
    }

    /// Changes whenever something was told.
    pub fn listen(&self) -> watch::Receiver<i64> {
        self.head.subscribe()
    }

    /// How many listen at the moment.
    pub fn n_listeners(&self) -> usize {
        self.head.receiver_count()
    }

    /// Events after this place, at most so many. `None`: they are in the store alone.
    pub fn after(&self, position: i64, limit: usize) -> Option<Vec<Arc<Told>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if position < recent.begins_after {
            return None;
        }
        let events = &recent.events;
        let first = events.partition_point(|told| told.position <= position);
        Some(events.range(first..).take(limit).cloned().collect())
    }
}

impl Recent {
    fn keep(&mut self, news: Vec<Arc<Told>>) {
        self.n_bytes += news.iter().map(|told| told.frame.len()).sum::<usize>();
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

impl Told {
    pub fn new(row: &OutboxRow) -> Self {
        let about = About::of(row);
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

/// A message of a stream of server-sent events. JSON in one line has no line breaks, so neither has this.
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

    fn places(stream: &EventStream, after: i64) -> Option<Vec<i64>> {
        let events = stream.after(after, usize::MAX)?;
        Some(events.iter().map(|told| told.position).collect())
    }

    #[test]
    fn a_listener_reads_from_its_own_place() {
        let stream = EventStream::new(String::new(), None, 10);
        assert_eq!(places(&stream, 10), Some(vec![]));
        stream.tell(&rows(11..=13, 0));
        assert_eq!(places(&stream, 10), Some(vec![11, 12, 13]));
        assert_eq!(places(&stream, 12), Some(vec![13]));
        assert_eq!(places(&stream, 99), Some(vec![]));
        assert_eq!(stream.after(10, 2).unwrap().len(), 2);
        assert_eq!(places(&stream, 9), None, "that was before this process");
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let stream = EventStream::new(String::new(), None, 0);
        stream.tell(&rows(1..=3, 0));
        stream.tell(&rows(2..=4, 0));
        stream.tell(&rows(1..=2, 0));
        assert_eq!(places(&stream, 0), Some(vec![1, 2, 3, 4]));
        assert_eq!(stream.head(), 4);
    }

    #[test]
    fn only_so_much_is_kept() {
        let all = rows(1..=10 * i64::try_from(MAX_RECENT).unwrap(), 0);
        for count in sizes_around("server::events::MAX_RECENT", MAX_RECENT) {
            let stream = EventStream::new(String::new(), None, 0);
            for some in all[..count].chunks(500) {
                stream.tell(some);
            }
            let n_gone = count.saturating_sub(MAX_RECENT);
            let begin = i64::try_from(n_gone).unwrap();
            assert_eq!(places(&stream, begin).unwrap().len(), count - n_gone);
            // What has gone is in the store.
            assert_eq!(places(&stream, begin - 1), None);
        }
    }

    #[test]
    fn only_so_many_bytes_are_kept() {
        let stream = EventStream::new(String::new(), None, 0);
        stream.tell(&rows(1..=30, 1024 * 1024));
        assert_eq!(places(&stream, 14), None);
        assert_eq!(places(&stream, 15).unwrap().len(), 15);
    }

    #[test]
    fn an_event_is_one_message() {
        let told = Told::new(&rows([7], 0)[0]);
        assert_eq!(
            std::str::from_utf8(&told.frame).unwrap(),
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
        let told = Told::new(&row);
        let text = std::str::from_utf8(&told.frame).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
