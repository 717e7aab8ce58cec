//! Files that more users can use than their owner.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Gid, getegid, geteuid, getgroups};

const READ_OR_WRITE: u32 = 0o6;
const ENTER: u32 = 0o1;

/// The users besides its owner who can read or change a file, or list or change a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// The members of this group.
    Group(u32),
    /// Every user of this machine.
    Everybody,
}

/// Finds who besides its owner can use the file or folder, by its mode and that of the folders
/// above it.
/// Symbolic links are followed. `None`: no other user.
///
/// A file of another owner that we can read through our group only is meant for this group.
pub fn exposure_of(path: &Path) -> io::Result<Option<Exposure>> {
    let path = path.canonicalize()?;
    let file = fs::metadata(&path)?;
    let mut above = Vec::new();
    for folder in path.ancestors().skip(1) {
        above.push(fs::metadata(folder)?);
    }
    let for_all = |it: &Metadata, rights: u32| it.mode() & rights != 0;
    if for_all(&file, READ_OR_WRITE) && above.iter().all(|it| for_all(it, ENTER)) {
        return Ok(Some(Exposure::Everybody));
    }
    let group = file.gid();
    let for_group = |it: &Metadata, rights: u32| {
        if it.gid() == group {
            it.mode() & rights << 3 != 0
        } else {
            for_all(it, rights)
        }
    };
    if for_group(&file, READ_OR_WRITE)
        && above.iter().all(|it| for_group(it, ENTER))
        && !is_ours_by_group(&file)
    {
        return Ok(Some(Exposure::Group(group)));
    }
    Ok(None)
}

fn is_ours_by_group(file: &Metadata) -> bool {
    let group = Gid::from_raw(file.gid());
    let is_member = || getegid() == group || getgroups().is_ok_and(|all| all.contains(&group));
    file.uid() != geteuid().as_raw() && is_member()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_exposed_by_its_mode_and_that_of_the_folders_above() {
        let root = tempfile::tempdir().unwrap();
        let (folder, file) = (root.path().join("folder"), root.path().join("folder/file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "x").unwrap();
        let group = fs::metadata(&file).unwrap().gid();
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let (group, all) = (Some(Exposure::Group(group)), Some(Exposure::Everybody));
        for (root_mode, folder_mode, file_mode, expected) in [
            (0o755, 0o755, 0o644, all),
            (0o755, 0o755, 0o602, all),
            (0o711, 0o711, 0o604, all),
            (0o755, 0o755, 0o640, group),
            (0o755, 0o750, 0o644, group),
            (0o755, 0o755, 0o600, None),
            (0o755, 0o755, 0o611, None),
            (0o755, 0o700, 0o666, None),
            (0o700, 0o755, 0o644, None),
            (0o755, 0o705, 0o640, None),
        ] {
            set(root.path(), root_mode);
            set(&folder, folder_mode);
            set(&file, file_mode);
            let found = exposure_of(&file).unwrap();
            assert_eq!(
                found, expected,
                "{root_mode:o} {folder_mode:o} {file_mode:o}"
            );
        }
        set(&folder, 0o755);
        set(root.path(), 0o755);
        assert_eq!(exposure_of(&folder).unwrap(), all, "a folder can be listed");
        set(&file, 0o604);
        symlink(&file, root.path().join("link")).unwrap();
        assert_eq!(exposure_of(&root.path().join("link")).unwrap(), all);
        assert!(exposure_of(&root.path().join("missing")).is_err());
    }
}
