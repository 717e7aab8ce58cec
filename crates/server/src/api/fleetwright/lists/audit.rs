//! The audit log of all objects.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::audit::AuditFilter;

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let filter = filter(&call)?;
    let page = call.page::<(i64,)>()?;
    let (before, limit) = (page.after.map(|(sequence,)| sequence), page.limit_and_one());
    let read = call.scan("audit_list", move |tx| {
        store::audit::list(tx, &filter, before, limit)
    });
    let key = |(sequence, _): &(i64, AuditEntry)| (*sequence,);
    page.reply("entries", read.await?, key, |(_, entry)| entry_json(entry))
}

fn filter(call: &Call) -> Result<AuditFilter, ApiError> {
    let entity_type = call.query("entityType").map(str::parse::<EntityType>);
    let entity_type = entity_type.transpose();
    let entity_type = entity_type.map_err(|bad| ApiError::input(format!("entityType: {bad}")))?;
    let entity_id = call.query("entityId").map(str::to_owned);
    if entity_id.is_some() && entity_type.is_none() {
        let text = "`entityId` needs `entityType`: a pool and a role may have the same id";
        return Err(ApiError::input(text));
    }
    Ok(AuditFilter {
        entity_type,
        entity_id,
        client_id: call.query_id::<ClientId>("clientId")?,
        since: moment(call, "since")?,
        until: moment(call, "until")?,
    })
}

fn moment(call: &Call, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let parsed = call.query(name).map(str::parse).transpose();
    parsed.map_err(|bad| ApiError::input(format!("{name}: {bad}")))
}

fn entry_json(entry: &AuditEntry) -> Value {
    without_nulls(json!({
        "entityType": entry.entity_type.as_str(),
        "entityId": entry.entity_id,
        "clientId": entry.client_id,
        "actionType": entry.action,
        "created": entry.created.to_string(),
        "sourceIp": entry.source_ip,
        "requestId": entry.request_id,
        "detail": entry.detail,
    }))
}
