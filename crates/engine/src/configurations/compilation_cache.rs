//! Compiled worker configurations, cached so that an edit compiles only what it changes.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use domain::Version;
use domain::configuration::{Compilation, Configuration, ProviderCatalog, StoredConfiguration};
use domain::id::ConfigurationId;
use store::StoreError;
use tracing::warn;

use super::ConfigurationError;
use crate::Engine;
use crate::work_limiter::WorkLimiter;

/// At most this many configurations are cached, each in its last version.
const MAX_ENTRIES: usize = 64;
/// Approximate maximum size of the cached launch configs; the last used configuration always stays.
const MAX_BYTES: usize = 256 << 20;
/// At most this many configurations are compiled at the same time for each purpose.
const MAX_AT_ONCE: usize = 2;

/// Why something is compiled. Callers who may only read never delay an edit.
#[derive(Clone, Copy)]
pub enum Purpose {
    Edit,
    /// A plan, a comparison or an evaluation: nothing is stored.
    Question,
}

pub struct CompilationCache {
    /// The last used one is last.
    kept: Mutex<Vec<(ConfigurationId, Version, Arc<Compilation>)>>,
    edits: WorkLimiter,
    questions: WorkLimiter,
}

impl Default for CompilationCache {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            edits: WorkLimiter::new(MAX_AT_ONCE),
            questions: WorkLimiter::new(MAX_AT_ONCE),
        }
    }
}

impl CompilationCache {
    fn get(&self, id: &ConfigurationId, version: Version) -> Option<Arc<Compilation>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept
            .iter()
            .position(|(known, of, _)| known == id && *of == version)?;
        kept[place..].rotate_left(1);
        kept.last()
            .map(|(_, _, compilation)| Arc::clone(compilation))
    }

    pub(super) fn put(
        &self,
        id: &ConfigurationId,
        version: Version,
        compilation: Arc<Compilation>,
    ) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _, _)| known != id);
        kept.push((id.clone(), version, compilation));
        let n_bytes = |(_, _, compilation): &(_, _, Arc<Compilation>)| compilation.n_bytes();
        while kept.len() > MAX_ENTRIES
            || kept.len() > 1 && kept.iter().map(n_bytes).sum::<usize>() > MAX_BYTES
        {
            kept.remove(0);
        }
    }

    /// Runs work on another thread, within the limit for its purpose.
    pub async fn run_limited<T: Send + 'static>(
        &self,
        purpose: Purpose,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let limiter = match purpose {
            Purpose::Edit => &self.edits,
            Purpose::Question => &self.questions,
        };
        limiter.run(compute).await
    }
}

/// The compilation of a stored configuration, with the provider catalog of that time.
pub async fn require_compilation(
    engine: &Engine,
    stored: &StoredConfiguration,
) -> Result<Arc<Compilation>, ConfigurationError> {
    let problem = match compile_stored(engine, Purpose::Question, stored).await?.1 {
        Ok(compilation) => return Ok(compilation),
        Err(problem) => problem,
    };
    let text = format!(
        "What is stored of the worker configuration {} cannot be used any more; its pools stay as they are. Update it, revert it or \
         delete it:\n{problem}",
        stored.id
    );
    Err(ConfigurationError::Conflict(text))
}

/// The compilation of the current version; `None`: no such configuration. Reads the document only
/// if the version is not cached.
pub async fn compile_current(
    engine: &Engine,
    id: &ConfigurationId,
) -> Result<Option<(Version, Arc<Compilation>)>, ConfigurationError> {
    let named = id.clone();
    let read = engine.store.read("configuration_version", move |tx| {
        store::configurations::current_version(tx, &named)
    });
    let Some(version) = read.await? else {
        return Ok(None);
    };
    if let Some(known) = engine.compilations.get(id, version) {
        return Ok(Some((version, known)));
    }
    let named = id.clone();
    let read = engine.store.read("configuration_get", move |tx| {
        store::configurations::get(tx, &named)
    });
    match read.await? {
        Some(stored) => Ok(Some((
            stored.version,
            require_compilation(engine, &stored).await?,
        ))),
        None => Ok(None),
    }
}

/// The configuration before an edit.
pub(super) struct PreviousState {
    pub(super) stored: StoredConfiguration,
    pub(super) configuration: Configuration,
    /// `None`: it does not compile today, so nothing of it is reused.
    pub(super) compilation: Option<Arc<Compilation>>,
}

impl PreviousState {
    /// `None`: no such configuration. If `seen` is given, an existing one must have this version.
    pub(super) async fn load(
        engine: &Engine,
        purpose: Purpose,
        id: &ConfigurationId,
        seen: Option<Version>,
    ) -> Result<Option<Self>, ConfigurationError> {
        let id = id.clone();
        let read = engine.store.read("configuration_get", move |tx| {
            store::configurations::get(tx, &id)
        });
        let read: store::Result<_> = read.await;
        let Some(stored) = read? else {
            return Ok(None);
        };
        if let Some(seen) = seen.filter(|seen| *seen != stored.version) {
            let text = format!(
                "The worker configuration is at version {} and not at {}: somebody changed it meanwhile. Nothing was \
                 changed; read it again and repeat the edit on that.",
                stored.version.0, seen.0
            );
            return Err(ConfigurationError::Conflict(text));
        }
        let (configuration, compilation) = compile_stored(engine, purpose, &stored).await?;
        Ok(Some(Self {
            stored,
            configuration,
            compilation: compilation.ok(),
        }))
    }
}

