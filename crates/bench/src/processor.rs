//! Processor time of everything that answers a request: the server, its database, and the client.

use std::ops::{Add, Sub};
use std::time::Duration;

use crate::machine::{self, Stopwatch};
use crate::output;

/// The unit of the counters in Linux on all current machines.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server below this share of a core has settled.
const IDLE_SHARE: f64 = 0.05;
const SETTLING_BEAT: Duration = Duration::from_millis(500);

/// The processes whose processor time is read, each with the processes that it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) server: u32,
    /// The process that started all others of the database, if it is a server of its own.
    pub(crate) database: Option<u32>,
}

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessorTime {
    pub(crate) server: f64,
    pub(crate) database: f64,
    /// That of this program, which sends the requests.
    pub(crate) client: f64,
}

/// The counters of a process, in seconds.
struct Counters {
    parent: u32,
    own: f64,
    /// Of the processes that it started and that have ended.
    of_ended: f64,
}

impl Meter {
    /// The time until now, if the system reports it.
    pub(crate) fn read(&self) -> Option<ProcessorTime> {
        Some(ProcessorTime {
            server: with_children(self.server)?,
            database: self.database.map_or(Some(0.0), with_children)?,
            client: of_process(std::process::id())?,
        })
    }

    /// Waits until server and database are idle, at most this long.
    pub(crate) async fn settle(&self, limit: Duration) {
        let watch = Stopwatch::start();
        while watch.elapsed() < limit {
            let before = self.read();
            machine::pause(SETTLING_BEAT).await;
            let Some((after, before)) = self.read().zip(before) else {
                return;
            };
            if (after - before).answering() < IDLE_SHARE * SETTLING_BEAT.as_secs_f64() {
                return;
            }
        }
        if !limit.is_zero() {
            output::note("the server is still busy with its own work");
        }
    }
}

impl ProcessorTime {
    /// The time of all processes but the client.
    pub(crate) fn answering(&self) -> f64 {
        self.server + self.database
    }

    pub(crate) fn divided(self, by: f64) -> Self {
        Self {
            server: self.server / by,
            database: self.database / by,
            client: self.client / by,
        }
    }
}

impl Sub for ProcessorTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            server: self.server - before.server,
            database: self.database - before.database,
            client: self.client - before.client,
        }
    }
}

impl Add for ProcessorTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            server: self.server + other.server,
            database: self.database + other.database,
            client: self.client + other.client,
        }
    }
}

/// The processor time that a process itself has used, if the system reports it.
pub(crate) fn of_process(process: u32) -> Option<f64> {
    counters(&process.to_string()).map(|counters| counters.own)
}

/// Processes that ended since the last reading count for the process that started them, as the
/// system adds their time to it.
fn with_children(process: u32) -> Option<f64> {
    let root = counters(&process.to_string())?;
    let mut sum = root.own + root.of_ended;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        // Other entries have no counters, and neither has a process that has just ended.
        let child = entry.file_name().to_str().and_then(counters);
        if let Some(child) = child.filter(|child| child.parent == process) {
            sum += child.own + child.of_ended;
        }
    }
    Some(sum)
}

/// The process that started this one, if both run the same program.
pub(crate) fn parent_with_same_name(process: u32) -> Option<u32> {
    let name = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let parent = counters(&process.to_string())?.parent;
    (name(process)? == name(parent)?).then_some(parent)
}

fn counters(process: &str) -> Option<Counters> {
    parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Counters> {
    // The name, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let seconds = |place: usize| -> Option<f64> {
        let ticks: f64 = fields.get(place)?.parse().ok()?;
        Some(ticks / TICKS_PER_SECOND)
    };
    Some(Counters {
        parent,
        own: seconds(11)? + seconds(12)?,
        of_ended: seconds(13)? + seconds(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read_behind_its_name() {
        let stat = "42 (post) gres) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 1000 250 20 0 1 0 5";
        let counters = parse(stat).unwrap();
        assert_eq!(counters.parent, 7);
        assert!((counters.own - 2.0).abs() < 1e-9);
        assert!((counters.of_ended - 12.5).abs() < 1e-9);
    }

    #[test]
    fn what_ended_children_used_still_counts() {
        let own = std::process::id();
        let before = with_children(own).unwrap();
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done";
        let ended = std::process::Command::new("sh").args(["-c", busy]).status();
        assert!(ended.unwrap().success());
        assert!(with_children(own).unwrap() > before);
    }
}
