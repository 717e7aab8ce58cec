//! The audit log: changes and their authors.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;
use serde_json::json;

use crate::api::{call::Call, error::ApiError, paging::Page, reply::Reply};

pub(super) async fn of_entity(call: Call) -> Result<Reply, ApiError> {
    let entity_type: EntityType = call
        .parameter("entityType")
        .parse()
        .map_err(|bad| ApiError::input(format!("{bad}")))?;
    let entity_id = call.parameter("entityId").to_owned();
    let page = call.page::<(i64,)>()?;
    let (after, limit) = (page.after.map(|(sequence,)| sequence), page.limit_and_one());
    let read = call.scan("audit_by_entity", move |tx| {
        store::audit::by_entity(tx, entity_type, &entity_id, after, limit)
    });
    reply(read.await?, &page)
}

pub(super) async fn of_client(call: Call) -> Result<Reply, ApiError> {
    let client_id: ClientId = call.id("clientId")?;
    let page = call.page::<(i64,)>()?;
    let (after, limit) = (page.after.map(|(sequence,)| sequence), page.limit_and_one());
    let read = call.scan("audit_by_client", move |tx| {
        store::audit::by_client(tx, &client_id, after, limit)
    });
    reply(read.await?, &page)
}

fn reply(rows: Vec<(i64, AuditEntry)>, page: &Page<(i64,)>) -> Result<Reply, ApiError> {
    let show = |(_, entry): &(i64, AuditEntry)| {
        let mut line = json!({
            "entityType": entry.entity_type.as_str(),
            "entityId": entry.entity_id,
            "clientId": entry.client_id,
            "actionType": entry.action,
            "created": entry.created.to_string(),
        });
        if !entry.detail.is_null() {
            line["detail"] = entry.detail.clone();
        }
        line
    };
    page.reply("auditHistory", rows, |(sequence, _)| (*sequence,), show)
}
