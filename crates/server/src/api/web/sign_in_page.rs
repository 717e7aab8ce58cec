//! The sign-in page, with the reason why it is shown.

use http::StatusCode;
use page::SignInPage;

use super::calls::Browser;
use super::reply::html;
use crate::api::response::Response;

pub(super) fn refused(browser: &Browser, text: &str) -> Response {
    html(StatusCode::FORBIDDEN, page_with(browser, Some(text), "/"))
}

/// The sign-in page, with the reason why it is shown again.
pub(super) fn page_with(browser: &Browser, reason: Option<&str>, to: &str) -> String {
    let app = &browser.local.app;
    let provider = app.openid.as_ref().map(|openid| openid.name());
    let page = SignInPage {
        reason,
        to,
        is_public: app.config.page.anonymous,
        provider: provider.as_deref(),
    };
    page.html()
}

/// The refusal of an address that tries too often.
pub(super) fn too_often(browser: &Browser) -> Response {
    let text = "Too many requests without valid credentials came from your address. Try again in \
        a minute.";
    let page = page_with(browser, Some(text), "/");
    html(StatusCode::TOO_MANY_REQUESTS, page)
}

/// The page after a sign-in: a path of this site, and not the sign-in itself.
pub(super) fn local(path: &str) -> &str {
    match page::local_path(path) {
        sign if sign.starts_with("/sign-") => "/",
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_site_follow_a_sign_in() {
        for path in ["/", "/pools/a/b?x=1", "/%2F"] {
            assert_eq!(local(path), path);
        }
        for path in ["", "//evil", "https://evil", "/\\evil", "x", "/sign-out"] {
            assert_eq!(local(path), "/", "{path}");
        }
    }
}
