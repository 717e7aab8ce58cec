//! The server's previews of pools that files define.
//!
//! Only the server knows what providers accept and which defaults they add: a definition that looks
//! different may be equivalent.

use std::collections::BTreeSet;

use serde_json::Value;

use super::change::{Action, Change, Earlier, Plan};
use super::kind::Kind;
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output::Progress;

enum Preview {
    Changes {
        conflicts: Vec<String>,
        created: BTreeSet<String>,
    },
    Same,
    Refused(Vec<String>),
}

impl Plan {
    /// Drops changes of pools without an effect, and adds conflicts of the others.
    pub(super) async fn preview_pools(&mut self, client: &Client) -> Result<(), Failure> {
        let earlier = self.earlier();
        let mut progress = Progress::start();
        let mut changes = Vec::new();
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
                Preview::Refused(errors) => self.errors.extend(errors),
            }
            changes.push(change);
        }
        self.changes = changes;
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
        Err(failure) => return Ok(Preview::Refused(vec![failure.message])),
    };
    let errors = earlier.image_errors(&reply).into_iter();
    let errors = errors.map(|error| format!("{}: {}: {error}", change.origin(), change.title()));
    let errors: Vec<String> = errors.collect();
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
