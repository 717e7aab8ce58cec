//! Where workers come from. The only crate that knows vendors.
#![doc = include_str!("../README.md")]

mod aws;
mod config;
mod context;
mod exec;
mod external;
mod fake;
mod identity;
mod local;
mod null;
mod outside;
mod place;
mod provider;
#[cfg(test)]
mod provider_tests;
mod providers;
mod region;
mod statik;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use aws::{AwsConfig, AwsProvider, BadAwsConfig};
pub use config::ProviderConfig;
pub use context::ProviderContext;
pub use exec::{ExecProvider, ExecSettings};
pub use external::{ExternalProvider, ExternalSettings};
pub use fake::{AcceptedConfig, Call, Decider, FakeCloud, FakeMachine, FakeSettings, Fate};
pub use identity::identity_token;
pub use local::{LocalProvider, LocalSettings};
pub use null::NullProvider;
pub use place::{BadPlaces, Fills, MAX_CONDITIONS, MAX_PLACES, Place, PlacesUnknown};
pub use provider::{
    BidRequest, ByHand, CloudError, IdentityClaim, LaunchError, LaunchOrder, Launched, Listing,
    MAX_OWNED_PAGES, Machines, NotValidated, NotVerified, Owned, OwnedPage, Proof, ProofRefused,
    Provider, Refused, SetupFailed, Sighting, Verified,
};
pub use providers::{NotAvailable, Providers};
pub use region::Region;
pub use statik::StaticProvider;
