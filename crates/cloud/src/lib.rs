//! Providers: they start workers, prove their identity and end them.
#![doc = include_str!("../README.md")]

mod aws;
mod azure;
mod call_budget;
mod call_scope;
mod cloud_error;
mod config;
mod conformance;
mod context;
mod cost;
mod exec;
mod external;
mod fake;
mod free_space;
mod google;
mod identity;
pub mod image;
mod leftovers;
mod local;
mod null;
mod panic_guard;
mod place;
mod pool_resources;
mod price_file;
mod price_table;
mod protocol;
mod provider;
mod providers;
mod region;
mod several_calls;
mod signed_client;
mod signing;
mod static_provider;
mod stderr;
mod strategy_client;
mod taskcluster_record;
#[cfg(test)]
mod tests;
mod vendor;
mod vendor_keys;
mod worker_creator;
mod worker_log;

pub use aws::{AwsConfig, AwsProvider, BadAwsConfig};
pub use azure::{AzureConfig, AzureProvider, BadAzureConfig};
pub use call_budget::CallBudget;
pub use call_scope::{CallNotes, CloudRequests, RequestNumbers, with_notes};
pub use cloud_error::CloudError;
pub use config::ProviderConfig;
pub use conformance::{
    ConformanceFinding, ConformanceHost, ConformanceResult, ConformanceRun, ProviderQuestion,
};
pub use context::ProviderContext;
pub use cost::CostPerHour;
pub use domain::judge::{MachineEnd, MachineState as Sighting};
pub use exec::{ExecProvider, ExecSettings};
pub use external::{ExternalProvider, ExternalSettings};
pub use fake::{
    AcceptedConfig, BilledMachine, Call, Decider, FakeCloud, FakeImage, FakeMachine, FakeSettings,
    ImageDefect, LaunchOutcome, UploadOutcome,
};
pub use free_space::free_bytes;
pub use google::{BadGoogleConfig, GoogleConfig, GoogleProvider};
pub use identity::identity_token;
#[cfg(test)]
pub(crate) use image::SmallDisk;
pub use image::{
    BadUploadToken, Checksum, ImageError, ImageTarget, ImageUpload, OwnedImage, Retry,
    UploadProblem, UploadProgress, UploadState, UploadToken, UploadedImage, checksum_of,
};
pub(crate) use image::{check_format, hex, sha256_of};
pub use leftovers::Leftover;
pub use local::{LocalProvider, LocalSettings};
pub use null::NullProvider;
pub use place::{
    BadPlaces, ConfiguredRegion, Fills, MAX_CONDITIONS, MAX_PLACES, Place, PlacesUnknown,
};
pub use pool_resources::PoolResourceMaker;
pub use price_table::BadPrice;
pub use provider::{
    DeclarationError, IdentityClaim, LaunchError, LaunchOrder, LaunchedMachine, MachineListing,
    MachineMaker, Machines, OwnedMachine, OwnedPage, Proof, ProofRefused, Provider, SetupError,
    ValidateError, Verification, VerifyError, WorkerDeclarer, list_machines,
};
pub use providers::{ProviderUnavailable, Providers};
pub use region::Region;
pub use static_provider::{StaticProvider, StaticSettings};
pub use strategy_client::{AskError, StrategyClient, StrategyContext, StrategySettings};
pub use taskcluster_record::{Record, Severity, TARGET};
pub use vendor_keys::{KeyVendor, UnknownKey};
pub use worker_creator::{WorkerCreator, WorkerOrder};
pub use worker_log::{LogEnd, MAX_WORKER_LOG_BYTES, WorkerLog};
