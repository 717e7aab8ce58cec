//! EC2's Query API: one call, signed, sent once, and its answer read.

use std::sync::Arc;
use std::time::Duration;

use api_client::{read_body, with_causes};
use domain::time::Clock;
use serde::de::DeserializeOwned;

use super::answers::Problems;
use super::credentials::Keys;
use super::error::Ec2Error;
use super::http::Http;
use super::parameters::Parameters;
use super::sign;

const VERSION: &str = "2016-11-15";
/// Calls that look or end have this long.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Launching many machines takes EC2 longer.
pub(crate) const LAUNCH_LIMIT: Duration = Duration::from_secs(60);
/// No answer is longer: a page of 1,000 instances is about 6 MB.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

pub(crate) struct Ec2 {
    /// With `{region}` where the region belongs.
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

    /// Makes a call that looks or ends.
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
        quick_xml::de::from_str(&body).map_err(|problem| {
            Ec2Error::Lost(format!(
                "the answer to {action} is not XML as it should be: {problem}"
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
            .map_err(|problem| Ec2Error::NotSent(format!("it cannot be signed: {problem}")))?;
        let client = self
            .http
            .client()
            .map_err(|problem| Ec2Error::NotSent(with_causes(&problem)))?;
        let mut request = client
            .post(&url)
            .timeout(limit)
            .header("content-type", sign::FORM);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request.body(form).send().await.map_err(|problem| {
            // A request that never left a connection behind it cannot have done anything.
            if problem.is_connect() || problem.is_builder() {
                Ec2Error::NotSent(with_causes(&problem))
            } else {
                Ec2Error::Lost(with_causes(&problem))
            }
        })?;
        let status = answer.status().as_u16();
        let body = read_body(answer, MAX_ANSWER_BYTES)
            .await
            .map_err(|problem| Ec2Error::Lost(format!("{action}: {}", with_causes(&problem))))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn url(&self, region: &str) -> String {
        let url = self.endpoint.replace("{region}", region);
        format!("{}/", url.trim_end_matches('/'))
    }
}

/// What an error answer says; one that is not EC2's own still has its status.
fn refusal(status: u16, body: &str) -> Ec2Error {
    let problems: Option<Problems> = quick_xml::de::from_str(body).ok();
    match problems.and_then(Problems::into_first) {
        Some(problem) => Ec2Error::answered(status, &problem.code, &problem.message),
        None => {
            let what = format!("status {status} without an error that EC2 would send");
            Ec2Error::answered(status, "", &what)
        }
    }
}
