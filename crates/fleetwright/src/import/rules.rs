//! `import rules`: converts the pools of a deployment or a file to worker configurations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use files::Format;
use rule_import::{ConfigurationFile, ExcludedPool, Grouping, PoolSelection, Unproven};
use serde_json::{Value, json};

use super::{provider_guess, source};
use crate::failure::{Exit, Failure};
use crate::output::{self, counted};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Root URL of a deployment, or a file
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// Output folder; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write several independent worker configurations instead of one
    #[arg(long, value_name = "WHAT")]
    per_file: Option<PerFile>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PerFile {
    /// One file for each provisioner: the part of pool ids before the slash
    Provisioner,
}

pub(crate) async fn run(arguments: &Arguments, json: bool, verbose: bool) -> Result<(), Failure> {
    let fleet = source::read_pools(&arguments.from, verbose).await?;
    let mut selection = PoolSelection::new(&fleet.pools);
    if selection.n_pools() == 0 && selection.refused.is_empty() {
        return Err(Failure::failed(format!(
            "{} has no pools to convert: check that it is an export of worker pools",
            arguments.from
        )));
    }
    let grouping = match arguments.per_file {
        None => Grouping::One,
        Some(PerFile::Provisioner) => Grouping::ByProvisioner,
    };
    let files = selection
        .configurations(grouping)
        .map_err(|unproven| not_written(&unproven))?;
    let outputs = output_files(&arguments.out, &files, arguments.force)?;
    save(&arguments.out, &outputs)?;
    let paths: Vec<PathBuf> = outputs.iter().map(|output| output.path.clone()).collect();
    let before: Vec<Value> = selection
        .pool_ids()
        .filter_map(|id| Some(fleet.pools.get(id)?.body()))
        .collect();
    let report = Report {
        folder: &arguments.out,
        files: &files,
        selection: &selection,
        size_before: size_before(&before),
        providers: provider_guess::lines_for_missing(&fleet, &[]),
        ignored: &fleet.ignored,
    };
    report.print(json);
    for other in others(&arguments.out, &paths) {
        output::note(&format!(
            "{} is not from this import, but `plan` reads it too: remove it if it defines the \
             same items",
            other.display()
        ));
    }
    if selection.refused.is_empty() {
        Ok(())
    } else {
        Err(report.failure())
    }
}

fn not_written(unproven: &Unproven) -> Failure {
    Failure::failed(format!(
        "nothing was written: the rules would not compile to the same pools: {unproven}"
    ))
    .with_hint("this is a bug in fleetwright: please report it with that pool")
}

/// A file that is written.
struct OutputFile<'a> {
    path: PathBuf,
    text: &'a str,
}

/// The files; refuses to overwrite existing ones without `force`.
fn output_files<'a>(
    folder: &Path,
    files: &'a [ConfigurationFile],
    force: bool,
) -> Result<Vec<OutputFile<'a>>, Failure> {
    let mut outputs = Vec::new();
    for file in files {
        outputs.push(OutputFile {
            path: folder.join(format!("{}.yaml", file.id)),
            text: &file.text,
        });
        let name = ids_name(files, file);
        outputs.extend(file.ids.as_ref().map(|text| OutputFile {
            path: folder.join(name),
            text,
        }));
    }
    match outputs.iter().find(|output| output.path.exists()) {
        Some(output) if !force => Err(Failure::new(
            Exit::Conflict,
            format!("{} already exists", output.path.display()),
        )
        .with_hint("use --force to overwrite it, or another folder with --out")),
        Some(_) | None => Ok(outputs),
    }
}

/// The name of the file with the ids of launch configs.
fn ids_name(files: &[ConfigurationFile], file: &ConfigurationFile) -> String {
    match files {
        [_] => "launch-config-ids.yaml".to_owned(),
        _ => format!("{}-launch-config-ids.yaml", file.id),
    }
}

