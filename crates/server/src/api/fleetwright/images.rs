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
use domain::configuration::{Problem, Problems};
use domain::id::{ImageName, ProviderId};
use domain::image::{ImageAction, ImageDefinition, ImageRequest, StoredImage, definition_changes};
use engine::images::{self, DefinitionEdit, ImageError};
use serde_json::{Value, json};

use self::wire::{change_json, image_json, image_summary};
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
    let wanted = request_in_body(&call)?.definition;
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
    call.authorize(params(call, &call.body)).await?;
    let ImageRequest {
        definition,
        seen,
        reason,
    } = request_in_body(call)?;
    Ok(edit(call, definition, action, seen, reason))
}

/// The request in the body. All errors are refused together.
fn request_in_body(call: &Call) -> Result<ImageRequest, ApiError> {
    let name = call.image_id()?;
    let parsed = ImageRequest::parse(&call.body, &name);
    let mut problems = Problems::default();
    let request = parsed.map_err(|found| problems.add_all(found));
    problems.add_all(images::check_uploads(&call.app.engine, &call.body));
    problems.add_all(check_secrets(call, &name, &call.body));
    match request {
        Ok(request) if problems.is_empty() => Ok(request),
        Ok(_) | Err(()) => Err(refused(&problems)),
    }
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

/// The secrets that the image may not use, as far as this server knows. A builder of its own may
/// know others, and checks again.
fn check_secrets(call: &Call, image: &ImageName, document: &Value) -> Problems {
    let known = call.app.config.images.secret_files();
    let mut problems = Problems::default();
    let names = document["secrets"].as_array().into_iter().flatten();
    for (index, name) in names.enumerate() {
        let Some(name) = name.as_str() else { continue };
        if known.get(name).is_some_and(|file| !file.is_for(image)) {
            let text = format!(
                "image {image} may not use secret {name}: add it to images.secrets.{name}.images \
                 in the configuration of the builders, or remove the secret from the definition"
            );
            problems.add(Problem::at(&format!("/secrets/{index}"), text));
        }
    }
    problems
}

/// The parameters of an edit's scopes: uploads cost money at their providers, and builds get the
/// values of secrets. The document may have
/// errors, which are only named to callers with these scopes.
fn params(call: &Call, document: &Value) -> Params {
    let uploads = document["uploads"].as_array().into_iter().flatten();
    let providers = uploads.filter_map(|upload| upload["providerId"].as_str());
    let providers = providers.filter(|id| id.parse::<ProviderId>().is_ok());
    let mut providers: Vec<String> = providers.map(str::to_owned).collect();
    providers.dedup();
    let secrets = document["secrets"].as_array().into_iter().flatten();
    let secrets = secrets.filter_map(|secret| secret["secret"].as_str());
    let mut secrets: Vec<String> = secrets.map(str::to_owned).collect();
    secrets.dedup();
    let params = call.url_params().list("providers", providers);
    params.list("secrets", secrets)
}

fn parse(document: &Value) -> Result<ImageDefinition, ApiError> {
    ImageDefinition::parse(document).map_err(|problems| refused(&problems))
}

fn refused(problems: &Problems) -> ApiError {
    ApiError::input(format!("The image cannot be used:\n{problems}"))
}
