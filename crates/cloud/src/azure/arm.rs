//! Calls of Resource Manager.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::error::{AZURE, operation_failure};
use super::paths::{ApiPath, Paths, RESOURCES};
use crate::vendor::{Answer, Ask, Content, Failure, Page, Rest, VendorError};

/// Answers with the status 404 that mean that the resource does not exist. Others mean that nothing
/// is known, for example that the subscription is not visible.
const NOT_FOUND: [&str; 6] = [
    "DeploymentNotFound",
    "NotFound",
    "OperationNotFound",
    "ParentResourceNotFound",
    "ResourceGroupNotFound",
    "ResourceNotFound",
];
/// Polls of one operation at most.
pub(super) const MAX_POLLS: usize = 30;
/// Wait between two polls, if Azure asks for none.
const POLL_WAIT: Duration = Duration::from_secs(1);
const MAX_POLL_WAIT: Duration = Duration::from_secs(5);
/// Pages of a list at most: a longer list is treated as endless.
const MAX_PAGES: usize = 1_000;

/// Resource Manager, with the addresses of one subscription.
pub(super) struct Arm {
    rest: Rest,
    pub(super) paths: Paths,
}

impl Arm {
    pub(super) fn new(rest: Rest, subscription: String) -> Self {
        Self {
            rest,
            paths: Paths::new(subscription),
        }
    }

    /// `None`: it does not exist.
    pub(super) async fn get(&self, path: &ApiPath) -> Result<Option<Value>, VendorError> {
        match self.rest.call(path.ask(Method::GET)).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn put(&self, path: &ApiPath, body: Value) -> Result<Answer, VendorError> {
        let ask = path.ask(Method::PUT).with_content(Content::Json(body));
        self.rest.call(ask).await
    }

    /// `None`: it exists already, and is not changed.
    pub(super) async fn make(
        &self,
        path: &ApiPath,
        body: Value,
    ) -> Result<Option<Answer>, VendorError> {
        let ask = path.ask(Method::PUT).with_content(Content::Json(body));
        match self.rest.call(ask.with_header("If-None-Match", "*")).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.has_status(412) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn post(&self, path: &ApiPath) -> Result<(), VendorError> {
        self.rest.call(path.ask(Method::POST)).await.map(drop)
    }

    /// Adds a tag to the resource with this id. Succeeds if it does not exist.
    pub(super) async fn tag(&self, id: &str, key: &str, value: &str) -> Result<(), VendorError> {
        let path = ApiPath {
            path: format!("{id}/providers/Microsoft.Resources/tags/default"),
            version: RESOURCES,
        };
        let body = json!({"operation": "Merge", "properties": {"tags": {key: value}}});
        let ask = path.ask(Method::PATCH).with_content(Content::Json(body));
        match self.rest.call(ask).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Begins to delete it. Succeeds if it does not exist.
    pub(super) async fn delete(&self, path: &ApiPath) -> Result<(), VendorError> {
        self.delete_by(path.ask(Method::DELETE)).await
    }

    /// Begins to delete a machine, without waiting for its shut-down.
    pub(super) async fn delete_machine(&self, path: &ApiPath) -> Result<(), VendorError> {
        let ask = path.ask(Method::DELETE).with_query("forceDeletion", true);
        self.delete_by(ask).await
    }

    /// Deletes it, and waits until it no longer exists.
    pub(super) async fn remove(&self, path: &ApiPath) -> Result<(), VendorError> {
        match self.rest.call(path.ask(Method::DELETE)).await {
            Ok(begun) => self.wait_for(&begun).await,
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete_by(&self, ask: Ask) -> Result<(), VendorError> {
        match self.rest.call(ask).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A page of a list. `after`: the address of the page, from the page before.
    pub(super) async fn page(
        &self,
        path: &ApiPath,
        query: &[(&str, String)],
        after: Option<&str>,
    ) -> Result<Page<Value>, VendorError> {
        let ask = match after {
            Some(url) => Ask::to_url(Method::GET, url),
            None => {
                let ask = path.ask(Method::GET);
                query
                    .iter()
                    .fold(ask, |ask, (name, value)| ask.with_query(name, value))
            }
        };
        let mut answer = self.rest.call(ask).await?;
        let next = answer.body["nextLink"].as_str().map(str::to_owned);
        match answer.body["value"].take() {
            Value::Array(items) => Ok((items, next.filter(|url| !url.is_empty()))),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => {
                let error = format!("the answer for {} is no list", path.path);
                Err(VendorError::new(&AZURE, Failure::Lost(error)))
            }
        }
    }

    /// All pages of a list. A list of a group that does not exist is empty.
    pub(super) async fn list(
        &self,
        path: &ApiPath,
        query: &[(&str, String)],
    ) -> Result<Vec<Value>, VendorError> {
        self.pages_at_most(MAX_PAGES, path, query).await
    }

    pub(super) async fn pages_at_most(
        &self,
        limit: usize,
        path: &ApiPath,
        query: &[(&str, String)],
    ) -> Result<Vec<Value>, VendorError> {
        let (mut all, mut next) = (Vec::new(), None);
        for _ in 0..limit {
            let (items, after) = match self.page(path, query, next.as_deref()).await {
                Err(error) if is_not_found(&error) => return Ok(all),
                page => page?,
            };
            all.extend(items);
            next = after;
            if next.is_none() {
                return Ok(all);
            }
        }
        let error = format!("the list {} has more than {limit} pages", path.path);
        Err(VendorError::new(&AZURE, Failure::Lost(error)))
    }

    /// Waits until the operation that a call began has ended. Its failure is one of the call.
    pub(super) async fn wait_for(&self, begun: &Answer) -> Result<(), VendorError> {
        let Some(url) = operation_url(begun) else {
            return Ok(());
        };
        let mut wait = begun.retry_after();
        for _ in 0..MAX_POLLS {
            // A shorter time limit than that of the launch ends all of this.
            let pause = wait.unwrap_or(POLL_WAIT).min(MAX_POLL_WAIT);
            let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
            let answer = self.rest.call(Ask::to_url(Method::GET, url)).await?;
            match answer.body["status"].as_str() {
                Some("Succeeded") => return Ok(()),
                Some("Failed" | "Canceled") => return Err(operation_failure(&answer.body)),
                Some(_) => {}
                // Without a body, the status says that it goes on.
                None if answer.status == 202 => {}
                None => return Ok(()),
            }
            wait = answer.retry_after();
        }
        let error = format!("the operation did not end within {MAX_POLLS} polls");
        Err(VendorError::new(&AZURE, Failure::Lost(error)))
    }
}

fn operation_url(begun: &Answer) -> Option<&str> {
    let state = begun.body["properties"]["provisioningState"].as_str();
    if state == Some("Succeeded") {
        return None;
    }
    let url = begun.header("azure-asyncoperation");
    url.or_else(|| begun.header("location"))
}

fn is_not_found(error: &VendorError) -> bool {
    let answer = error.answer();
    answer.is_some_and(|it| it.status == 404 && NOT_FOUND.contains(&it.code.as_str()))
}
