//! Documents that never change while the server runs: references, schemas, the OpenAPI document.
//!
//! Each is made on its first request. All replies share its bytes, so slow clients cost no further
//! copies.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use super::{openapi, references};
use crate::app::App;

const OPENAPI: &str = "/openapi.json";
const REFERENCES: &str = "/references/";
const SCHEMAS: &str = "/schemas/";

/// By path. It has entries for documents only, so its size is bounded.
#[derive(Debug, Default)]
pub struct Documents(Mutex<BTreeMap<String, Bytes>>);

impl Documents {
    /// `None`: no document has this path.
    pub(super) fn get(&self, app: &App, path: &str) -> Option<Bytes> {
        if path != OPENAPI && !path.starts_with(REFERENCES) && !path.starts_with(SCHEMAS) {
            return None;
        }
        // Made under the lock: concurrent requests wait for it instead of making it again.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(path) {
            return Some(known.clone());
        }
        let document = make(app, path)?;
        let text = serde_json::to_vec_pretty(&document).ok()?;
        let text = Bytes::from(text.into_boxed_slice());
        made.insert(path.to_owned(), text.clone());
        Some(text)
    }
}

fn make(app: &App, path: &str) -> Option<Value> {
    if path == OPENAPI {
        return Some(openapi::document(&app.engine.root_url));
    }
    if let Some(path) = path.strip_prefix(REFERENCES) {
        return references::document(path, &app.engine.root_url);
    }
    app.engine
        .schemas
        .served(path.strip_prefix(SCHEMAS)?, &app.engine.root_url)
}
