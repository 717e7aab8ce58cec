//! Configuration as code: what files say about a fleet, against what a server has.
//!
//! Both are read, a plan is made of the difference, and shown; to apply is to carry out exactly that. Only what
//! the files name, or own by pattern, is touched.

mod carry_out;
mod change;
mod definitions;
mod document;
mod foresee;
mod judge;
mod kind;
mod order;
mod owns;
mod paint;
mod pools;
mod read;
mod recheck;
pub(crate) mod semantic;
mod server;
mod show;
mod targets;
#[cfg(test)]
mod tests;
mod values;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::output;
use crate::session::Session;
use carry_out::{Manner, Outcome};
use change::{Action, Change, Plan};
use document::Document;
use kind::Kind;
pub(crate) use paint::Paint;
use show::Tense;

/// In which order people read: the keys that come first in what is written for them.
pub(crate) const KEYS_FIRST: [&str; 14] = [
    "owns",
    "workerConfigurationId",
    "workerPoolId",
    "roleId",
    "clientId",
    "overrideId",
    "ruleId",
    "description",
    "owner",
    "providerId",
    "workerTypes",
    "conditions",
    "rules",
    "values",
];
/// More failures than this are counted and not listed.
const MAX_LISTED: usize = 50;

#[derive(Args, Debug)]
pub(crate) struct Planning {
    /// A file, or a folder of files: YAML, JSON or TOML (`-`: standard input); may be given several times
    #[arg(short, long, value_name = "DIR|FILE", required = true)]
    file: Vec<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// Exit with 7 if something differs
    #[arg(long)]
    check: bool,
    /// Save the plan, so that `fleetwright apply --plan` can carry out exactly that
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Applying {
    /// A file, or a folder of files: YAML, JSON or TOML (`-`: standard input); may be given several times
    #[arg(short, long, value_name = "DIR|FILE", required_unless_present = "plan")]
    file: Vec<PathBuf>,
    /// A plan that was saved: refused if something changed since
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "no_delete", "adopt_pools"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// Why, for the history of worker configurations
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Args, Debug)]
struct Choices {
    /// Remove nothing, also if it is owned and not in the files
    #[arg(long)]
    no_delete: bool,
    /// Let worker configurations take over worker pools that were made by hand
    #[arg(long)]
    adopt_pools: bool,
    /// Show all values and all launch configs
    #[arg(long)]
    full: bool,
}

impl Choices {
    fn paint(&self) -> Paint {
        Paint {
            in_colour: output::in_colour(),
            in_full: self.full,
        }
    }
}

pub(crate) async fn plan(arguments: &Planning, session: &Session) -> Result<(), Failure> {
    let choices = &arguments.choices;
    let plan = make(&arguments.file, choices, session).await?;
    let document = Document::of(&plan, session.client.root_url(), choices.adopt_pools);
    match session.json {
        true => output::json(&document.to_json()),
        false => show_plan(&plan, choices.paint()),
    }
    impossible(&plan)?;
    if let Some(path) = &arguments.out {
        document.save(path)?;
    }
    match arguments.check && !plan.changes.is_empty() {
        true => Err(Failure::new(
            Exit::Differs,
            format!(
                "{} differs from {}",
                session.client.root_url(),
                read::names(&arguments.file)
            ),
        )),
        false => Ok(()),
    }
}

pub(crate) async fn apply(arguments: &Applying, session: &Session) -> Result<(), Failure> {
    let choices = &arguments.choices;
    let (plan, adopts) = match &arguments.plan {
        Some(saved) => load(saved, session).await?,
        None => (
            make(&arguments.file, choices, session).await?,
            choices.adopt_pools,
        ),
    };
    if !session.json {
        show_plan(&plan, choices.paint());
    }
    impossible(&plan)?;
    if !plan.changes.is_empty() {
        let question = format!("carry this out on {}", session.client.root_url());
        output::confirm(&question, arguments.yes)?;
        if !arguments.yes {
            // People may think for long.
            recheck(&plan, adopts, session).await?;
        }
    }
    let manner = Manner {
        adopts,
        reason: arguments.reason.as_deref(),
    };
    let outcome = carry_out::carry_out(&plan.changes, manner, &session.client).await;
    match session.json {
        true => output::json(&outcome_json(&plan, &outcome)),
        false => tell(&plan, &outcome),
    }
    match outcome.failed.is_empty() {
        true => Ok(()),
        false => Err(failure(&plan, outcome)),
    }
}

