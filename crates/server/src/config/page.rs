//! The section `[page]`: who sees the pages for people.

use serde::Deserialize;

use super::openid::OpenIdSettings;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageSettings {
    /// Pages are shown without a sign-in, with the scopes of the role `anonymous`.
    pub anonymous: bool,
    /// People sign in at this provider.
    pub openid: Option<Box<OpenIdSettings>>,
}

impl PageSettings {
    /// The first invalid value, by its key. `is_outside`: clients and roles are those of another
    /// deployment.
    pub(super) fn problem(&self, is_outside: bool) -> Option<(&'static str, &'static str)> {
        let openid = self.openid.as_ref()?;
        if is_outside {
            let problem = "needs roles of this server, and cannot be used with auth.taskcluster";
            return Some(("page.openid", problem));
        }
        openid.problem()
    }
}
