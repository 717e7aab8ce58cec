//! Configuration as code: plans and applies files.
//!
//! `plan` reads files and the state of a server, and shows the difference; `apply` executes that
//! plan. Only items that the files define, or own by pattern, are changed.

mod change;
mod definitions;
mod document;
pub(crate) mod effects;
mod execute;
mod grouped;
mod kind;
mod order;
mod ownership;
mod parts;
#[cfg(feature = "simulate")]
mod pool_definitions;
mod pools;
mod preview;
mod read;
mod recheck;
pub(crate) mod semantic;
mod server;
mod show;
mod style;
mod targets;
#[cfg(test)]
mod tests;
mod validate;
pub(crate) mod values;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, listed};
use crate::session::Session;
use crate::{machine, output};
use change::{Action, Change, Plan};
use document::Document;
use execute::{Outcome, WriteOptions};
pub(crate) use kind::Kind;
pub(crate) use parts::{join as join_parts, part_of};
#[cfg(feature = "simulate")]
pub(crate) use pool_definitions::{DefinedPools, read_pools};
use preview::PreviewOptions;
use show::Tense;
#[cfg(feature = "import")]
pub(crate) use show::gist_of_new;
pub(crate) use style::Style;

/// Fields of replies that are not part of a worker configuration.
pub(crate) const IN_REPLIES: [&str; 3] = ["version", "created", "lastModified"];
/// The keys that come first in generated files, in this order.
pub(crate) const KEYS_FIRST: [&str; 18] = [
    "partOf",
    "owns",
    "workerConfigurationId",
    "workerPoolId",
    "roleId",
    "clientId",
    "overrideId",
    "imageId",
    "ruleId",
    "description",
    "owner",
    "providerId",
    "workerTypes",
    "sets",
    "conditions",
    "references",
    "rules",
    "values",
];

#[derive(Args, Debug)]
pub(crate) struct Planning {
    /// File or folder with YAML, JSON or TOML (`-`: standard input); repeatable
    #[arg(short, long, value_name = "DIR|FILE", required = true)]
    file: Vec<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// Exit with 7 if the server differs
    #[arg(long)]
    check: bool,
    /// Show only the effects on this pool, launch config by launch config; repeatable
    #[arg(long, value_name = "POOL")]
    pool: Vec<String>,
    /// Save the plan for `fleetwright apply --plan`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Applying {
    /// File or folder with YAML, JSON or TOML (`-`: standard input); repeatable
    #[arg(short, long, value_name = "DIR|FILE", required_unless_present = "plan")]
    file: Vec<PathBuf>,
    /// Apply a saved plan; refused if the server changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "no_delete", "adopt_pools"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Args, Debug)]
struct Choices {
    /// Do not remove owned items that are not in the files
    #[arg(long)]
    no_delete: bool,
    /// Let worker configurations take over pools that were created by hand
    #[arg(long)]
    adopt_pools: bool,
    /// Show all values, and each launch config
    #[arg(long)]
    full: bool,
}

impl Choices {
    fn style(&self) -> Style {
        Style {
            in_colour: output::in_colour(),
            in_full: self.full,
        }
    }
}

pub(crate) async fn plan(arguments: Planning, session: &Session) -> Result<(), Failure> {
    let choices = &arguments.choices;
    let plan = make(&arguments.file, choices, session).await?;
    warn(&plan);
    let document = Document::of(&plan, session.client.root_url(), choices.adopt_pools);
    if session.json {
        output::json(&document.to_json())
    } else {
        show_plan(&plan, &arguments.pool, choices.style())
    }
    check_executable(&plan)?;
    if let Some(path) = &arguments.out {
        document.save(path)?;
    }
    if arguments.check && !plan.changes.is_empty() {
        Err(Failure::new(
            Exit::Differs,
            format!(
                "{} differs from {}",
                session.client.root_url(),
                read::names(&arguments.file)
            ),
        ))
    } else {
        Ok(())
    }
}

/// The plan of a file or folder as text, or that of some pools one by one.
pub(crate) async fn preview(
    path: PathBuf,
    pools: &[String],
    session: &Session,
) -> Result<String, Failure> {
    let choices = Choices {
        no_delete: false,
        adopt_pools: false,
        full: false,
    };
    let plan = make(&[path], &choices, session).await?;
    let style = Style {
        in_colour: false,
        in_full: false,
    };
    let mut lines = part_lines(&plan, pools, style);
    let warnings = plan.warnings.iter();
    lines.extend(warnings.map(|warning| format!("warning: {warning}")));
    if let Err(failure) = check_executable(&plan) {
        lines.push(format!("error: {}", failure.message));
    }
    Ok(lines.join("\n"))
}

pub(crate) async fn apply(arguments: Applying, session: &Session) -> Result<(), Failure> {
    let choices = &arguments.choices;
    let (plan, adopts) = match &arguments.plan {
        Some(saved) => load(saved, session).await?,
        None => (
            make(&arguments.file, choices, session).await?,
            choices.adopt_pools,
        ),
    };
    warn(&plan);
    if !session.json {
        show_plan(&plan, &[], choices.style());
    }
    check_executable(&plan)?;
    if !plan.changes.is_empty() {
        let question = format!("apply this to {}", session.client.root_url());
        output::confirm(&question, arguments.yes)?;
        if !arguments.yes {
            // The server may change while the user decides.
            recheck(&plan, adopts, session).await?;
        }
    }
    let options = WriteOptions {
        adopts,
        reason: arguments.reason.as_deref(),
    };
    let outcome = execute::execute(&plan.changes, options, &session.client).await;
    if session.json {
        output::json(&outcome_json(&plan, &outcome))
    } else {
        print_outcome(&plan, &outcome)
    }
    if outcome.failed.is_empty() {
        Ok(())
    } else {
        Err(failure(&plan, outcome))
    }
}

async fn make(files: &[PathBuf], choices: &Choices, session: &Session) -> Result<Plan, Failure> {
    // Not that of the session: an MCP server may run for days.
    let now = machine::now();
    let mut definitions = read::read(files, now)?;
    for (id, place) in definitions.without_ended(now) {
        output::note(&format!(
            "{place}: override {id} has ended and is ignored: it can be removed"
        ));
    }
    let server_state = server::read(&session.client, &definitions).await?;
    let mut plan = Plan::new(&definitions, &server_state, !choices.no_delete);
    plan.check_with(&session.client).await?;
    let kinds = plan.read_kinds(&session.client).await?;
    plan.warn_about_pools(&kinds);
    if plan.errors.is_empty() {
        plan.preview_pools(&session.client).await?;
    }
    preview::add_previews(
        &mut plan,
        &definitions,
        &server_state,
        PreviewOptions {
            adopts: choices.adopt_pools,
            is_full: choices.full,
            kinds: &kinds,
        },
        &session.client,
    )
    .await?;
    if plan.errors.is_empty() {
        plan.check_targets(&session.client).await?;
    }
    Ok(plan)
}

fn warn(plan: &Plan) {
    for warning in &plan.warnings {
        output::note(&format!("warning: {warning}"));
    }
}

/// Loads a saved plan, if the server did not change since.
async fn load(saved: &Path, session: &Session) -> Result<(Plan, bool), Failure> {
    let document = Document::load(saved, session.client.root_url())?;
    let adopts = document.adopt_pools;
    let plan = document.into_plan();
    // Another version of the program may have saved it despite errors.
    check_executable(&plan)?;
    recheck(&plan, adopts, session).await?;
    Ok((plan, adopts))
}

/// Refuses a plan if the server changed since it was made.
async fn recheck(plan: &Plan, adopts: bool, session: &Session) -> Result<(), Failure> {
    let conflicts = recheck::conflicts(plan, adopts, &session.client).await?;
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Conflict,
            format!(
                "nothing was changed: the plan is out of date\n{}",
                conflicts.join("\n")
            ),
        )
        .with_hint("run `fleetwright plan` again"))
    }
}

