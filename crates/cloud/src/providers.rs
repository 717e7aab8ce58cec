//! The configured providers in the order of the configuration, and whether each is in service.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::ProviderId;
use domain::time::Timestamp;
use futures_util::future::join_all;

use crate::panic_guard::PanicGuard;
use crate::{CloudError, Machines, NullProvider, Provider, SetupError};

struct Entry {
    id: ProviderId,
    provider: Arc<dyn Provider>,
    /// In service once its set-up has succeeded; until then, why not.
    set_up: Mutex<Result<(), String>>,
}

pub struct Providers {
    /// The built-in null provider is the last entry and is not listed.
    entries: Vec<Entry>,
    /// When providers that are out of service are set up again.
    next_set_up: Mutex<Option<Timestamp>>,
}

/// Why a provider is unavailable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderUnavailable {
    #[error("no provider has this name")]
    Unknown,
    #[error("the set-up of the provider {id} failed and will be tried again: {why}")]
    SetupFailed { id: ProviderId, why: String },
}

impl Entry {
    fn in_service(&self) -> Result<&Arc<dyn Provider>, ProviderUnavailable> {
        let failed = |why| ProviderUnavailable::SetupFailed {
            id: self.id.clone(),
            why,
        };
        self.last_set_up().map(|()| &self.provider).map_err(failed)
    }

    /// Puts the provider in service as soon as its own set-up succeeds.
    async fn set_up(&self, limit: Duration) -> (&ProviderId, Result<(), SetupError>) {
        let done = tokio::time::timeout(limit, self.provider.setup()).await;
        let outcome = done.unwrap_or_else(|_| {
            let seconds = limit.as_secs();
            Err(SetupError(format!(
                "the set-up took longer than {seconds} s and will be tried again"
            )))
        });
        let mut last = self.set_up.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_err() {
            *last = outcome.as_ref().copied().map_err(ToString::to_string);
        }
        (&self.id, outcome)
    }

    fn last_set_up(&self) -> Result<(), String> {
        let last = self.set_up.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }
}

impl Providers {
    pub fn new(configured: Vec<(ProviderId, Arc<dyn Provider>)>) -> Self {
        let null = (
            ProviderId::null(),
            Arc::new(NullProvider) as Arc<dyn Provider>,
        );
        let entries = configured
            .into_iter()
            .chain([null])
            .map(|(id, provider)| Entry {
                provider: Arc::new(PanicGuard::new(id.clone(), provider)),
                id,
                set_up: Mutex::new(Err("the set-up has not finished yet".to_owned())),
            })
            .collect();
        Self {
            entries,
            next_set_up: Mutex::default(),
        }
    }

