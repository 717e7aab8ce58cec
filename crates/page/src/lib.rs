//! The pages for people: HTML, charts, styles and the script.

pub mod charts;

/// A document of the site, with this title.
#[must_use]
pub fn document(title: &str, body: &maud::Markup) -> maud::Markup {
    maud::html! {
        (maud::DOCTYPE)
        html lang="en" {
            head { title { (title) } }
            body { (body) }
        }
    }
}
