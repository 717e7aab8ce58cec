//! Roles: scopes under a name.

use domain::access::RoleRecord;
use domain::audit::EntityType;
use domain::id::RoleId;
use engine::access::{AccessError, RoleRequest, create_role, delete_role, update_role};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{embedded, refuse_double_stars};
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoleBody {
    description: String,
    scopes: Vec<String>,
}

/// A bare array of all roles, for old clients.
pub(super) async fn list_all(call: Call) -> Result<Reply, ApiError> {
    let records = call.scan("role_all", store::roles::all).await?;
    Reply::json(&shown_all(&call, &records).await?)
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let (records, token) = page(&call).await?;
    let roles = shown_all(&call, &records).await?;
    Reply::list("roles", roles, token)
}

pub(super) async fn list_ids(call: Call) -> Result<Reply, ApiError> {
    let (records, token) = page(&call).await?;
    let ids: Vec<&str> = records
        .iter()
        .map(|record| record.role_id.as_str())
        .collect();
    Reply::list("roleIds", ids, token)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let record = load(&call).await?;
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.id::<RoleId>("roleId")?, call.body::<RoleBody>()?);
    let params = call.url_params().list("scopes", body.scopes.clone());
    call.authorize(params).await?;
    let asked = asked(body)?;
    let audit = call.audit(EntityType::Role, id.as_str(), "created");
    let created = create_role(&call.app.engine, id, asked, audit).await?;
    call.app.authenticator.forget();
    Reply::json(&shown(&call, &created).await?)
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.id::<RoleId>("roleId")?, call.body::<RoleBody>()?);
    // A caller that may not change the role does not learn whether it exists.
    let nothing_added = call.url_params().list("scopesAdded", Vec::new());
    call.authorize(nothing_added).await?;
    let before = load(&call).await?;
    let added = beyond(&call, &before.scopes, &body.scopes).await?;
    let params = call.url_params().list("scopesAdded", added);
    call.authorize(params).await?;
    let asked = asked(body)?;
    // The caller was authorised for a change of the version that was read, so only that is changed.
    let audit = call.audit(EntityType::Role, id.as_str(), "updated");
    let updated = update_role(&call.app.engine, id, before.version, asked, audit).await?;
    call.app.authenticator.forget();
    Reply::json(&shown(&call, &updated).await?)
}

pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id: RoleId = call.id("roleId")?;
    let audit = call.audit(EntityType::Role, id.as_str(), "deleted");
    delete_role(&call.app.engine, id, audit).await?;
    call.app.authenticator.forget();
    Ok(Reply::Empty)
}

fn asked(body: RoleBody) -> Result<RoleRequest, ApiError> {
    refuse_double_stars(&body.scopes)?;
    Ok(RoleRequest {
        description: body.description,
        scopes: body.scopes,
    })
}

/// The scopes that the role does not satisfy yet, by a pattern or through another role. The caller
/// must hold only these.
async fn beyond(call: &Call, before: &[String], after: &[String]) -> Result<Vec<String>, ApiError> {
    let satisfied = embedded(call)?.expand(before, call.now).await?;
    let is_beyond = |scope: &&String| !satisfied.satisfies(scope);
    Ok(after.iter().filter(is_beyond).cloned().collect())
}

async fn page(call: &Call) -> Result<(Vec<RoleRecord>, Option<String>), ApiError> {
    let page = call.page::<(String,)>()?;
    // Without a limit, a token is ignored and everything is returned, as upstream.
    if call.query("limit").is_none() {
        let all = call.scan("role_all", store::roles::all).await?;
        return Ok((all, None));
    }
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let read = call.scan("role_list", move |tx| {
        store::roles::list(tx, after.as_ref(), limit)
    });
    let mut records = read.await?;
    let token = page.cut(&mut records, |record| (record.role_id.to_string(),));
    Ok((records, token))
}

async fn load(call: &Call) -> Result<RoleRecord, ApiError> {
    let id = call.id("roleId")?;
    let read = call.read("role_get", move |tx| store::roles::get(tx, &id));
    read.await?.ok_or_else(|| AccessError::NoSuchRole.into())
}

async fn shown_all(call: &Call, records: &[RoleRecord]) -> Result<Vec<Value>, ApiError> {
    let mut roles = Vec::with_capacity(records.len());
    for record in records {
        roles.push(shown(call, record).await?);
    }
    Ok(roles)
}

async fn shown(call: &Call, record: &RoleRecord) -> Result<Value, ApiError> {
    let assumed = [format!("assume:{}", record.role_id)];
    let expanded = embedded(call)?.expand(&assumed, call.now).await?;
    Ok(json!({
        "roleId": record.role_id.as_str(),
        "description": record.description,
        "scopes": record.scopes,
        "created": record.created.to_string(),
        "lastModified": record.last_modified.to_string(),
        "expandedScopes": expanded.to_vec(),
    }))
}
