//! Brings worker pools and roles over from a Taskcluster deployment, or from what tc-admin made.
//!
//! Idempotent: what is the same already is left alone, and nothing is ever deleted. A dry run
//! makes the same decisions and shows them.

mod apply;
mod compare;
mod fleet;
mod provider_guess;
mod rules;
mod source;
mod summary;

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::first_pool::FIRST_POOL;
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use compare::Plan;
use fleet::Fleet;
use summary::Tense;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Bring worker pools and roles over from a Taskcluster deployment or a file
    ///
    /// The target is the server of the usual settings. A deployment is read with the credentials in
    /// SOURCE_CLIENT_ID, SOURCE_ACCESS_TOKEN and SOURCE_CERTIFICATE, or else as anybody. A file is
    /// what `tc-admin generate --json` prints, or {"workerPools": [...], "roles": [...]}.
    Taskcluster(Arguments),
    /// Write rules that make the worker pools of a deployment or a file
    ///
    /// Writes worker configurations, as small as they can be, that compile to exactly the same worker pools and launch
    /// configs, which is proven before anything is written. No server is needed. The source is read as
    /// by `import taskcluster`.
    Rules(rules::Arguments),
}

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The root URL of a deployment, or a file
    #[arg(long, value_name = "URL|FILE")]
    from: String,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// In a dry run, also show all of what would be created
    #[arg(long, requires = "dry_run")]
    full: bool,
    /// Only the worker pools, or only the roles
    #[arg(long)]
    only: Option<Only>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// Worker pools and no roles
    Pools,
    /// Roles and no worker pools
    Roles,
}

/// Needs no server to bring something to.
pub(crate) async fn rules(
    arguments: &rules::Arguments,
    json: bool,
    verbose: bool,
) -> Result<(), Failure> {
    rules::run(arguments, json, verbose).await
}

pub(crate) async fn taskcluster(
    arguments: &Arguments,
    session: &Session,
    verbose: bool,
) -> Result<(), Failure> {
    let mut wanted = source::read(&arguments.from, arguments.only, verbose).await?;
    wanted.forget_deleted_pools();
    tell_left_out(&mut wanted);
    let here = source::of_server(&session.client, arguments.only).await?;
    let plan = Plan::new(&wanted, &here);
    let missing = missing_providers(&wanted, session).await?;

    if arguments.dry_run {
        return show(&plan, &wanted, missing.as_deref(), arguments.full, session);
    }
    if let Some(lines) = missing {
        return Err(Failure::failed(format!(
            "nothing was imported: {} lacks providers that the worker pools use",
            session.client.root_url()
        ))
        .advise(format!(
            "add these lines to its configuration and restart it, then import again:\n\n{lines}"
        )));
    }
    let failures = apply::carry_out(&plan, &session.client).await;
    if session.json {
        output::json(&summary::document(&plan, &wanted, &failures, false, None));
    } else {
        output::out(&summary::sentence(&plan, &failures, Tense::Past));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(summary::failure(&plan, &failures)),
    }
}

/// What the source has and an import does not bring over.
fn tell_left_out(wanted: &mut Fleet) {
    if wanted.forget_first_pool() {
        output::note(&format!(
            "left out {FIRST_POOL}: the source made this pool for itself on its first start"
        ));
    }
    let ignored = wanted.ignored.iter();
    let ignored: Vec<_> = ignored
        .map(|(kind, count)| format!("{kind}: {count}"))
        .collect();
    if !ignored.is_empty() {
        output::note(&format!(
            "ignored, for an import brings over worker pools and roles only: {}",
            ignored.join(", ")
        ));
    }
}

fn show(
    plan: &Plan,
    wanted: &Fleet,
    missing: Option<&str>,
    full: bool,
    session: &Session,
) -> Result<(), Failure> {
    if session.json {
        output::json(&summary::document(plan, wanted, &[], true, missing));
        return Ok(());
    }
    for change in &plan.changes {
        if change.before.is_none() && !full {
            output::out(&format!("+ {} ({})", change.title(), change.gist));
            continue;
        }
        output::out(&output::unified(
            &change.title(),
            change.before.as_deref(),
            &change.after,
            output::in_colour(),
        ));
    }
    output::out(&summary::sentence(plan, &[], Tense::Would));
    if let Some(lines) = missing {
        output::note(&format!(
            "warning: the import itself will be refused until {} has the providers that the worker pools use; add these lines to its configuration:\n\n{lines}",
            session.client.root_url()
        ));
    }
    Ok(())
}

/// The lines to add to the target's configuration, if it lacks providers.
async fn missing_providers(wanted: &Fleet, session: &Session) -> Result<Option<String>, Failure> {
    if wanted.pools.is_empty() {
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
    Ok(provider_guess::lines_for_missing(wanted, &known))
}
