//! The calls of Compute Engine that the provider makes.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::GOOGLE;
use super::responses::{
    AggregatedInstances, Disk, Instance, List, Operation, SerialOutput, ServiceAccount, Zone,
};
use crate::vendor::{Ask, AskOperation, Content, Page, Progress, Rest, VendorError, all_pages};

/// Google's limit for a page.
pub(super) const PAGE: u32 = 500;
/// Pages of a list at most: a longer list is treated as endless.
pub(super) const MAX_PAGES: usize = 200;
/// Time limit of an insert. The calls of one launch run beside each other, within a minute.
const INSERT_LIMIT: Duration = Duration::from_secs(25);
/// The members of machines that are read from lists.
const LISTED: &str = "id,name,zone,status,statusMessage,machineType,labels,scheduling,\
                      creationTimestamp";

pub(super) struct Compute {
    pub(super) rest: Rest,
    pub(super) iam: Rest,
    pub(super) project: String,
}

impl Compute {
    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["compute", "v1", "projects", &self.project];
        path.extend(rest);
        path
    }

    pub(super) async fn insert(
        &self,
        zone: &str,
        request_id: &str,
        instance: Value,
    ) -> Result<Operation, VendorError> {
        let ask = Ask::new(Method::POST, &self.path(&["zones", zone, "instances"]))
            .with_query("requestId", request_id)
            .with_content(Content::Json(instance))
            .within(INSERT_LIMIT);
        self.rest.json(ask).await
    }

    /// The machine with this name or id; `None`: it does not exist.
    pub(super) async fn instance(
        &self,
        zone: &str,
        id: &str,
    ) -> Result<Option<Instance>, VendorError> {
        let path = self.path(&["zones", zone, "instances", id]);
        self.optional(Ask::get(&path).with_query("fields", LISTED))
            .await
    }

    /// The console of the machine, which is its first serial port: at most the last MB. `None`: the
    /// machine does not exist.
    pub(super) async fn console(
        &self,
        zone: &str,
        id: &str,
    ) -> Result<Option<SerialOutput>, VendorError> {
        let path = self.path(&["zones", zone, "instances", id, "serialPort"]);
        self.optional(Ask::get(&path).with_query("port", 1)).await
    }

    /// Deletes a machine. Succeeds if it does not exist.
    pub(super) async fn delete_instance(&self, zone: &str, id: &str) -> Result<(), VendorError> {
        self.delete(&self.path(&["zones", zone, "instances", id]))
            .await
    }

    async fn delete(&self, path: &[&str]) -> Result<(), VendorError> {
        let deleted: Option<Operation> = self.optional(Ask::delete(path)).await?;
        match deleted.as_ref().and_then(Operation::failure) {
            Some((code, message)) => Err(VendorError::answered(&GOOGLE, 200, code, message, None)),
            None => Ok(()),
        }
    }

    /// A page of all zones' machines. Zones without an answer are named, and do not fail the call.
    pub(super) async fn instances(
        &self,
        filter: &str,
        after: Option<String>,
    ) -> Result<AggregatedInstances, VendorError> {
        let fields = format!("items/*/instances({LISTED}),items/*/warning/code,unreachables");
        let ask = Ask::get(&self.path(&["aggregated", "instances"]))
            .with_query("filter", filter)
            .with_query("maxResults", PAGE)
            .with_query("fields", format!("{fields},nextPageToken"));
        self.rest.json(with_page(ask, after)).await
    }

    pub(super) async fn zones(&self) -> Result<Vec<Zone>, VendorError> {
        all_pages(&GOOGLE, MAX_PAGES, |after| async move {
            let ask = Ask::get(&self.path(&["zones"])).with_query("maxResults", PAGE);
            let list: List<Zone> = self.rest.json(with_page(ask, after)).await?;
            let page: Page<Zone> = (list.items, list.next_page_token);
            Ok(page)
        })
        .await
    }

    /// The disks of a zone that this filter chooses.
    pub(super) async fn disks(&self, zone: &str, filter: &str) -> Result<Vec<Disk>, VendorError> {
        const FIELDS: &str = "name,labels,users,creationTimestamp,lastDetachTimestamp";
        all_pages(&GOOGLE, MAX_PAGES, |after| async move {
            let ask = Ask::get(&self.path(&["zones", zone, "disks"]))
                .with_query("filter", filter)
                .with_query("maxResults", PAGE)
                .with_query("fields", format!("items({FIELDS}),nextPageToken"));
            let list: List<Disk> = self.rest.json(with_page(ask, after)).await?;
            let page: Page<Disk> = (list.items, list.next_page_token);
            Ok(page)
        })
        .await
    }

    /// Begins to delete a disk. Succeeds if it does not exist.
    pub(super) async fn delete_disk(&self, zone: &str, name: &str) -> Result<(), VendorError> {
        self.delete(&self.path(&["zones", zone, "disks", name]))
            .await
    }

    /// Whether Google has taken this machine away. The operations of the last days are known.
    pub(super) async fn was_preempted(&self, zone: &str, id: &str) -> Result<bool, VendorError> {
        const PREEMPTED: &str = "compute.instances.preempted";
        let filter = format!("(targetId = {id}) (operationType = \"{PREEMPTED}\")");
        let ask = Ask::get(&self.path(&["zones", zone, "operations"]))
            .with_query("filter", filter)
            .with_query("maxResults", 1);
        let list: List<Operation> = self.rest.json(ask).await?;
        let is_it = |operation: &Operation| {
            operation.operation_type == PREEMPTED && operation.target_id.as_deref() == Some(id)
        };
        Ok(list.items.iter().any(is_it))
    }

    /// The service account with this unique id or e-mail address.
    pub(super) async fn service_account(&self, name: &str) -> Result<ServiceAccount, VendorError> {
        let path = ["v1", "projects", "-", "serviceAccounts", name];
        self.iam.json(Ask::get(&path)).await
    }

    async fn optional<T: DeserializeOwned>(&self, ask: Ask) -> Result<Option<T>, VendorError> {
        match self.rest.json(ask).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.has_status(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Operations are named `<zone>/<name>`.
#[async_trait]
impl AskOperation for Compute {
    async fn ask(&self, operation: &str) -> Result<Progress, VendorError> {
        let Some((zone, name)) = operation.split_once('/') else {
            return Ok(Progress::Unknown);
        };
        let path = self.path(&["zones", zone, "operations", name]);
        let found: Option<Operation> = self.optional(Ask::get(&path)).await?;
        Ok(match found {
            None => Progress::Unknown,
            Some(operation) if !operation.is_done() => Progress::Running,
            Some(operation) => match operation.failure() {
                None => Progress::Succeeded,
                Some((code, message)) => Progress::Failed {
                    code: code.to_owned(),
                    message: message.to_owned(),
                },
            },
        })
    }
}

pub(super) fn with_page(ask: Ask, after: Option<String>) -> Ask {
    match after {
        Some(token) => ask.with_query("pageToken", token),
        None => ask,
    }
}
