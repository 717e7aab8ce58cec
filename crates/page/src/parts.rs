//! Pieces that many pictures share.

use api_client::{Call, FLEETWRIGHT};
use maud::{Markup, html};
use serde_json::Value;

use crate::api::Refusal;
use crate::view::Visit;

/// The shape and the word of a state that needs attention.
pub(crate) fn mark(is_ill: bool) -> Markup {
    let (class, shape) = if is_ill {
        ("bad", "▲")
    } else {
        ("warn", "◆")
    };
    html! { span .mk.(class) aria-hidden="true" { (shape) } }
}

/// A table that scrolls sideways by itself, with a hidden caption.
pub(crate) fn table(caption: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        div .tw tabindex="0" role="region" aria-label=(caption) {
            table {
                caption .vh { (caption) }
                thead { tr { (head) } }
                tbody { (body) }
            }
        }
    }
}

/// The heads of columns; those that begin with `#` hold numbers.
pub(crate) fn heads(names: &[&str]) -> Markup {
    html! {
        @for name in names {
            @match name.strip_prefix('#') {
                Some(name) => th .n scope="col" { (name) },
                None => th scope="col" { (name) },
            }
        }
    }
}

/// Words for an empty list: why it is empty, and what to do.
pub(crate) fn empty(text: &str) -> Markup {
    html! { p .empty { (text) } }
}

/// Links to further rows of a list.
pub(crate) fn more(visit: &Visit<'_>, token: &str) -> Markup {
    html! {
        @if !visit.query("after").is_empty() || !token.is_empty() {
            p .note {
                @if !visit.query("after").is_empty() {
                    a href=(visit.with("after", "")) { "First rows" } " "
                }
                @if !token.is_empty() {
                    a href=(visit.with("after", token)) rel="next" { "Further rows" }
                }
            }
        }
    }
}

/// Values of a parameter as links; the present one is marked.
pub(crate) fn choices(
    visit: &Visit<'_>,
    name: &str,
    label: &str,
    values: &[(&str, &str)],
) -> Markup {
    let present = visit.query(name);
    html! {
        nav .views aria-label=(label) {
            @for (value, text) in values {
                a href=(visit.with(name, value)) aria-current=[(present == *value).then_some("true")] {
                    (text)
                }
            }
        }
    }
}

/// Whether the person may ask what a change would have made of the recorded load.
pub(crate) fn may_ask_what_if(visit: &Visit<'_>) -> bool {
    let call = Call::post(FLEETWRIGHT, &["what-if"], &Value::Null);
    visit.api.may(&call)
}

/// An id, with a button that copies it.
pub(crate) fn id(text: &str) -> Markup {
    html! {
        code { (text) } " "
        button type="button" .txt data-copy=(text) aria-label=(format!("Copy {text}")) { "copy" }
    }
}

/// Names with their values.
pub(crate) fn facts(rows: &[(&str, Markup)]) -> Markup {
    html! {
        dl .facts {
            @for (name, value) in rows {
                dt { (name) }
                dd { (value) }
            }
        }
    }
}

/// Something that a person does: a button, its form, and the command that does the same.
pub(crate) struct Action<'a> {
    /// A call that it makes: those who may not make it do not see the action.
    pub(crate) needs: Call,
    /// Names the form within its page.
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    /// The effect, and its limits.
    pub(crate) says: &'a str,
    /// The path after `/do/`.
    pub(crate) path: &'a str,
    pub(crate) hidden: &'a [(&'a str, &'a str)],
    pub(crate) fields: Markup,
    /// `{field}` stands for the value of a field.
    pub(crate) command: &'a str,
}

impl Action<'_> {
    /// The button and its form; nothing for a person without a session.
    pub(crate) fn show(&self, visit: &Visit<'_>) -> Markup {
        let Some(person) = &visit.person else {
            return html! {};
        };
        if !visit.api.may(&self.needs) {
            return html! {};
        }
        let here = visit.with("", "");
        html! {
            button type="button" .btn popovertarget=(self.id) { (self.name) "…" }
            form .act id=(self.id) popover method="post" action=(format!("/do/{}", self.path))
                data-command=(self.command) aria-label=(self.name) {
                h2 { (self.name) }
                p { (self.says) }
                input type="hidden" name="token" value=(person.form_token);
                input type="hidden" name="to" value=(here);
                @for (name, value) in self.hidden {
                    input type="hidden" name=(name) value=(value);
                }
                (self.fields)
                p .cmd { code { (self.command) } }
                div .hd {
                    button .btn.go { (self.name) }
                    button type="button" .btn popovertarget=(self.id) popovertargetaction="hide" {
                        "Not now"
                    }
                }
            }
        }
    }
}

/// A field of a form.
pub(crate) fn field(label: &str, name: &str, value: &str, is_required: bool) -> Markup {
    html! {
        label { span { (label) } input name=(name) value=(value) required[is_required]; }
    }
}

/// A choice among values.
pub(crate) fn options(label: &str, name: &str, values: &[(&str, &str)]) -> Markup {
    html! {
        label { span { (label) }
            select name=(name) {
                @for (value, text) in values { option value=(value) { (text) } }
            }
        }
    }
}

/// The text of an error without the lines that only programs need.
pub(crate) fn first_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().take_while(|line| *line != "---");
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(20)
}

/// A part of a page that this person may not see, or that is away.
pub(crate) fn refused(title: &str, refusal: &Refusal) -> Markup {
    let text = match refusal.is_forbidden() {
        true => "You may not see this: your client lacks the scope.",
        false => refusal.message.lines().next().unwrap_or_default(),
    };
    html! { h2 { (title) } p .note { (text) } }
}
