//! Names of all that belongs to one machine.
//!
//! They follow from the token of its launch. So a launch that is repeated finds what it made
//! before, and a machine that was made in part is removed without knowing how far it came.

use aws_lc_rs::digest::{SHA384, digest};
use domain::id::{LaunchToken, WorkerId};

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const PREFIX: &str = "vm-";
const N_CHARS: usize = 35;
/// Characters of the names of parts, which have longer prefixes.
const N_PART_CHARS: usize = 24;
/// Windows takes no longer name of a computer.
const N_COMPUTER_CHARS: usize = 15;

/// The names of one machine and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineNames {
    /// The random part of the machine's name.
    own: String,
}

impl MachineNames {
    /// The names of the machine with this number in a launch.
    pub(super) fn of_launch(token: &LaunchToken, number: u32) -> Self {
        let hashed = digest(&SHA384, format!("{token}:{number}").as_bytes());
        let char_of = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
        Self {
            own: hashed.as_ref().iter().take(N_CHARS).map(char_of).collect(),
        }
    }

    /// `None`: no launch of this provider makes machines with such an id.
    pub(super) fn of_worker(id: &str) -> Option<Self> {
        let own = id.strip_prefix(PREFIX)?;
        let is_ours = own.len() == N_CHARS && own.bytes().all(|byte| ALPHABET.contains(&byte));
        is_ours.then(|| Self {
            own: own.to_owned(),
        })
    }

    /// The name of the machine, which is the id of its worker.
    pub(super) fn vm(&self) -> String {
        format!("{PREFIX}{}", self.own)
    }

    pub(super) fn worker_id(&self) -> Option<WorkerId> {
        self.vm().parse().ok()
    }

    pub(super) fn computer(&self) -> &str {
        &self.own[..N_COMPUTER_CHARS]
    }

    /// A part of the names of all parts.
    pub(super) fn suffix(&self) -> &str {
        &self.own[..N_PART_CHARS]
    }

    pub(super) fn interface(&self) -> String {
        format!("nic-{}", self.suffix())
    }

    pub(super) fn address(&self) -> String {
        format!("pip-{}", self.suffix())
    }

    pub(super) fn os_disk(&self) -> String {
        format!("disk-{}-os", self.suffix())
    }

    pub(super) fn data_disk(&self, number: usize) -> String {
        format!("disk-{}-{number}", self.suffix())
    }

    pub(super) fn deployment(&self) -> String {
        format!("deploy-{}", self.suffix())
    }

    /// Whether something with this name is a part of the machine.
    pub(super) fn has_part(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let disk = name.strip_prefix("disk-");
        let disk = disk.and_then(|rest| rest.strip_prefix(self.suffix())?.strip_prefix('-'));
        let is_disk = disk.is_some_and(|rest| {
            rest == "os" || !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit())
        });
        is_disk || name == self.interface() || name == self.address() || name == self.vm()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_and_a_number_always_make_the_same_valid_names() {
        let token: LaunchToken = "AAAAAAAAQgGAAAAAAAAAAA".parse().unwrap();
        let names = MachineNames::of_launch(&token, 0);
        assert_eq!(names, MachineNames::of_launch(&token, 0));
        assert_ne!(names, MachineNames::of_launch(&token, 1));
        assert_eq!(names.vm().len(), 38);
        assert_eq!(names.worker_id().unwrap().as_str(), names.vm());
        assert_eq!(names.computer().len(), 15);
        assert_eq!(names.interface().len(), 28);
        assert_eq!(
            MachineNames::of_worker(&names.vm()),
            Some(names.clone()),
            "the names follow from the id"
        );
        for part in [
            names.vm(),
            names.interface().to_uppercase(),
            names.address(),
            names.os_disk(),
            names.data_disk(12),
        ] {
            assert!(names.has_part(&part), "{part}");
        }
        let other = MachineNames::of_launch(&token, 1);
        for part in [
            other.interface(),
            format!("{}x", names.os_disk()),
            "disk-".to_owned(),
        ] {
            assert!(!names.has_part(&part), "{part}");
        }
    }

    #[test]
    fn other_ids_are_of_no_launch() {
        for id in [
            "",
            "vm-",
            "host-7",
            "vm-ABC",
            &format!("vm-{}", "a".repeat(36)),
        ] {
            assert_eq!(MachineNames::of_worker(id), None, "{id}");
        }
    }
}
