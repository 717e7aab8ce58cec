//! One request on its way to its handler: the endpoint, the caller and the parameters.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use access::scope::{Expression, Params, ScopeSet, Template};
use domain::audit::{AuditEntry, EntityType};
use domain::id::{BadId, BadName, PoolId, WorkerKey};
use domain::time::Timestamp;
use engine::change::Change;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::{StoreError, Tx};
use tokio_util::sync::CancellationToken;

use super::conditions::Conditions;
use super::error::{ApiError, Code};
use super::paging::Page;
use super::raw_body::RawBody;
use crate::app::App;
use crate::authentication::{AuthenticationError, Caller, RequestToAuthenticate};
use crate::hosts::Host;
use crate::limits::{BodyShare, Connection};

pub struct Call {
    pub app: Arc<App>,
    /// The name of the endpoint.
    pub name: &'static str,
    /// The scopes that the caller must hold. `None`: no credentials are needed.
    pub required_scopes: Option<Template>,
    pub parameters: Vec<(&'static str, String)>,
    pub query: Vec<(&'static str, String)>,
    pub body: Value,
    /// The body of an endpoint that does not take JSON. The handler reads it.
    pub raw: Mutex<Option<RawBody>>,
    /// The share of the memory budget that the body uses. It is returned after the call.
    pub memory: Option<BodyShare>,
    /// The time of this request; every decision in it uses this value.
    pub now: Timestamp,
    pub request_id: String,
    /// Cancelled when the client disconnects or the server stops.
    pub cancelled: CancellationToken,
    pub auth_request: RequestToAuthenticate,
    /// The host that the client addressed, if it is none of this server.
    pub foreign_host: Option<Host>,
    /// The address of the client.
    pub address: IpAddr,
    /// `None`: in tests without sockets.
    pub connection: Option<Arc<Connection>>,
    /// The client's position in the event stream when its last connection ended.
    pub last_event_id: Option<String>,
    /// The content that the client has already, and the part that it asks for.
    pub conditions: Conditions,
    /// The caller, once it has been authenticated.
    pub caller: Option<Caller>,
    /// The person for whom a page of this process makes the call, instead of a signature.
    pub person: Option<Caller>,
}

impl Call {
    /// Writes one change at the time of this request.
    pub async fn change<T, E, F>(&self, name: &'static str, f: F) -> Result<T, E>
    where
        F: FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.app.engine.change(name, self.now, f).await
    }

    /// A short read. SQLite runs it on this thread.
    pub async fn read<T, E, F>(&self, name: &'static str, f: F) -> Result<T, ApiError>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Into<ApiError> + Send + 'static,
    {
        let read = self.app.engine.store.read(name, f).await;
        read.map_err(Into::into)
    }

    /// A long read, never on this thread.
    pub async fn scan<T, E, F>(&self, name: &'static str, f: F) -> Result<T, ApiError>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Into<ApiError> + Send + 'static,
    {
        let read = self.app.engine.store.scan(name, f).await;
        read.map_err(Into::into)
    }

    /// A parameter of the route.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value.as_str())
    }

    pub fn query(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    /// A parameter of the route that is an id.
    pub fn id<T: FromStr<Err = BadId>>(&self, name: &str) -> Result<T, ApiError> {
        Ok(self.parameter(name).parse()?)
    }

    /// A query parameter that is an id.
    pub fn query_id<T: FromStr<Err = BadId>>(&self, name: &str) -> Result<Option<T>, ApiError> {
        Ok(self.query(name).map(str::parse).transpose()?)
    }

    pub fn page<K: Serialize + DeserializeOwned>(&self) -> Result<Page<K>, ApiError> {
        Page::parse(self.query("limit"), self.query("continuationToken"))
    }

    pub fn pool_id(&self) -> Result<PoolId, ApiError> {
        self.id("workerPoolId")
    }

    /// The pool that the route names in two parts.
    pub fn two_part_pool_id(&self) -> Result<PoolId, ApiError> {
        let (left, right) = ("provisionerId", "workerType");
        Ok(format!("{}/{}", self.parameter(left), self.parameter(right)).parse()?)
    }

    pub fn worker_key(&self) -> Result<WorkerKey, ApiError> {
        self.worker_of(self.pool_id()?)
    }

    /// The worker of this pool that the route names.
    pub fn worker_of(&self, pool_id: PoolId) -> Result<WorkerKey, ApiError> {
        let (group, id) = ("workerGroup", "workerId");
        Ok(WorkerKey::parse(
            pool_id,
            self.parameter(group),
            self.parameter(id),
        )?)
    }

    /// The body as the wire shape. Its schema has already been checked.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        T::deserialize(&self.body)
            .map_err(|problem| ApiError::input(format!("The body does not fit: {problem}")))
    }

    /// The raw body, limited to this many bytes.
    pub fn raw_body(&mut self, limit: u64) -> Result<RawBody, ApiError> {
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
        let body = raw.take();
        body.ok_or_else(|| {
            ApiError::input("This request has no body of its own: send it without one")
        })?
        .limited(limit)
    }

    /// The parameters of the route, for the scopes of the endpoint.
    pub fn url_params(&self) -> Params {
        self.parameters
            .iter()
            .fold(Params::new(), |params, (name, value)| {
                params.text(*name, value.as_str())
            })
    }

    /// Refuses the call unless the caller's scopes satisfy the endpoint's.
    pub async fn authorize(&mut self, params: Params) -> Result<(), ApiError> {
        let Some(template) = self.required_scopes else {
            return Ok(());
        };
        let required = template.fill(&params).map_err(|missing| {
            ApiError::input(format!(
                "The scopes of this request need a value: {missing}"
            ))
        })?;
        self.authenticate().await?;
        match &self.caller {
            Some(caller) => caller.check(&required),
            None => Err(ApiError::credentials_needed(&required)),
        }
    }

    /// Authenticates the caller. An address that fails too often is refused, unless its clients are
    /// known already.
    pub async fn authenticate(&mut self) -> Result<(), ApiError> {
        if self.caller.is_some() {
            return Ok(());
        }
        let caller = match self.person.take() {
            Some(person) => person,
            None => self.signer().await?,
        };
        if caller.client_id.is_some() {
            if let Some(host) = &self.foreign_host {
                return Err(ApiError::signed_for(host, &self.app.engine.root_url));
            }
            self.identify()?;
        }
        self.caller = Some(caller);
        Ok(())
    }

    /// The caller that signed the request.
    async fn signer(&mut self) -> Result<Caller, ApiError> {
        let failed = &self.app.failed_authentications;
        self.auth_request.may_look_up = !failed.is_exhausted(self.address, self.now);
        let authenticated = self
            .app
            .authenticator
            .authenticate(&self.auth_request, self.now)
            .await;
        if let Err(AuthenticationError::Refused(_)) = &authenticated {
            failed.take(self.address, self.now)?;
        }
        Ok(authenticated?)
    }

    /// The request comes from somebody who has proved a right: the connection keeps its place.
    pub fn identify(&self) -> Result<(), ApiError> {
        let connection = self.connection.as_ref();
        Ok(connection.map_or(Ok(()), |connection| connection.identify())?)
    }

    /// The scopes of the caller, or of an anonymous caller if the endpoint needs none.
    pub fn scopes(&self) -> Arc<ScopeSet> {
        self.caller
            .as_ref()
            .map_or_else(Default::default, |caller| Arc::clone(&caller.scopes))
    }

    /// An entry of the audit log.
    pub fn audit(&self, entity_type: EntityType, entity_id: &str, action: &str) -> AuditEntry {
        let client_id = self
            .caller
            .as_ref()
            .and_then(|caller| caller.client_id.clone());
        AuditEntry {
            entity_type,
            entity_id: entity_id.to_owned(),
            action: action.to_owned(),
            client_id: client_id.unwrap_or_else(|| "anonymous".to_owned()),
            created: self.now,
            source_ip: Some(self.auth_request.source_ip.clone()),
            request_id: Some(self.request_id.clone()),
            detail: Value::Null,
        }
    }
}

impl Caller {
    pub fn check(&self, required: &Expression) -> Result<(), ApiError> {
        if required.satisfied_by(&self.scopes) {
            return Ok(());
        }
        Err(
            match (&self.client_id, required.missing_from(&self.scopes)) {
                (Some(client_id), Some(missing)) => {
                    ApiError::insufficient_scopes(client_id, &missing, required)
                }
                _ => ApiError::credentials_needed(required),
            },
        )
    }
}

impl From<BadId> for ApiError {
    fn from(bad: BadId) -> Self {
        Self::new(Code::InvalidRequestArguments, bad.to_string())
    }
}

impl From<BadName> for ApiError {
    fn from(bad: BadName) -> Self {
        Self::new(Code::InvalidRequestArguments, bad.to_string())
    }
}
