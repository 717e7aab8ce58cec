//! The document around a page: head, menu, foot.

use maud::{DOCTYPE, Markup, html};

use crate::view::{Listens, Part, Person, View, Visit};
use crate::{assets, charts};

/// The complete document of a page.
#[must_use]
pub fn document(visit: &Visit<'_>, view: &View) -> String {
    let content = html! {
        @for section in &view.sections {
            div id=(section.id) { (section.content) }
        }
    };
    let frame = Frame {
        title: &view.window_title(),
        part: view.part,
        person: visit.person.as_ref(),
        is_live: view.listens != Listens::Never,
        command: &view.command,
        leads_to: None,
    };
    frame.around(&content).into_string()
}

/// A document that does not change while it is open, such as the sign-in page.
pub(crate) fn plain(title: &str, person: Option<&Person>, content: &Markup) -> String {
    let title = format!("{title} · Fleetwright");
    Frame::plain(&title, person).around(content).into_string()
}

/// A document that leads to another page by itself, without a script.
pub(crate) fn leading(title: &str, to: &str, content: &Markup) -> String {
    let title = format!("{title} · Fleetwright");
    let frame = Frame {
        leads_to: Some(to),
        ..Frame::plain(&title, None)
    };
    frame.around(content).into_string()
}

struct Frame<'a> {
    title: &'a str,
    part: Part,
    person: Option<&'a Person>,
    is_live: bool,
    command: &'a str,
    leads_to: Option<&'a str>,
}

impl<'a> Frame<'a> {
    fn plain(title: &'a str, person: Option<&'a Person>) -> Self {
        Self {
            title,
            part: Part::Other,
            person,
            is_live: false,
            command: "",
            leads_to: None,
        }
    }

    fn around(&self, content: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-release=(assets::release()) {
                head {
                    meta charset="utf-8";
                    title { (self.title) }
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    @if let Some(to) = self.leads_to {
                        meta http-equiv="refresh" content=(format!("0;url={to}"));
                    }
                    link rel="icon" href=(assets::ICON.url());
                    link rel="stylesheet" href=(assets::STYLE.url());
                    script type="module" src=(assets::SCRIPT.url()) {}
                }
                body data-live[self.is_live] {
                    a .skip href="#main" { "Skip to content" }
                    (charts::hatches())
                    (self.head())
                    main #main { (content) }
                    (self.foot())
                }
            }
        }
    }

    fn head(&self) -> Markup {
        html! {
            header .top {
                a .brand href="/" { "Fleetwright" }
                nav .nav aria-label="Main" {
                    @for part in Part::MENU {
                        @let (url, name, key) = part.link();
                        a href=(url) data-key=(key) aria-current=[(part == self.part).then_some("page")] {
                            (name)
                        }
                    }
                }
                div .end {
                    @if self.is_live {
                        span #stream .stream role="status" { "not live" }
                    }
                    @if let Some(person) = self.person {
                        (signed_in(person))
                    } @else {
                        a href="/sign-in" { "Sign in" }
                    }
                }
            }
        }
    }

    fn foot(&self) -> Markup {
        html! {
            footer {
                @if !self.command.is_empty() {
                    (command(self.command))
                }
                span .sm { "Times are relative; the exact ones, in UTC, show on hover." }
                span .keys { kbd { "/" } " find " kbd { "?" } " keys" }
            }
            dialog #keys aria-label="Keys" {
                h2 { "Keys" }
                dl .facts {
                    dt { kbd { "/" } } dd { "Find" }
                    dt { kbd { "j" } " " kbd { "k" } } dd { "Next and previous row" }
                    @for part in Part::MENU {
                        @let (_, name, key) = part.link();
                        dt { kbd { "g" } " " kbd { (key) } } dd { (name) }
                    }
                }
                form method="dialog" { button .btn { "Close" } }
            }
        }
    }
}

fn signed_in(person: &Person) -> Markup {
    html! {
        form .who method="post" action="/sign-out" {
            input type="hidden" name="token" value=(person.form_token);
            span title="The client whose rights you have" { (person.client_id) }
            button .txt { "Sign out" }
        }
    }
}

/// A command that does the same as the page.
pub(crate) fn command(text: &str) -> Markup {
    html! {
        p .cmd {
            code { (text) }
            button type="button" .txt data-copy=(text) aria-label=(format!("Copy the command {text}")) {
                "copy"
            }
        }
    }
}
