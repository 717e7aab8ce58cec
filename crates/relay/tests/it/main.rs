//! Look-ups about hosts, against real DNS servers (scripts/with-dns).
#![expect(clippy::unwrap_used, reason = "a test reports its error by failing")]

mod agreement;
mod spoofing;
mod zone;
