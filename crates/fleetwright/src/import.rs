//! Imports pools, roles and images from Taskcluster and Nodepool.
//!
//! Idempotent: equal items are not changed, and nothing is deleted. A dry run shows the same
//! changes.

mod apply;
mod compare;
mod diff;
mod fleet;
mod give_back;
mod live;
pub(crate) mod nodepool;
mod provider_guess;
mod rule_folder;
pub(crate) mod rules;
mod source;
mod summary;

use std::collections::BTreeMap;

use access::Secret;
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::commands::first_pool::FIRST_POOL;
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use compare::Plan;
use fleet::Fleet;
use source::Only;
use summary::Tense;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Import pools and roles from a Taskcluster deployment or a file
    ///
    /// The target is the configured server. The credentials for the source are in
    /// SOURCE_CLIENT_ID, SOURCE_ACCESS_TOKEN and SOURCE_CERTIFICATE; without them, requests are
    /// anonymous. With --live, the machines that run there become workers here: nothing is changed
    /// at the cloud, and a repetition takes over what is new. A file is the output of `tc-admin
    /// generate --json`, or {"workerPools": [...], "roles": [...]}.
    Taskcluster(Arguments),
    /// Convert the pools of a deployment or a file to rules
    ///
    /// Writes minimal worker configurations that compile to exactly the same pools and launch
    /// configs; this is verified before any file is written. No server is needed. The source is
    /// read as by `import taskcluster`.
    Rules(rules::Arguments),
    /// Convert the configuration of a Nodepool to images and rules
    ///
    /// Reads disk images, providers and labels of a nodepool.yaml, and writes a file for
    /// `fleetwright plan` and `fleetwright apply`. Each key that cannot be taken over is listed
    /// with the reason. No server is needed.
    Nodepool(nodepool::Arguments),
}

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Root URL of a deployment, or a file
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// In a dry run, show new items completely
    #[arg(long, requires = "dry_run")]
    full: bool,
    /// Only import pools, or only roles
    #[arg(long)]
    only: Option<Only>,
    /// Then take over the machines that run, which their providers list with Taskcluster's tags
    #[arg(long, conflicts_with = "only")]
    live: bool,
    /// A JSON object of the secrets of hosts, {"POOL/GROUP/ID": "SECRET"}, which are declared then
    #[arg(long, value_name = "FILE", requires = "live")]
    static_secrets: Option<String>,
    /// The way back: import nothing, and drain the machines that the deployment does not know
    #[arg(long, conflicts_with_all = ["only", "live", "full"])]
    give_back: bool,
}

pub(crate) async fn taskcluster(
    arguments: &Arguments,
    session: &Session,
    verbose: bool,
) -> Result<(), Failure> {
    if arguments.live || arguments.give_back {
        live::check_source(&arguments.from, verbose).await?;
    }
    if arguments.give_back {
        return give_back::run(&arguments.from, arguments.dry_run, session, verbose).await;
    }
    let mut source = source::read(&arguments.from, arguments.only, verbose).await?;
    source.remove_deleted_pools();
    report_skipped(&mut source);
    let target = source::of_target(&session.client, arguments.only, &mut source).await?;
    let plan = Plan::new(&source, &target);
    let missing = missing_providers(&source, session).await?;
    // Read before anything is written, so that an error leaves all as it was.
    let secrets = live::read_secrets(arguments.static_secrets.as_deref())?;
    let live = match arguments.live {
        true => Some(live::read(&arguments.from, &source, verbose).await?),
        false => None,
    };

    if arguments.dry_run {
        if !session.json {
            show(&plan, missing.as_deref(), arguments.full, session);
        }
        let document = summary::document(&plan, &source, &[], true, missing.as_deref());
        let takeover = Takeover {
            live: live.as_ref(),
            secrets: &secrets,
            plan: &plan,
            is_dry_run: true,
        };
        return takeover.finish(document, session).await;
    }
    if let Some(lines) = missing {
        return Err(Failure::failed(format!(
            "nothing was imported: {} lacks providers of the pools",
            session.client.root_url()
        ))
        .with_hint(format!(
            "add these lines to the server's configuration, restart it, and import \
             again:\n\n{lines}"
        )));
    }
    if let Some(live) = &live {
        live.hold(&session.client).await?;
    }
    let failures = apply::apply(&plan, &session.client).await;
    let document = summary::document(&plan, &source, &failures, false, None);
    if !session.json {
        output::out(&summary::sentence(&plan, &failures, Tense::Past));
    }
    if !failures.is_empty() {
        if session.json {
            output::json(&document);
        }
        return Err(summary::failure(&plan, &failures));
    }
    let takeover = Takeover {
        live: live.as_ref(),
        secrets: &secrets,
        plan: &plan,
        is_dry_run: false,
    };
    takeover.finish(document, session).await
}