fn show_plan(plan: &Plan, pools: &[String], style: Style) {
    output::out(&part_lines(plan, pools, style).join("\n"));
    if pools.is_empty() && show::is_summed_up(plan, style) {
        output::note(
            "differences are summed up: --full shows each launch config, `fleetwright plan --pool \
             POOL` those of a pool",
        );
    }
}

/// The effects on some pools one by one, or else the plan.
fn part_lines(plan: &Plan, pools: &[String], style: Style) -> Vec<String> {
    if pools.is_empty() {
        let mut lines = show::lines(plan, style);
        lines.push(show::summary(plan, &plan.changes, Tense::Would));
        return lines;
    }
    let part = plan.about(pools);
    if part.changes.is_empty() {
        return vec![format!("no effect on {}", pools.join(", "))];
    }
    let style = Style {
        in_full: true,
        ..style
    };
    show::lines(&part, style)
}

fn check_executable(plan: &Plan) -> Result<(), Failure> {
    let exit = if plan.errors.is_empty() {
        Exit::Conflict
    } else {
        Exit::Failed
    };
    let reasons: Vec<_> = plan.errors.iter().chain(&plan.conflicts).collect();
    match reasons.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(
            exit,
            format!("the plan cannot be applied: {one}"),
        )),
        several => {
            let mut lines = vec![format!(
                "the plan cannot be applied, for {} reasons:",
                several.len()
            )];
            lines.extend(several.iter().map(|reason| format!("- {reason}")));
            Err(Failure::new(exit, lines.join("\n")))
        }
    }
}

fn print_outcome(plan: &Plan, outcome: &Outcome) {
    output::out(&show::summary(
        plan,
        &outcome.done,
        Tense::Past(outcome.already_done),
    ));
    let clients = outcome
        .done
        .iter()
        .filter(|change| change.kind == Kind::Client && change.action == Action::Create);
    for client in clients {
        output::note(&format!(
            "run `fleetwright client reset {}` to get an access token for the new client",
            client.id
        ));
    }
}

fn outcome_json(plan: &Plan, outcome: &Outcome) -> Value {
    let entry =
        |change: &Change| json!({"kind": change.kind, "id": change.id, "action": change.action});
    let failed = outcome.failed.iter().map(|(change, failure)| {
        let mut entry = entry(change);
        entry["message"] = json!(failure.message);
        entry
    });
    json!({
        "done": outcome.done.iter().map(entry).collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
        "doneBefore": outcome.already_done,
        "notTried": outcome.not_tried,
        "same": plan.same,
    })
}

fn failure(plan: &Plan, outcome: Outcome) -> Failure {
    let n_failed = outcome.failed.len();
    let exit = match outcome.failed.as_slice() {
        [.., (_, last)] if last.exit == Exit::Unreachable => Exit::Unreachable,
        failed
            if failed
                .iter()
                .all(|(_, failure)| failure.exit == Exit::Conflict) =>
        {
            Exit::Conflict
        }
        _ => Exit::Failed,
    };
    let mut lines = vec![format!(
        "{n_failed} of {} changes failed:",
        plan.changes.len()
    )];
    lines.extend(listed(outcome.failed.iter().map(|(_, failure)| failure)));
    if outcome.not_tried > 0 {
        lines.push(format!("  and {} were not tried", outcome.not_tried));
    }
    Failure::new(exit, lines.join("\n")).with_hint(
        "fix the causes and run the same command again: completed changes are not repeated",
    )
}
