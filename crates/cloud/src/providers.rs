//! All configured providers, in the order of the configuration, and which of them are in service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::id::ProviderId;

use crate::{NullProvider, Provider, SetupFailed};

struct Entry {
    id: ProviderId,
    provider: Arc<dyn Provider>,
    /// In service: its set-up has succeeded.
    ready: AtomicBool,
}

pub struct Providers {
    /// The built-in null provider is the last one and is not listed.
    entries: Vec<Entry>,
}

/// Why a provider cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAvailable {
    #[error("there is no provider of this name")]
    Unknown,
    #[error("its set-up has failed and will be tried again")]
    SetupFailed,
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
                id,
                provider,
                ready: AtomicBool::new(false),
            })
            .collect();
        Self { entries }
    }

    pub fn get(&self, id: &ProviderId) -> Result<&Arc<dyn Provider>, NotAvailable> {
        let entry = self
            .entries
            .iter()
            .find(|entry| entry.id == *id)
            .ok_or(NotAvailable::Unknown)?;
        if entry.ready.load(Ordering::Acquire) {
            Ok(&entry.provider)
        } else {
            Err(NotAvailable::SetupFailed)
        }
    }

    /// Id and kind of each configured provider, in or out of service.
    pub fn listed(&self) -> impl Iterator<Item = (&ProviderId, &'static str)> {
        self.entries
            .iter()
            .filter(|entry| !entry.id.is_null())
            .map(|entry| (&entry.id, entry.provider.kind()))
    }

    /// Sets up those that are not in service. Returns those that have become so, and those that
    /// still fail, with the reason.
    pub async fn set_up_missing(&self) -> (Vec<&ProviderId>, Vec<(&ProviderId, SetupFailed)>) {
        let (mut ready, mut failed) = (Vec::new(), Vec::new());
        for entry in self
            .entries
            .iter()
            .filter(|entry| !entry.ready.load(Ordering::Acquire))
        {
            match entry.provider.setup().await {
                Ok(()) => {
                    entry.ready.store(true, Ordering::Release);
                    ready.push(&entry.id);
                }
                Err(problem) => failed.push((&entry.id, problem)),
            }
        }
        (ready, failed)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use contract::Invalid;
    use serde_json::Value;

    use crate::{IdentityClaim, ProofRefused, Verified};

    use super::*;

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
        async fn setup(&self) -> Result<(), SetupFailed> {
            match self.0.swap(true, Ordering::AcqRel) {
                true => Ok(()),
                false => Err(SetupFailed("no network yet".to_owned())),
            }
        }
        async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verified, ProofRefused> {
            Err(ProofRefused {
                message: "no",
                detail: String::new(),
            })
        }
    }

    #[tokio::test]
    async fn a_provider_that_fails_its_set_up_is_out_of_service_until_it_succeeds() {
        let id: ProviderId = "shaky".parse().unwrap();
        let shaky: Arc<dyn Provider> = Arc::new(Shaky(AtomicBool::new(false)));
        let providers = Providers::new(vec![(id.clone(), shaky)]);
        assert_eq!(providers.get(&id).err(), Some(NotAvailable::SetupFailed));

        let (_, failed) = providers.set_up_missing().await;
        assert_eq!(failed[0].1.to_string(), "no network yet");
        assert_eq!(providers.get(&id).err(), Some(NotAvailable::SetupFailed));
        assert_eq!(
            providers.listed().map(|(_, kind)| kind).collect::<Vec<_>>(),
            ["shaky"]
        );

        let (ready, failed) = providers.set_up_missing().await;
        assert_eq!((ready, failed), (vec![&id], vec![]));
        assert!(providers.get(&id).is_ok());
    }

    #[tokio::test]
    async fn the_null_provider_is_always_there_and_never_listed() {
        let providers = Providers::new(vec![]);
        providers.set_up_missing().await;
        assert!(providers.get(&ProviderId::null()).is_ok());
        assert_eq!(providers.listed().count(), 0);
        let unknown = "nosuch".parse().unwrap();
        assert_eq!(providers.get(&unknown).err(), Some(NotAvailable::Unknown));
    }
}