async fn make(files: &[PathBuf], choices: &Choices, session: &Session) -> Result<Plan, Failure> {
    let mut wanted = read::read(files, session.now)?;
    for (id, place) in wanted.without_ended(session.now) {
        output::note(&format!(
            "{place}: override {id} has ended: it can be taken out"
        ));
    }
    let here = server::read(&session.client, &wanted).await?;
    let mut plan = Plan::new(&wanted, &here, !choices.no_delete);
    plan.check_with(&session.client).await?;
    if plan.errors.is_empty() {
        plan.ask_about_pools(&session.client).await?;
    }
    foresee::foresee(
        &mut plan,
        &wanted,
        &here,
        choices.adopt_pools,
        &session.client,
    )
    .await?;
    if plan.errors.is_empty() {
        plan.check_targets(&session.client).await?;
    }
    Ok(plan)
}

/// A plan that was saved, if it still fits what is there.
async fn load(saved: &Path, session: &Session) -> Result<(Plan, bool), Failure> {
    let document = Document::load(saved, session.client.root_url())?;
    let adopts = document.adopt_pools;
    let plan = document.into_plan();
    // Another version of the program may have saved it all the same.
    impossible(&plan)?;
    recheck(&plan, adopts, session).await?;
    Ok((plan, adopts))
}

/// Refuses to carry out a plan that is not what would happen any more.
async fn recheck(plan: &Plan, adopts: bool, session: &Session) -> Result<(), Failure> {
    let conflicts = recheck::conflicts(plan, adopts, &session.client).await?;
    match conflicts.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Conflict,
            format!(
                "nothing was done: the plan is out of date\n{}",
                conflicts.join("\n")
            ),
        )
        .advise("`fleetwright plan` makes another one")),
    }
}

fn show_plan(plan: &Plan, paint: Paint) {
    let mut lines = show::lines(plan, paint);
    lines.push(show::summary(plan, &plan.changes, Tense::Would));
    output::out(&lines.join("\n"));
}

/// What stands in the way of carrying it out, if something does.
fn impossible(plan: &Plan) -> Result<(), Failure> {
    let exit = match plan.errors.is_empty() {
        true => Exit::Conflict,
        false => Exit::Failed,
    };
    let reasons: Vec<_> = plan.errors.iter().chain(&plan.conflicts).collect();
    match reasons.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(
            exit,
            format!("this cannot be carried out: {one}"),
        )),
        several => {
            let mut lines = vec![format!(
                "this cannot be carried out, for {} reasons:",
                several.len()
            )];
            lines.extend(several.iter().map(|reason| format!("- {reason}")));
            Err(Failure::new(exit, lines.join("\n")))
        }
    }
}

fn tell(plan: &Plan, outcome: &Outcome) {
    output::out(&show::summary(
        plan,
        &outcome.done,
        Tense::Past(outcome.found_done),
    ));
    let clients = outcome
        .done
        .iter()
        .filter(|change| change.kind == Kind::Client && change.action == Action::Create);
    for client in clients {
        output::note(&format!(
            "`fleetwright client reset {}` makes an access token for the new client and shows it",
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
        "doneBefore": outcome.found_done,
        "notTried": outcome.left,
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
        "{n_failed} of {} could not be carried out:",
        plan.changes.len()
    )];
    let listed = outcome.failed.iter().take(MAX_LISTED);
    lines.extend(listed.map(|(_, failure)| format!("  {}", failure.message.replace('\n', "\n  "))));
    if n_failed > MAX_LISTED {
        lines.push(format!("  and {} more", n_failed - MAX_LISTED));
    }
    if outcome.left > 0 {
        lines.push(format!("  and {} were not tried", outcome.left));
    }
    Failure::new(exit, lines.join("\n"))
        .advise("repeat the same command once the causes are gone: what is done is not done again")
}
