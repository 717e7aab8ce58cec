//! The section `[page]`: who sees the pages for people.

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageSettings {
    /// Pages are shown without a sign-in, with the scopes of the role `anonymous`.
    pub anonymous: bool,
}
