//! Where workers come from. The only crate that knows vendors.

mod config;
mod fake;
mod null;
mod provider;
#[cfg(test)]
mod provider_tests;
mod providers;
mod statik;

pub use config::{AcceptedConfig, ProviderConfig};
pub use fake::FakeCloud;
pub use null::NullProvider;
pub use provider::{
    BidRequest, ByHand, CloudError, Descriptor, IdentityClaim, LaunchError, LaunchOrder, Launched,
    Machines, Owned, Proof, ProofRefused, Provider, Refused, SetupFailed, Sighting, Verified,
};
pub use providers::{NotAvailable, Providers};
pub use statik::StaticProvider;
