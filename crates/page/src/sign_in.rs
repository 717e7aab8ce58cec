//! The sign-in page.

use maud::html;

use crate::frame;

/// The form for credentials, with the reason why it is shown again.
#[must_use]
pub fn sign_in(reason: Option<&str>, to: &str, is_public: bool) -> String {
    let content = html! {
        h1 { "Sign in" }
        @if let Some(reason) = reason {
            p .err role="alert" { (reason) }
        }
        p .lede {
            "On the machine of the server, " code { "fleetwright open" }
            " signs you in without this form."
        }
        form .sign-in method="post" action="/sign-in" {
            input type="hidden" name="to" value=(to);
            label { span { "Client id" }
                input name="clientId" autocomplete="username" required autofocus; }
            label { span { "Access token" }
                input name="accessToken" type="password" autocomplete="current-password" required; }
            details {
                summary { "Temporary credentials" }
                label { span { "Certificate" } textarea name="certificate" rows="4" {} }
            }
            p { button .btn.go { "Sign in" } }
        }
        @if is_public {
            p { a href=(to) { "Look without signing in" } }
        }
        p .note {
            "You see and do what the scopes of the client permit. "
            code { "fleetwright client create NAME --scope SCOPE" } " makes a client."
        }
    };
    frame::plain("Sign in", None, &content)
}

/// Asks before a link is used: programs that only look at links do not use it up.
#[must_use]
pub fn confirm_link(client_id: &str, link: &str, to: &str) -> String {
    let content = html! {
        h1 { "Sign in" }
        p .lede { "This link signs this browser in as " b { (client_id) } "." }
        form method="post" action="/sign-in" {
            input type="hidden" name="link" value=(link);
            input type="hidden" name="to" value=(to);
            p { button .btn.go autofocus { "Sign in as " (client_id) } }
        }
    };
    frame::plain("Sign in", None, &content)
}

/// Nothing can be shown, because the database or the auth service is away.
#[must_use]
pub fn away() -> String {
    let content = html! {
        h1 { "Not available" }
        p .err role="alert" {
            "The database or the auth service does not answer at the moment. Load the page again in \
             a minute; the log of the server has the reason."
        }
    };
    frame::plain("Not available", None, &content)
}
