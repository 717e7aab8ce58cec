//! Room for files: a reserve of free disk, and a limit for the files of a task.

use std::path::Path;

use super::ArtifactError;

/// An upload looks at the disk again after this many bytes.
pub(super) const LOOK_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// The free space that files leave to others, such as the database.
    pub reserve_bytes: u64,
    /// For all uploads of a task together.
    pub task_bytes: u64,
}

impl FileLimits {
    /// Refuses bytes after which less than the reserve would be free in this folder.
    pub(super) fn check_disk(self, folder: &Path, needed: u64) -> Result<(), ArtifactError> {
        match cloud::free_bytes(folder) {
            Ok(free) => self.check_reserve(free, needed),
            // Writing finds out.
            Err(_) => Ok(()),
        }
    }

    fn check_reserve(self, free: u64, needed: u64) -> Result<(), ArtifactError> {
        let reserve = self.reserve_bytes;
        if reserve > 0 && free < reserve.saturating_add(needed) {
            return Err(ArtifactError::DiskFull {
                needed,
                free,
                reserve,
            });
        }
        Ok(())
    }

    /// Refuses a file with which the files of its task exceed their limit.
    pub(super) fn check_task(self, others: u64, needed: u64) -> Result<(), ArtifactError> {
        let limit = self.task_bytes;
        if others.saturating_add(needed) > limit {
            return Err(ArtifactError::TaskFull { others, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    const LIMIT: u64 = 1_000;

    fn limits(reserve_bytes: u64, task_bytes: u64) -> FileLimits {
        FileLimits {
            reserve_bytes,
            task_bytes,
        }
    }

    #[test]
    fn a_file_leaves_the_reserve_free() {
        for free in sizes_around("artifacts.reserve_bytes", 1_000) {
            let free = free as u64;
            let check = |reserve, needed| limits(reserve, 0).check_reserve(free, needed).is_ok();
            assert_eq!(check(LIMIT, 0), free >= LIMIT, "{free}");
            assert_eq!(check(LIMIT - 7, 7), free >= LIMIT, "{free}");
            assert!(!check(u64::MAX, 1));
            assert!(check(0, u64::MAX), "no reserve: {free}");
        }
        let refused = limits(LIMIT, 0).check_reserve(5, 7).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "The disk of this server is nearly full: 5 bytes are free, and 1000 stay reserved for \
             the database (`artifacts.reserve_bytes`), so there is no room for 7 bytes. Nothing was \
             stored; free space or delete artifacts, and send it again"
        );
    }

    #[test]
    fn the_files_of_a_task_have_a_limit_together() {
        for total in sizes_around("artifacts.max_task_bytes", 1_000) {
            let total = total as u64;
            for others in [0, total / 2, total] {
                let checked = limits(0, LIMIT).check_task(others, total - others);
                assert_eq!(checked.is_ok(), total <= LIMIT, "{others} of {total}");
            }
        }
        assert!(limits(0, LIMIT).check_task(u64::MAX, 1).is_err());
    }
}
