//! The operator's file of prices.
//!
//! Its prices override those of the cloud and of the provider's section.
//!
//! It is read again when it changes. A file that cannot be read or parsed is reported once, and the
//! last good content stays.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use domain::id::ProviderId;
use domain::plan::check_price;
use serde::Deserialize;
use tokio::sync::oneshot;
use toml::{Spanned, Value};

/// A larger file is refused.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// More entries than this are refused.
const MAX_ENTRIES: usize = 20_000;

/// The content stays as it is while a read takes longer, as on a hanging network disk.
const MAX_READ: Duration = Duration::from_secs(5);

/// How a machine is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Market {
    Spot,
    OnDemand,
}

impl Market {
    pub(crate) fn of(is_spot: bool) -> Self {
        if is_spot { Self::Spot } else { Self::OnDemand }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

/// Prices in dollars per hour and machine. An entry for a zone goes before one for a region, and
/// that before one for all regions. Among these, an entry for one market goes first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Overrides(BTreeMap<Key, f64>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    instance_type: String,
    scope: Scope,
    /// `None`: both.
    market: Option<Market>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Everywhere,
    Region(String),
    Zone(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    prices: Vec<Spanned<Entry>>,
}

/// The types of values are checked later, so that errors name their key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    region: Option<Spanned<Value>>,
    zone: Option<Spanned<Value>>,
    #[serde(rename = "type")]
    instance_type: Option<Spanned<Value>>,
    market: Option<Spanned<Value>>,
    price: Option<Spanned<Value>>,
}

/// The file as it was last seen.
pub(crate) struct PriceFile {
    path: PathBuf,
    state: Mutex<FileState>,
    /// A thread reads the file.
    is_read: AtomicBool,
}

#[derive(Default)]
struct FileState {
    /// The last look at the file; `None`: there was none, or it took too long.
    seen: Option<Result<Stamp, String>>,
    overrides: Arc<Overrides>,
    /// Why the content of the file does not count.
    error: Option<String>,
}

/// Changes with each change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    size_bytes: u64,
    inode: u64,
}

impl Overrides {
    /// The price of a type in a region, or in one of its zones.
    pub(crate) fn price(
        &self,
        region: &str,
        zone: Option<&str>,
        instance_type: &str,
        market: Market,
    ) -> Option<f64> {
        if self.0.is_empty() {
            return None;
        }
        let zone = zone.map(|zone| Scope::Zone(zone.to_owned()));
        let region = Scope::Region(region.to_owned());
        let scopes = zone.into_iter().chain([region, Scope::Everywhere]);
        let mut keys = scopes.flat_map(|scope| {
            [Some(market), None].map(|market| Key {
                instance_type: instance_type.to_owned(),
                scope: scope.clone(),
                market,
            })
        });
        keys.find_map(|key| self.0.get(&key).copied())
    }

    /// Errors name the line and the key.
    fn parse(text: &str) -> Result<Self, String> {
        let lines = Lines::of(text);
        let line = |at: usize| lines.number(at);
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("line {}: {}", line(at), error.message())
        })?;
        if document.prices.len() > MAX_ENTRIES {
            let found = document.prices.len();
            return Err(format!(
                "it has {found} prices, and {MAX_ENTRIES} are the limit"
            ));
        }
        let mut overrides = BTreeMap::new();
        let mut known: BTreeMap<Key, usize> = BTreeMap::new();
        for (index, entry) in document.prices.into_iter().enumerate() {
            let (start, entry) = (entry.span().start, entry.into_inner());
            let lines = &lines;
            let reader = EntryReader {
                lines,
                index,
                start,
            };
            let (key, price) = reader.read(&entry)?;
            let here = line(start);
            if let Some(before) = known.insert(key.clone(), here) {
                return Err(format!(
                    "line {here}: prices[{index}] repeats the prices of line {before}"
                ));
            }
            overrides.insert(key, price);
        }
        Ok(Self(overrides))
    }
}

/// Reads one entry, and says where an error is.
struct EntryReader<'a> {
    lines: &'a Lines,
    index: usize,
    start: usize,
}

impl EntryReader<'_> {
    fn read(&self, entry: &Entry) -> Result<(Key, f64), String> {
        let region = self.name("region", entry.region.as_ref())?;
        let zone = self.name("zone", entry.zone.as_ref())?;
        if let (Some(region), Some(zone), Some(at)) = (&region, &zone, &entry.zone)
            && !zone.starts_with(region.as_str())
        {
            return Err(self.error(at, "zone", &format!("{zone:?} is not a zone of {region}")));
        }
        let instance_type = self.name("type", entry.instance_type.as_ref())?;
        let instance_type = instance_type.ok_or_else(|| self.missing("type"))?;
        let market = match (self.name("market", entry.market.as_ref())?, &entry.market) {
            (Some(name), Some(at)) => Some(match name.as_str() {
                "spot" => Market::Spot,
                "on-demand" => Market::OnDemand,
                _ => {
                    let what = format!("{name:?} is neither \"spot\" nor \"on-demand\"");
                    return Err(self.error(at, "market", &what));
                }
            }),
            _ => None,
        };
        let scope = match (zone, region) {
            (Some(zone), _) => Scope::Zone(zone),
            (None, Some(region)) => Scope::Region(region),
            (None, None) => Scope::Everywhere,
        };
        let key = Key {
            instance_type,
            scope,
            market,
        };
        Ok((key, self.price(entry)?))
    }

    fn price(&self, entry: &Entry) -> Result<f64, String> {
        let given = entry.price.as_ref();
        let given = given.ok_or_else(|| self.missing("price"))?;
        let value = given.get_ref();
        let number = match value {
            Value::Float(number) => Some(*number),
            Value::Integer(_) => value.to_string().parse().ok(),
            Value::String(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => None,
        };
        let number = number
            .ok_or_else(|| self.error(given, "price", &format!("{value} is not a number")))?;
        check_price(number).map_err(|why| self.error(given, "price", &format!("it is {why}")))?;
        Ok(number)
    }

    fn name(&self, key: &str, given: Option<&Spanned<Value>>) -> Result<Option<String>, String> {
        let Some(given) = given else {
            return Ok(None);
        };
        match given.get_ref().as_str() {
            Some(name) if !name.is_empty() => Ok(Some(name.to_owned())),
            _ => {
                let what = format!("{} is not a name", given.get_ref());
                Err(self.error(given, key, &what))
            }
        }
    }

    fn error(&self, at: &Spanned<Value>, key: &str, what: &str) -> String {
        let line = self.lines.number(at.span().start);
        format!("line {line}: prices[{}].{key}: {what}", self.index)
    }

    fn missing(&self, key: &str) -> String {
        let line = self.lines.number(self.start);
        format!("line {line}: prices[{}].{key} is missing", self.index)
    }
}

