//! Secrets: values under a name. Workers fetch those of their pool at each start.

use access::Secret;
use domain::audit::EntityType;
use domain::time::Timestamp;
use engine::access::{SecretError, delete_secret, secret, set_secret};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::endpoint::Verb::{Delete, Get, Put};
use super::endpoint::{Endpoint, NewEndpoint, PAGING, Payload, Service, Verb};
use super::error::ApiError;
use super::reply::Reply;

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 1_024;
/// Maximum length of a value as JSON, in bytes.
const MAX_VALUE_BYTES: usize = 1_024 * 1_024;

const CATEGORY: &str = "Secrets Service";

/// No `Debug`: the value stays out of logs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretBody {
    secret: Map<String, Value>,
    expires: String,
}

const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::Secrets, name, method, route)
}

pub const ENDPOINTS: &[Endpoint] = &[
    on("set", Put, "/secret/<name>")
        .runs(|call| Box::pin(set(call)))
        .wildcard("name")
        .input("secret.json")
        .payload(Payload::Omitted)
        .scope("secrets:set:<name>")
        .about(CATEGORY, "Set a secret")
        .describe(
            "Writes a secret. One with this name is replaced. The value is encrypted where it is \
             stored, and is in no log and no event.",
        ),
    on("remove", Delete, "/secret/<name>")
        .runs(|call| Box::pin(remove(call)))
        .wildcard("name")
        .scope("secrets:set:<name>")
        .about(CATEGORY, "Delete a secret")
        .describe("Deletes a secret. It is no error if there is none."),
    on("get", Get, "/secret/<name>")
        .runs(|call| Box::pin(get(call)))
        .wildcard("name")
        .output("secret.json")
        .scope("secrets:get:<name>")
        .about(CATEGORY, "Read a secret")
        .describe("The value of a secret, and when it expires."),
    on("list", Get, "/secrets")
        .runs(|call| Box::pin(list(call)))
        .query(PAGING)
        .output("secret-list.json")
        .scope("secrets:list-secrets")
        .about(CATEGORY, "List the names of secrets")
        .describe("The names of all secrets that have not expired. Their values are not in it."),
];

async fn set(call: Call) -> Result<Reply, ApiError> {
    let body: SecretBody = call.body()?;
    let name = name(&call)?;
    let value = Value::Object(body.secret).to_string();
    if value.len() > MAX_VALUE_BYTES {
        return Err(ApiError::input(format!(
            "the secret has {} bytes as JSON, and at most {MAX_VALUE_BYTES} are allowed",
            value.len()
        )));
    }
    let expires: Timestamp = body
        .expires
        .parse()
        .map_err(|bad| ApiError::input(format!("expires: {bad}")))?;
    if expires <= call.now {
        return Err(ApiError::input(format!(
            "expires: {expires} must be in the future"
        )));
    }
    let audit = call.audit(EntityType::Secret, &name, "updated");
    let value = Secret::new(value);
    set_secret(&call.app.engine, name, &value, expires, audit).await?;
    Reply::json(&json!({}))
}

async fn remove(call: Call) -> Result<Reply, ApiError> {
    let name = name(&call)?;
    let audit = call.audit(EntityType::Secret, &name, "deleted");
    delete_secret(&call.app.engine, name, audit).await?;
    Reply::json(&json!({}))
}

async fn get(call: Call) -> Result<Reply, ApiError> {
    let (value, expires) = secret(&call.app.engine, name(&call)?, call.now).await?;
    let value: Value =
        serde_json::from_str(value.expose()).map_err(|error| ApiError::caused_by(error.into()))?;
    Reply::json(&json!({"secret": value, "expires": expires.to_string()}))
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page.after.clone().map(|(name,)| name).unwrap_or_default();
    let (now, limit) = (call.now, page.limit_and_one());
    let read = call.scan("secret_names", move |tx| {
        store::secrets::names(tx, &after, now, limit)
    });
    let key = |name: &String| (name.clone(),);
    page.reply("secrets", read.await?, key, |name| json!(name))
}

fn name(call: &Call) -> Result<String, ApiError> {
    let name = call.parameter("name");
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
        return Err(ApiError::input(format!(
            "the name of a secret must have 1 to {MAX_NAME_BYTES} bytes and no control characters"
        )));
    }
    Ok(name.to_owned())
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::NotFound => Self::not_found(error.to_string()),
            SecretError::Sealed(..) => Self::caused_by(error.into()),
            SecretError::Store(error) => error.into(),
        }
    }
}
