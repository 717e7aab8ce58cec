//! The cloud's machine on which the worker runs: its identity, and the notice of its end.

use std::convert::Infallible;
use std::time::Duration;

use crate::identity::Identity;
use crate::machine::pause;
use crate::metadata::{MetadataError, MetadataService};
use crate::stop::{Stop, Stops};
use crate::{aws, azure, google};

/// A cloud whose machines have a metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    Aws,
    Google,
    Azure,
}

impl Cloud {
    fn name(self) -> &'static str {
        match self {
            Self::Aws => "AWS",
            Self::Google => "Google",
            Self::Azure => "Azure",
        }
    }

    /// AWS announces a stop two minutes before, the others half a minute.
    fn watch_period(self) -> Duration {
        match self {
            Self::Aws => Duration::from_secs(5),
            Self::Google | Self::Azure => Duration::from_secs(1),
        }
    }
}

/// This machine, as its cloud describes it.
pub struct Instance {
    cloud: Cloud,
    service: MetadataService,
}

impl Instance {
    /// A machine of this cloud with its metadata service at this URL.
    pub fn at(cloud: Cloud, url: &str) -> Result<Self, MetadataError> {
        let service = MetadataService::at(url)?;
        Ok(Self { cloud, service })
    }

    /// The identity of the worker for which this machine was launched.
    pub async fn identity(&self) -> Result<Identity, MetadataError> {
        match self.cloud {
            Cloud::Aws => aws::identity(&self.service).await,
            Cloud::Google => google::identity(&self.service).await,
            Cloud::Azure => azure::identity(&self.service).await,
        }
    }

    async fn is_ending(&self, name: &str) -> Result<bool, String> {
        match self.cloud {
            Cloud::Aws => aws::is_ending(&self.service).await,
            Cloud::Google => google::is_ending(&self.service).await,
            Cloud::Azure => azure::is_ending(&self.service, name).await,
        }
    }
}

/// Requests a drain when the cloud is about to stop the machine of this name. Waits for ever on
/// other machines.
pub(crate) async fn watch(instance: Option<Instance>, name: String, stops: Stops) -> Infallible {
    if let Some(instance) = instance {
        loop {
            pause(instance.cloud.watch_period()).await;
            match instance.is_ending(&name).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(problem) => tracing::debug!("no answer from the metadata service: {problem}"),
            }
        }
        let cloud = instance.cloud.name();
        tracing::warn!("{cloud} is about to stop this machine");
        stops.ask(Stop::Drain);
    }
    std::future::pending().await
}
