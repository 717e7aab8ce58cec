//! Checks an installation for errors, and prints hints.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use server::doctor::{Finding, State};

use super::{serve, up};
use crate::data_folder::DataFolder;
use crate::failure::Failure;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Configuration file of the server
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of `up` (default: in your data folder)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) async fn run(
    arguments: Arguments,
    root_url: Option<String>,
    as_json: bool,
) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let mut config = match (&arguments.config, &arguments.data) {
        (Some(file), None) => serve::read(file)?,
        (file, folder) => {
            let path = match folder {
                Some(path) => path.clone(),
                None => DataFolder::default_path()?,
            };
            let data = DataFolder::inspect(&path)?;
            let mut config = up::configuration(file.as_deref(), &data)?;
            if config.auth.taskcluster.is_none() {
                findings.push(owner(&data));
                let token = data.owner_token().ok();
                let owner = token.map(up::owner_with);
                config.auth.static_clients.extend(owner);
            }
            if let Some(listen) = data.root_url().as_deref().and_then(address_in) {
                config.listen = listen;
            }
            config
        }
    };
    if root_url.is_some() {
        config.root_url = root_url;
    }
    findings.extend(server::doctor::examine(&config).await);
    show(&findings, as_json);
    let bad = findings
        .iter()
        .filter(|finding| finding.state == State::Bad)
        .count();
    match bad {
        0 => Ok(()),
        bad => Err(Failure::failed(format!(
            "{} found",
            output::counted(bad, "error")
        ))),
    }
}

/// The address of a server that is reached at this URL without a proxy.
fn address_in(root_url: &str) -> Option<SocketAddr> {
    root_url.strip_prefix("http://")?.parse().ok()
}

fn owner(data: &DataFolder) -> Finding {
    let file = data.owner_file().display().to_string();
    match data.owner_token() {
        Ok(_) => Finding {
            what: format!("the owner's credentials in {file} are valid"),
            state: State::Good,
            advice: None,
        },
        Err(failure) => Finding {
            what: failure.message,
            state: State::Bad,
            advice: failure.hint,
        },
    }
}

fn show(findings: &[Finding], as_json: bool) {
    if as_json {
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| {
                json!({"what": finding.what, "state": name(finding.state), "advice": finding.advice})
            })
            .collect();
        return output::json(&json!({ "findings": findings }));
    }
    for finding in findings {
        output::out(&format!("{:7}  {}", name(finding.state), finding.what));
        if let Some(advice) = &finding.advice {
            output::out(&format!("         hint: {advice}"));
        }
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Warning => "warning",
        State::Bad => "bad",
    }
}
