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
    /// Refuses the call if the document refers to an image that is for holders of other roles.
    /// Images that do not exist are refused later.
    pub(super) async fn authorize_images(&mut self, document: &Value) -> Result<(), ApiError> {
        let mut names = BTreeSet::new();
        collect(document, &mut names);
        if names.is_empty() {
            return Ok(());
        }
        self.authenticate().await?;
        let names: Vec<ImageName> = names.into_iter().collect();
        let read = self.read("image_use", move |tx| {
            let stored = names.iter().map(|name| store::images::get(tx, name));
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

/// The images that a document names, in references and in the notes of the server.
fn collect(value: &Value, names: &mut BTreeSet<ImageName>) {
    match value {
        Value::Object(members) => {
            let named = [REFERENCE_KEY, "imageId"].into_iter();
            let named = named.filter_map(|key| members.get(key)?.as_str()?.parse().ok());
            names.extend(named);
            members.values().for_each(|value| collect(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