/// Where the lines of a text end.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The number of the line with this byte, counted from 1.
    fn number(&self, at: usize) -> usize {
        1 + self.0.partition_point(|end| *end < at)
    }
}

impl PriceFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::default(),
            is_read: AtomicBool::default(),
        }
    }

    pub(crate) fn overrides(&self) -> Arc<Overrides> {
        Arc::clone(&self.state().overrides)
    }

    /// Why the content of the file does not count.
    pub(crate) fn error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// Reads the file if it has changed. Waits for a limited time, and does nothing while an
    /// earlier read has not ended.
    pub(crate) async fn reread(self: &Arc<Self>, provider_id: &ProviderId) {
        let id = provider_id.clone();
        let read = move |file: &Self| file.reread_blocking(&id);
        self.reread_within(MAX_READ, provider_id, read).await;
    }

    async fn reread_within(
        self: &Arc<Self>,
        limit: Duration,
        provider_id: &ProviderId,
        read: impl FnOnce(&Self) + Send + 'static,
    ) {
        if self.is_read.swap(true, Ordering::AcqRel) {
            return;
        }
        let (ends, has_ended) = oneshot::channel();
        let reading = Reading {
            file: Arc::clone(self),
            _ends: ends,
        };
        let body = move || read(&reading.file);
        // The runtime would wait for a blocking task of its own when the program ends.
        let thread = std::thread::Builder::new().name("price_file".to_owned());
        let why = match thread.spawn(body) {
            Err(error) => format!("it cannot be read: {error}"),
            // A panic there leaves the content as it was.
            Ok(_) if tokio::time::timeout(limit, has_ended).await.is_ok() => return,
            Ok(_) => format!("it cannot be read within {} s", limit.as_secs()),
        };
        let mut state = self.state();
        state.seen = None;
        self.note_error(&mut state, provider_id, &why);
    }

    /// Reads the file if it has changed. An error is logged once. Blocks on the file.
    fn reread_blocking(&self, provider_id: &ProviderId) {
        let stamp = Stamp::of(&self.path);
        if self.state().seen.as_ref() == Some(&stamp) {
            return;
        }
        let read = stamp.clone().and_then(|_| read(&self.path));
        let mut state = self.state();
        state.seen = Some(stamp);
        match read {
            Ok(overrides) => {
                let (count, path) = (overrides.0.len(), self.path.display());
                state.overrides = Arc::new(overrides);
                state.error = None;
                tracing::info!(provider.id = %provider_id, "{provider_id} uses {count} prices of {path}");
            }
            Err(why) => self.note_error(&mut state, provider_id, &why),
        }
    }

    fn note_error(&self, state: &mut FileState, provider_id: &ProviderId, why: &str) {
        let (count, path) = (state.overrides.0.len(), self.path.display());
        let error = format!(
            "price_file {path}: {why}. The {count} prices that were read before stay in use"
        );
        tracing::warn!(provider.id = %provider_id, error = %error, "{provider_id}: {error}");
        state.error = Some(error);
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read that has not ended, whether by itself or by a panic.
struct Reading {
    file: Arc<PriceFile>,
    /// Tells who waits, since it is dropped then.
    _ends: oneshot::Sender<()>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.file.is_read.store(false, Ordering::Release);
    }
}

impl Stamp {
    /// Does not open the file: to open a pipe waits until something writes to it.
    fn of(path: &Path) -> Result<Self, String> {
        use std::os::unix::fs::MetadataExt;

        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        Ok(Self {
            modified: metadata.modified().ok(),
            size_bytes: metadata.len(),
            inode: metadata.ino(),
        })
    }
}

fn read(path: &Path) -> Result<Overrides, String> {
    let file = File::open(path).map_err(unreadable)?;
    let size_bytes = file.metadata().map_err(unreadable)?.len();
    if size_bytes > MAX_BYTES {
        return Err(format!(
            "it has {size_bytes} bytes, and {MAX_BYTES} are the limit"
        ));
    }
    // The stated size may be wrong, as in /proc.
    let mut text = String::new();
    let limited = &mut file.take(MAX_BYTES + 1);
    limited.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    Overrides::parse(&text)
}

fn unreadable(error: std::io::Error) -> String {
    format!("it cannot be read: {error}")
}

#[cfg(test)]
mod tests;