/// The stored configuration, and its compilation or the error: rules may have become stricter.
async fn compile_stored(
    engine: &Engine,
    purpose: Purpose,
    stored: &StoredConfiguration,
) -> Result<(Configuration, Result<Arc<Compilation>, String>), ConfigurationError> {
    if let Some(known) = engine.compilations.get(&stored.id, stored.version) {
        return Ok((known.configuration.clone(), Ok(known)));
    }
    let corrupt = |reason: String| {
        ConfigurationError::from(StoreError::Corrupt {
            table: "worker_configurations",
            key: stored.id.to_string(),
            reason,
        })
    };
    let (document, market) = (stored.document.clone(), stored.market.clone());
    let compile = move || {
        let configuration = Configuration::parse(&document).map_err(|bad| bad.to_string())?;
        let market = ProviderCatalog::from_json(&market).map_err(|bad| bad.to_string())?;
        let compilation = Compilation::new(configuration.clone(), Arc::new(market));
        Ok((configuration, compilation.map_err(|bad| bad.to_string())))
    };
    let compiled: Result<_, String> = engine.compilations.run_limited(purpose, compile).await?;
    let (configuration, compilation) = compiled.map_err(corrupt)?;
    let compilation = compilation.map(Arc::new);
    match &compilation {
        Ok(compilation) => {
            let compilation = Arc::clone(compilation);
            engine
                .compilations
                .put(&stored.id, stored.version, compilation);
        }
        Err(problem) => {
            warn!(configuration = %stored.id, %problem, "a stored worker configuration is refused today");
        }
    }
    Ok((configuration, compilation))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;
    use crate::work_limiter;

    fn id(number: usize) -> ConfigurationId {
        format!("c{number}").parse().unwrap()
    }

    #[test]
    fn the_last_versions_of_the_configurations_used_last_are_cached() {
        let document = json!({"workerTypes": [], "rules": []});
        let configuration = Configuration::parse(&document).unwrap();
        let market = Arc::new(ProviderCatalog::default());
        let compilation = Arc::new(Compilation::new(configuration, market).unwrap());
        let (old, new) = (Version(1), Version(2));
        for count in sizes_around(
            "engine::configurations::compilation_cache::MAX_ENTRIES",
            MAX_ENTRIES,
        ) {
            let compilations = CompilationCache::default();
            for number in 0..count {
                compilations.put(&id(number), old, Arc::clone(&compilation));
                compilations.put(&id(number), new, Arc::clone(&compilation));
                // The first one is used again and again, so it stays.
                assert!(compilations.get(&id(0), new).is_some());
            }
            let is_kept = |number: &usize| compilations.get(&id(*number), new).is_some();
            let kept: Vec<usize> = (0..count).filter(is_kept).collect();
            let n_others = count.min(MAX_ENTRIES).saturating_sub(1);
            let expected = (0..count).filter(|number| *number == 0 || number + n_others >= count);
            assert!(expected.eq(kept.iter().copied()), "{kept:?}");
            assert_eq!(kept.len(), count.min(MAX_ENTRIES));
            assert!((0..count).all(|number| compilations.get(&id(number), old).is_none()));
        }
    }

    #[tokio::test]
    async fn concurrent_compilations_have_a_limit() {
        for count in sizes_around(
            "engine::configurations::compilation_cache::MAX_AT_ONCE",
            MAX_AT_ONCE,
        ) {
            let cache = CompilationCache::default();
            for limiter in [&cache.edits, &cache.questions] {
                work_limiter::tests::check_limit(limiter, count, MAX_AT_ONCE).await;
            }
        }
    }

    #[tokio::test]
    async fn questions_never_delay_an_edit() {
        let cache = CompilationCache::default();
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let mut releases = Vec::new();
        let questions = (0..10 * MAX_AT_ONCE).map(|_| {
            let (release, released) = std::sync::mpsc::channel::<()>();
            releases.push(release);
            let started = started.clone();
            cache.run_limited(Purpose::Question, move || {
                started.send(()).unwrap();
                // An error: its sender was dropped.
                released.recv().unwrap_err();
            })
        });
        let questions: Vec<_> = questions.collect();
        let editing = async {
            for _ in 0..MAX_AT_ONCE {
                starts.recv().await.unwrap();
            }
            // All permits for questions are taken, and others wait.
            assert_eq!(cache.run_limited(Purpose::Edit, || 1).await.unwrap(), 1);
            releases.clear();
        };
        tokio::join!(futures_util::future::join_all(questions), editing);
    }
}
