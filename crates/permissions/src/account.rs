//! Accounts of this machine: as whom a program can run, and what that account may do.

use std::ffi::CString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Gid, Uid, User, geteuid, getgrouplist};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub user: u32,
    /// The account's own group.
    pub group: u32,
    /// All groups.
    pub groups: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum UnknownAccount {
    #[error("this machine has no user {0}")]
    Missing(String),
    #[error("the user {name} cannot be looked up: {error}")]
    NotFound { name: String, error: io::Error },
}

impl Account {
    pub fn named(name: &str) -> Result<Self, UnknownAccount> {
        let failed = |error: io::Error| UnknownAccount::NotFound {
            name: name.to_owned(),
            error,
        };
        let user = User::from_name(name).map_err(|error| failed(error.into()))?;
        let user = user.ok_or_else(|| UnknownAccount::Missing(name.to_owned()))?;
        let text = CString::new(name).map_err(|error| failed(error.into()))?;
        let groups = getgrouplist(&text, user.gid).map_err(|error| failed(error.into()))?;
        Ok(Self {
            name: user.name,
            user: user.uid.as_raw(),
            group: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        })
    }

    /// Whether this process runs as this user.
    pub fn is_current(&self) -> bool {
        geteuid() == Uid::from_raw(self.user)
    }

    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Whether the account can read the file or list the folder.
    pub fn can_read(&self, path: &Path) -> io::Result<bool> {
        let path = path.canonicalize()?;
        let is_readable = self.has(&fs::metadata(&path)?, 0o4);
        Ok(is_readable && self.closed_folder_above(&path)?.is_none())
    }

    /// The first folder on the way to this path, itself included, that the account cannot enter.
    pub fn closed_folder_on(&self, path: &Path) -> io::Result<Option<std::path::PathBuf>> {
        let path = path.canonicalize()?;
        if let Some(closed) = self.closed_folder_above(&path)? {
            return Ok(Some(closed));
        }
        Ok((!self.has(&fs::metadata(&path)?, 0o1)).then_some(path))
    }

    fn closed_folder_above(&self, path: &Path) -> io::Result<Option<std::path::PathBuf>> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for folder in above {
            if !self.has(&fs::metadata(folder)?, 0o1) {
                return Ok(Some(folder.to_owned()));
            }
        }
        Ok(None)
    }

    /// Whether the account has this right, a bit of a digit of a mode.
    fn has(&self, file: &Metadata, right: u32) -> bool {
        let digit = if file.uid() == self.user {
            file.mode() >> 6
        } else if self.groups.contains(&file.gid()) || file.gid() == self.group {
            file.mode() >> 3
        } else {
            file.mode()
        };
        self.is_root() || digit & right != 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_account_is_found_by_its_name() {
        let root = Account::named("root").unwrap();
        assert!(root.is_root() && root.groups.contains(&0));
        let error = Account::named("no-such-user").unwrap_err();
        assert_eq!(error.to_string(), "this machine has no user no-such-user");
        assert!(Account::named("a\0b").is_err());
    }

    #[test]
    fn the_rights_of_an_account_follow_its_user_its_groups_and_the_folders_above() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "x").unwrap();
        let owner = fs::metadata(&file).unwrap();
        let account = |user: u32, groups: &[u32]| Account {
            name: "one".to_owned(),
            user,
            group: u32::MAX - 1,
            groups: groups.to_vec(),
        };
        let stranger = u32::MAX - 1;
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        for (folder_mode, file_mode, by_group, by_all) in [
            (0o755, 0o644, true, true),
            (0o755, 0o640, true, false),
            (0o750, 0o644, true, false),
            (0o700, 0o644, false, false),
            (0o755, 0o604, false, true),
        ] {
            set(root.path(), folder_mode);
            set(&file, file_mode);
            let can_read = |one: &Account| one.can_read(&file).unwrap();
            assert_eq!(can_read(&account(stranger, &[owner.gid()])), by_group);
            assert_eq!(can_read(&account(stranger, &[])), by_all);
        }
        let closed = |one: &Account| one.closed_folder_on(root.path()).unwrap();
        set(root.path(), 0o711);
        assert_eq!(closed(&account(stranger, &[])), None);
        set(root.path(), 0o700);
        let path = root.path().canonicalize().unwrap();
        assert_eq!(closed(&account(stranger, &[])), Some(path));
    }
}
