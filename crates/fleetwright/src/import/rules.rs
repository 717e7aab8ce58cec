//! `import rules`: converts the pools of a deployment or a file to worker configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rule_import::{ConfigurationFile, ExcludedPool, FilesBy, Grouping, PoolSelection, Unproven};
use serde_json::{Value, json};

use super::rule_folder::{FolderChange, OutputFile, replaced_configurations, save};
use super::{provider_guess, source};
use crate::failure::{Exit, Failure};
use crate::output::{self, counted};

/// The name of the part with the ids of launch configs.
const IDS: &str = rule_import::IDS_FILE;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Root URL of a deployment, or a file
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// Output folder; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write the rules of each project or owner to a file of its own, beside one with shared rules
    #[arg(long, value_name = "WHAT")]
    per_file: Option<PerFile>,
    /// Write several independent worker configurations instead of one
    #[arg(long, value_name = "WHAT", conflicts_with = "per_file")]
    per_configuration: Option<PerConfiguration>,
    /// Overwrite files that people wrote or edited
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PerFile {
    /// The part of pool ids before the slash, which is often a project
    Provisioner,
    /// The owner of pools
    Owner,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PerConfiguration {
    /// One configuration for each provisioner: the part of pool ids before the slash
    Provisioner,
}

pub(crate) async fn run(arguments: &Arguments, json: bool, verbose: bool) -> Result<(), Failure> {
    let fleet = source::read_pools(&arguments.from, verbose).await?;
    let mut selection = PoolSelection::new(&fleet.pools);
    if selection.n_pools() == 0 && selection.refused.is_empty() {
        return Err(nothing_to_convert(
            &arguments.from,
            selection.left_out.len(),
        ));
    }
    let grouping = match arguments.per_configuration {
        None => Grouping::One,
        Some(PerConfiguration::Provisioner) => Grouping::ByProvisioner,
    };
    let files_by = arguments.per_file.map(|what| match what {
        PerFile::Provisioner => FilesBy::Provisioner,
        PerFile::Owner => FilesBy::Owner,
    });
    let files = selection
        .configurations(grouping, files_by)
        .map_err(|unproven| not_written(&unproven))?;
    let outputs = output_files(&files, arguments)?;
    if !arguments.force {
        check_skipped(&arguments.out, &selection, &files, &outputs)?;
    }
    let change = save(&arguments.out, &outputs, arguments.force)?;
    let before: Vec<Value> = selection
        .pool_ids()
        .filter_map(|id| Some(fleet.pools.get(id)?.body()))
        .collect();
    let report = Report {
        folder: &arguments.out,
        files: &files,
        change: &change,
        selection: &selection,
        size_before: size_before(&before),
        providers: provider_guess::lines_for_missing(&fleet, &[]),
        ignored: &fleet.ignored,
    };
    report.print(json);
    for file in files.iter().filter(|file| !file.is_refined) {
        output::note(&format!(
            "the rules of {} are not shortened and not divided, because they would not compile to \
             the same pools: this is a bug in fleetwright, please report it",
            arguments.out.join(file_name(file)).display()
        ));
    }
    for edited in &change.edited {
        output::note(&format!(
            "{} is of an earlier import and was edited since: it stays, and `plan` reads it",
            edited.display()
        ));
    }
    for other in &change.others {
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

fn nothing_to_convert(from: &str, n_skipped: usize) -> Failure {
    Failure::failed(match n_skipped {
        0 => format!("{from} has no pools to convert: check that it is an export of worker pools"),
        skipped => format!(
            "{from} has no pools to convert. Pools that are being deleted or are compiled from \
             rules: {skipped}"
        ),
    })
}

/// Fails if the import would write or remove a configuration whose pools it skips.
fn check_skipped(
    folder: &Path,
    selection: &PoolSelection,
    files: &[ConfigurationFile],
    outputs: &[OutputFile<'_>],
) -> Result<(), Failure> {
    let mut changed = replaced_configurations(folder, outputs)?;
    changed.extend(files.iter().map(|file| file.id.clone()));
    let lost = selection.compiled.iter();
    let lost = lost.filter(|(id, _)| changed.contains(*id));
    let lost: Vec<String> = lost
        .map(|(id, n_pools)| format!("{} of worker configuration {id}", counted(*n_pools, "pool")))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let lost = format!(
        "nothing was written: the rules would not have {}, which exist already, and the next \
         `fleetwright apply` would remove them",
        lost.join(" and ")
    );
    Err(Failure::new(Exit::Conflict, lost).with_hint(
        "add the other pools to these rules by hand, and apply with --adopt-pools; --force writes \
         rules for the other pools alone",
    ))
}

fn not_written(unproven: &Unproven) -> Failure {
    Failure::failed(format!(
        "nothing was written: the rules would not compile to the same pools: {unproven}"
    ))
    .with_hint("this is a bug in fleetwright: please report it with that pool")
}

/// All files, which have different names, also where case does not matter.
fn output_files<'a>(
    files: &'a [ConfigurationFile],
    arguments: &Arguments,
) -> Result<Vec<OutputFile<'a>>, Failure> {
    let mut outputs = Vec::new();
    for file in files {
        outputs.push(OutputFile {
            name: file_name(file),
            text: &file.text,
            is_made: false,
        });
        outputs.extend(file.parts.iter().map(|part| OutputFile {
            name: part_name(files, file, &part.name),
            text: &part.text,
            is_made: false,
        }));
        outputs.extend(file.ids.as_ref().map(|text| OutputFile {
            name: part_name(files, file, IDS),
            text,
            is_made: true,
        }));
    }
    let mut names = BTreeSet::new();
    match outputs
        .iter()
        .find(|output| !names.insert(output.name.to_lowercase()))
    {
        None => Ok(outputs),
        Some(output) => Err(Failure::failed(format!(
            "nothing was written: two files would have the name {}",
            output.name
        ))
        .with_hint(match arguments.per_configuration {
            Some(_) => "leave out --per-configuration",
            None => "leave out --per-file, or use it with another value",
        })),
    }
}

fn file_name(file: &ConfigurationFile) -> String {
    format!("{}.yaml", file.id)
}

/// The name of a file with a part of this configuration.
fn part_name(files: &[ConfigurationFile], file: &ConfigurationFile, part: &str) -> String {
    match files {
        [_] => format!("{part}.yaml"),
        _ => format!("{}-{part}.yaml", file.id),
    }
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
    change: &'a FolderChange,
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
            self.print_files(file);
        }
        for path in &self.change.removed {
            output::out(&format!(
                "{}: removed, because this import does not need it",
                path.display()
            ));
        }
        if !self.files.is_empty() {
            self.print_summary();
        }
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

    fn print_summary(&self) {
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
            counted(self.n_files(), "file"),
            size(after),
        ));
    }

    fn print_files(&self, file: &ConfigurationFile) {
        let line = |name: String, text: String| {
            let path = self.folder.join(name);
            let unchanged = match self.change.unchanged.contains(&path) {
                true => ", unchanged",
                false => "",
            };
            output::out(&format!("{}: {text}{unchanged}", path.display()));
        };
        let n_in_parts: usize = file.parts.iter().map(|part| part.n_rules).sum();
        let pools = match file.parts.as_slice() {
            [] => counted(file.n_worker_types, "worker type"),
            _ => "shared by all".to_owned(),
        };
        let rules = counted(file.n_rules - n_in_parts, "rule");
        let text = format!("{pools}, {rules}, {}", size(file.text.len()));
        line(file_name(file), text);
        for part in &file.parts {
            let pools = counted(part.n_worker_types, "worker type");
            let rules = counted(part.n_rules, "rule");
            let text = format!("{pools}, {rules}, {}", size(part.text.len()));
            line(part_name(self.files, file, &part.name), text);
        }
        if let Some(ids) = &file.ids {
            let text = format!(
                "{} of launch configs, {}; `fleetwright rules tidy` removes those that edits \
                 leave",
                counted(file.n_ids, "id"),
                size(ids.len())
            );
            line(part_name(self.files, file, IDS), text);
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
            let path = self.folder.join(file_name(file));
            let of_part = |part: &str| self.folder.join(part_name(self.files, file, part));
            let ids = file.ids.as_ref().map(|ids| {
                let path = of_part(IDS);
                json!({"path": path.display().to_string(), "ids": file.n_ids, "bytes": ids.len()})
            });
            let parts = file.parts.iter().map(|part| {
                json!({"path": of_part(&part.name).display().to_string(),
                    "workerTypes": part.n_worker_types, "rules": part.n_rules, "bytes": part.text.len()})
            });
            json!({
                "path": path.display().to_string(),
                "launchConfigIds": ids,
                "workerConfigurationId": file.id,
                "workerTypes": file.n_worker_types,
                "rules": file.n_rules,
                "bytes": file.text.len(),
                "parts": parts.collect::<Vec<_>>(),
            })
        });
        let paths = |paths: &[PathBuf]| -> Value {
            let paths = paths.iter().map(|path| path.display().to_string());
            paths.collect()
        };
        let (compact, indented) = self.size_before;
        json!({
            "files": files.collect::<Vec<_>>(),
            "written": paths(&self.change.written),
            "unchanged": paths(&self.change.unchanged),
            "removed": paths(&self.change.removed),
            "edited": paths(&self.change.edited),
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

    /// Without the files of ids.
    fn n_files(&self) -> usize {
        self.files.iter().map(|file| 1 + file.parts.len()).sum()
    }

    fn size_after(&self) -> usize {
        let parts = self.files.iter().flat_map(|file| &file.parts);
        let parts: usize = parts.map(|part| part.text.len()).sum();
        self.files.iter().map(|file| file.text.len()).sum::<usize>() + parts
    }

    fn failure(&self) -> Failure {
        let refused = &self.selection.refused;
        let lines = refused
            .iter()
            .map(|pool| format!("\n  {}: {}", pool.id, pool.reason));
        let count = counted(refused.len(), "pool");
        let result = match self.files.is_empty() {
            true => "nothing was written",
            false => "the others were written",
        };
        Failure::failed(format!(
            "{count} cannot be converted to rules; {result}:{}",
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
