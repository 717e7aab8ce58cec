//! The pages for people: HTML, charts, styles and the script.
//!
//! A picture asks the API, as the person who looks, and makes HTML of the replies. It knows nothing
//! of the server but the API, and it keeps nothing.

mod actions;
mod api;
pub mod assets;
pub mod charts;
mod form;
mod frame;
mod json;
mod links;
mod numbers;
mod parts;
mod pictures;
mod sign_in;
mod view;
mod words;

pub use actions::act;
pub use api::{Api, Refusal};
pub use form::{Done, Fields, local_path};
pub use frame::document;
pub use pictures::show;
pub use sign_in::{SignInPage, away, confirm_link, go_on, signed_out, without_rights};
pub use view::{Listens, Person, Problem, Section, View, Visit};

use maud::html;

/// A page that says why there is no other one.
#[must_use]
pub fn problem(person: Option<&Person>, problem: &Problem) -> String {
    match problem {
        Problem::NotFound => refused(
            person,
            "Nothing is at this address. It may have been deleted, or you may not see it.",
        ),
        Problem::Refused(refusal) => refused(person, &refusal.message),
    }
}

/// A page that says why something was not done.
#[must_use]
pub fn refused(person: Option<&Person>, text: &str) -> String {
    let content = html! {
        h1 { "Not possible" }
        @for line in parts::first_lines(text) {
            p .err role="alert" { (line) }
        }
        p { a href="/" { "To the pools" } }
    };
    frame::plain("Not possible", person, &content)
}
