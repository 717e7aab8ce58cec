//! Images: definitions, builds, and requests.

mod history;
mod rollout;
mod status;
mod table;
mod wire;
mod work;

use access::scope::Params;
use domain::Version;
use domain::audit::EntityType;
use domain::configuration::Problems;
use domain::id::ImageName;
use domain::image::{ImageAction, ImageDefinition, StoredImage, definition_changes};
use engine::images::{self, DefinitionEdit, ImageError};
use serde_json::json;

use self::wire::{ImageBody, change_json, image_json, image_summary};
use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(in crate::api) use table::ENDPOINTS;

impl Call {
    fn image_id(&self) -> Result<ImageName, ApiError> {
        self.id("imageId")
    }
}

async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let edit = edit_in_body(&mut call, ImageAction::Created).await?;
    let stored = images::create(&call.app.engine, edit).await?;
    Reply::json(&image_json(&stored))
}

async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let edit = edit_in_body(&mut call, ImageAction::Updated).await?;
    let stored = images::update(&call.app.engine, edit).await?;
    Reply::json(&image_json(&stored))
}

async fn delete(call: Call) -> Result<Reply, ApiError> {
    let (id, seen) = (call.image_id()?, wire::seen(&call)?);
    let audit = call.audit(EntityType::Image, id.as_str(), "deleted");
    let left = call.app.tree.images().and_then(|tree| tree.left(&id));
    images::delete(&call.app.engine, id, seen, left, audit).await?;
    Reply::done()
}

/// Shows what an update would change, without applying it.
async fn plan(call: Call) -> Result<Reply, ApiError> {
    let wanted = parse(&call.body::<ImageBody>()?.document(&call)?)?;
    images::check_providers(&call.app.engine, &wanted)?;
    check_secrets(&call, &wanted)?;
    let known = find(&call).await?;
    let changes = match &known {
        Some(known) => definition_changes(&parse(&known.document)?, &wanted),
        None => Vec::new(),
    };
    let changes: Vec<_> = changes.iter().map(change_json).collect();
    Reply::json(&json!({
        "imageId": wanted.name.as_str(),
        "exists": known.is_some(),
        "version": known.map(|known| known.version.0),
        "changes": changes,
    }))
}

async fn show(call: Call) -> Result<Reply, ApiError> {
    let found = find(&call).await?.ok_or(ImageError::NotFound)?;
    Reply::json(&image_json(&found))
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let read = call.scan("image_list", move |tx| {
        store::images::list(tx, after.as_ref(), limit)
    });
    let key = |stored: &StoredImage| (stored.id.to_string(),);
    page.reply("images", read.await?, key, image_summary)
}

/// The image in the route.
async fn find(call: &Call) -> Result<Option<StoredImage>, ApiError> {
    let id = call.image_id()?;
    let read = call.read("image_get", move |tx| store::images::get(tx, &id));
    read.await
}

async fn edit_in_body(call: &mut Call, action: ImageAction) -> Result<DefinitionEdit, ApiError> {
    let body: ImageBody = call.body()?;
    let definition = parse(&body.document(call)?)?;
    call.authorize(params(call, &definition)).await?;
    check_secrets(call, &definition)?;
    Ok(edit(
        call,
        definition,
        action,
        body.version.map(Version),
        body.reason,
    ))
}

fn edit(
    call: &Call,
    definition: ImageDefinition,
    action: ImageAction,
    seen: Option<Version>,
    reason: String,
) -> DefinitionEdit {
    let audit = call.audit(EntityType::Image, definition.name.as_str(), action.as_str());
    DefinitionEdit {
        definition,
        action,
        seen,
        reason,
        audit,
    }
}

/// Refuses secrets that the image may not use, as far as this server knows. A builder of its own
/// may know others, and checks again.
fn check_secrets(call: &Call, definition: &ImageDefinition) -> Result<(), ApiError> {
    let known = call.app.config.images.secret_files();
    let mut names = definition.secrets.iter();
    let refused = names.find(|name| {
        let file = known.get(*name);
        file.is_some_and(|file| !file.is_for(&definition.name))
    });
    match refused {
        None => Ok(()),
        Some(name) => Err(ApiError::input(format!(
            "Image {} may not use secret {name}: add it to images.secrets.{name}.images in the \
             configuration of the builders, or remove the secret from the definition",
            definition.name
        ))),
    }
}

/// The parameters of an edit's scopes: uploads cost money at their providers.
fn params(call: &Call, definition: &ImageDefinition) -> Params {
    let providers = definition.uploads.iter();
    let providers = providers.map(|target| target.id.provider_id.to_string());
    call.url_params().list("providers", providers.collect())
}

fn parse(document: &serde_json::Value) -> Result<ImageDefinition, ApiError> {
    ImageDefinition::parse(document).map_err(|problems: Problems| {
        ApiError::input(format!("The image cannot be used:\n{problems}"))
    })
}
