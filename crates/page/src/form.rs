//! Forms: their fields, their answers, and their refusals.

use maud::html;

use crate::api::Refusal;
use crate::frame;
use crate::parts;
use crate::view::Visit;

/// The answer to a form.
pub enum Done {
    /// It was done; this page shows it.
    To(String),
    /// A page, with its status.
    Page(u16, String),
}

/// The fields of a form.
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// A field without spaces around it; empty if it is missing.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// The values of a field that may be there several times.
    pub(crate) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }
}

pub(crate) fn unknown() -> Refusal {
    Refusal {
        status: 404,
        code: String::new(),
        message: "This action does not exist.".to_owned(),
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
    let content = html! {
        h1 { "Not done" }
        @for line in parts::first_lines(&refusal.message) {
            p .err role="alert" { (line) }
        }
        p { a href=(local_path(to)) { "Back" } }
    };
    let text = frame::plain("Not done", visit.person.as_ref(), &content);
    Done::Page(refusal.status, text)
}

/// A path of this site; the start page instead of anything else.
#[must_use]
pub fn local_path(to: &str) -> &str {
    let is_local = to.starts_with('/') && !to.starts_with("//") && !to.contains(['\\', '\r', '\n']);
    if is_local { to } else { "/" }
}
