//! What a person does: forms become calls of the API.

use api_client::Call;

use crate::api::Refusal;
use crate::frame;
use crate::parts;
use crate::view::Visit;

mod fleet;
mod images;
mod rules;
mod tasks;

/// The answer to a form.
pub enum Done {
    /// It was done; this page shows it.
    To(String),
    /// A page, with its status.
    Page(u16, String),
}

/// The fields of a form.
pub(crate) struct Fields<'a>(pub(crate) &'a [(String, String)]);

impl Fields<'_> {
    /// A field without spaces around it; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// The values of a field that may be there several times.
    pub(crate) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// Does what the form at this address asks for.
pub async fn act(visit: &Visit<'_>, fields: &[(String, String)]) -> Done {
    let fields = Fields(fields);
    let path: Vec<&str> = visit.path.iter().map(String::as_str).collect();
    let result = match path.as_slice() {
        ["do", "fleet", action] => fleet::act(visit, action, &fields).await,
        ["do", "image", action] => images::act(visit, action, &fields).await,
        ["do", "rules", action] => return rules::act(visit, action, &fields).await,
        ["do", "task", action] => tasks::act(visit, action, &fields).await,
        _ => Err(unknown()),
    };
    match result {
        Ok(()) => Done::To(back(fields.text("to")).to_owned()),
        Err(refusal) => refused(visit, &refusal, fields.text("to")),
    }
}

/// Sends the calls in their order, until one is refused.
pub(crate) async fn send(
    visit: &Visit<'_>,
    calls: impl IntoIterator<Item = Call>,
) -> Result<(), Refusal> {
    for call in calls {
        visit.api.call(call).await?;
    }
    Ok(())
}

pub(crate) fn unknown() -> Refusal {
    Refusal {
        status: 404,
        code: String::new(),
        message: "There is no such action.".to_owned(),
    }
}

pub(crate) fn wrong(text: &str) -> Refusal {
    Refusal {
        status: 400,
        code: String::new(),
        message: text.to_owned(),
    }
}

/// A page that says why nothing was done.
pub(crate) fn refused(visit: &Visit<'_>, refusal: &Refusal, to: &str) -> Done {
    let content = maud::html! {
        h1 { "Not done" }
        @for line in parts::first_lines(&refusal.message) {
            p .err role="alert" { (line) }
        }
        p { a href=(back(to)) { "Back" } }
    };
    let text = frame::plain("Not done", visit.person.as_ref(), &content);
    Done::Page(refusal.status, text)
}

/// A path of this site.
fn back(to: &str) -> &str {
    let is_local = to.starts_with('/') && !to.starts_with("//") && !to.contains(['\\', '\r', '\n']);
    if is_local { to } else { "/" }
}
