//! Summarizes an import or a dry run, as a line and as a document.

use serde_json::{Value, json};

use super::apply::ItemFailure;
use super::compare::{Counts, Plan};
use super::fleet::Fleet;
use crate::code::Kind;
use crate::failure::{Exit, Failure, listed};
use crate::output::counted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tense {
    Would,
    Past,
}

pub(super) fn sentence(plan: &Plan, failures: &[ItemFailure], tense: Tense) -> String {
    let (create, update) = match tense {
        Tense::Would => ("would create", "would update"),
        Tense::Past => ("created", "updated"),
    };
    let mut parts = Vec::new();
    for (verb, exists) in [(create, false), (update, true)] {
        let done = done(plan, failures, exists);
        if done != Counts::default() {
            parts.push(format!("{verb} {}", in_words(done)));
        }
    }
    if parts.is_empty() {
        parts.push("nothing to change".to_owned());
    }
    if plan.same != Counts::default() {
        parts.push(format!("unchanged: {}", in_words(plan.same)));
    }
    if plan.only_on_target != Counts::default() {
        parts.push(format!(
            "only on the target: {}",
            in_words(plan.only_on_target)
        ));
    }
    parts.join(", ")
}

pub(super) fn document(
    plan: &Plan,
    source: &Fleet,
    failures: &[ItemFailure],
    dry_run: bool,
    missing_providers: Option<&str>,
) -> Value {
    let ids = |kind, exists| -> Vec<&str> {
        succeeded(plan, failures)
            .filter(|change| change.kind == kind && change.before.is_some() == exists)
            .map(|change| change.id.as_str())
            .collect()
    };
    let by_kind = |exists| json!({"workerPools": ids(Kind::WorkerPool, exists), "roles": ids(Kind::Role, exists)});
    let counts = |counts: Counts| json!({"workerPools": counts.pools, "roles": counts.roles});
    let failures: Vec<_> = failures
        .iter()
        .map(|item| {
            let change = &plan.changes[item.position];
            json!({"what": change.json_title(), "message": item.failure.message})
        })
        .collect();
    json!({
        "dryRun": dry_run,
        "create": by_kind(false),
        "update": by_kind(true),
        "same": counts(plan.same),
        "onlyHere": counts(plan.only_on_target),
        "ignored": source.ignored,
        "failures": failures,
        "missingProviders": missing_providers,
    })
}

pub(super) fn failure(plan: &Plan, failures: &[ItemFailure]) -> Failure {
    let mut lines = vec![format!(
        "{} of {} could not be imported:",
        failures.len(),
        plan.changes.len()
    )];
    lines.extend(listed(failures.iter().map(|item| &item.failure)));
    let last = failures.last().map(|item| &item.failure);
    let is_unreachable = last.is_some_and(|failure| failure.exit == Exit::Unreachable);
    let exit = if is_unreachable {
        Exit::Unreachable
    } else {
        Exit::Failed
    };
    let mut failure = Failure::new(exit, lines.join("\n")).with_hint(
        "fix the causes and run the same command again: completed changes are not repeated",
    );
    if is_unreachable {
        failure.hint = last.and_then(|failure| failure.hint.clone());
    }
    failure
}

fn succeeded<'a>(
    plan: &'a Plan,
    failures: &'a [ItemFailure],
) -> impl Iterator<Item = &'a super::compare::Change> {
    let end = match failures.last() {
        // Nothing was tried after this item.
        Some(item) if item.failure.exit == Exit::Unreachable => item.position,
        Some(_) | None => plan.changes.len(),
    };
    plan.changes[..end]
        .iter()
        .enumerate()
        .filter(|(position, _)| !failures.iter().any(|item| item.position == *position))
        .map(|(_, change)| change)
}

fn done(plan: &Plan, failures: &[ItemFailure], exists: bool) -> Counts {
    let of = |kind| {
        succeeded(plan, failures)
            .filter(|change| change.kind == kind && change.before.is_some() == exists)
            .count()
    };
    Counts {
        pools: of(Kind::WorkerPool),
        roles: of(Kind::Role),
    }
}

fn in_words(counts: Counts) -> String {
    let some = |count: usize, one: &str| (count > 0).then(|| counted(count, one));
    let parts = [some(counts.pools, "pool"), some(counts.roles, "role")];
    parts
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let role = |id: &str| json!({"roleId": id, "scopes": ["s"]});
        let source = json!({
            "roles": [role("a"), role("b"), role("c")],
            "workerPools": [{"workerPoolId": "a/b", "providerId": "p", "owner": "o", "config": {}}],
        });
        let target = json!({"roles": [role("c"), {"roleId": "b", "scopes": []}, role("z")]});
        Plan::new(
            &Fleet::parse(source).unwrap(),
            &Fleet::parse(target).unwrap(),
        )
    }

    fn failed(position: usize, exit: Exit) -> ItemFailure {
        ItemFailure {
            position,
            failure: Failure::new(exit, "could not …"),
        }
    }

    #[test]
    fn the_summary_of_a_dry_run_uses_would() {
        assert_eq!(
            sentence(&plan(), &[], Tense::Would),
            "would create 1 pool and 1 role, would update 1 role, unchanged: 1 role, only on the target: 1 role"
        );
    }

    #[test]
    fn failed_items_are_not_counted_as_done() {
        let one = [failed(0, Exit::Failed)];
        assert!(sentence(&plan(), &one, Tense::Past).starts_with("created 1 pool, updated 1 role"));
        let unreachable = [failed(0, Exit::Unreachable)];
        assert!(sentence(&plan(), &unreachable, Tense::Past).starts_with("nothing to change"));
        assert_eq!(failure(&plan(), &unreachable).exit, Exit::Unreachable);
        assert_eq!(failure(&plan(), &one).exit, Exit::Failed);
    }

    #[test]
    fn a_program_gets_the_names() {
        let hooks = Fleet::parse(json!({"roles": [], "hooks": [{}, {}]})).unwrap();
        let document = document(&plan(), &hooks, &[failed(2, Exit::Failed)], false, None);
        assert_eq!(document["ignored"], json!({"hooks": 2}));
        assert_eq!(
            document["create"],
            json!({"workerPools": [], "roles": ["a"]})
        );
        assert_eq!(document["update"]["roles"], json!(["b"]));
        assert_eq!(document["failures"][0]["what"], "worker pool a/b");
    }
}
