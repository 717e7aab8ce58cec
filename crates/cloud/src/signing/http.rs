//! The HTTP client of EC2 calls and of AWS's credential chain.

use std::path::Path;
use std::str::FromStr as _;
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
use reqwest::{Client, Method};
use tokio::io::AsyncReadExt as _;

/// Time limit for opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// EC2 closes idle connections, and the outcome of a launch sent over a closed one is unknown. So
/// idle connections are closed before that.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// Time limit of a credential chain call that sets none.
const CHAIN_LIMIT: Duration = Duration::from_secs(10);
/// Longest response that the credential chain gets.
const MAX_CHAIN_BYTES: usize = 1024 * 1024;

/// One connection pool, made when it is first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http(Arc<OnceLock<Client>>);

impl Http {
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

    async fn forward(
        self,
        request: HttpRequest,
        limit: Duration,
    ) -> Result<HttpResponse, ConnectorError> {
        let method = Method::from_str(request.method());
        let method = method.map_err(|error| ConnectorError::user(error.into()))?;
        let client = self.client();
        let mut call = client
            .map_err(|error| ConnectorError::user(error.into()))?
            .request(method, request.uri())
            .timeout(limit);
        for (name, value) in request.headers() {
            call = call.header(name, value);
        }
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let answer = call.body(body).send().await.map_err(|error| {
            if error.is_timeout() {
                ConnectorError::timeout(error.into())
            } else {
                ConnectorError::io(error.into())
            }
        })?;
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
            .map_err(|error| ConnectorError::io(error.into()))?;
        *response.body_mut() = SdkBody::from(body);
        Ok(response)
    }
}

/// Reads a small file, at most `max_bytes` of it.
pub(crate) async fn read_bounded(path: &Path, max_bytes: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = tokio::fs::File::open(path).await?.take(max_bytes);
    file.read_to_string(&mut text).await?;
    Ok(text)
}

/// A client for the credential chain, with the time limit that the chain asks for.
#[derive(Debug)]
struct TimedConnector {
    http: Http,
    limit: Duration,
}

impl HttpConnector for TimedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (http, limit) = (self.http.clone(), self.limit);
        HttpConnectorFuture::new(http.forward(request, limit))
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
        SharedHttpConnector::new(TimedConnector {
            http: self.clone(),
            limit: if asked.is_zero() { CHAIN_LIMIT } else { asked },
        })
    }
}
