//! Executes a plan item by item; a failed item does not stop the others.
//!
//! Each item is read again before it is written: items that others changed since the plan was made
//! are skipped. Writes of worker configurations carry their version, so that they cannot race.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::change::{Action, Change, is_going};
use super::kind::Kind;
use super::server::{ServerItem, read_one};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// The outcome of executing a plan.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<Change>,
    /// Changes that were already applied.
    pub(super) already_done: usize,
    pub(super) failed: Vec<(Change, Failure)>,
    /// Changes not tried, because the server became unreachable.
    pub(super) not_tried: usize,
}

/// Options of every write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteOptions<'a> {
    pub(super) adopts: bool,
    pub(super) reason: Option<&'a str>,
}

/// The state of an item on the server, relative to its planned change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Unchanged,
    Applied,
    /// A pool that its worker configuration gave up in this plan, and that was deleted since.
    Removed,
}

pub(super) async fn execute(
    changes: &[Change],
    options: WriteOptions<'_>,
    client: &Client,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut freed = BTreeSet::new();
    let mut progress = Progress::start();
    for (position, change) in changes.iter().enumerate() {
        progress.step("applying", position, changes.len(), change.title());
        let result = match read_state(change, &freed, client).await {
            Ok(State::Applied) => {
                outcome.already_done += 1;
                freed.extend(change.loses());
                continue;
            }
            Ok(State::Unchanged) => write(change, change.action, options, client).await,
            Ok(State::Removed) => write(change, Action::Create, options, client).await,
            Err(failure) => Err(failure),
        };
        match result {
            Ok(()) => {
                freed.extend(change.loses());
                outcome.done.push(change.clone());
            }
            Err(failure) => {
                // Further calls would time out too.
                let is_unreachable = failure.exit == Exit::Unreachable;
                outcome.failed.push((change.clone(), failure));
                if is_unreachable {
                    outcome.not_tried = changes.len() - position - 1;
                    break;
                }
            }
        }
    }
    outcome
}

pub(super) async fn read_state(
    change: &Change,
    freed: &BTreeSet<String>,
    client: &Client,
) -> Result<State, Failure> {
    let stored = read_one(client, change.kind, &change.id).await?;
    compare(change, freed, stored.as_ref())
}

/// `freed`: the pools that earlier changes gave up. Their changes are not conflicts.
fn compare(
    change: &Change,
    freed: &BTreeSet<String>,
    stored: Option<&ServerItem>,
) -> Result<State, Failure> {
    if change.has_read(stored) {
        return Ok(State::Unchanged);
    }
    if change.is_done(stored) {
        return Ok(State::Applied);
    }
    if change.kind == Kind::WorkerPool && freed.contains(&change.id) {
        match stored {
            None => return Ok(State::Removed),
            Some(stored) if is_going(&stored.content) => return Ok(State::Unchanged),
            Some(_) => {}
        }
    }
    let happened = match (&change.before, stored) {
        (None, Some(_)) => "was created",
        (Some(_), None) => "was removed",
        (_, _) => "was changed",
    };
    Err(Failure::new(
        Exit::Conflict,
        format!(
            "{} {happened} by another client since the plan was made",
            change.title()
        ),
    )
    .with_hint("run `fleetwright plan` again"))
}

async fn write(
    change: &Change,
    action: Action,
    options: WriteOptions<'_>,
    client: &Client,
) -> Result<(), Failure> {
    let (kind, id) = (change.kind, &change.id);
    let body = || body(change, options);
    let call = match action {
        Action::Create => kind.create_call(id, body()),
        Action::Update => kind.update_call(id, body()),
        Action::Remove => kind
            .remove_call("remove", id)
            .query("version", change.version),
    };
    // The access token of a new client is dropped: `client reset` makes another one.
    client.call(&call).await.map(drop)
}

fn body(change: &Change, options: WriteOptions<'_>) -> Value {
    let mut body = change.after.clone().unwrap_or_default();
    if change.kind == Kind::WorkerConfiguration {
        body["adoptPools"] = json!(options.adopts);
    }
    if change.kind.has_versions() {
        if let Some(version) = change.version {
            body["version"] = json!(version);
        }
        if let Some(reason) = options.reason {
            body["reason"] = json!(reason);
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn change(before: Option<Value>, after: Option<Value>) -> Change {
        Change {
            kind: Kind::Role,
            id: "r".to_owned(),
            action: Action::Update,
            place: None,
            version: None,
            before,
            after,
            effects: None,
            adopted: BTreeMap::new(),
        }
    }

    fn role(scope: &str) -> Value {
        json!({"description": "", "scopes": [scope]})
    }

    fn stored(content: Value) -> ServerItem {
        ServerItem {
            content,
            version: None,
        }
    }

    fn word(change: &Change, stored: Option<&ServerItem>) -> String {
        match compare(change, &BTreeSet::new(), stored) {
            Ok(state) => format!("{state:?}"),
            Err(failure) => failure.message,
        }
    }

    #[test]
    fn changes_by_others_are_not_overwritten() {
        let update = change(Some(role("a")), Some(role("b")));
        assert_eq!(word(&update, Some(&stored(role("a")))), "Unchanged");
        assert_eq!(word(&update, Some(&stored(role("b")))), "Applied");
        assert!(word(&update, Some(&stored(role("c")))).contains("was changed"));
        assert!(word(&update, None).contains("was removed"));
        let create = change(None, Some(role("b")));
        assert_eq!(word(&create, None), "Unchanged");
        assert_eq!(word(&create, Some(&stored(role("b")))), "Applied");
        assert!(word(&create, Some(&stored(role("c")))).contains("was created"));
        let remove = change(Some(role("a")), None);
        assert_eq!(word(&remove, Some(&stored(role("a")))), "Unchanged");
        assert_eq!(word(&remove, None), "Applied");
        assert!(word(&remove, Some(&stored(role("c")))).contains("was changed"));
    }

    #[test]
    fn changes_of_pools_that_this_plan_freed_are_no_conflict() {
        let pool = |provider: &str| json!({"providerId": provider, "config": {}});
        let mut update = change(Some(pool("p")), Some(pool("q")));
        update.kind = Kind::WorkerPool;
        let (freed, none) = (BTreeSet::from([update.id.clone()]), BTreeSet::new());
        let going = stored(pool("null-provider"));
        for stored in [None, Some(&going)] {
            assert!(compare(&update, &none, stored).is_err());
        }
        assert_eq!(compare(&update, &freed, None).unwrap(), State::Removed);
        assert_eq!(
            compare(&update, &freed, Some(&going)).unwrap(),
            State::Unchanged
        );
        assert!(compare(&update, &freed, Some(&stored(pool("theirs")))).is_err());
    }

    #[test]
    fn a_worker_configuration_is_known_by_its_version() {
        let content = json!({"description": "", "workerTypes": [], "rules": []});
        let mut update = change(Some(content.clone()), Some(content.clone()));
        update.kind = Kind::WorkerConfiguration;
        update.version = Some(3);
        let at = |version| ServerItem {
            content: json!({"workerTypes": ["a"], "rules": []}),
            version: Some(version),
        };
        assert_eq!(word(&update, Some(&at(3))), "Unchanged");
        assert!(word(&update, Some(&at(4))).contains("was changed"));
        let body = body(
            &update,
            WriteOptions {
                adopts: true,
                reason: Some("why"),
            },
        );
        assert_eq!(
            (&body["version"], &body["reason"]),
            (&json!(3), &json!("why"))
        );
    }
}
