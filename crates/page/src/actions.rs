//! Actions of people: forms become calls of the API.

use crate::form::{Done, Fields, local_path, refused, unknown};
use crate::view::Visit;

mod fleet;
mod images;
mod rules;
mod tasks;

/// Does what the form at this address asks for.
pub async fn act(visit: &Visit<'_>, fields: &Fields) -> Done {
    let path: Vec<&str> = visit.path.iter().map(String::as_str).collect();
    let result = match path.as_slice() {
        ["do", "fleet", action] => fleet::act(visit, action, fields).await,
        ["do", "image", action] => images::act(visit, action, fields).await,
        ["do", "rules", action] => return rules::act(visit, action, fields).await,
        ["do", "task", action] => tasks::act(visit, action, fields).await,
        _ => Err(unknown()),
    };
    match result {
        Ok(()) => Done::To(local_path(fields.text("to")).to_owned()),
        Err(refusal) => refused(visit, &refusal, fields.text("to")),
    }
}
