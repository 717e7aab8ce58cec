//! The server's previews of pools that files define.
//!
//! Only the server knows what providers accept and which defaults they add: a definition that looks
//! different may be equivalent.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::change::{Action, Change, Earlier, Plan};
use super::kind::Kind;
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output::{Progress, counted};

enum Preview {
    Changes {
        conflicts: Vec<String>,
        created: BTreeSet<String>,
    },
    Same,
    Refused(Vec<Refusal>),
}

/// An error of one or more pools.
struct Refusal {
    /// The first pool.
    subject: String,
    n_more: usize,
    error: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        match self.n_more {
            0 => {}
            more => write!(f, " and {}", counted(more, "more pool"))?,
        }
        write!(f, ": {}", self.error)
    }
}

/// Counts an error that another pool has, too.
fn add(refusals: &mut Vec<Refusal>, refusal: Refusal) {
    match refusals
        .iter_mut()
        .find(|known| known.error == refusal.error)
    {
        Some(known) => known.n_more += 1,
        None => refusals.push(refusal),
    }
}

impl Plan {
    /// Drops changes of pools without an effect, and adds conflicts of the others.
    pub(super) async fn preview_pools(&mut self, client: &Client) -> Result<(), Failure> {
        let earlier = self.earlier();
        let mut progress = Progress::start();
        let mut changes = Vec::new();
        let mut refusals: Vec<Refusal> = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            if change.kind != Kind::WorkerPool || change.action == Action::Remove {
                changes.push(change);
                continue;
            }
            progress.report(|| format!("planning {}", change.title()));
            match preview(&change, &earlier, client).await? {
                Preview::Same => {
                    *self.same.entry(Kind::WorkerPool).or_default() += 1;
                    continue;
                }
                Preview::Changes { conflicts, created } => {
                    self.conflicts.extend(conflicts);
                    self.made.insert(change.id.clone(), created);
                }
                Preview::Refused(errors) => {
                    errors
                        .into_iter()
                        .for_each(|error| add(&mut refusals, error));
                }
            }
            changes.push(change);
        }
        self.changes = changes;
        self.errors.extend(refusals.iter().map(ToString::to_string));
        Ok(())
    }
}

async fn preview(change: &Change, earlier: &Earlier, client: &Client) -> Result<Preview, Failure> {
    let body = change.after.clone().unwrap_or_default();
    let call = Call::post(WORKER_MANAGER, &["plan-worker-pool", &change.id], body).to(format!(
        "plan {} of {}",
        change.title(),
        change.origin()
    ));
    let reply = match client.call(&call).await {
        Ok(reply) => reply,
        Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
        Err(failure) => {
            let subject = format!("could not {}", call.purpose);
            let error = failure.message.strip_prefix(&format!("{subject}: "));
            return Ok(Preview::Refused(vec![Refusal {
                error: error.unwrap_or(&failure.message).to_owned(),
                subject,
                n_more: 0,
            }]));
        }
    };
    let errors = earlier.image_errors(&reply).into_iter();
    let errors = errors.map(|error| Refusal {
        subject: format!("{}: {}", change.origin(), change.title()),
        n_more: 0,
        error,
    });
    let errors: Vec<Refusal> = errors.collect();
    if !errors.is_empty() {
        return Ok(Preview::Refused(errors));
    }
    let listed = reply["conflicts"].as_array().into_iter().flatten();
    // A configuration that gives up the pool earlier in this plan is no conflict.
    let solved = |conflict: &str| {
        earlier.freed.contains(&change.id)
            && conflict.contains(" is made of the worker configuration ")
    };
    let conflicts: Vec<String> = listed
        .filter_map(Value::as_str)
        .filter(|conflict| !solved(conflict))
        .map(|conflict| format!("{}: {conflict}", change.origin()))
        .collect();
    match reply["changes"].as_bool() {
        Some(false) if conflicts.is_empty() => Ok(Preview::Same),
        Some(_) | None => Ok(Preview::Changes {
            conflicts,
            created: created(&reply),
        }),
    }
}

fn created(reply: &Value) -> BTreeSet<String> {
    let ids = reply["launchConfigs"]["created"].as_array();
    let ids = ids.into_iter().flatten().filter_map(Value::as_str);
    ids.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_errors_of_many_pools_are_reported_once() {
        let mut refusals = Vec::new();
        for (pool, error) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")] {
            let subject = format!("could not plan pool {pool}");
            let error = error.to_owned();
            add(
                &mut refusals,
                Refusal {
                    subject,
                    n_more: 0,
                    error,
                },
            );
        }
        let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        let expected = [
            "could not plan pool a and 2 more pools: x",
            "could not plan pool c: y",
        ];
        assert_eq!(lines, expected);
    }
}
