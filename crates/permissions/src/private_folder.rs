//! Folders that only their owner may use.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Maximum depth of nested folders that are reopened. Deeper ones are an attempt to prevent their
/// removal.
const MAX_DEPTH: u32 = 1_000;
/// Only the owner may list, change and enter it.
const PRIVATE: u32 = 0o700;
/// Others may enter it if they know a name in it.
const PASSAGE: u32 = 0o011;
/// All of the owner and of the group, with the mark by which new files get this group.
const WITH_GROUP: u32 = 0o2770;

/// Makes a folder with its missing parents, so that only its owner may use them. An existing folder
/// keeps its rights: an operator named it, and it may be `/tmp`.
pub fn create_private(folder: &Path) -> io::Result<()> {
    make(folder, PRIVATE)
}

/// Makes a folder as [`create_private`] does, and closes an existing one to all other users. For
/// folders whose name is ours.
pub fn make_private(folder: &Path) -> io::Result<()> {
    make(folder, PRIVATE)?;
    set_rights(folder, PRIVATE, 0)
}

/// As [`make_private`], but others may pass through it to a folder in it that is theirs.
pub fn make_passable(folder: &Path) -> io::Result<()> {
    make(folder, PRIVATE)?;
    set_rights(folder, PRIVATE, PASSAGE)
}

/// As [`make_private`], but an existing folder keeps the rights of its group.
pub fn make_for_group(folder: &Path) -> io::Result<()> {
    make(folder, 0o750)?;
    set_rights(folder, WITH_GROUP, 0)
}

/// Closes a folder to all other users, if it exists.
pub fn close(folder: &Path) -> io::Result<()> {
    match set_rights(folder, PRIVATE, 0) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        closed => closed,
    }
}

fn make(folder: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(folder)
}

fn set_rights(folder: &Path, kept: u32, given: u32) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode() & 0o7777;
    let fresh = mode & kept | given;
    if fresh == mode {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(fresh))?;
    let path = folder.display();
    tracing::info!("changed the mode of {path} from {mode:04o} to {fresh:04o}, for other users");
    Ok(())
}

/// Deletes a folder or file with its content, also folders that were closed to their owner. It need
/// not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = remove_at_once(path);
    if matches!(&removed, Err(error) if error.kind() == ErrorKind::PermissionDenied) {
        open_up(path, MAX_DEPTH);
        return remove_at_once(path);
    }
    removed
}

fn remove_at_once(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Restores our right to delete in folders that their owner closed, down to this depth.
fn open_up(path: &Path, depth: u32) {
    if !path
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir())
    {
        return;
    }
    if fs::set_permissions(path, Permissions::from_mode(PRIVATE)).is_err() {
        // The deletion names the folder that stays.
        return;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path(), depth);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_folder_and_its_new_parents_are_private_and_an_existing_one_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        create_private(&deep).unwrap();
        assert_eq!((mode(&deep), mode(deep.parent().unwrap())), (0o700, 0o700));
        for (before, after) in [
            (0o755, 0o700),
            (0o777, 0o700),
            (0o2750, 0o700),
            (0o710, 0o700),
            (0o500, 0o500),
        ] {
            fs::set_permissions(&deep, Permissions::from_mode(before)).unwrap();
            create_private(&deep).unwrap();
            assert_eq!(mode(&deep), before, "it is not ours");
            make_private(&deep).unwrap();
            assert_eq!(mode(&deep), after, "{before:o}");
        }
        fs::set_permissions(&deep, Permissions::from_mode(0o755)).unwrap();
        close(&deep).unwrap();
        assert_eq!(mode(&deep), 0o700);
        close(&deep.join("missing")).unwrap();
        assert!(!deep.join("missing").exists());
    }

    #[test]
    fn a_folder_for_a_group_keeps_the_rights_of_the_group_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        make_for_group(&path).unwrap();
        assert_eq!(mode(&path) & 0o077, mode(&path) & 0o050);
        for (before, after) in [(0o2777, 0o2770), (0o755, 0o750), (0o700, 0o700)] {
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            make_for_group(&path).unwrap();
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn a_passable_folder_can_be_entered_and_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        make_passable(&inner).unwrap();
        assert_eq!(mode(&inner), 0o711);
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
        make_passable(&inner).unwrap();
        assert_eq!(mode(&inner), 0o711);
    }

    #[test]
    fn closed_folders_are_opened_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let path = root.path().join("run");
        fs::create_dir_all(path.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&kept, path.join("a/link")).unwrap();
        fs::set_permissions(path.join("a"), Permissions::from_mode(0o000)).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn closed_folders_are_reopened_down_to_a_limit() {
        // The system does not allow paths of ten thousand folders.
        const LIMIT: usize = 20;
        for depth in sizes_around("permissions::private_folder::MAX_DEPTH", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            let nested = |depth: usize| root.path().join("run").join(["d"].repeat(depth).join("/"));
            fs::create_dir_all(nested(depth)).unwrap();
            let set_mode = |depth: usize, mode: u32| {
                fs::set_permissions(nested(depth), Permissions::from_mode(mode)).unwrap();
            };
            for depth in (0..=depth).rev() {
                set_mode(depth, 0o000);
            }
            open_up(&root.path().join("run"), u32::try_from(LIMIT).unwrap());
            // Without root's rights, only the first closed folder can be read.
            for depth in 0..=depth.min(LIMIT + 1) {
                let mode = fs::metadata(nested(depth)).unwrap().permissions().mode();
                let expected = if depth <= LIMIT { 0o700 } else { 0o000 };
                assert_eq!(mode & 0o777, expected, "{depth}");
            }
            for depth in 0..=depth {
                set_mode(depth, 0o700);
            }
        }
    }
}
