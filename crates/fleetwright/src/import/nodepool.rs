//! `import nodepool`: converts a nodepool.yaml to images and rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;
use domain::id::{ConfigurationId, ProviderId};
use rule_import::{
    MappedProvider, NodepoolConversion, NodepoolOptions, NodepoolProblem, Remark, convert_nodepool,
};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::output::{self, counted};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// A nodepool.yaml
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Map a provider of Nodepool to one of the server (repeatable)
    ///
    /// KIND is aws, local, external, exec, fake or static; by default, it follows from Nodepool's
    /// driver. Providers that are not mapped keep their names. Two providers of kind aws may be
    /// two regions of one.
    #[arg(long = "provider", value_name = "NAME=ID[:KIND]")]
    providers: Vec<ProviderMapping>,
    /// Owner of the pools
    #[arg(long, value_name = "EMAIL")]
    owner: Option<String>,
    /// Id of the worker configuration
    #[arg(long, value_name = "ID", default_value = "nodepool")]
    id: ConfigurationId,
    /// Capacity of the labels in a pool without max-servers
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    max_capacity: u32,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Clone, Debug)]
struct ProviderMapping {
    name: String,
    mapped: MappedProvider,
}

impl FromStr for ProviderMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, mapped)) = text.split_once('=') else {
            return Err("must be NAME=ID or NAME=ID:KIND".to_owned());
        };
        let (id, kind) = match mapped.split_once(':') {
            None => (mapped, None),
            Some((id, kind)) => (id, Some(kind)),
        };
        let id: ProviderId = id.parse().map_err(|bad| format!("{bad}"))?;
        if name.is_empty() || id.as_str().is_empty() {
            return Err("must name both providers".to_owned());
        }
        let kind = kind.map(str::parse).transpose();
        let kind = kind.map_err(|bad| format!("{bad}"))?;
        let name = name.to_owned();
        Ok(Self {
            name,
            mapped: MappedProvider { id, kind },
        })
    }
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let options = options(arguments)?;
    let file = files::read(&arguments.file)?;
    let converted = convert_nodepool(&file, &options)
        .map_err(|problems| refused(&arguments.file, &problems))?;
    if let Some(path) = &arguments.output {
        save(path, &converted.text, arguments.force)?;
    }
    match (json, &arguments.output) {
        (true, _) => output::json(&document(&converted, arguments)),
        (false, None) => output::out(converted.text.trim_end()),
        (false, Some(path)) => output::out(&format!(
            "{}: {}, {}, {}",
            path.display(),
            counted(converted.n_images, "image"),
            counted(converted.n_worker_types, "worker type"),
            counted(converted.n_rules, "rule"),
        )),
    }
    if !json {
        for line in remarks_by_reason(&converted.remarks) {
            output::note(&line);
        }
    }
    Ok(())
}

fn options(arguments: &Arguments) -> Result<NodepoolOptions, Failure> {
    let mut providers = BTreeMap::new();
    for ProviderMapping { name, mapped } in &arguments.providers {
        if providers.insert(name.clone(), mapped.clone()).is_some() {
            return Err(Failure::usage(format!(
                "--provider maps `{name}` twice: give one"
            )));
        }
    }
    Ok(NodepoolOptions {
        providers,
        configuration_id: arguments.id.clone(),
        owner: arguments.owner.clone(),
        max_capacity: arguments.max_capacity,
    })
}

fn refused(path: &Path, problems: &[NodepoolProblem]) -> Failure {
    let lines = problems.iter().map(|problem| format!("\n  {problem}"));
    Failure::usage(format!(
        "{} cannot be converted:{}",
        path.display(),
        lines.collect::<String>()
    ))
}

fn save(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    if path.exists() && !force {
        let text = format!("{} already exists", path.display());
        return Err(Failure::new(Exit::Conflict, text)
            .with_hint("use --force to overwrite it, or another file with --output"));
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn document(converted: &NodepoolConversion, arguments: &Arguments) -> Value {
    let remarks = converted.remarks.iter();
    let remarks: Vec<Value> = remarks
        .map(|remark| json!({"place": remark.place, "reason": remark.reason}))
        .collect();
    let mut document = json!({
        "images": converted.n_images,
        "workerTypes": converted.n_worker_types,
        "rules": converted.n_rules,
        "remarks": remarks,
    });
    match &arguments.output {
        Some(path) => document["path"] = json!(path.display().to_string()),
        None => document["text"] = json!(converted.text),
    }
    document
}

/// Remarks with the same reason in one line, with all their places.
fn remarks_by_reason(remarks: &[Remark]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Remark { place, reason } in remarks {
        match groups.iter_mut().find(|(known, _)| known == reason) {
            Some((_, places)) => places.push(place),
            None => groups.push((reason, vec![place])),
        }
    }
    let lines = groups.into_iter();
    lines
        .map(|(reason, places)| format!("{}: {reason}", places.join(", ")))
        .collect()
}
