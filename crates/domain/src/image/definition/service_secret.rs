//! Secrets of the secrets service, as builds get them.

use serde_json::{Value, json};

use crate::image::reader::ObjectReader;

/// The longest name of a secret there.
const MAX_SECRET_CHARACTERS: usize = 1_024;

/// A member of a secret of the secrets service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSecret {
    /// The variable of the build.
    pub name: String,
    /// The name in the secrets service.
    pub secret: String,
    /// The member of its value.
    pub key: String,
    /// The build gets it as a file, not as a variable.
    pub as_file: bool,
}

impl ServiceSecret {
    pub(super) fn read(reader: &mut ObjectReader<'_>) -> Option<Self> {
        let name = reader.name("name");
        let secret = reader.text("secret", MAX_SECRET_CHARACTERS);
        if secret.is_empty() || secret.contains(char::is_control) {
            reader.wrong("secret", "must be the name of a secret");
        }
        let key = reader.name("key");
        let as_file = reader.flag("asFile");
        Some(Self {
            name: name?,
            secret,
            key: key?,
            as_file,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!([self.name, self.secret, self.key, self.as_file])
    }
}
