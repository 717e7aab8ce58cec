//! Provisioners: the first parts of task queue names. They exist while they have queues.

use serde_json::{Value, json};
use store::task_queues::Provisioner;

use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page.after.as_ref().map(|(id,)| id.clone());
    let (now, limit) = (call.now, page.limit_and_one());
    let read = call.scan("provisioner_list", move |tx| {
        store::task_queues::list_provisioners(tx, after.as_deref(), now, limit)
    });
    let key = |provisioner: &Provisioner| (provisioner.id.clone(),);
    page.reply("provisioners", read.await?, key, document)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let (id, now) = (call.parameter("provisionerId").to_owned(), call.now);
    let missing = format!("Provisioner `{id}` not found. Are you sure it was created?");
    let read = call.read("provisioner_get", move |tx| {
        store::task_queues::get_provisioner(tx, &id, now)
    });
    let found = read.await?.ok_or_else(|| ApiError::not_found(missing))?;
    Reply::json(&document(&found))
}

fn document(provisioner: &Provisioner) -> Value {
    json!({
        "provisionerId": provisioner.id,
        "description": "",
        "stability": "experimental",
        "expires": provisioner.expires.to_string(),
        "lastDateActive": provisioner.last_date_active.to_string(),
    })
}
