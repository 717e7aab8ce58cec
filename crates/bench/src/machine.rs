//! The clock and the random source of the benchmarks.

use access::seal::generate_key;
use anyhow::Context as _;
pub(crate) use api_client::pause;
use domain::time::{Clock as _, Timestamp};
use engine::clock::SystemClock;
pub(crate) use engine::measures::Stopwatch;
use rand::rngs::ThreadRng;
use tempfile::TempDir;

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// The memory of a process in this line of its status, if the system reports it.
pub(crate) fn memory_bytes(process: &str, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let value = status.lines().find_map(|known| known.strip_prefix(line))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1_024)
}

/// The processor time that a process has used, if the system reports it.
pub(crate) fn processor_seconds(process: u32) -> Option<f64> {
    /// The unit of the counters in Linux on all current machines.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: f64 = times.next()?.parse().ok()?;
    let system: f64 = times.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// A folder with a key; removed when dropped.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("fleetwright-bench-")
        .tempdir();
    let folder = folder.context("cannot make a folder")?;
    let key = generate_key(&mut chance());
    std::fs::write(folder.path().join("keys"), format!("k1 {}\n", key.expose()))
        .context("cannot write the keys")?;
    Ok(folder)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this program that asks for randomness"
)]
pub(crate) fn chance() -> ThreadRng {
    rand::rng()
}