/// The machines and hosts to take over after the pools.
struct Takeover<'a> {
    live: Option<&'a live::Live>,
    secrets: &'a BTreeMap<String, Secret>,
    plan: &'a Plan,
    is_dry_run: bool,
}

impl Takeover<'_> {
    /// Takes over what runs, and prints the document of the import with it.
    async fn finish(self, mut document: Value, session: &Session) -> Result<(), Failure> {
        let outcome = self.outcome(session).await;
        if let Ok(Some(outcome)) = &outcome {
            document["takeOver"] = outcome.document();
            if !session.json {
                outcome.print(self.is_dry_run);
            }
        }
        if session.json {
            output::json(&document);
        }
        if let Some(outcome) = outcome? {
            outcome.check()?;
        }
        match self.live {
            Some(live) if !self.is_dry_run => live.release(&session.client).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn outcome(&self, session: &Session) -> Result<Option<live::Outcome>, Failure> {
        let Some(live) = self.live else {
            return Ok(None);
        };
        let (secrets, plan) = (self.secrets, self.plan);
        let taken = live::take_over(live, secrets, plan, &session.client, self.is_dry_run);
        taken.await.map(Some)
    }
}

/// Reports items of the source that are not imported.
fn report_skipped(source: &mut Fleet) {
    if source.remove_first_pool() {
        output::note(&format!(
            "skipped {FIRST_POOL}: the source created this pool on its first start"
        ));
    }
    let ignored = source.ignored.iter();
    let ignored: Vec<_> = ignored
        .map(|(kind, count)| format!("{kind}: {count}"))
        .collect();
    if !ignored.is_empty() {
        output::note(&format!(
            "skipped, because only pools and roles are imported: {}",
            ignored.join(", ")
        ));
    }
}

fn show(plan: &Plan, missing: Option<&str>, full: bool, session: &Session) {
    for change in &plan.changes {
        if change.before.is_none() && !full {
            output::out(&format!("+ {} ({})", change.title(), change.gist));
            continue;
        }
        output::out(&diff::unified(
            &change.title(),
            change.before.as_deref(),
            &change.after,
            output::in_colour(),
        ));
    }
    output::out(&summary::sentence(plan, &[], Tense::Would));
    if let Some(lines) = missing {
        output::note(&format!(
            "warning: {} lacks providers of the pools; add these lines to its configuration \
             before the import:\n\n{lines}",
            session.client.root_url()
        ));
    }
}

/// The lines to add to the target's configuration, if it lacks providers.
async fn missing_providers(source: &Fleet, session: &Session) -> Result<Option<String>, Failure> {
    if source.pools.is_empty() {
        return Ok(None);
    }
    let call = crate::commands::provider::list();
    let listed = session.client.pages(&call, "providers", None).await?;
    let known: Vec<&str> = listed["providers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|provider| provider["providerId"].as_str())
        .collect();
    Ok(provider_guess::lines_for_missing(source, &known))
}
