//! Rule sets out of pools: worker configurations that compile to exactly the pools that are there.
//!
//! `table` says what each pool and launch config needs, `solve` finds rules for it, `render` writes them, and
//! `verify` compiles them again: what does not come out as it went in is never written.

mod cloud;
mod cover;
mod factor;
mod leaves;
mod patterns;
mod places;
mod pools;
mod render;
mod solve;
mod table;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use domain::id::PoolId;
use serde_json::{Value, json};

use super::compare::counted;
use super::fleet::Fleet;
use super::source;
use crate::failure::Failure;
use crate::output;
use pools::Source;
use write::Written;

/// The configuration of a fleet that is written as one.
const WHOLE: &str = "fleet";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The root URL of a deployment, or a file
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// The folder for the files; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write several configurations, which share nothing, instead of one
    #[arg(long, value_name = "WHAT")]
    per_file: Option<PerFile>,
    /// Write over files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PerFile {
    /// The part of the worker pool ids before the slash
    Provisioner,
}

/// Pools that do not become rules, and why.
type LeftOut = Vec<(PoolId, String)>;

pub(super) async fn run(arguments: &Arguments, json: bool, verbose: bool) -> Result<(), Failure> {
    let fleet = source::read_pools(&arguments.from, verbose).await?;
    let mut sorted = sorted(&fleet);
    if sorted.sources.is_empty() && sorted.refused.is_empty() {
        return Err(Failure::failed(format!(
            "there are no worker pools to make rules of in {}",
            arguments.from
        )));
    }
    let written = sorted.written(arguments.per_file)?;
    let Sorted {
        sources,
        left_out,
        refused,
    } = sorted;
    let paths = write::paths(&arguments.out, &written, arguments.force)?;
    write::save(&arguments.out, &paths, &written)?;
    let before: Vec<Value> = sources
        .iter()
        .filter_map(|source| Some(fleet.pools.get(&source.id)?.body()))
        .collect();
    let report = Report {
        paths: &paths,
        written: &written,
        sources: &sources,
        size_before: write::size_before(&before),
        left_out: &left_out,
        refused: &refused,
    };
    report.tell(json);
    for other in write::others(&arguments.out, &paths) {
        output::note(&format!(
            "{} is not of this import, and `plan` reads it with the others: remove it if it says the same",
            other.display()
        ));
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(report.failure()),
    }
}

struct Sorted {
    sources: Vec<Source>,
    left_out: LeftOut,
    refused: LeftOut,
}

impl Sorted {
    /// The pools as configurations. Those that no configuration can hold become refused ones: they are looked for only
    /// if something cannot be written, for that takes as long as writing.
    fn written(&mut self, per_file: Option<PerFile>) -> Result<Vec<Written>, Failure> {
        let failure = match written(&self.sources, per_file) {
            Err(failure) => failure,
            done @ Ok(_) => return done,
        };
        let before = self.refused.len();
        for source in std::mem::take(&mut self.sources) {
            match write::obstacle(&source)? {
                None => self.sources.push(source),
                Some(why) => self.refused.push((source.id, why)),
            }
        }
        if self.refused.len() == before {
            return Err(failure);
        }
        self.refused.sort();
        written(&self.sources, per_file)
    }
}

fn written(sources: &[Source], per_file: Option<PerFile>) -> Result<Vec<Written>, Failure> {
    let mut written = Vec::new();
    for (id, sources) in grouped(sources.to_vec(), per_file) {
        let description = format!(
            "{}, as they were when rules were made of them",
            counted(sources.len(), "worker pool")
        );
        written.extend(write::configurations(&id, &description, &sources)?);
    }
    Ok(written)
}

