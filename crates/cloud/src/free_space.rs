//! The free space of a disk.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// The bytes that this user can still write to the disk of a folder.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
}
