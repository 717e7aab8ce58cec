//! Clients: made, changed, switched on and off, given new tokens, deleted.

use access::Secret;
use domain::Version;
use domain::access::ClientRecord;
use domain::audit::EntityType;
use domain::event::{AccessChange, EventBody};
use domain::id::ClientId;
use domain::time::{MINUTE_MS, Timestamp};
use engine::change::Change;
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::{added, embedded, refuse_double_stars};
use crate::app::App;
use crate::gate::token_purpose;

/// Clients that exist by configuration.
const STATIC: &str = "static/";
/// Within this time a client may be created again as it was.
const REPEAT_MS: i64 = 15 * MINUTE_MS;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientBody {
    expires: String,
    description: String,
    #[serde(default)]
    scopes: Option<Vec<String>>,
    #[serde(default)]
    delete_on_expiration: bool,
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page
        .after
        .as_ref()
        .map(|(id,)| id.parse::<ClientId>())
        .transpose()?;
    let prefix = call.query("prefix").unwrap_or("").to_owned();
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("client_list", move |tx| {
        store::clients::list(tx, &prefix, after.as_ref(), limit)
    });
    let mut records = read.await?;
    let token = page.cut(&mut records, |record| (record.client_id.to_string(),));
    let mut clients = Vec::with_capacity(records.len());
    for record in &records {
        clients.push(shown(&call, record).await?);
    }
    let mut reply = json!({ "clients": clients });
    if let Some(token) = token {
        reply["continuationToken"] = json!(token);
    }
    Reply::json(&reply)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let record = load(&call).await?;
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (client_id(&call)?, call.body::<ClientBody>()?);
    refuse_static(&id)?;
    let scopes = body.scopes.unwrap_or_default();
    let params = call.url_params().list("scopes", scopes.clone());
    call.authorize(params).await?;
    refuse_double_stars(&scopes)?;
    let token = call.app.engine.random.secret();
    let now = call.now;
    let record = ClientRecord {
        client_id: id.clone(),
        description: body.description,
        scopes,
        sealed_access_token: seal(&call.app, &id, &token),
        expires: expires(&body.expires)?,
        created: now,
        last_modified: now,
        last_date_used: now,
        last_rotated: now,
        delete_on_expiration: body.delete_on_expiration,
        disabled: false,
        version: Version::FIRST,
    };
    let audit = call.audit(EntityType::Client, id.as_str(), "created");
    let inserted = record.clone();
    let written = call.change("client_create", move |change| {
        if store::clients::insert(change.tx, &inserted)? {
            announce(change, AccessChange::Created, &inserted.client_id)?;
            store::audit::insert(change.tx, &audit)?;
            return Ok(inserted.clone());
        }
        store::clients::get(change.tx, &inserted.client_id)?
            .filter(|known| is_repeat(known, &inserted))
            .ok_or_else(|| ApiError::conflict("Client already exists"))
    });
    let created: ClientRecord = written.await?;
    call.app.gate.forget();
    // Of a repeat the token is the one that was made the first time.
    let purpose = token_purpose(&created.client_id);
    let opened = call
        .app
        .engine
        .keyring
        .open(&purpose, &created.sealed_access_token);
    let token = opened.map_err(|_| ApiError::conflict("Client already exists"))?;
    with_token(&call, &created, &token).await
}

/// Whether the same client is asked for again soon after it was made: the first reply may have been lost.
fn is_repeat(known: &ClientRecord, wanted: &ClientRecord) -> bool {
    let age = wanted.created.millis_since(known.created);
    (0..REPEAT_MS).contains(&age)
        && !known.disabled
        && known.last_rotated == known.created
        && known.description == wanted.description
        && known.scopes == wanted.scopes
        && known.expires == wanted.expires
        && known.delete_on_expiration == wanted.delete_on_expiration
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (client_id(&call)?, call.body::<ClientBody>()?);
    refuse_static(&id)?;
    // Who may not change the client at all need not learn whether there is one.
    let nothing_added = call.url_params().list("scopesAdded", Vec::new());
    call.authorize(nothing_added).await?;
    let before = load(&call).await?;
    let scopes = body.scopes.unwrap_or_else(|| before.scopes.clone());
    let params = call
        .url_params()
        .list("scopesAdded", added(&before.scopes, &scopes));
    call.authorize(params).await?;
    refuse_double_stars(&scopes)?;
    let expires = expires(&body.expires)?;
    // What was authorised was a change of the client as it was read: no other is made.
    change(&call, "updated", Some(before.version), move |record| {
        record.description.clone_from(&body.description);
        record.scopes.clone_from(&scopes);
        record.expires = expires;
        record.delete_on_expiration = body.delete_on_expiration;
    })
    .await
}

pub(super) async fn enable(call: Call) -> Result<Reply, ApiError> {
    refuse_static(&client_id(&call)?)?;
    change(&call, "enabled", None, |record| record.disabled = false).await
}

