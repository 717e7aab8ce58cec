//! What an endpoint answers when all is well.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;

#[derive(Debug)]
pub enum Reply {
    /// JSON, indented by two spaces as clients are used to.
    Json(Bytes),
    /// Nothing to say (204).
    Empty,
}

impl Reply {
    pub fn json(body: &impl Serialize) -> Result<Self, ApiError> {
        let bytes = serde_json::to_vec_pretty(body)
            .expect("our replies have string keys only and cannot fail to print");
        Ok(Self::Json(bytes.into()))
    }

    /// `{}`, of calls that only do something.
    pub fn done() -> Result<Self, ApiError> {
        Self::json(&Value::Object(serde_json::Map::new()))
    }
}
