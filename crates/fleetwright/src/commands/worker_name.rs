//! The name of a worker: `POOL/GROUP/WORKER`, or these as three arguments.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::{name, named_workers};
use crate::client::{Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use crate::failure::Failure;

pub(super) const LIST_COMMAND: &str = "fleetwright worker list POOL";

#[derive(Debug)]
pub(crate) struct Name {
    pub(super) pool: String,
    pub(super) group: String,
    pub(super) id: String,
}

/// The words on the command line.
#[derive(Args, Debug)]
struct Arguments {
    /// Worker: POOL/GROUP/WORKER, such as demo/linux/lab/host-1, or these as three arguments
    #[arg(value_name = "WORKER", required = true, num_args = 1..=3)]
    worker: Vec<String>,
}

impl FromArgMatches for Name {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Arguments::from_arg_matches(matches)?.worker;
        Self::of(&given)
            .map_err(|bad| clap::Error::raw(ErrorKind::ValueValidation, bad.message + "\n"))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Name {
    fn augment_args(command: Command) -> Command {
        Arguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Arguments::augment_args_for_update(command)
    }
}

impl Name {
    /// The worker that three arguments name; `None`: each argument names a worker.
    pub(super) fn of_parts(parts: &[String]) -> Result<Option<Self>, Failure> {
        let [pool, group, id] = parts else {
            return Ok(None);
        };
        if pool.split('/').count() > 2 {
            return Ok(None);
        }
        let worker = |text: &str| name::worker(text).map_err(Failure::usage);
        Ok(Some(Self {
            pool: name::pool(pool).map_err(Failure::usage)?,
            group: worker(group)?,
            id: worker(id)?,
        }))
    }

    /// The worker that one argument or three name.
    pub(super) fn of(given: &[String]) -> Result<Self, Failure> {
        if let [text] = given {
            return Self::of_text(text);
        }
        Self::of_parts(given)?
            .ok_or_else(|| Failure::usage("a worker is POOL/GROUP/WORKER: give all three"))
    }

    /// The worker that one argument names, such as demo/linux/lab/host-1.
    fn of_text(text: &str) -> Result<Self, Failure> {
        named_workers::worker(text).map_err(Failure::usage)?;
        let mut parts = text.rsplitn(3, '/');
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (id, group, pool) = (part(), part(), part());
        Ok(Self { pool, group, id })
    }

    pub(super) fn parts(&self) -> [&str; 3] {
        [&self.pool, &self.group, &self.id]
    }

    pub(super) fn segments(&self) -> [&str; 4] {
        ["workers", &self.pool, &self.group, &self.id]
    }

    pub(super) fn segments_in_queue(&self) -> [&str; 7] {
        let (provisioner, worker_type) = self.pool.split_once('/').unwrap_or((&self.pool, ""));
        [
            "provisioners",
            provisioner,
            "worker-types",
            worker_type,
            "workers",
            &self.group,
            &self.id,
        ]
    }

    pub(super) fn seen_by_queue(&self) -> Call {
        Call::get(QUEUE, &self.segments_in_queue()).to(format!("show worker {self}"))
    }

    pub(super) fn explain(&self) -> Call {
        let segments = ["explain", "worker", &self.pool, &self.group, &self.id];
        Call::get(FLEETWRIGHT, &segments).to(format!("explain worker {self}"))
    }

    pub(super) fn log(&self) -> Call {
        let segments = ["worker-log", &self.pool, &self.group, &self.id];
        Call::get(FLEETWRIGHT, &segments)
            .to(format!("show the log of worker {self}"))
            .list_command(LIST_COMMAND)
    }

    pub(super) fn read(&self) -> Call {
        Call::get(WORKER_MANAGER, &self.segments())
            .to(format!("show worker {self}"))
            .list_command(LIST_COMMAND)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} of pool {}", self.group, self.id, self.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        name: Name,
    }

    fn parsed(words: &str) -> Result<String, String> {
        let words = std::iter::once("show").chain(words.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.name.parts().join(" "))
            .map_err(|bad| bad.to_string())
    }

    #[test]
    fn a_worker_is_named_by_one_argument_or_by_three() {
        for words in ["demo/linux/lab/host-1", "demo/linux lab host-1"] {
            assert_eq!(parsed(words).unwrap(), "demo/linux lab host-1");
        }
        for words in [
            "demo/linux",
            "demo/linux lab",
            "demo/linux/lab",
            "a/b/c/d e f",
        ] {
            let refused = parsed(words).unwrap_err();
            assert!(refused.contains("POOL/GROUP/WORKER"), "{words}: {refused}");
        }
        assert!(parsed("demo/linux la_b! x").is_err());
        assert!(parsed("a b c d").is_err());
    }
}
