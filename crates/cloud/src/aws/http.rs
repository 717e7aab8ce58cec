//! The way out to the network, for our own calls and for those of AWS's credential chain.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api_client::read_body;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use reqwest::Client;
use tokio::io::AsyncReadExt as _;

/// A connection is there within this time, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// EC2 closes idle connections sooner or later, and a launch that meets a closed one is a launch of unknown outcome.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// A call of the credential chain that states no limit of its own has this one.
const CHAIN_LIMIT: Duration = Duration::from_secs(10);
/// No answer to the credential chain is longer than this.
const MAX_CHAIN_BYTES: usize = 1024 * 1024;

/// One pool of connections, made when it is first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http(Arc<OnceLock<Client>>);

impl Http {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn client(&self) -> Result<&Client, reqwest::Error> {
        if let Some(client) = self.0.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(self.0.get_or_init(|| client))
    }

    async fn pass_on(self, request: HttpRequest, limit: Duration) -> Result<HttpResponse, Failed> {
        let method = request.method().parse().map_err(Failed::user)?;
        let mut call = self
            .client()
            .map_err(Failed::user)?
            .request(method, request.uri())
            .timeout(limit);
        for (name, value) in request.headers() {
            call = call.header(name, value);
        }
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let answer = call.body(body).send().await.map_err(Failed::of_call)?;
        let mut response = HttpResponse::new(answer.status().into(), SdkBody::empty());
        for (name, value) in answer.headers() {
            if let Ok(value) = value.to_str() {
                response
                    .headers_mut()
                    .append(name.as_str().to_owned(), value.to_owned());
            }
        }
        let body = read_body(answer, MAX_CHAIN_BYTES)
            .await
            .map_err(|problem| Failed(ConnectorError::io(problem.into())))?;
        *response.body_mut() = SdkBody::from(body);
        Ok(response)
    }
}

/// Reads a small file.
pub(crate) async fn read_bounded(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = tokio::fs::File::open(path).await?.take(max_bytes);
    file.read_to_string(&mut text).await?;
    Ok(text)
}

struct Failed(ConnectorError);

impl Failed {
    fn user(problem: impl Into<aws_smithy_runtime_api::box_error::BoxError>) -> Self {
        Self(ConnectorError::user(problem.into()))
    }

    fn of_call(problem: reqwest::Error) -> Self {
        Self(if problem.is_timeout() {
            ConnectorError::timeout(problem.into())
        } else {
            ConnectorError::io(problem.into())
        })
    }
}

/// For the chain: with the limits that it asks for.
#[derive(Debug)]
struct Limited {
    http: Http,
    limit: Duration,
}

impl HttpConnector for Limited {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (http, limit) = (self.http.clone(), self.limit);
        HttpConnectorFuture::new(async move {
            let passed = http.pass_on(request, limit);
            passed.await.map_err(|Failed(problem)| problem)
        })
    }
}

impl HttpClient for Http {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let asked = [settings.connect_timeout(), settings.read_timeout()];
        let asked: Duration = asked.into_iter().flatten().sum();
        SharedHttpConnector::new(Limited {
            http: self.clone(),
            limit: if asked.is_zero() { CHAIN_LIMIT } else { asked },
        })
    }
}