pub(super) async fn disable(call: Call) -> Result<Reply, ApiError> {
    refuse_static(&client_id(&call)?)?;
    change(&call, "disabled", None, |record| record.disabled = true).await
}

pub(super) async fn reset(call: Call) -> Result<Reply, ApiError> {
    let id = client_id(&call)?;
    refuse_static(&id)?;
    let token = call.app.engine.random.secret();
    let (sealed, now) = (seal(&call.app, &id, &token), call.now);
    let record = write_change(&call, "reset", None, move |record| {
        record.sealed_access_token.clone_from(&sealed);
        record.last_rotated = now;
    })
    .await?;
    with_token(&call, &record, &token).await
}

pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = client_id(&call)?;
    refuse_static(&id)?;
    let audit = call.audit(EntityType::Client, id.as_str(), "deleted");
    let written = call.change("client_delete", move |change| {
        if store::clients::delete(change.tx, &id)? {
            announce(change, AccessChange::Deleted, &id)?;
            store::audit::insert(change.tx, &audit)?;
        }
        Ok::<_, ApiError>(())
    });
    written.await?;
    call.app.gate.forget();
    Ok(Reply::Empty)
}

async fn change(
    call: &Call,
    action: &str,
    seen: Option<Version>,
    edit: impl Fn(&mut ClientRecord) + Send + 'static,
) -> Result<Reply, ApiError> {
    let record = write_change(call, action, seen, edit).await?;
    Reply::json(&shown(call, &record).await?)
}

/// Changes a client; if `seen` is given, only as it was then.
async fn write_change(
    call: &Call,
    action: &str,
    seen: Option<Version>,
    edit: impl Fn(&mut ClientRecord) + Send + 'static,
) -> Result<ClientRecord, ApiError> {
    let id = client_id(call)?;
    let audit = call.audit(EntityType::Client, id.as_str(), action);
    let written = call.change("client_change", move |change| {
        let mut record = store::clients::get(change.tx, &id)?.ok_or_else(no_such_client)?;
        if seen.is_some_and(|seen| seen != record.version) {
            let text = "The client was changed by somebody else meanwhile; read it and try again";
            return Err(ApiError::conflict(text));
        }
        edit(&mut record);
        record.last_modified = change.now;
        record.version = store::clients::update(change.tx, &record)?;
        announce(change, AccessChange::Updated, &id)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record)
    });
    let record = written.await?;
    call.app.gate.forget();
    Ok(record)
}

fn announce(
    change: &mut Change<'_, '_>,
    news: AccessChange,
    id: &ClientId,
) -> Result<(), StoreError> {
    change.announce([EventBody::Client {
        change: news,
        client_id: id.clone(),
    }])
}

async fn load(call: &Call) -> Result<ClientRecord, ApiError> {
    let id = client_id(call)?;
    let read = call
        .app
        .engine
        .store
        .read("client_get", move |tx| store::clients::get(tx, &id));
    read.await?.ok_or_else(no_such_client)
}

async fn with_token(call: &Call, record: &ClientRecord, token: &Secret) -> Result<Reply, ApiError> {
    let mut reply = shown(call, record).await?;
    reply["accessToken"] = json!(token.expose());
    Reply::json(&reply)
}

async fn shown(call: &Call, record: &ClientRecord) -> Result<Value, ApiError> {
    let expanded = embedded(call)?.expand(&record.scopes, call.now).await?;
    Ok(json!({
        "clientId": record.client_id.as_str(),
        "description": record.description,
        "expires": record.expires.to_string(),
        "created": record.created.to_string(),
        "lastModified": record.last_modified.to_string(),
        "lastDateUsed": record.last_date_used.to_string(),
        "lastRotated": record.last_rotated.to_string(),
        "deleteOnExpiration": record.delete_on_expiration,
        "scopes": record.scopes,
        "expandedScopes": expanded.to_vec(),
        "disabled": record.disabled,
    }))
}

fn seal(app: &App, id: &ClientId, token: &Secret) -> String {
    app.engine
        .random
        .with(|random| app.engine.keyring.seal(&token_purpose(id), token, random))
}

fn client_id(call: &Call) -> Result<ClientId, ApiError> {
    Ok(call.parameter("clientId").parse()?)
}

fn refuse_static(id: &ClientId) -> Result<(), ApiError> {
    if id.as_str().starts_with(STATIC) {
        let text = "Clients whose id begins with static/ are made by the configuration, not here";
        return Err(ApiError::input(text));
    }
    Ok(())
}

fn expires(text: &str) -> Result<Timestamp, ApiError> {
    text.parse()
        .map_err(|bad| ApiError::input(format!("expires: {bad}")))
}

fn no_such_client() -> ApiError {
    ApiError::not_found("Client not found")
}
