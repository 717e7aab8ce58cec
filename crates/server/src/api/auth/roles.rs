//! Roles: scopes under a name.

use access::role::{Role, Roles};
use domain::Version;
use domain::access::RoleRecord;
use domain::audit::EntityType;
use domain::event::{AccessChange, EventBody};
use domain::id::RoleId;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{StoreError, Tx};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::paging::Page;
use super::super::reply::Reply;
use super::{embedded, refuse_double_stars};

/// Whose turn it is to add to the roles with a parameter.
const TURN: &str = "roles";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoleBody {
    description: String,
    scopes: Vec<String>,
}

/// A bare array of all roles, for old clients.
pub(super) async fn list_all(call: Call) -> Result<Reply, ApiError> {
    let records = call
        .app
        .engine
        .store
        .scan("role_all", store::roles::all)
        .await?;
    Reply::json(&shown_all(&call, &records).await?)
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let (records, token) = page(&call).await?;
    let roles = shown_all(&call, &records).await?;
    Reply::json(&with_token(json!({ "roles": roles }), token))
}

pub(super) async fn list_ids(call: Call) -> Result<Reply, ApiError> {
    let (records, token) = page(&call).await?;
    let ids: Vec<&str> = records
        .iter()
        .map(|record| record.role_id.as_str())
        .collect();
    Reply::json(&with_token(json!({ "roleIds": ids }), token))
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let record = load(&call).await?;
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (role_id(&call)?, call.body::<RoleBody>()?);
    let params = call.url_params().list("scopes", body.scopes.clone());
    call.authorize(params).await?;
    refuse_double_stars(&body.scopes)?;
    let now = call.now;
    let record = RoleRecord {
        role_id: id.clone(),
        description: body.description,
        scopes: body.scopes,
        created: now,
        last_modified: now,
        version: Version::FIRST,
    };
    let audit = call.audit(EntityType::Role, id.as_str(), "created");
    let written = call.change("role_create", move |change| {
        if let Some(known) = store::roles::get(change.tx, &id)? {
            let same = known.scopes == record.scopes && known.description == record.description;
            return if same {
                Ok(known)
            } else {
                Err(ApiError::conflict("Role already exists"))
            };
        }
        check(change.tx, &record)?;
        if !store::roles::insert(change.tx, &record)? {
            return Err(change.tx.lost_race().into());
        }
        let event = EventBody::Role {
            change: AccessChange::Created,
            role_id: id.clone(),
        };
        change.announce([event])?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record.clone())
    });
    let record = written.await?;
    call.app.gate.forget();
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (role_id(&call)?, call.body::<RoleBody>()?);
    // Who may not change the role at all need not learn whether there is one.
    let nothing_added = call.url_params().list("scopesAdded", Vec::new());
    call.authorize(nothing_added).await?;
    let before = load(&call).await?;
    let added = beyond(&call, &before.scopes, &body.scopes).await?;
    let params = call.url_params().list("scopesAdded", added);
    call.authorize(params).await?;
    refuse_double_stars(&body.scopes)?;
    let audit = call.audit(EntityType::Role, id.as_str(), "updated");
    let written = call.change("role_update", move |change| {
        let mut record = store::roles::get(change.tx, &id)?.ok_or_else(no_such_role)?;
        // What was authorised was a change of the role as it was read: no other is made.
        if record.version != before.version {
            let text = "The role was changed by somebody else meanwhile; read it and try again";
            return Err(ApiError::conflict(text));
        }
        record.description.clone_from(&body.description);
        record.scopes.clone_from(&body.scopes);
        record.last_modified = change.now;
        check(change.tx, &record)?;
        record.version = store::roles::update(change.tx, &record)?;
        let event = EventBody::Role {
            change: AccessChange::Updated,
            role_id: id.clone(),
        };
        change.announce([event])?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record)
    });
    let record = written.await?;
    call.app.gate.forget();
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = role_id(&call)?;
    let audit = call.audit(EntityType::Role, id.as_str(), "deleted");
    let written = call.change("role_delete", move |change| {
        if store::roles::delete(change.tx, &id)? {
            let event = EventBody::Role {
                change: AccessChange::Deleted,
                role_id: id.clone(),
            };
            change.announce([event])?;
            store::audit::insert(change.tx, &audit)?;
        }
        Ok::<_, ApiError>(())
    });
    written.await?;
    call.app.gate.forget();
    Ok(Reply::Empty)
}

/// The scopes that the role does not satisfy yet, by a pattern or through another role: only these must the caller hold.
async fn beyond(call: &Call, before: &[String], after: &[String]) -> Result<Vec<String>, ApiError> {
    let satisfied = embedded(call)?.expand(before, call.now).await?;
    let is_beyond = |scope: &&String| !satisfied.satisfies(scope);
    Ok(after.iter().filter(is_beyond).cloned().collect())
}

/// Roles that would expand without end are refused.
///
/// Only roles with a parameter can, and only together: they take turns, so that no two of them are made at once of
/// which neither has seen the other. All others can be made at once, however many.
fn check(tx: &mut Tx<'_>, candidate: &RoleRecord) -> Result<(), ApiError> {
    let candidate = role(candidate.clone());
    let known = if candidate.has_parameter() {
        store::turns::take(tx, TURN)?;
        Roles::new(store::roles::all(tx)?.into_iter().map(role))
    } else {
        Roles::default()
    };
    let refused = known.check_new(&candidate);
    refused.map_err(|refused| ApiError::input(refused.to_string()))
}

fn role(record: RoleRecord) -> Role {
    Role {
        role_id: record.role_id.to_string(),
        scopes: record.scopes,
    }
}

async fn page(call: &Call) -> Result<(Vec<RoleRecord>, Option<String>), ApiError> {
    let page = call.page::<(String,)>()?;
    // Without a limit a token has always been ignored, and everything is returned.
    if call.query("limit").is_none() {
        let all = call
            .app
            .engine
            .store
            .scan("role_all", store::roles::all)
            .await?;
        return Ok((all, None));
    }
    let after = page
        .after
        .as_ref()
        .map(|(id,)| id.parse::<RoleId>())
        .transpose()?;
    let records = read_page(call, after, &page).await?;
    let mut records = records;
    let token = page.cut(&mut records, |record| (record.role_id.to_string(),));
    Ok((records, token))
}

async fn read_page(
    call: &Call,
    after: Option<RoleId>,
    page: &Page<(String,)>,
) -> Result<Vec<RoleRecord>, StoreError> {
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("role_list", move |tx| {
        store::roles::list(tx, after.as_ref(), limit)
    });
    read.await
}

fn with_token(mut reply: Value, token: Option<String>) -> Value {
    if let Some(token) = token {
        reply["continuationToken"] = json!(token);
    }
    reply
}

async fn load(call: &Call) -> Result<RoleRecord, ApiError> {
    let id = role_id(call)?;
    let read = call
        .app
        .engine
        .store
        .read("role_get", move |tx| store::roles::get(tx, &id));
    read.await?.ok_or_else(no_such_role)
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

fn role_id(call: &Call) -> Result<RoleId, ApiError> {
    Ok(call.parameter("roleId").parse()?)
}

fn no_such_role() -> ApiError {
    ApiError::not_found("Role not found")
}