    pub fn get(&self, id: &ProviderId) -> Result<&Arc<dyn Provider>, ProviderUnavailable> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.id == *id);
        entry.ok_or(ProviderUnavailable::Unknown)?.in_service()
    }

    /// A configured provider, in or out of service.
    pub fn configured_as(&self, id: &ProviderId) -> Option<&Arc<dyn Provider>> {
        let mut entries = self.configured();
        let entry = entries.find(|entry| entry.id == *id)?;
        Some(&entry.provider)
    }

    fn configured(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.id.is_null())
    }

    /// The machines of a provider; `None`: it makes none, or is unavailable.
    pub fn machines(&self, id: &ProviderId) -> Option<&dyn Machines> {
        self.get(id).ok()?.machines()
    }

    /// Id and kind of each configured provider, in or out of service.
    pub fn listed(&self) -> impl Iterator<Item = (&ProviderId, &'static str)> {
        self.configured()
            .map(|entry| (&entry.id, entry.provider.kind()))
    }

    /// Why a configured provider is out of service; `None`: it is in service or unknown.
    pub fn setup_error(&self, id: &ProviderId) -> Option<String> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.id == *id)?;
        entry.last_set_up().err()
    }

    /// When providers that are out of service are set up again; `None`: not known yet.
    pub fn next_set_up(&self) -> Option<Timestamp> {
        *self
            .next_set_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_next_set_up(&self, at: Timestamp) {
        *self
            .next_set_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Each configured provider, or the reason why it is out of service.
    pub fn all(
        &self,
    ) -> impl Iterator<Item = (&ProviderId, Result<&Arc<dyn Provider>, ProviderUnavailable>)> {
        self.configured()
            .map(|entry| (&entry.id, entry.in_service()))
    }

    /// Notifies the providers in service that this process stops, concurrently and each within the
    /// limit. Returns those that failed, with the reason.
    pub async fn terminate(&self, limit: Duration) -> Vec<(&ProviderId, CloudError)> {
        let mut ends = Vec::new();
        for (id, provider) in self.all() {
            if let Ok(provider) = provider {
                ends.push(terminate(id, provider, limit));
            }
        }
        let ended = join_all(ends).await.into_iter();
        let failed = ended.filter_map(|(id, ended)| Some((id, ended.err()?)));
        failed.collect()
    }

    /// Sets up the providers that are not in service, concurrently, so that none waits for another.
    /// Returns those that are in service now, and those that failed or exceeded the limit, with the
    /// reason.
    pub async fn set_up_missing(
        &self,
        limit: Duration,
    ) -> (Vec<&ProviderId>, Vec<(&ProviderId, SetupError)>) {
        // Collected first: a future that holds a closure over borrows is not general enough for the
        // background tasks.
        let mut set_ups = Vec::new();
        for entry in &self.entries {
            if entry.last_set_up().is_err() {
                set_ups.push(entry.set_up(limit));
            }
        }
        let (mut ready, mut failed) = (Vec::new(), Vec::new());
        for (id, outcome) in join_all(set_ups).await {
            match outcome {
                Ok(()) => ready.push(id),
                Err(error) => failed.push((id, error)),
            }
        }
        (ready, failed)
    }
}

async fn terminate<'a>(
    id: &'a ProviderId,
    provider: &Arc<dyn Provider>,
    limit: Duration,
) -> (&'a ProviderId, Result<(), CloudError>) {
    let done = tokio::time::timeout(limit, provider.terminate()).await;
    let late = |_| {
        let seconds = limit.as_secs();
        Err(CloudError::Unavailable(format!(
            "no answer within {seconds} s"
        )))
    };
    (id, done.unwrap_or_else(late))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use contract::Invalid;
    use serde_json::Value;
    use tokio::sync::Barrier;

    use crate::{IdentityClaim, ProofRefused, Verification, VerifyError};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Fails its set-up the first time.
    struct Shaky(AtomicBool);

    #[async_trait]
    impl Provider for Shaky {
        fn kind(&self) -> &'static str {
            "shaky"
        }
        fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
            Ok(())
        }
        async fn setup(&self) -> Result<(), SetupError> {
            if self.0.swap(true, Ordering::AcqRel) {
                Ok(())
            } else {
                Err(SetupError("no network yet".to_owned()))
            }
        }
        async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
            Err(ProofRefused {
                message: "no",
                detail: String::new(),
            }
            .into())
        }
    }

    #[tokio::test]
    async fn a_provider_that_fails_its_set_up_is_out_of_service_until_it_succeeds() {
        let id: ProviderId = "shaky".parse().unwrap();
        let shaky: Arc<dyn Provider> = Arc::new(Shaky(AtomicBool::new(false)));
        let providers = Providers::new(vec![(id.clone(), shaky)]);
        let failed = |why: &str| {
            Some(ProviderUnavailable::SetupFailed {
                id: id.clone(),
                why: why.to_owned(),
            })
        };
        let unfinished = "the set-up has not finished yet";
        assert_eq!(providers.get(&id).err(), failed(unfinished));

        let error = || providers.setup_error(&id);
        assert_eq!(error().unwrap(), unfinished);
        let (_, causes) = providers.set_up_missing(LIMIT).await;
        assert_eq!(causes[0].1.to_string(), "no network yet");
        assert_eq!(error().unwrap(), "no network yet");
        assert_eq!(providers.get(&id).err(), failed("no network yet"));
        assert_eq!(
            providers.listed().map(|(_, kind)| kind).collect::<Vec<_>>(),
            ["shaky"]
        );
        let all: Vec<_> = providers.all().map(|(id, it)| (id, it.err())).collect();
        assert_eq!(all, [(&id, failed("no network yet"))]);

        let (ready, failed) = providers.set_up_missing(LIMIT).await;
        assert_eq!((ready, failed), (vec![&id], vec![]));
        assert_eq!(error(), None);
        assert!(providers.get(&id).is_ok());
        let places = providers.all().map(|(_, it)| it.unwrap().places());
        assert_eq!(places.collect::<Vec<_>>(), [Ok(Vec::new())]);
    }

    /// Completes its set-up together with others, or never.
    struct Waiting(Option<Arc<Barrier>>);

    #[async_trait]
    impl Provider for Waiting {
        fn kind(&self) -> &'static str {
            "waiting"
        }
        fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
            Ok(())
        }
        async fn setup(&self) -> Result<(), SetupError> {
            match &self.0 {
                Some(together) => {
                    together.wait().await;
                    Ok(())
                }
                None => std::future::pending().await,
            }
        }
        async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
            Err(CloudError::Unavailable("never asked".to_owned()).into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_never_answers_delays_no_other() {
        let together = Arc::new(Barrier::new(2));
        let named = |id: &str, together: Option<&Arc<Barrier>>| {
            let provider = Waiting(together.map(Arc::clone));
            (id.parse().unwrap(), Arc::new(provider) as Arc<dyn Provider>)
        };
        let providers = Providers::new(vec![
            named("silent", None),
            named("one", Some(&together)),
            named("two", Some(&together)),
        ]);
        let limit = Duration::from_secs(1);
        let (ready, failed) = providers.set_up_missing(limit).await;
        let ready: Vec<_> = ready.into_iter().map(ProviderId::as_str).collect();
        assert_eq!(ready, ["one", "two", "null-provider"]);
        assert_eq!(
            failed[0].1.to_string(),
            "the set-up took longer than 1 s and will be tried again"
        );
        let silent = "silent".parse().unwrap();
        let problem = providers.get(&silent).err();
        assert!(
            matches!(&problem, Some(ProviderUnavailable::SetupFailed { id, .. }) if *id == silent),
            "{problem:?}"
        );
    }

    /// Panics in every call that it gets.
    struct Broken;

    #[async_trait]
    impl Provider for Broken {
        fn kind(&self) -> &'static str {
            "broken"
        }
        fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
            panic!("no validation")
        }
        async fn setup(&self) -> Result<(), SetupError> {
            panic!("no set-up")
        }
        async fn terminate(&self) -> Result<(), CloudError> {
            panic!("no end")
        }
        async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
            panic!("no proof")
        }
    }

    #[tokio::test]
    async fn a_provider_that_panics_is_named_and_disturbs_no_other() {
        let together = Arc::new(Barrier::new(1));
        let providers = Providers::new(vec![
            (
                "broken".parse().unwrap(),
                Arc::new(Broken) as Arc<dyn Provider>,
            ),
            ("one".parse().unwrap(), Arc::new(Waiting(Some(together)))),
        ]);
        let (ready, failed) = providers.set_up_missing(LIMIT).await;
        let ready: Vec<_> = ready.into_iter().map(ProviderId::as_str).collect();
        assert_eq!(ready, ["one", "null-provider"]);
        assert_eq!(
            failed[0].1.to_string(),
            "the code of provider broken panicked in setup: no set-up"
        );
        let broken = &providers.entries[0].provider;
        let invalid = broken.validate(&mut Value::Null).unwrap_err();
        assert_eq!(
            invalid.problems[0].message,
            "the code of provider broken panicked in validate: no validation"
        );
        let ended = broken.terminate().await.unwrap_err();
        assert!(ended.to_string().ends_with("panicked in terminate: no end"));
        // It is out of service, so it does not hear that the process stops.
        assert!(providers.terminate(LIMIT).await.is_empty());
    }

    /// Its end never comes, or comes late.
    struct Endless;

    #[async_trait]
    impl Provider for Endless {
        fn kind(&self) -> &'static str {
            "endless"
        }
        fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
            Ok(())
        }
        async fn terminate(&self) -> Result<(), CloudError> {
            std::future::pending().await
        }
        async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
            Err(CloudError::Unavailable("never asked".to_owned()).into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_does_not_end_is_left_after_the_limit() {
        let endless = Arc::new(Endless) as Arc<dyn Provider>;
        let together = Arc::new(Barrier::new(1));
        let providers = Providers::new(vec![
            ("endless".parse().unwrap(), endless),
            ("one".parse().unwrap(), Arc::new(Waiting(Some(together)))),
        ]);
        providers.set_up_missing(LIMIT).await;
        let failed = providers.terminate(LIMIT).await;
        let failed: Vec<_> = failed
            .into_iter()
            .map(|(id, why)| format!("{id}: {why}"))
            .collect();
        assert_eq!(
            failed,
            ["endless: the cloud is unavailable: no answer within 5 s"]
        );
    }

    #[tokio::test]
    async fn a_provider_whose_constructor_panics_is_out_of_service_alone() {
        let built = crate::panic_guard::build_or_fail("bad", || panic!("no memory"));
        let together = Arc::new(Barrier::new(1));
        let providers = Providers::new(vec![
            ("bad".parse().unwrap(), built),
            ("one".parse().unwrap(), Arc::new(Waiting(Some(together)))),
        ]);
        let (ready, failed) = providers.set_up_missing(LIMIT).await;
        assert_eq!(ready.len(), 2);
        assert_eq!(
            failed[0].1.to_string(),
            "the constructor panicked: no memory"
        );
        let listed: Vec<_> = providers.listed().map(|(_, kind)| kind).collect();
        assert_eq!(listed, ["bad", "waiting"]);
    }

    #[tokio::test]
    async fn the_null_provider_is_always_in_service_and_never_listed() {
        let providers = Providers::new(vec![]);
        providers.set_up_missing(LIMIT).await;
        assert!(providers.get(&ProviderId::null()).is_ok());
        assert_eq!(providers.listed().count() + providers.all().count(), 0);
        let unknown = "nosuch".parse().unwrap();
        assert_eq!(
            providers.get(&unknown).err(),
            Some(ProviderUnavailable::Unknown)
        );
    }
}
