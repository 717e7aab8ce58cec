//! As whom the command of a build runs, and what it may not do.

use std::io;

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use permissions::Account;
use serde::{Deserialize, Serialize};

/// As whom a build runs, and what it may not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// `None`: as the user of this process.
    pub account: Option<Account>,
    /// No program that the build starts has more rights than the build, so no `sudo`.
    pub no_new_privs: bool,
}

/// The user and the groups of the command, and whether it can get more rights.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rights {
    /// `None`: those of the supervisor.
    account: Option<AccountNumbers>,
    no_new_privs: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct AccountNumbers {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Rights {
    pub(crate) fn of(confinement: &Confinement) -> Self {
        let account = confinement.account.as_ref();
        Self {
            account: account.map(|account| AccountNumbers {
                user: account.user,
                group: account.group,
                groups: account.groups.clone(),
            }),
            no_new_privs: confinement.no_new_privs,
        }
    }

    /// Gives up all other rights of this process, for ever.
    pub(crate) fn take_on(&self) -> io::Result<()> {
        if let Some(account) = &self.account {
            let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
            let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
            setgroups(&groups)?;
            setresgid(group, group, group)?;
            setresuid(user, user, user)?;
        }
        if self.no_new_privs {
            prctl::set_no_new_privs()?;
        }
        Ok(())
    }
}
