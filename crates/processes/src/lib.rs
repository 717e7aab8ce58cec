//! The processes of this machine, as `/proc` shows them.
#![doc = include_str!("../README.md")]

use std::collections::BTreeMap;
use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The fields of `/proc/<id>/stat` that we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Zombies are not alive.
    pub is_alive: bool,
    pub parent: i32,
    pub group: i32,
    /// In kernel ticks since boot. Together with the id and the boot, it is unique.
    pub start_time: u64,
}

impl Stat {
    /// An error if the process does not exist.
    pub fn of(id: i32) -> io::Result<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat"))?)
            .ok_or_else(|| io::Error::other(format!("/proc/{id}/stat has an unknown form")))
    }

    /// The name in brackets may contain anything, also brackets, so read after the last one.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Self {
            is_alive: !matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// The ids of all processes. Some may have ended by now.
pub fn ids() -> io::Result<Vec<i32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        ids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|id| id.parse::<i32>().ok()),
        );
    }
    Ok(ids)
}

/// Whether any process of a group still runs. Zombies do not count.
pub fn is_group_alive(group: i32) -> bool {
    let ids = ids().unwrap_or_default();
    ids.into_iter()
        .any(|id| Stat::of(id).is_ok_and(|stat| stat.is_alive && stat.group == group))
}

/// Whether the environment that the process started with has these variables, each like
/// `NAME=value`. False if we may not read it.
pub fn has_variables(id: i32, variables: &[String]) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    variables.iter().all(|variable| {
        let mut all = environment.split(|byte| *byte == 0);
        all.any(|one| one == variable.as_bytes())
    })
}

/// The running processes whose environment has all of these variables.
pub fn with_variables(variables: &[String]) -> io::Result<Vec<i32>> {
    let is_alive = |id: &i32| Stat::of(*id).is_ok_and(|stat| stat.is_alive);
    let ids = ids()?.into_iter();
    Ok(ids
        .filter(|id| has_variables(*id, variables))
        .filter(is_alive)
        .collect())
}

/// The running processes below this one: its children, their children, and so on.
pub fn descendants(of: i32) -> io::Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<(i32, bool)>> = BTreeMap::new();
    for id in ids()? {
        if let Ok(stat) = Stat::of(id) {
            let siblings = children.entry(stat.parent).or_default();
            siblings.push((id, stat.is_alive));
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(parent) = next.pop() {
        for (id, is_alive) in children.remove(&parent).unwrap_or_default() {
            next.push(id);
            found.extend(is_alive.then_some(id));
        }
    }
    Ok(found)
}

/// Asks a process to end. Succeeds if it has ended.
pub fn terminate(id: i32) -> io::Result<()> {
    match nix::sys::signal::kill(Pid::from_raw(id), Signal::SIGTERM) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills a process. Succeeds if it has ended.
pub fn kill(id: i32) -> io::Result<()> {
    match nix::sys::signal::kill(Pid::from_raw(id), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell with a child, which have both been started when this returns.
    fn family() -> (Child, i32, String) {
        let mark = format!("FLEETWRIGHT_TEST_FAMILY={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .env(name, value)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(shell.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let child = line.trim().parse().unwrap();
        (shell, child, mark)
    }

    #[test]
    fn descendants_and_marked_processes_are_found_and_killed() {
        let (mut shell, sleeper, mark) = family();
        let shell_id = i32::try_from(shell.id()).unwrap();
        assert_eq!(descendants(shell_id).unwrap(), [sleeper]);
        let own = i32::try_from(std::process::id()).unwrap();
        let below = descendants(own).unwrap();
        assert!(below.contains(&shell_id) && below.contains(&sleeper));
        let mut marked = with_variables(std::slice::from_ref(&mark)).unwrap();
        marked.sort_unstable();
        let mut family = [shell_id, sleeper];
        family.sort_unstable();
        assert_eq!(marked, family);
        let other = [mark, "NO=SUCH".to_owned()];
        assert_eq!(with_variables(&other).unwrap(), Vec::<i32>::new());
        for id in family {
            kill(id).unwrap();
        }
        shell.wait().unwrap();
        assert!(Stat::of(shell_id).is_err(), "it was waited for");
        kill(shell_id).unwrap();
        assert_eq!(descendants(shell_id).unwrap(), Vec::<i32>::new());
    }

    #[test]
    fn a_name_with_brackets_and_spaces_is_read_over() {
        let fields = (4..=22).map(|n| n.to_string()).collect::<Vec<_>>();
        let stat = Stat::parse(&format!("7 (a) Z (b) S {}", fields.join(" "))).unwrap();
        let expected = Stat {
            is_alive: true,
            parent: 4,
            group: 5,
            start_time: 22,
        };
        assert_eq!(stat, expected);
        let zombie = Stat::parse(&format!("7 (a) Z {}", fields.join(" "))).unwrap();
        assert!(!zombie.is_alive);
        for text in ["", "7 (a", "7 (a) S", "7 (a) S 1 x"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }
}
