//! The declaration of one endpoint.
//!
//! The table of endpoints is the router, the scope check, the references, the OpenAPI document and
//! the source of the command line's help.

use std::future::Future;
use std::pin::Pin;

use access::scope::Template;
use contract::patterns::DIGITS;
use http::Method;

use super::call::Call;
use super::error::ApiError;
use super::reply::Reply;

pub use crate::service::Service;

/// Runs an endpoint after the checks of caller, parameters, query and body.
pub type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<Reply, ApiError>> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    Stable,
    Experimental,
    Deprecated,
}

/// How much of the request's body an error may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    Shown,
    Omitted,
    /// Without `providerInfo.staticSecret`.
    WithoutSecret,
}

/// A query parameter and the pattern that its value must match.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub name: &'static str,
    pub pattern: &'static str,
}

pub(super) const ANYTHING: &str = "^";
pub(super) const YES_NO: &str = "^(true|false)$";
pub(super) const TOKEN: Query = query("continuationToken", ".");
pub(super) const LIMIT: Query = query("limit", DIGITS);
pub(super) const PAGING: &[Query] = &[TOKEN, LIMIT];

pub(super) const fn query(name: &'static str, pattern: &'static str) -> Query {
    Query { name, pattern }
}

/// One scope for each text of a list.
pub(super) const fn each(
    variable: &'static str,
    list: &'static str,
    each: &'static str,
) -> Template {
    Template::For {
        variable,
        list,
        each,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub service: Service,
    pub name: &'static str,
    pub method: Verb,
    /// With `<parameter>`s, as in the references.
    pub route: &'static str,
    /// The parameter whose value may contain slashes that are not percent-encoded.
    pub wildcard: Option<&'static str>,
    /// An older route of the same endpoint, for clients that still use it.
    pub alias: Option<Alias>,
    pub query: &'static [Query],
    /// File names of schemas, relative to the service's folder.
    pub input: Option<&'static str>,
    /// The schema of the input only describes it.
    pub is_checked_by_handler: bool,
    pub output: Option<&'static str>,
    /// The body is not JSON: the handler reads it as a stream.
    pub takes_raw_body: bool,
    /// The content type of replies that are not JSON.
    pub streams: Option<&'static str>,
    /// `None`: no credentials are needed.
    pub scopes: Option<Template>,
    pub payload: Payload,
    pub stability: Stability,
    pub category: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub handler: Handler,
}

/// A second route. Errors use `name` as the endpoint's name there.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    pub name: &'static str,
    pub route: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

impl Stability {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Experimental => "experimental",
            Self::Deprecated => "deprecated",
        }
    }
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }

    /// HEAD is answered as GET, without the body.
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET | Method::HEAD => Some(Self::Get),
            Method::PUT => Some(Self::Put),
            Method::POST => Some(Self::Post),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }
}

/// An endpoint that has no handler yet.
pub(super) struct NewEndpoint {
    service: Service,
    name: &'static str,
    method: Verb,
    route: &'static str,
}

impl NewEndpoint {
    pub(super) const fn new(
        service: Service,
        name: &'static str,
        method: Verb,
        route: &'static str,
    ) -> Self {
        Self {
            service,
            name,
            method,
            route,
        }
    }

    /// Sets the handler; all other fields have their defaults.
    pub(super) const fn runs(self, handler: Handler) -> Endpoint {
        Endpoint {
            service: self.service,
            name: self.name,
            method: self.method,
            route: self.route,
            wildcard: None,
            alias: None,
            query: &[],
            input: None,
            is_checked_by_handler: false,
            output: None,
            takes_raw_body: false,
            streams: None,
            scopes: None,
            payload: Payload::Shown,
            stability: Stability::Stable,
            category: "",
            title: "",
            description: "",
            handler,
        }
    }
}

impl Endpoint {
    pub const fn wildcard(mut self, parameter: &'static str) -> Self {
        self.wildcard = Some(parameter);
        self
    }

    pub const fn alias(mut self, name: &'static str, route: &'static str) -> Self {
        self.alias = Some(Alias { name, route });
        self
    }

    pub const fn query(mut self, query: &'static [Query]) -> Self {
        self.query = query;
        self
    }

    pub const fn input(mut self, schema: &'static str) -> Self {
        self.input = Some(schema);
        self
    }

    /// The handler refuses a body that does not fit, and names all errors in one way.
    pub const fn checked_by_handler(mut self) -> Self {
        self.is_checked_by_handler = true;
        self
    }

    pub const fn output(mut self, schema: &'static str) -> Self {
        self.output = Some(schema);
        self
    }

    pub const fn takes_raw_body(mut self) -> Self {
        self.takes_raw_body = true;
        self
    }

    /// The reply is a stream of this content type instead of JSON.
    pub const fn streams(mut self, content_type: &'static str) -> Self {
        self.streams = Some(content_type);
        self
    }

    pub const fn scopes(mut self, scopes: Template) -> Self {
        self.scopes = Some(scopes);
        self
    }

    pub const fn scope(self, scope: &'static str) -> Self {
        self.scopes(Template::Scope(scope))
    }

    pub const fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    pub const fn experimental(mut self) -> Self {
        self.stability = Stability::Experimental;
        self
    }

    pub const fn deprecated(mut self) -> Self {
        self.stability = Stability::Deprecated;
        self
    }

    pub const fn about(mut self, category: &'static str, title: &'static str) -> Self {
        self.category = category;
        self.title = title;
        self
    }

    pub const fn describe(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    /// The names of the route's parameters, in order.
    pub fn parameters(&self) -> Vec<&'static str> {
        self.route
            .split('<')
            .skip(1)
            .filter_map(|rest| rest.split_once('>').map(|(name, _)| name))
            .collect()
    }

    /// Whether the URL alone tells which scopes are needed. Otherwise the handler authorises the
    /// caller after reading the body.
    pub fn authorized_by_url(&self) -> bool {
        let parameters = self.parameters();
        self.scopes.is_some_and(|scopes| {
            scopes
                .parameters()
                .iter()
                .all(|needed| parameters.contains(needed))
        })
    }

    /// A schema's name in the registry of schemas.
    pub fn schema_name(&self, file: &str) -> String {
        format!("{}/v1/{file}", self.service.as_str())
    }
}
