//! The processes of the deployment.

use domain::time::{SECOND_MS, Timestamp};
use serde_json::{Value, json};
use store::StoreError;
use store::event_readers::HeldReader;
use store::processes::ProcessRow;
use store::tree_owners::TreeOwner;

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// A process that announced nothing for this long is silent: it missed three announcements.
const SILENT_MS: i64 = 100 * SECOND_MS;
/// A tree that was not renewed for this long has no owner.
const TREE_LEASE_MS: i64 = 30 * SECOND_MS;

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page.after.as_ref().map(|(id,)| id.clone());
    let (limit, now) = (page.limit_and_one(), call.now);
    let read = call.read("process_list", move |tx| {
        let rows = store::processes::list(tx, after.as_deref(), limit)?;
        let readers = store::event_readers::list_held(tx, now)?;
        let tree = store::tree_owners::get(tx)?;
        Ok::<_, StoreError>((rows, readers, tree))
    });
    let (rows, readers, tree) = read.await?;
    let tree = tree.filter(|owner| now.millis_since(owner.renewed) <= TREE_LEASE_MS);
    let key = |row: &ProcessRow| (row.process_id.clone(),);
    page.reply("processes", rows, key, |row| {
        process_json(row, &readers, tree.as_ref(), now)
    })
}

fn process_json(
    row: &ProcessRow,
    readers: &[HeldReader],
    tree: Option<&TreeOwner>,
    now: Timestamp,
) -> Value {
    let held = readers.iter().filter(|it| it.holder == row.process_id);
    let mut leases: Vec<Value> = held
        .map(|it| json!({"name": it.name, "until": it.until.to_string()}))
        .collect();
    if let Some(owner) = tree.filter(|owner| owns(row, owner)) {
        let until = owner.renewed.plus_millis(TREE_LEASE_MS);
        leases.push(json!({"name": "tree", "until": until.to_string()}));
    }
    without_nulls(json!({
        "processId": row.process_id,
        "host": row.host,
        "pid": row.pid,
        "roles": row.roles,
        "version": row.version,
        "started": row.started.to_string(),
        "lastSeen": row.last_seen.to_string(),
        "silent": now.millis_since(row.last_seen) > SILENT_MS,
        "clockAheadMs": row.clock_ahead_ms,
        "leases": leases,
    }))
}

/// Whether this process owns the tree, which names its owner by host and number.
fn owns(row: &ProcessRow, owner: &TreeOwner) -> bool {
    let process: Value = serde_json::from_str(&owner.process).unwrap_or_default();
    process["host"] == row.host.as_str() && process["pid"] == row.pid
}
