//! Whether a caller may use the images to which pools and rules refer.

use std::collections::BTreeSet;

use access::scope::Expression;
use domain::id::ImageName;
use domain::image::ImageDefinition;
use domain::image_reference::REFERENCE_KEY;
use serde_json::Value;
use store::StoreError;

use crate::api::{call::Call, error::ApiError};

impl Call {
    /// Refuses the call if the document names an image that is for holders of other roles, by a
    /// reference or by the id of one of its uploads. Images that do not exist are refused later.
    pub(super) async fn authorize_images(&mut self, document: &Value) -> Result<(), ApiError> {
        let mut named = Named::default();
        named.collect(document);
        if named.texts.is_empty() {
            return Ok(());
        }
        self.authenticate().await?;
        let read = self.read("image_use", move |tx| {
            let Named { mut images, texts } = named;
            let restricted = store::image_rollouts::list_restricted(tx)?.into_iter();
            let uploaded = restricted.filter(|of| of.uploads.iter().any(|id| texts.contains(id)));
            images.extend(uploaded.map(|of| of.image));
            let stored = images.iter().map(|name| store::images::get(tx, name));
            stored.collect::<Result<Vec<_>, StoreError>>()
        });
        for stored in read.await?.into_iter().flatten() {
            let Ok(definition) = ImageDefinition::parse(&stored.document) else {
                continue;
            };
            if definition.usable_by.is_empty() {
                continue;
            }
            let roles = definition.usable_by.iter();
            let scopes = roles.map(|role| Expression::Scope(format!("assume:{role}")));
            let required = Expression::AnyOf(scopes.collect());
            match &self.caller {
                Some(caller) => caller.check(&required)?,
                None => return Err(ApiError::credentials_needed(&required)),
            }
        }
        Ok(())
    }
}

/// The images that a document may name.
#[derive(Default)]
struct Named {
    /// In references, and in the notes of the server.
    images: BTreeSet<ImageName>,
    /// Each text may be the id of an upload: only providers know the places of these ids.
    texts: BTreeSet<String>,
}

impl Named {
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                let named = [REFERENCE_KEY, "imageId"].into_iter();
                let named = named.filter_map(|key| members.get(key)?.as_str()?.parse().ok());
                self.images.extend(named);
                members.values().for_each(|value| self.collect(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::String(text) => drop(self.texts.insert(text.clone())),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
