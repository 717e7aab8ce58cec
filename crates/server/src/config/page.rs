//! The section `[page]`: who sees the pages for people.

use serde::Deserialize;

use super::{ConfigError, OpenIdSettings};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageSettings {
    /// Pages are shown without a sign-in, with the scopes of the role `anonymous`.
    pub anonymous: bool,
    /// People sign in at this provider.
    pub openid: Option<Box<OpenIdSettings>>,
}

impl PageSettings {
    /// `is_outside`: clients and roles are those of another deployment.
    pub(super) fn check(&self, is_outside: bool) -> Result<(), ConfigError> {
        let Some(openid) = &self.openid else {
            return Ok(());
        };
        if is_outside {
            let problem = "needs roles of this server, and cannot be used with auth.taskcluster";
            return Err(ConfigError::value("page.openid", problem));
        }
        openid.check()
    }
}
