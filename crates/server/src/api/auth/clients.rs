//! Clients: creates, updates, enables, disables, resets and deletes them.

use access::Secret;
use domain::access::ClientRecord;
use domain::audit::EntityType;
use domain::id::ClientId;
use engine::access::{
    AccessError, ClientRequest, create_client, delete_client, reset_client, set_client_disabled,
    update_client,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{added, embedded, refuse_double_stars};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// The prefix of clients from the configuration.
const STATIC: &str = "static/";

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
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let prefix = call.query("prefix").unwrap_or("").to_owned();
    let read = call.scan("client_list", move |tx| {
        store::clients::list(tx, &prefix, after.as_ref(), limit)
    });
    let mut records = read.await?;
    let token = page.cut(&mut records, |record| (record.client_id.to_string(),));
    let mut clients = Vec::with_capacity(records.len());
    for record in &records {
        clients.push(shown(&call, record).await?);
    }
    Reply::list("clients", clients, token)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let record = load(&call).await?;
    Reply::json(&shown(&call, &record).await?)
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (client_id(&call)?, call.body::<ClientBody>()?);
    let scopes = body.scopes.clone().unwrap_or_default();
    let params = call.url_params().list("scopes", scopes.clone());
    call.authorize(params).await?;
    let asked = asked(body, scopes)?;
    let audit = call.audit(EntityType::Client, id.as_str(), "created");
    let (created, token) = create_client(&call.app.engine, id, asked, audit).await?;
    call.app.authenticator.forget();
    with_token(&call, &created, &token).await
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (client_id(&call)?, call.body::<ClientBody>()?);
    // A caller that may not change the client does not learn whether it exists.
    let nothing_added = call.url_params().list("scopesAdded", Vec::new());
    call.authorize(nothing_added).await?;
    let before = load(&call).await?;
    let scopes = body.scopes.clone();
    let scopes = scopes.unwrap_or_else(|| before.scopes.clone());
    let params = call
        .url_params()
        .list("scopesAdded", added(&before.scopes, &scopes));
    call.authorize(params).await?;
    let asked = asked(body, scopes)?;
    // The caller was authorised for a change of the version that was read, so only that is changed.
    let audit = call.audit(EntityType::Client, id.as_str(), "updated");
    let updated = update_client(&call.app.engine, id, before.version, asked, audit).await?;
    changed(&call, &updated).await
}

pub(super) async fn enable(call: Call) -> Result<Reply, ApiError> {
    switch(call, "enabled", false).await
}

pub(super) async fn disable(call: Call) -> Result<Reply, ApiError> {
    switch(call, "disabled", true).await
}

async fn switch(call: Call, action: &str, disabled: bool) -> Result<Reply, ApiError> {
    let id = client_id(&call)?;
    let audit = call.audit(EntityType::Client, id.as_str(), action);
    let switched = set_client_disabled(&call.app.engine, id, disabled, audit).await?;
    changed(&call, &switched).await
}

pub(super) async fn reset(call: Call) -> Result<Reply, ApiError> {
    let id = client_id(&call)?;
    let audit = call.audit(EntityType::Client, id.as_str(), "reset");
    let (record, token) = reset_client(&call.app.engine, id, audit).await?;
    call.app.authenticator.forget();
    with_token(&call, &record, &token).await
}

pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = client_id(&call)?;
    let audit = call.audit(EntityType::Client, id.as_str(), "deleted");
    delete_client(&call.app.engine, id, audit).await?;
    call.app.authenticator.forget();
    Ok(Reply::Empty)
}

async fn changed(call: &Call, record: &ClientRecord) -> Result<Reply, ApiError> {
    call.app.authenticator.forget();
    Reply::json(&shown(call, record).await?)
}

fn asked(body: ClientBody, scopes: Vec<String>) -> Result<ClientRequest, ApiError> {
    refuse_double_stars(&scopes)?;
    let expires = body.expires.parse();
    Ok(ClientRequest {
        description: body.description,
        scopes,
        expires: expires.map_err(|bad| ApiError::input(format!("expires: {bad}")))?,
        delete_on_expiration: body.delete_on_expiration,
    })
}

async fn load(call: &Call) -> Result<ClientRecord, ApiError> {
    let id = call.id("clientId")?;
    let read = call.read("client_get", move |tx| store::clients::get(tx, &id));
    read.await?.ok_or_else(|| AccessError::NoSuchClient.into())
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

/// The client in the route, if it may be changed here.
fn client_id(call: &Call) -> Result<ClientId, ApiError> {
    let id: ClientId = call.id("clientId")?;
    if id.as_str().starts_with(STATIC) {
        let text = "Clients whose id begins with static/ are made by the configuration, not here";
        return Err(ApiError::input(text));
    }
    Ok(id)
}
