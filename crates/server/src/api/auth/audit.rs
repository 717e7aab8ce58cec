//! The audit log: changes and their authors.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;
use serde_json::{Value, json};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::paging::Page;
use super::super::reply::Reply;

pub(super) async fn of_entity(call: Call) -> Result<Reply, ApiError> {
    let entity_type: EntityType = call
        .parameter("entityType")
        .parse()
        .map_err(|bad| ApiError::input(format!("{bad}")))?;
    let entity_id = call.parameter("entityId").to_owned();
    let page = call.page::<(i64,)>()?;
    let (after, limit) = (page.after.map(|(sequence,)| sequence), page.limit_and_one());
    let read = call.app.engine.store.scan("audit_by_entity", move |tx| {
        store::audit::by_entity(tx, entity_type, &entity_id, after, limit)
    });
    reply(read.await?, &page)
}

pub(super) async fn of_client(call: Call) -> Result<Reply, ApiError> {
    let client_id: ClientId = call.parameter("clientId").parse()?;
    let page = call.page::<(i64,)>()?;
    let (after, limit) = (page.after.map(|(sequence,)| sequence), page.limit_and_one());
    let read = call.app.engine.store.scan("audit_by_client", move |tx| {
        store::audit::by_client(tx, &client_id, after, limit)
    });
    reply(read.await?, &page)
}

fn reply(mut rows: Vec<(i64, AuditEntry)>, page: &Page<(i64,)>) -> Result<Reply, ApiError> {
    let token = page.cut(&mut rows, |(sequence, _)| (*sequence,));
    let entries: Vec<Value> = rows
        .iter()
        .map(|(_, entry)| {
            json!({
                "entityType": entry.entity_type.as_str(),
                "entityId": entry.entity_id,
                "clientId": entry.client_id,
                "actionType": entry.action,
                "created": entry.created.to_string(),
            })
        })
        .collect();
    let mut reply = json!({ "auditHistory": entries });
    if let Some(token) = token {
        reply["continuationToken"] = json!(token);
    }
    Reply::json(&reply)
}