fn sorted(fleet: &Fleet) -> Sorted {
    let mut sorted = Sorted {
        sources: Vec::new(),
        left_out: Vec::new(),
        refused: Vec::new(),
    };
    let mut there = fleet.clone();
    there.forget_deleted_pools();
    let takes = pools::what_providers_take(there.pools.values());
    for (id, pool) in &fleet.pools {
        if !there.pools.contains_key(id) {
            let why = "it is being deleted".to_owned();
            sorted.left_out.push((id.clone(), why));
        } else if let Some(configuration) = &pool.worker_configuration_id {
            let why = format!("it is made of the rules of {configuration} already");
            sorted.left_out.push((id.clone(), why));
        } else {
            match Source::new(id, pool, takes[pool.provider_id.as_str()]) {
                Ok(source) => sorted.sources.push(source),
                Err(why) => sorted.refused.push((id.clone(), why)),
            }
        }
    }
    sorted
}

fn grouped(sources: Vec<Source>, per_file: Option<PerFile>) -> BTreeMap<String, Vec<Source>> {
    let mut groups: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in sources {
        let group = match per_file {
            None => WHOLE,
            Some(PerFile::Provisioner) => source.id.as_str().split('/').next().unwrap_or(WHOLE),
        };
        groups.entry(group.to_owned()).or_default().push(source);
    }
    groups
}

struct Report<'a> {
    paths: &'a [PathBuf],
    written: &'a [Written],
    sources: &'a [Source],
    size_before: (usize, usize),
    left_out: &'a LeftOut,
    refused: &'a LeftOut,
}

impl Report<'_> {
    fn tell(&self, json: bool) {
        if json {
            return output::json(&self.document());
        }
        for (path, written) in self.paths.iter().zip(self.written) {
            output::out(&format!(
                "{}: {}, {}, {}",
                path.display(),
                counted(written.n_worker_types, "worker type"),
                counted(written.n_rules, "rule"),
                size(written.text.len())
            ));
        }
        let (compact, indented) = self.size_before;
        let after = self.size_after();
        output::out(&format!(
            "{} with {}, {} as JSON ({} indented), became {} in {}: {}. Compiled again, they are the same.",
            counted(self.sources.len(), "worker pool"),
            counted(self.n_launch_configs(), "launch config"),
            size(compact),
            size(indented),
            counted(self.n_rules(), "rule"),
            counted(self.written.len(), "file"),
            size(after),
        ));
        for (id, why) in self.left_out {
            output::note(&format!("left out {id}: {why}"));
        }
    }

    fn document(&self) -> Value {
        let listed = |pools: &LeftOut| -> Value {
            let pools = pools.iter();
            pools
                .map(|(id, why)| json!({"workerPoolId": id.as_str(), "reason": why}))
                .collect()
        };
        let files = self.paths.iter().zip(self.written).map(|(path, written)| {
            json!({
                "path": path.display().to_string(),
                "workerConfigurationId": written.id,
                "workerTypes": written.n_worker_types,
                "rules": written.n_rules,
                "bytes": written.text.len(),
            })
        });
        let (compact, indented) = self.size_before;
        json!({
            "files": files.collect::<Vec<_>>(),
            "workerPools": self.sources.len(),
            "launchConfigs": self.n_launch_configs(),
            "rules": self.n_rules(),
            "bytes": {"before": compact, "beforeIndented": indented, "after": self.size_after()},
            "leftOut": listed(self.left_out),
            "refused": listed(self.refused),
        })
    }

    fn n_launch_configs(&self) -> usize {
        self.sources
            .iter()
            .map(|source| source.launch_configs.len())
            .sum()
    }

    fn n_rules(&self) -> usize {
        self.written.iter().map(|written| written.n_rules).sum()
    }

    fn size_after(&self) -> usize {
        self.written.iter().map(|written| written.text.len()).sum()
    }

    fn failure(&self) -> Failure {
        let lines = self
            .refused
            .iter()
            .map(|(id, why)| format!("\n  {id}: {why}"));
        let count = counted(self.refused.len(), "worker pool");
        Failure::failed(format!(
            "{count} cannot be written as rules; the others are:{}",
            lines.collect::<String>()
        ))
        .advise("keep them as they are: `fleetwright import taskcluster` brings them over by hand")
    }
}

/// Thousands of bytes, as people count them.
fn size(n_bytes: usize) -> String {
    match n_bytes {
        0..1_000 => format!("{n_bytes} bytes"),
        _ => format!("{} kB", (n_bytes + 500) / 1_000),
    }
}
