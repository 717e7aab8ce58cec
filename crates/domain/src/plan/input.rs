//! The input of a plan, stored with it: the same input makes the same plan, byte for byte.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::de::IgnoredAny;

use super::shadow::shadow_plan;
use super::{Plan, Snapshot, plan};

/// An input that is larger than this when packed is not stored.
pub const MAX_PACKED_BYTES: usize = 512 * 1024;
/// A packed input that is larger than this when unpacked was not written by us.
const MAX_UNPACKED_BYTES: u64 = 64 * 1024 * 1024;
/// The version of packed inputs. Any other version is refused.
const VERSION: u64 = 1;

/// The snapshot and the seed of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub seed: u64,
    pub snapshot: Snapshot,
}

/// The packed input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadInput {
    #[error("it has version {0}, and this program reads version {VERSION}")]
    Version(u64),
    #[error("it cannot be unpacked")]
    Packing(#[from] io::Error),
    #[error("it is not the input of a plan")]
    Content(#[from] serde_json::Error),
}

impl Input {
    /// The plan that a snapshot makes with this seed, and that of its shadow.
    pub fn plan(snapshot: &Snapshot, seed: u64) -> Plan {
        Plan {
            shadow: shadow_plan(snapshot, seed),
            ..plan(snapshot, &mut StdRng::seed_from_u64(seed))
        }
    }

    /// Makes the plan again.
    pub fn replay(&self) -> Plan {
        Self::plan(&self.snapshot, self.seed)
    }

    /// Compresses the input; `None` if that takes more than [`MAX_PACKED_BYTES`].
    pub fn pack(&self) -> Option<Vec<u8>> {
        let bounded = Bounded(Vec::new());
        let mut encoder = DeflateEncoder::new(bounded, Compression::fast());
        serde_json::to_writer(&mut encoder, &(VERSION, self.seed, &self.snapshot)).ok()?;
        Some(encoder.finish().ok()?.0)
    }

    pub fn unpack(packed: &[u8]) -> Result<Self, BadInput> {
        let mut plain = Vec::new();
        DeflateDecoder::new(packed)
            .take(MAX_UNPACKED_BYTES)
            .read_to_end(&mut plain)?;
        let (version, _, _): (u64, IgnoredAny, IgnoredAny) = serde_json::from_slice(&plain)?;
        if version != VERSION {
            return Err(BadInput::Version(version));
        }
        let (_, seed, snapshot): (u64, u64, Snapshot) = serde_json::from_slice(&plain)?;
        Ok(Self { seed, snapshot })
    }
}

/// A writer that refuses more than [`MAX_PACKED_BYTES`].
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PACKED_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
