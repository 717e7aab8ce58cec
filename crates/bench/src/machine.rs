//! The machine that is measured, and the clock and the random source of the benchmarks.

use std::num::NonZero;
use std::path::Path;

use access::seal::generate_key;
use anyhow::Context as _;
pub(crate) use api_client::pause;
use domain::time::{Clock as _, Timestamp};
use engine::clock::SystemClock;
pub(crate) use engine::measures::Stopwatch;
use rand::rngs::ThreadRng;
use serde_json::{Value, json};
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

/// The load of the last minute, if the system reports it.
pub(crate) fn load() -> Option<f64> {
    let averages = std::fs::read_to_string("/proc/loadavg").ok()?;
    averages.split(' ').next()?.parse().ok()
}

/// The machine and the build, which decide the figures of a run.
pub(crate) fn describe() -> Value {
    let line = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_matches([' ', '\t', ':', '=', '"']).to_owned())
    };
    let memory = line("/proc/meminfo", "MemTotal:").and_then(|text| {
        let kibibytes: u64 = text.strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kibibytes * 1_024)
    });
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    json!({
        "date": now().to_string().get(..10),
        "version": env!("CARGO_PKG_VERSION"),
        "build": build,
        "cores": std::thread::available_parallelism().map_or(0, NonZero::get),
        "model": line("/proc/cpuinfo", "model name"),
        "memoryBytes": memory,
        "system": line("/etc/os-release", "PRETTY_NAME"),
        "kernel": line("/proc/sys/kernel/osrelease", ""),
        "fileSystem": file_system(&std::env::temp_dir()),
    })
}

/// The kind of the file system of a folder, if the system reports it.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let around = mounts.filter(|(place, _)| folder.starts_with(place));
    let (_, kind) = around.max_by_key(|(place, _)| place.len())?;
    Some(kind.to_owned())
}

/// A folder with a key; removed when dropped.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("fleetwright-bench-")
        // Nothing starts with keys that others can read.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
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
