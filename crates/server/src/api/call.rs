//! One request on its way to its handler: who, what, with which parameters.

use std::sync::{Arc, Mutex, PoisonError};

use access::scope::{Expression, Params, ScopeSet, Template};
use domain::audit::{AuditEntry, EntityType};
use domain::id::{BadId, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::time::Timestamp;
use engine::change::Change;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, Code};
use super::paging::Page;
use super::raw_body::RawBody;
use crate::app::App;
use crate::gate::{Asking, Caller};
use crate::limits::BodyShare;

pub struct Call {
    pub app: Arc<App>,
    /// What the endpoint is called.
    pub name: &'static str,
    /// What its caller must hold; `None`: it is open to the world.
    pub required_scopes: Option<Template>,
    pub parameters: Vec<(&'static str, String)>,
    pub query: Vec<(&'static str, String)>,
    pub body: Value,
    /// The body of an endpoint that takes anything but JSON; the handler reads it.
    pub raw: Mutex<Option<RawBody>>,
    /// What the body takes of the memory for bodies; given back when the call has been handled.
    pub memory: Option<BodyShare>,
    /// The moment of this request; every decision in it uses this one.
    pub now: Timestamp,
    pub request_id: String,
    /// The client has hung up, or the server stops: whoever waits need not wait any longer.
    pub gone: CancellationToken,
    pub asking: Asking,
    /// Where in a stream of events the client was when its last connection ended.
    pub last_event_id: Option<String>,
    /// What the client has of the reply already, by its tags.
    pub if_none_match: Option<String>,
    /// Who is asking, once that has been found out.
    pub caller: Option<Caller>,
}

impl Call {
    /// Writes one change at the moment of this request.
    pub async fn change<T, E, F>(&self, name: &'static str, f: F) -> Result<T, E>
    where
        F: FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.app.engine.change(name, self.now, f).await
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

    /// A query parameter that names something.
    pub fn query_id<T: std::str::FromStr<Err = BadId>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        self.query(name)
            .map(|text| text.parse().map_err(ApiError::from))
            .transpose()
    }

    pub fn page<K: Serialize + DeserializeOwned>(&self) -> Result<Page<K>, ApiError> {
        Page::parse(self.query("limit"), self.query("continuationToken"))
    }

    pub fn pool_id(&self) -> Result<PoolId, ApiError> {
        Ok(self.parameter("workerPoolId").parse()?)
    }

    pub fn worker_key(&self) -> Result<WorkerKey, ApiError> {
        Ok(WorkerKey {
            pool_id: self.pool_id()?,
            group: self.parameter("workerGroup").parse::<WorkerGroup>()?,
            id: self.parameter("workerId").parse::<WorkerId>()?,
        })
    }

    /// The body as the wire shape that its schema has already checked.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        T::deserialize(&self.body)
            .map_err(|problem| ApiError::input(format!("The body does not fit: {problem}")))
    }

    /// The raw body, at most this many bytes of it.
    pub fn raw_body(&mut self, limit: u64) -> Result<RawBody, ApiError> {
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner);
        let body = raw.take();
        body.ok_or_else(|| ApiError::input("This request has no body of its own"))?
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

    /// Refuses the call unless its caller satisfies the endpoint's scopes.
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

    /// Finds out who is asking.
    pub async fn authenticate(&mut self) -> Result<(), ApiError> {
        if self.caller.is_none() {
            self.caller = Some(self.app.gate.authenticate(&self.asking, self.now).await?);
        }
        Ok(())
    }

    /// The scopes of the caller; those of nobody in particular, if the endpoint asks for none.
    pub fn scopes(&self) -> Arc<ScopeSet> {
        self.caller
            .as_ref()
            .map_or_else(Default::default, |caller| Arc::clone(&caller.scopes))
    }

    /// A line for the audit table.
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
            source_ip: Some(self.asking.source_ip.clone()),
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
