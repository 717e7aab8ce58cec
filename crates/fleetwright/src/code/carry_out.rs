//! Carries a plan out, item by item: one that fails does not hold up the others.
//!
//! Right before something is written it is read again: what somebody changed since the plan was made is left
//! as it is. Worker configurations say their version with the write, so that there is no moment in between.

use serde_json::{Value, json};

use super::change::{Action, Change};
use super::kind::Kind;
use super::server::{There, read_one};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// How it went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) done: Vec<Change>,
    /// Done already when it was its turn.
    pub(super) found_done: usize,
    pub(super) failed: Vec<(Change, Failure)>,
    /// Not tried, because the server went away.
    pub(super) left: usize,
}

/// What goes with every write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner<'a> {
    pub(super) adopts: bool,
    pub(super) reason: Option<&'a str>,
}

enum State {
    AsRead,
    Done,
}

pub(super) async fn carry_out(changes: &[Change], manner: Manner<'_>, client: &Client) -> Outcome {
    let mut outcome = Outcome::default();
    let mut progress = Progress::start();
    for (position, change) in changes.iter().enumerate() {
        progress.tell(|| {
            format!(
                "applying: {position} of {}, now {}",
                changes.len(),
                change.title()
            )
        });
        let result = match state(change, client).await {
            Ok(State::Done) => {
                outcome.found_done += 1;
                continue;
            }
            Ok(State::AsRead) => write(change, manner, client).await,
            Err(failure) => Err(failure),
        };
        match result {
            Ok(()) => outcome.done.push(change.clone()),
            Err(failure) => {
                // The others would only wait for the same silence.
                let is_gone = failure.exit == Exit::Unreachable;
                outcome.failed.push((change.clone(), failure));
                if is_gone {
                    outcome.left = changes.len() - position - 1;
                    break;
                }
            }
        }
    }
    outcome
}

/// Everything that is not as it was read, before anything is done.
pub(super) async fn conflicts(changes: &[Change], client: &Client) -> Result<Vec<String>, Failure> {
    let mut conflicts = Vec::new();
    let mut progress = Progress::start();
    for (position, change) in changes.iter().enumerate() {
        progress.tell(|| {
            format!(
                "comparing: {position} of {}, now {}",
                changes.len(),
                change.title()
            )
        });
        match state(change, client).await {
            Ok(State::AsRead | State::Done) => {}
            Err(failure) if failure.exit == Exit::Conflict => conflicts.push(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    Ok(conflicts)
}

async fn state(change: &Change, client: &Client) -> Result<State, Failure> {
    let there = read_one(client, change.kind, &change.id).await?;
    judge(change, there.as_ref())
}

fn judge(change: &Change, there: Option<&There>) -> Result<State, Failure> {
    if change.has_read(there) {
        return Ok(State::AsRead);
    }
    if change.is_done(there) {
        return Ok(State::Done);
    }
    let happened = match (&change.before, there) {
        (None, Some(_)) => "was made",
        (Some(_), None) => "was removed",
        (_, _) => "was changed",
    };
    Err(Failure::new(
        Exit::Conflict,
        format!(
            "{} {happened} by somebody since the plan was made",
            change.title()
        ),
    )
    .advise("plan again"))
}

async fn write(change: &Change, manner: Manner<'_>, client: &Client) -> Result<(), Failure> {
    let (kind, id) = (change.kind, &change.id);
    let body = || body(change, manner);
    let call = match change.action {
        Action::Create => kind.create_call(id, body()),
        Action::Update => kind.update_call(id, body()),
        Action::Remove => kind.remove_call(id).query("version", change.version),
    };
    // A new client's access token goes nowhere: whoever needs it makes another.
    client.call(&call).await.map(drop)
}

fn body(change: &Change, manner: Manner<'_>) -> Value {
    let mut body = change.after.clone().unwrap_or_default();
    if change.kind == Kind::WorkerConfiguration {
        body["adoptPools"] = json!(manner.adopts);
        if let Some(version) = change.version {
            body["version"] = json!(version);
        }
        if let Some(reason) = manner.reason {
            body["reason"] = json!(reason);
        }
    }
    body
}

#[cfg(test)]
mod tests {
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
            foreseen: None,
        }
    }

    fn role(scope: &str) -> Value {
        json!({"description": "", "scopes": [scope]})
    }

    fn there(content: Value) -> There {
        There {
            content,
            version: None,
        }
    }

    fn word(change: &Change, there: Option<&There>) -> String {
        match judge(change, there) {
            Ok(State::AsRead) => "as read".to_owned(),
            Ok(State::Done) => "done".to_owned(),
            Err(failure) => failure.message,
        }
    }

    #[test]
    fn what_somebody_changed_since_is_left_alone() {
        let update = change(Some(role("a")), Some(role("b")));
        assert_eq!(word(&update, Some(&there(role("a")))), "as read");
        assert_eq!(word(&update, Some(&there(role("b")))), "done");
        assert!(word(&update, Some(&there(role("c")))).contains("was changed"));
        assert!(word(&update, None).contains("was removed"));
        let create = change(None, Some(role("b")));
        assert_eq!(word(&create, None), "as read");
        assert_eq!(word(&create, Some(&there(role("b")))), "done");
        assert!(word(&create, Some(&there(role("c")))).contains("was made"));
        let remove = change(Some(role("a")), None);
        assert_eq!(word(&remove, Some(&there(role("a")))), "as read");
        assert_eq!(word(&remove, None), "done");
        assert!(word(&remove, Some(&there(role("c")))).contains("was changed"));
    }

    #[test]
    fn a_worker_configuration_is_known_by_its_version() {
        let content = json!({"description": "", "workerTypes": [], "rules": []});
        let mut update = change(Some(content.clone()), Some(content.clone()));
        update.kind = Kind::WorkerConfiguration;
        update.version = Some(3);
        let at = |version| There {
            content: json!({"workerTypes": ["a"], "rules": []}),
            version: Some(version),
        };
        assert_eq!(word(&update, Some(&at(3))), "as read");
        assert!(word(&update, Some(&at(4))).contains("was changed"));
        let body = body(
            &update,
            Manner {
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
