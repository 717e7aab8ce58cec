//! The client of EC2's Query API: signs one call, sends it once and reads its response.

use std::sync::Arc;
use std::time::Duration;

use api_client::{read_body, with_causes};
use domain::time::Clock;
use serde::de::DeserializeOwned;

use super::error::Ec2Error;
use super::parameters::Parameters;
use super::responses::ErrorResponse;
use crate::call_scope::RequestWatch;
use crate::signing::credentials::Keys;
use crate::signing::http::Http;
use crate::signing::sign;

const VERSION: &str = "2016-11-15";
/// Time limit of all calls but launches.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a launch: EC2 needs longer for many machines.
pub(crate) const LAUNCH_LIMIT: Duration = Duration::from_secs(60);
/// Longest response that is read. A page of 1,000 instances has about 6 MB.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

pub(crate) struct Ec2 {
    /// `{region}` stands for the region.
    endpoint: String,
    http: Http,
    keys: Keys,
    clock: Arc<dyn Clock>,
}

impl Ec2 {
    pub(crate) fn new(endpoint: String, http: Http, keys: Keys, clock: Arc<dyn Clock>) -> Self {
        Self {
            endpoint,
            http,
            keys,
            clock,
        }
    }

    /// Makes a call within [`CALL_LIMIT`].
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        region: &str,
        action: &str,
        parameters: &Parameters,
    ) -> Result<T, Ec2Error> {
        self.call_within(CALL_LIMIT, region, action, parameters)
            .await
    }

    pub(crate) async fn call_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        region: &str,
        action: &str,
        parameters: &Parameters,
    ) -> Result<T, Ec2Error> {
        let (status, body) = self.post(limit, region, action, parameters).await?;
        if status != 200 {
            let error = refusal(status, &body);
            if error.asks_for_fresh_credentials() {
                self.keys.forget().await;
            }
            return Err(error);
        }
        quick_xml::de::from_str(&body).map_err(|error| {
            Ec2Error::Lost(format!(
                "the response to {action} is not the expected XML: {error}"
            ))
        })
    }

    async fn post(
        &self,
        limit: Duration,
        region: &str,
        action: &str,
        parameters: &Parameters,
    ) -> Result<(u16, String), Ec2Error> {
        let credentials = self.keys.get().await?;
        let url = self.url(region);
        let form = parameters.form(action, VERSION);
        let headers = sign::headers(&url, &form, region, &credentials, self.clock.now())
            .map_err(|error| Ec2Error::NotSent(format!("the request cannot be signed: {error}")))?;
        let client = self
            .http
            .client()
            .map_err(|error| Ec2Error::NotSent(with_causes(&error)))?;
        let mut request = client
            .post(&url)
            .timeout(limit)
            .header("content-type", sign::FORM);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let watch = RequestWatch::start();
        let answer = request.body(form).send().await;
        watch.end(answer.as_ref().ok().map(|answer| answer.status().as_u16()));
        let answer = answer.map_err(|error| {
            // Without a connection, the call cannot have had an effect.
            if error.is_connect() || error.is_builder() {
                Ec2Error::NotSent(with_causes(&error))
            } else {
                Ec2Error::Lost(with_causes(&error))
            }
        })?;
        let status = answer.status().as_u16();
        let body = read_body(answer, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| Ec2Error::Lost(format!("{action}: {}", with_causes(&error))))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn url(&self, region: &str) -> String {
        let url = self.endpoint.replace("{region}", region);
        format!("{}/", url.trim_end_matches('/'))
    }
}

/// Reads an error response. A response that is not EC2's own has at least a status.
fn refusal(status: u16, body: &str) -> Ec2Error {
    let problems: Option<ErrorResponse> = quick_xml::de::from_str(body).ok();
    match problems.and_then(|it| it.errors.errors.into_iter().next()) {
        Some(error) => Ec2Error::answered(status, &error.code, &error.message),
        None => {
            let what = format!("status {status} without an EC2 error in the body");
            Ec2Error::answered(status, "", &what)
        }
    }
}
