//! Open pages: their sections are made again when something changes, and sent if they differ.
//!
//! All tabs of a session that show one page share one *watch*, so that many open tabs cost little
//! more than one. A watch waits for events about its page, and looks every ten seconds at what has
//! no events. After each look it rests as long as all watches together need to stay below a
//! twentieth of a core.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use page::{Listens, View, Visit, assets};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::{Browser, Why};
use super::reply::pairs;
use crate::api::body::Body;
use crate::api::request_head::RequestHead;
use crate::api::response::{Response, with_status};
use crate::app::App;
use crate::events::{EventStream, StreamEvent, frame};

/// A watch looks at least this often: not all that a page shows has events.
const LOOK: Duration = Duration::from_secs(10);
/// The time between two looks at a page that waits for something on its way.
const SOON: Duration = Duration::from_secs(1);
/// The least time between two looks.
const REST: Duration = Duration::from_millis(200);
/// All watches together use at most this part of a core.
const SHARE: u32 = 20;
/// About the cost of sending a change to one tab.
const SENDING: Duration = Duration::from_micros(50);
/// A silent connection is used at least this often, so that proxies do not close it, and the
/// session is checked again.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Events that are examined at once.
const EVENTS: usize = 500;
/// A session is checked again after this time, and the browser connects again.
const CONNECTED: Duration = Duration::from_secs(15 * 60);

/// The pages that are open.
#[derive(Default)]
pub(super) struct LivePages {
    watches: Mutex<HashMap<WatchKey, Arc<Watch>>>,
    hasher: RandomState,
}

/// A page, and the session that sees it: its forms have the token of the session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WatchKey {
    /// `None`: without a sign-in.
    session: Option<String>,
    /// Path and query.
    url: String,
}

/// One page as one session sees it.
struct Watch {
    key: WatchKey,
    /// The sections, by id, with the number of the look that changed them last.
    sections: watch::Sender<Sections>,
    /// The tabs; the newest answers for all.
    browsers: Mutex<Vec<Weak<Browser>>>,
}

