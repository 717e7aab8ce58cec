//! The sign-in page, and what comes before and after it.

use maud::{Markup, html};

use crate::view::Person;
use crate::{frame, links};

/// Groups of a person whose roles are named at most.
const MAX_GROUPS: usize = 20;
const ASSUME: &str = "assume:";

/// The sign-in page.
#[derive(Clone, Copy, Debug)]
pub struct SignInPage<'a> {
    /// Why it is shown again.
    pub reason: Option<&'a str>,
    /// The page after the sign-in.
    pub to: &'a str,
    /// Pages can be seen without a sign-in.
    pub is_public: bool,
    /// The name of the provider at which people sign in.
    pub provider: Option<&'a str>,
}

impl SignInPage<'_> {
    #[must_use]
    pub fn html(&self) -> String {
        let content = html! {
            h1 { "Sign in" }
            @if let Some(reason) = self.reason {
                p .err role="alert" { (reason) }
            }
            @if let Some(provider) = self.provider {
                p {
                    a .btn.go href=(links::with("/sign-in/openid", &[], "to", self.to)) {
                        "Sign in with " (provider)
                    }
                }
                details open[self.reason.is_some()] {
                    summary { "Sign in with an access token" }
                    (self.form())
                }
            } @else {
                (self.form())
            }
            @if self.is_public {
                p { a href=(self.to) { "Look without signing in" } }
            }
            p .note {
                "You see and do what the scopes of the client permit. "
                code { "fleetwright client create NAME --scope SCOPE" } " makes a client."
            }
        };
        frame::plain("Sign in", None, &content)
    }

    fn form(&self) -> Markup {
        html! {
            p .lede {
                "On the machine of the server, " code { "fleetwright open" }
                " signs you in without this form."
            }
            form .sign-in method="post" action="/sign-in" {
                input type="hidden" name="to" value=(self.to);
                label { span { "Client id" }
                    input name="clientId" autocomplete="username" required
                        autofocus[self.provider.is_none()]; }
                label { span { "Access token" }
                    input name="accessToken" type="password" autocomplete="current-password"
                        required; }
                details {
                    summary { "Temporary credentials" }
                    label { span { "Certificate" } textarea name="certificate" rows="4" {} }
                }
                p { button .btn.go { "Sign in" } }
            }
        }
    }
}

/// The page after a sign-in at the provider. It leads on by itself: the cookie of the session goes
/// with no request that another site began.
#[must_use]
pub fn go_on(to: &str) -> String {
    let content = html! {
        h1 { "Signed in" }
        p { a href=(to) { "Go on" } }
    };
    frame::leading("Signed in", to, &content)
}

/// The person has signed out here, and may do so at the provider.
#[must_use]
pub fn signed_out(provider: &str, url: &str) -> String {
    let content = html! {
        h1 { "Signed out" }
        p .lede { "You are still signed in at " (provider) "." }
        p { a .btn href=(url) rel="noreferrer" { "Sign out at " (provider) " too" } }
        p { a .btn href="/sign-in" { "Sign in again" } }
    };
    frame::plain("Signed out", None, &content)
}

/// A person who signed in at the provider, and to whom no role grants anything. `scopes` assume the
/// person's own role, and those of groups.
#[must_use]
pub fn without_rights(person: Option<&Person>, scopes: &[String]) -> String {
    let mut roles = scopes.iter().filter_map(|scope| scope.strip_prefix(ASSUME));
    let own = roles.next().unwrap_or_default();
    let groups: Vec<&str> = roles.by_ref().take(MAX_GROUPS).collect();
    let n_left_out = roles.count();
    let command = format!("fleetwright role create '{own}' --scope SCOPE");
    let content = html! {
        h1 { "No rights yet" }
        p .err role="alert" { "You are signed in, but no role grants you rights here." }
        p { "An owner of this server grants them:" }
        (frame::command(&command))
        @if !groups.is_empty() {
            p { "Or, for all members of a group, with one of these roles:" }
            ul {
                @for group in groups { li { code { (group) } } }
                @if n_left_out > 0 { li { "and " (n_left_out) " more" } }
            }
        }
        p .note { "Load this page again after that; a new sign-in is not needed." }
    };
    frame::plain("No rights yet", person, &content)
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

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_limited_number_of_groups_is_named() {
        for size in sizes_around("page::sign_in::MAX_GROUPS", MAX_GROUPS) {
            let own = "assume:login-identity:openid/ann".to_owned();
            let groups = (0..size).map(|group| format!("assume:openid-group:g{group}"));
            let scopes: Vec<String> = std::iter::once(own).chain(groups).collect();
            let text = without_rights(None, &scopes);
            let n_named = text.matches("openid-group:g").count();
            assert_eq!(n_named, size.min(MAX_GROUPS));
            assert_eq!(text.contains("more</li>"), size > MAX_GROUPS, "{size}");
        }
    }

    #[test]
    fn the_button_keeps_the_page_that_was_asked_for() {
        let page = SignInPage {
            reason: None,
            to: "/waiting?a=b&c=\"",
            is_public: false,
            provider: Some("<b>"),
        };
        let text = page.html();
        assert!(text.contains("/sign-in/openid?to=%2Fwaiting%3Fa%3Db%26c%3D%22\""));
        assert!(text.contains("Sign in with &lt;b&gt;"));
    }
}