fn save(folder: &Path, outputs: &[OutputFile<'_>]) -> Result<(), Failure> {
    let name = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {name}"))?;
    for OutputFile { path, text } in outputs {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Other files in the folder that `plan` would read with these.
fn others(folder: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let existing = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let existing = existing.map(|entry| entry.path());
    let mut others: Vec<PathBuf> = existing
        .filter(|path| Format::of(path).is_some() && !paths.contains(path))
        .collect();
    others.sort();
    others
}

/// Bytes of the pools as JSON, compact and indented.
fn size_before(pools: &[Value]) -> (usize, usize) {
    let compact = pools.iter().map(|pool| pool.to_string().len() + 1).sum();
    let indented = pools
        .iter()
        .map(|pool| output::pretty(pool).len() + 1)
        .sum();
    (compact, indented)
}

struct Report<'a> {
    folder: &'a Path,
    files: &'a [ConfigurationFile],
    selection: &'a PoolSelection,
    size_before: (usize, usize),
    /// The lines of a server's configuration with all providers of the rules.
    providers: Option<String>,
    /// The numbers of items of other kinds, by kind.
    ignored: &'a BTreeMap<String, usize>,
}

impl Report<'_> {
    fn print(&self, json: bool) {
        if json {
            return output::json(&self.document());
        }
        for file in self.files {
            let path = self.folder.join(format!("{}.yaml", file.id));
            output::out(&format!(
                "{}: {}, {}, {}",
                path.display(),
                counted(file.n_worker_types, "worker type"),
                counted(file.n_rules, "rule"),
                size(file.text.len())
            ));
            if let Some(ids) = &file.ids {
                let path = self.folder.join(ids_name(self.files, file));
                output::out(&format!(
                    "{}: {} of launch configs, {}; `fleetwright rules tidy` removes those that \
                     edits leave",
                    path.display(),
                    counted(file.n_ids, "id"),
                    size(ids.len())
                ));
            }
        }
        let (compact, indented) = self.size_before;
        let after = self.size_after();
        output::out(&format!(
            "{} with {}, {} as JSON ({} indented), converted to {} in {}: {} without ids of launch \
             configs. They compile to the same pools.",
            counted(self.selection.n_pools(), "pool"),
            counted(self.selection.n_launch_configs(), "launch config"),
            size(compact),
            size(indented),
            counted(self.n_rules(), "rule"),
            counted(self.files.len(), "file"),
            size(after),
        ));
        for pool in &self.selection.left_out {
            output::note(&format!("skipped {}: {}", pool.id, pool.reason));
        }
        let ignored = self.ignored.iter();
        let ignored = ignored.map(|(kind, count)| format!("{kind}: {count}"));
        let ignored: Vec<_> = ignored.collect();
        if !ignored.is_empty() {
            output::note(&format!(
                "skipped, because only pools become rules: {}. `fleetwright import taskcluster \
                 --only roles` imports roles",
                ignored.join(", ")
            ));
        }
        if let Some(lines) = &self.providers {
            output::note(&format!(
                "the rules need these providers: add those that the server lacks to its \
                 configuration before `fleetwright plan`:\n\n{lines}"
            ));
        }
    }

    fn document(&self) -> Value {
        let listed = |pools: &[ExcludedPool]| -> Value {
            let pools = pools.iter();
            pools
                .map(|pool| json!({"workerPoolId": pool.id.as_str(), "reason": pool.reason}))
                .collect()
        };
        let files = self.files.iter().map(|file| {
            let path = self.folder.join(format!("{}.yaml", file.id));
            let ids = file.ids.as_ref().map(|ids| {
                let path = self.folder.join(ids_name(self.files, file));
                json!({"path": path.display().to_string(), "ids": file.n_ids, "bytes": ids.len()})
            });
            json!({
                "path": path.display().to_string(),
                "launchConfigIds": ids,
                "workerConfigurationId": file.id,
                "workerTypes": file.n_worker_types,
                "rules": file.n_rules,
                "bytes": file.text.len(),
            })
        });
        let (compact, indented) = self.size_before;
        json!({
            "files": files.collect::<Vec<_>>(),
            "workerPools": self.selection.n_pools(),
            "launchConfigs": self.selection.n_launch_configs(),
            "rules": self.n_rules(),
            "bytes": {"before": compact, "beforeIndented": indented, "after": self.size_after()},
            "leftOut": listed(&self.selection.left_out),
            "ignored": self.ignored,
            "providers": self.providers,
            "refused": listed(&self.selection.refused),
        })
    }

    fn n_rules(&self) -> usize {
        self.files.iter().map(|file| file.n_rules).sum()
    }

    fn size_after(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }

    fn failure(&self) -> Failure {
        let refused = &self.selection.refused;
        let lines = refused
            .iter()
            .map(|pool| format!("\n  {}: {}", pool.id, pool.reason));
        let count = counted(refused.len(), "pool");
        Failure::failed(format!(
            "{count} cannot be converted to rules; the others were written:{}",
            lines.collect::<String>()
        ))
        .with_hint("import them unchanged with `fleetwright import taskcluster`")
    }
}

/// A size in bytes or kilobytes.
fn size(n_bytes: usize) -> String {
    match n_bytes {
        0..1_000 => format!("{n_bytes} bytes"),
        _ => format!("{} kB", (n_bytes + 500) / 1_000),
    }
}
