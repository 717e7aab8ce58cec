//! Definitions of images, whose commands are shell scripts.

use domain::id::ImageName;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(crate) struct Definition(pub(crate) Value);

/// An image that this script builds, with `$1` as the output. It is uploaded to `fake`.
pub(crate) fn debian(script: &str) -> Definition {
    Definition(json!({
        "imageId": "debian",
        "build": {"command": ["sh", "-ec", script, "build", "{output}"]},
        "formats": ["raw"],
        "uploads": [{"providerId": "fake"}],
    }))
}

impl Definition {
    pub(crate) fn named(self, name: &str) -> Self {
        self.with("imageId", json!(name))
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.0[key] = value;
        self
    }

    pub(crate) fn name(&self) -> ImageName {
        self.0["imageId"].as_str().unwrap().parse().unwrap()
    }
}