#[derive(Clone, Default)]
struct Sections {
    look: u64,
    /// Whether the page never changes again.
    is_final: bool,
    /// The look, the hash and the HTML of each section.
    parts: Vec<(&'static str, u64, u64, Bytes)>,
}

/// One tab.
struct Tab {
    browser: Arc<Browser>,
    watch: Arc<Watch>,
    sections: watch::Receiver<Sections>,
    /// The look up to which it has everything.
    seen: u64,
    until: Instant,
    /// When the session is checked again.
    check_at: Instant,
    is_greeted: bool,
    is_over: bool,
}

/// Streams changes of the page that the query names.
pub(super) async fn listen(
    pages: &Arc<LivePages>,
    browser: &Browser,
    head: &RequestHead,
) -> Response {
    let query = pairs(head.uri.query().unwrap_or_default()).unwrap_or_default();
    let at = query.iter().find(|(name, _)| name == "at");
    let Some((_, url)) = at.filter(|(_, url)| url.starts_with('/')) else {
        return with_status(StatusCode::BAD_REQUEST, Bytes::new());
    };
    let session = match browser.person().await {
        Ok(person) => person.session().map(|session| session.id.clone()),
        // The page is loaded again, and asks for a sign-in.
        Err(Why::Needed | Why::Ended) => return events(stream::iter([Ok(end())])),
        Err(Why::Away(_)) => return with_status(StatusCode::SERVICE_UNAVAILABLE, Bytes::new()),
    };
    let key = WatchKey {
        session,
        url: url.clone(),
    };
    let browser = Arc::new(browser.again());
    let (watch, sections) = pages.join(&browser, key);
    let tab = Tab {
        sections,
        watch,
        browser,
        seen: 0,
        until: Instant::now() + CONNECTED,
        check_at: Instant::now() + HEARTBEAT,
        is_greeted: false,
        is_over: false,
    };
    let frames = stream::unfold(tab, async |mut tab| {
        let next = tab.next().await?;
        Some((Ok(next), tab))
    });
    events(frames)
}

/// A response of server-sent events.
fn events(frames: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response {
    let mut response = http::Response::new(Body::stream(Box::pin(frames), None));
    let headers = response.headers_mut();
    let events = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, events);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl LivePages {
    /// Joins the watch of this page, or begins it. Each tab has a connection, so the limit of
    /// connections is one for watches, too.
    fn join(
        self: &Arc<Self>,
        browser: &Arc<Browser>,
        key: WatchKey,
    ) -> (Arc<Watch>, watch::Receiver<Sections>) {
        let mut watches = self.watches();
        if let Some(watch) = watches.get(&key) {
            watch.browsers().push(Arc::downgrade(browser));
            return (Arc::clone(watch), watch.sections.subscribe());
        }
        let (sender, sections) = watch::channel(Sections::default());
        let watch = Arc::new(Watch {
            key: key.clone(),
            sections: sender,
            browsers: Mutex::new(vec![Arc::downgrade(browser)]),
        });
        watches.insert(key, Arc::clone(&watch));
        let app = Arc::clone(&browser.local.app);
        tokio::spawn(run(app, Arc::clone(self), Arc::clone(&watch)));
        (watch, sections)
    }

    /// Whether no tab shows the page any more. Then it is forgotten.
    fn has_left(&self, watch: &Watch) -> bool {
        let mut watches = self.watches();
        if !watch.sections.is_closed() {
            return false;
        }
        watches.remove(&watch.key);
        true
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<WatchKey, Arc<Watch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at a page until no tab shows it.
async fn run(app: Arc<App>, pages: Arc<LivePages>, watch: Arc<Watch>) {
    let events = &app.events;
    let mut head = events.listen();
    let mut position = events.head();
    while !pages.has_left(&watch) {
        let began = Instant::now();
        let listens = watch.look(&pages).await;
        match listens {
            Listens::Soon => {
                watch.pause(SOON).await;
                continue;
            }
            Listens::Never => {
                while !pages.has_left(&watch) {
                    watch.pause(LOOK).await;
                }
                return;
            }
            Listens::All
            | Listens::Pool(_)
            | Listens::Task(_)
            | Listens::Worker { .. }
            | Listens::Nothing => {}
        }
        let rest = rest_after(&pages, began.elapsed(), watch.sections.receiver_count());
        watch.pause(rest).await;
        let due = Instant::now() + LOOK;
        while Instant::now() < due && !watch.sections.is_closed() {
            if is_affected(events, &mut position, &listens) {
                break;
            }
            let _ = tokio::time::timeout_at(due, head.changed()).await;
            // Events come in bursts: one look for all of them.
            watch.pause(REST / 4).await;
        }
    }
}

/// How long to rest after a look that took this long.
fn rest_after(pages: &LivePages, took: Duration, n_tabs: usize) -> Duration {
    let n_watches = u32::try_from(pages.watches().len()).unwrap_or(u32::MAX);
    let sending = SENDING.saturating_mul(u32::try_from(n_tabs).unwrap_or(u32::MAX));
    let cost = took.saturating_add(sending);
    cost.saturating_mul(SHARE)
        .saturating_mul(n_watches)
        .clamp(REST, LOOK)
}

/// Whether an event since the last call is about the page.
fn is_affected(events: &EventStream, position: &mut i64, listens: &Listens) -> bool {
    let mut is_affected = false;
    while *position < events.head() {
        let Some(page) = events.after(*position, EVENTS) else {
            // They are no longer in memory.
            *position = events.head();
            return *listens != Listens::Nothing;
        };
        let Some(last) = page.last() else { break };
        *position = last.position;
        is_affected |= page.iter().any(|event| concerns(event, listens));
    }
    is_affected
}

fn concerns(event: &StreamEvent, listens: &Listens) -> bool {
    let about = &event.about;
    match listens {
        Listens::All => true,
        Listens::Nothing | Listens::Soon | Listens::Never => false,
        Listens::Pool(pool) => about.pool.as_deref() == Some(pool),
        Listens::Task(task) => about.task.as_deref() == Some(task),
        Listens::Worker { pool, id } => {
            about.pool.as_deref() == Some(pool) && about.worker_id.as_deref() == Some(id)
        }
    }
}

impl Watch {
    fn browsers(&self) -> MutexGuard<'_, Vec<Weak<Browser>>> {
        self.browsers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, unless all tabs leave meanwhile.
    async fn pause(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.sections.closed()).await;
    }

    /// Makes the page again, and passes on what differs. Returns the events that change it.
    async fn look(&self, pages: &LivePages) -> Listens {
        loop {
            let newest = {
                let mut browsers = self.browsers();
                browsers.retain(|browser| browser.strong_count() > 0);
                browsers.last().and_then(Weak::upgrade)
            };
            let Some(browser) = newest else {
                // The tabs find out by themselves.
                return Listens::Nothing;
            };
            match self.view(&browser).await {
                Ok(Some(view)) => {
                    self.keep(pages, &view);
                    if view.listens == Listens::Never {
                        self.sections
                            .send_modify(|sections| sections.is_final = true);
                    }
                    return view.listens;
                }
                // The next look may succeed.
                Ok(None) | Err(Why::Away(_)) => return Listens::All,
                Err(Why::Needed | Why::Ended) => {
                    let is_other = |other: &Weak<Browser>| {
                        other
                            .upgrade()
                            .is_some_and(|other| !Arc::ptr_eq(&other, &browser))
                    };
                    self.browsers().retain(is_other);
                }
            }
        }
    }

    async fn view(&self, browser: &Browser) -> Result<Option<View>, Why> {
        let person = browser.person().await?;
        let (path, query) = self.key.url.split_once('?').unwrap_or((&self.key.url, ""));
        let Some(visit) = person.visit(path, query) else {
            return Ok(None);
        };
        let visit = Visit {
            is_opened: false,
            ..visit
        };
        Ok(page::show(&visit).await.ok())
    }

    fn keep(&self, pages: &LivePages, view: &View) {
        let hashed = parts(view).map(|(id, html)| {
            let hash = pages.hasher.hash_one(&html);
            (id, hash, html)
        });
        let hashed: Vec<_> = hashed.collect();
        self.sections.send_if_modified(|sections| {
            let look = sections.look + 1;
            let mut differs = false;
            let known = std::mem::take(&mut sections.parts);
            for (id, hash, html) in hashed {
                let same = known.iter().find(|part| part.0 == id && part.2 == hash);
                differs |= same.is_none();
                let changed = same.map_or(look, |part| part.1);
                sections.parts.push((id, changed, hash, html));
            }
            if differs {
                sections.look = look;
            }
            differs
        });
    }
}

impl Tab {
    /// The next bytes of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if !self.is_greeted {
            self.is_greeted = true;
            let hello =
                json!({"release": assets::release(), "now": self.browser.now().to_string()});
            return Some(message("hello", &hello));
        }
        loop {
            if Instant::now() >= self.until {
                return None;
            }
            if Instant::now() >= self.check_at {
                return Some(self.check().await);
            }
            if let Some(news) = self.news() {
                return Some(news);
            }
            if self.sections.borrow().is_final {
                self.is_over = true;
                return Some(message("done", &json!({})));
            }
            let changed = tokio::time::timeout_at(self.check_at, self.sections.changed());
            if let Ok(Err(_)) = changed.await {
                return None;
            }
        }
    }

    /// The sections that this tab does not have yet.
    fn news(&mut self) -> Option<Bytes> {
        let sections = self.sections.borrow_and_update();
        let newer = sections.parts.iter().filter(|part| part.1 > self.seen);
        let changes: Vec<_> = newer
            .map(|(id, _, _, html)| json!({"id": id, "html": String::from_utf8_lossy(html)}))
            .collect();
        self.seen = sections.look;
        (!changes.is_empty()).then(|| message("change", &json!(changes)))
    }

    /// The session may have ended.
    async fn check(&mut self) -> Bytes {
        self.check_at = Instant::now() + HEARTBEAT;
        match self.browser.person().await {
            Ok(_) | Err(Why::Away(_)) => message("beat", &json!({})),
            Err(Why::Needed | Why::Ended) => {
                self.is_over = true;
                end()
            }
        }
    }
}

/// The sections of a view.
fn parts(view: &View) -> impl Iterator<Item = (&'static str, Bytes)> + '_ {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let sections = view.sections.iter();
    sections.map(move |section| (section.id, bytes(&section.content.0)))
}

impl Drop for Tab {
    fn drop(&mut self) {
        let ours = Arc::as_ptr(&self.browser);
        let is_other = |other: &Weak<Browser>| !std::ptr::eq(other.as_ptr(), ours);
        self.watch.browsers().retain(is_other);
    }
}

/// The session has ended.
fn end() -> Bytes {
    message("end", &json!({}))
}

fn message(event: &str, data: &serde_json::Value) -> Bytes {
    frame(None, Some(event), Some(data))
}
